"""StackLinks over real sockets, to a peer that says everything twice."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from lab.stack.errors import UnknownProcessError
from lab.stack.links import WHOLE, LinkState, StackLinks
from lab.stack.ports import HOST

SILENT_S = 0.3


class Peer:
    """Answers each piece with itself, twice."""

    def __init__(self) -> None:
        self.server = socket.create_server((HOST, 0))
        self.port = self.server.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            while piece := connection.recv(65_536):
                self.heard += piece
                connection.sendall(piece * 2)


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.server.close()


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def links(peer: Peer, port: int) -> Iterator[StackLinks]:
    with StackLinks({"store": {port: peer.port}}) as made:
        yield made


def dial(port: int) -> socket.socket:
    return socket.create_connection((HOST, port), timeout=5)


def hears_nothing(connection: socket.socket) -> bool:
    connection.settimeout(SILENT_S)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return True
    finally:
        connection.settimeout(5)


def test_a_whole_link_hands_everything_on(links: StackLinks, port: int) -> None:
    links.change("store", WHOLE)
    with dial(port) as connection:
        connection.sendall(b"x" * 300_000)
        connection.shutdown(socket.SHUT_WR)
        got = b""
        while piece := connection.recv(65_536):
            got += piece
    assert len(got) == 600_000


def test_a_cut_link_keeps_its_connections_and_what_is_under_way(
    links: StackLinks, peer: Peer, port: int
) -> None:
    with dial(port) as connection:
        connection.sendall(b"a")
        assert connection.recv(2, socket.MSG_WAITALL) == b"aa"
        links.change("store", LinkState(forth=False, back=False))
        connection.sendall(b"b")
        assert hears_nothing(connection)
        assert peer.heard == b"a"
        with dial(port) as late:
            late.sendall(b"c")
            assert hears_nothing(late)
            links.change("store", WHOLE)
            assert connection.recv(2, socket.MSG_WAITALL) == b"bb"
            assert late.recv(2, socket.MSG_WAITALL) == b"cc"


def test_a_link_cut_in_one_direction_lets_the_question_through(
    links: StackLinks, peer: Peer, port: int
) -> None:
    with dial(port) as connection:
        connection.sendall(b"a")
        assert connection.recv(2, socket.MSG_WAITALL) == b"aa"
        links.change("store", LinkState(back=False))
        connection.sendall(b"b")
        assert hears_nothing(connection)
        assert peer.heard == b"ab"
        links.change("store", WHOLE)
        assert connection.recv(2, socket.MSG_WAITALL) == b"bb"


def test_a_slow_link_takes_its_time_once_for_a_question_and_its_answer(links: StackLinks, port: int) -> None:
    links.change("store", LinkState(round_trip_ms=300))
    with dial(port) as connection:
        connection.sendall(b"a")
        assert connection.recv(2, socket.MSG_WAITALL) == b"aa"  # with the handshake
        began_s = time.monotonic()
        connection.sendall(b"b")
        assert connection.recv(2, socket.MSG_WAITALL) == b"bb"
        assert time.monotonic() - began_s >= 0.3


def test_who_calls_a_peer_that_does_not_listen_is_hung_up_on(port: int) -> None:
    with StackLinks({"store": {port: free_port()}}), dial(port) as connection:
        assert connection.recv(1) == b""


def test_a_link_that_is_not_there_is_refused_by_name(links: StackLinks) -> None:
    with pytest.raises(UnknownProcessError, match="stor"):
        links.change("stor", WHOLE)


def test_a_closed_link_leaves_nothing_behind(peer: Peer, port: int) -> None:
    before = threading.active_count()
    with StackLinks({"store": {port: peer.port}}), dial(port) as connection:
        connection.sendall(b"a")
        assert connection.recv(2, socket.MSG_WAITALL) == b"aa"
    assert threading.active_count() <= before + 1  # the peer's own
    with pytest.raises(OSError, match="refused"):
        dial(port)
