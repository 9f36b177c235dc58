"""What strangers may cost a status server: it reads no body of theirs, and waits for nobody."""

from __future__ import annotations

import gzip
import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import psutil
import pytest

from parallax.adapters.spark.reporting import TOKEN_HEADER
from parallax.adapters.spark.status_server import StatusServer
from replicator.leases.board import ProgressBoard
from replicator.leases.claims import Claims
from replicator.leases.status import ReplicationStatus
from tests.worlds.slow_callers import half_sent, sent_of

TOKEN = "token"  # noqa: S105 - a test's own
SIZE = 16 << 20


@pytest.fixture
def server() -> Iterator[StatusServer]:
    running = StatusServer("127.0.0.1:0", [ReplicationStatus(ProgressBoard([]), Claims([]))], token=TOKEN)
    running.start()
    yield running
    running.close()


def assert_answered(server: StatusServer) -> None:
    began = time.monotonic()
    connection = http.client.HTTPConnection(*server.address, timeout=5)
    connection.request("GET", "/livez")
    assert connection.getresponse().read() == b"ok\n"
    connection.close()
    assert time.monotonic() - began < 2


def test_who_lacks_the_token_is_told_so_before_any_body_comes(server: StatusServer) -> None:
    with closing(socket.create_connection(server.address, timeout=5)) as caller:
        caller.sendall(f"POST /reports HTTP/1.1\r\nHost: x\r\nContent-Length: {SIZE}\r\n\r\n".encode())
        assert caller.recv(1_000).startswith(b"HTTP/1.1 403")


@pytest.mark.parametrize("token", ["", "wrong", "tokem", "tök"])
def test_no_body_is_read_of_who_lacks_the_token(server: StatusServer, token: str) -> None:
    head = f"POST /reports HTTP/1.1\r\nHost: x\r\n{TOKEN_HEADER}: {token}\r\nContent-Length: {SIZE}\r\n\r\n"
    before = psutil.Process().memory_info().rss
    with ExitStack() as stack:
        for _ in range(12):
            caller = stack.enter_context(closing(socket.create_connection(server.address, timeout=10)))
            _, answer = sent_of(caller, head.encode("latin-1"), SIZE - 1)
            assert answer.startswith(b"HTTP/1.1 403"), answer[:200]
        assert_answered(server)
    assert psutil.Process().memory_info().rss - before < 50 << 20


def test_a_report_that_is_too_large_is_not_read(server: StatusServer) -> None:
    head = (
        f"POST /reports HTTP/1.1\r\nHost: x\r\n{TOKEN_HEADER}: {TOKEN}\r\nContent-Length: {SIZE + 1}\r\n\r\n"
    )
    with closing(socket.create_connection(server.address, timeout=10)) as caller:
        caller.sendall(head.encode())
        assert caller.recv(1_000).startswith(b"HTTP/1.1 413")


def test_json_of_a_hundred_thousand_levels_is_a_bad_report(server: StatusServer) -> None:
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    connection.request("POST", "/reports", b"[" * 100_000, {TOKEN_HEADER: TOKEN})
    assert connection.getresponse().status == 400
    connection.close()
    assert_answered(server)


def test_half_sent_requests_hold_nobody_up(server: StatusServer) -> None:
    with half_sent(server.address, 300):
        assert_answered(server)


def test_pages_are_gzipped_for_who_takes_it(server: StatusServer) -> None:
    sizes = {}
    for encoding in ("gzip", "identity"):
        connection = http.client.HTTPConnection(*server.address, timeout=5)
        connection.request("GET", "/metrics", headers={"Accept-Encoding": encoding})
        answer = connection.getresponse()
        page = answer.read()
        connection.close()
        sizes[encoding] = (answer.headers["Content-Encoding"], len(page))
        text = gzip.decompress(page) if encoding == "gzip" else page
        assert b'parallax_build_info{component="replicator"' in text
        assert b"process_resident_memory_bytes" in text
        assert b"_created" not in text
    assert sizes["gzip"][0] == "gzip"
    assert sizes["identity"][0] is None
    assert sizes["gzip"][1] < sizes["identity"][1] / 2
