from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lab.bench.distance import Distance
from lab.stack.ports import HOST
from lab.stack.spec import StackSpec

ROUND_TRIP_MS = 120.0


def echo(server: socket.socket) -> None:
    while True:
        try:
            end, _ = server.accept()
        except OSError:
            return
        with end, suppress(ConnectionError):
            while chunk := end.recv(65_536):
                end.sendall(chunk)


@pytest.fixture
def far_port() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as broker, socket.create_server((HOST, 0)) as listening:
        distance = Distance(broker.getsockname()[1], ROUND_TRIP_MS)
        for work, server in ((echo, broker), (distance.serve, listening)):
            threading.Thread(target=work, args=(server,), daemon=True).start()
        yield listening.getsockname()[1]
        for server in (broker, listening):
            server.shutdown(socket.SHUT_RDWR)


def received(end: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size and (chunk := end.recv(size - len(found))):
        found += chunk
    return bytes(found)


def test_everything_arrives_in_order_and_a_round_trip_later(far_port: int) -> None:
    sent = bytes(range(256)) * 40_000
    with socket.create_connection((HOST, far_port), timeout=20) as end:
        end.sendall(b"handshake")
        assert received(end, 9) == b"handshake"
        started = time.perf_counter()
        sending = threading.Thread(target=lambda: (end.sendall(sent), end.shutdown(socket.SHUT_WR)))
        sending.start()
        assert received(end, len(sent)) == sent
        assert (time.perf_counter() - started) * 1_000 >= ROUND_TRIP_MS
        assert end.recv(1) == b""
        sending.join()


def test_who_hangs_up_is_heard_of(far_port: int) -> None:
    for _ in range(3):
        with socket.create_connection((HOST, far_port), timeout=20) as end:
            end.sendall(bytes(1_000_000))
        # The next one is served: neither the broker nor the way hangs at the one before.
    with socket.create_connection((HOST, far_port), timeout=20) as end:
        end.sendall(b"still there")
        assert received(end, 11) == b"still there"


def test_far_clusters_survive_being_written_down() -> None:
    spec = StackSpec(regions=("a",), far=("regional-a",))
    assert StackSpec.from_json(spec.to_json()) == spec
