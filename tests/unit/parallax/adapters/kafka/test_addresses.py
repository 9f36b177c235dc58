"""A resolver that is slow, silent or wrong: nobody waits for it longer than he likes, and nothing else waits at all."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kafka.errors
import pytest

from parallax.adapters.kafka import addresses, wire
from parallax.adapters.kafka.addresses import Address, Resolver, UnresolvedError, is_number
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName
from parallax.errors import ClusterUnavailableError

CERTIFICATES = Path(__file__).parents[4] / "contract" / "certificates"
LONG_S = 20.0
"""Longer than any test may take."""


def address(number: str, port: int = 9092) -> Address:
    return (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (number, port))


class SlowResolver:
    """Answers once it is told to, or at once while it is quick."""

    def __init__(self) -> None:
        self.answers: dict[str, Sequence[Address] | OSError] = {}
        self.quick = True
        self.asked: list[str] = []
        self._go = threading.Event()

    def __call__(self, host: str, _port: int) -> Sequence[Address]:
        self.asked.append(host)
        if not self.quick:
            self._go.wait(LONG_S)
        found = self.answers.get(host, OSError(socket.EAI_AGAIN, "try again"))
        if isinstance(found, OSError):
            raise found
        return found

    def go(self) -> None:
        self._go.set()


@pytest.fixture
def slow() -> Iterator[SlowResolver]:
    found = SlowResolver()
    yield found
    found.go()


def asked(resolver: Resolver, host: str = "broker") -> threading.Event:
    heard = threading.Event()
    resolver.ask(host, 9092, heard.set)
    return heard


def test_an_answer_is_remembered_while_the_resolver_is_silent_or_away(slow: SlowResolver) -> None:
    resolver = Resolver(slow)
    slow.answers["broker"] = [address("127.0.0.1")]
    assert asked(resolver).wait(LONG_S)
    slow.answers["broker"] = OSError(socket.EAI_AGAIN, "try again")
    assert asked(resolver).wait(LONG_S)
    assert resolver.known("broker", 9092) == [address("127.0.0.1")]
    slow.quick = False
    assert not asked(resolver).wait(0.05)
    assert resolver.known("broker", 9092) == [address("127.0.0.1")]


def test_a_name_that_is_gone_is_no_longer_where_it_was(slow: SlowResolver) -> None:
    resolver = Resolver(slow)
    slow.answers["broker"] = [address("127.0.0.1")]
    assert asked(resolver).wait(LONG_S)
    slow.answers["broker"] = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert asked(resolver).wait(LONG_S)
    with pytest.raises(
        UnresolvedError, match=r"broker:9092 has no known address: .*Name or service not known"
    ):
        resolver.known("broker", 9092)
    assert not resolver.knows("broker", 9092)


def test_who_asks_for_a_name_that_is_being_looked_up_shares_the_answer(slow: SlowResolver) -> None:
    resolver = Resolver(slow)
    slow.quick, slow.answers["broker"] = False, [address("127.0.0.1")]
    heard = [asked(resolver) for _ in range(10)]
    with pytest.raises(UnresolvedError, match="has not answered yet") as found:
        resolver.known("broker", 9092)
    assert found.value.is_silence
    slow.go()
    assert all(each.wait(LONG_S) for each in heard)
    assert slow.asked == ["broker"]


def test_look_ups_that_hang_take_no_more_than_so_many_threads(slow: SlowResolver) -> None:
    resolver = Resolver(slow, most_threads=3)
    slow.quick = False
    heard = [asked(resolver, f"broker-{number}") for number in range(5)]
    assert [each.is_set() for each in heard] == [False, False, False, True, True]
    with pytest.raises(UnresolvedError, match="3 other look-ups wait for the resolver"):
        resolver.known("broker-4", 9092)


def test_a_look_up_that_never_ends_does_not_keep_its_name_for_ever(slow: SlowResolver) -> None:
    now = [100.0]
    resolver = Resolver(slow, clock=lambda: now[0])
    slow.quick = False
    never = asked(resolver)
    slow.quick, slow.answers["broker"], now[0] = True, [address("127.0.0.2")], 131.0
    assert asked(resolver).wait(LONG_S)
    assert never.is_set()
    slow.answers["broker"] = [address("127.0.0.1")]
    slow.go()
    time.sleep(0.05)
    assert resolver.known("broker", 9092) == [address("127.0.0.2")], "the old look-up told something"


def test_after_a_fork_names_are_looked_up_anew() -> None:
    before = addresses.shared()
    child = os.fork()
    if child == 0:
        os._exit(0 if addresses.shared() is not before and addresses.shared()._lock.acquire(timeout=1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert addresses.shared() is before


@pytest.mark.parametrize(
    ("host", "is_one"),
    [("127.0.0.1", True), ("::1", True), ("fe80::1%eth0", True), ("broker-1.example", False)],
)
def test_a_number_is_no_name(host: str, is_one: bool) -> None:  # noqa: FBT001 - a case
    assert is_number(host) is is_one


# --- connections ----------------------------------------------------------------------------------------------------


@pytest.fixture
def shared_slow(slow: SlowResolver, monkeypatch: pytest.MonkeyPatch) -> SlowResolver:
    monkeypatch.setattr(addresses, "_resolver", Resolver(slow))
    return slow


def test_a_question_to_a_cluster_keeps_its_deadline_although_the_resolver_is_slow(
    shared_slow: SlowResolver,
) -> None:
    shared_slow.quick = False
    cluster = KafkaCluster(
        ClusterName("aggregate-a"), Cluster(bootstrap_servers="broker.example:9092"), timeout_ms=300
    )
    begun = time.monotonic()
    with pytest.raises(ClusterUnavailableError, match="aggregate-a: connecting: no broker has answered yet"):
        cluster.topics()
    assert time.monotonic() - begun < 2


def connections(loop: EventLoop, bootstrap: str, **security: str) -> Connections:
    return Connections(
        loop,
        ClusterName("aggregate-a"),
        Cluster.model_validate({"bootstrap_servers": bootstrap, "security": security}),
        client_id="test",
        largest_answer_bytes=1_000,
        timeout_ms=5_000,
    )


def longest_turn_s(loop: EventLoop, until: Callable[[], bool], *, within_s: float = LONG_S) -> float:
    """Turn the loop until something holds; how long a turn that need not wait took at most."""
    longest, give_up_at = 0.0, time.monotonic() + within_s
    while not until() and time.monotonic() < give_up_at:
        begun = time.monotonic()
        loop.turn(1)
        longest = max(longest, time.monotonic() - begun)
    return longest


def accepted(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        found.setblocking(False)  # noqa: FBT003 - the socket's own method
        yield found


def turns_while_the_resolver_is_slow(slow: SlowResolver, server: socket.socket) -> float:
    """Reconnect to a broker whose name was known, with a resolver that hangs; how long the longest turn took."""
    port = server.getsockname()[1]
    slow.answers["broker.example"] = [address("127.0.0.1", port)]
    loop = EventLoop()
    with closing(loop), closing(connections(loop, f"broker.example:{port}")):
        longest_turn_s(loop, lambda: accepted(server))
        slow.quick = False
        connected: list[bool] = []

        def is_back() -> bool:
            connected.append(accepted(server))
            return connected[-1]

        longest = longest_turn_s(loop, is_back, within_s=4)
        assert connected[-1], "the last known address was not tried"
    return longest


def test_the_last_known_address_is_tried_and_the_loop_turns_while_the_resolver_is_silent(
    shared_slow: SlowResolver, server: socket.socket
) -> None:
    assert turns_while_the_resolver_is_slow(shared_slow, server) < 0.5


def test_asking_the_resolver_inside_the_loop_would_be_seen(
    shared_slow: SlowResolver, server: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def inside(_self: Any, _host: str, port: int, _: float | None) -> Sequence[Address]:
        time.sleep(0 if shared_slow.quick else 1)  # noqa: ASYNC251 - what is wrong with it
        return [address("127.0.0.1", port)]

    monkeypatch.setattr(wire._Manager, "_addresses", inside)
    assert turns_while_the_resolver_is_slow(shared_slow, server) >= 1


def test_a_loop_that_was_closed_does_not_mind_a_late_answer(shared_slow: SlowResolver) -> None:
    shared_slow.quick = False
    loop = EventLoop()
    with closing(loop), closing(connections(loop, "broker.example:9092")):
        longest_turn_s(loop, lambda: bool(shared_slow.asked))
    shared_slow.go()
    time.sleep(0.05)


def tls_transport(server: socket.socket, until: Callable[[], object] = lambda: None) -> Any:
    """What comes of a TLS connection to the server."""
    loop, ca = EventLoop(), str(CERTIFICATES / "authority.pem")
    with closing(loop), closing(connections(loop, "unused:1", protocol="SSL", ssl_ca_location=ca)) as found:
        manager = found._manager
        node = SimpleNamespace(node_id=7, host="localhost", port=server.getsockname()[1])
        future = manager.call_soon(manager._build_transport, node, time.monotonic() + 0.5)
        longest_turn_s(loop, lambda: until() or future.is_done, within_s=5)
        if future.succeeded():
            future.value.abort()
        return future


def test_a_server_that_takes_a_connection_and_says_nothing_does_not_hold_a_tls_handshake(
    server: socket.socket,
) -> None:
    assert isinstance(tls_transport(server).exception, kafka.errors.KafkaTimeoutError)


def test_a_server_that_does_not_speak_tls_is_no_server(server: socket.socket) -> None:
    found = tls_transport(server, lambda: accepted(server) and False)
    assert isinstance(found.exception, kafka.errors.KafkaConnectionError)


def test_a_server_that_speaks_tls_is_connected_to_by_its_name(server: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key.pem")
    server.settimeout(LONG_S)

    def serve() -> None:
        near, _ = server.accept()
        with context.wrap_socket(near, server_side=True) as secure:
            secure.recv(1)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    assert tls_transport(server).succeeded()
    serving.join(LONG_S)
