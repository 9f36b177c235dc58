"""What callers may cost an HTTP server: bodies, heads, time, connections. Others are answered meanwhile."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace

import httpx
import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from parallax.adapters.http import bodies, connection
from parallax.adapters.http.bodies import BoundedBodies
from parallax.adapters.http.connection import HttpLimits, LimitedConnection
from parallax.adapters.http.server import HttpServer
from tests.support import poll_until
from tests.worlds.slow_callers import alive, answer_of, half_sent, sent_of

LIMITS = HttpLimits(connections=50, head_within_s=1.0, body_within_s=1.0)
LARGE = 32 << 20
PATIENCE_S = 30.0
"""For what comes at once on a machine with nothing else to do."""


async def livez(_: Request) -> Response:
    return PlainTextResponse("ok")


async def echo(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def busy(_: Request) -> Response:
    time.sleep(1)  # noqa: ASYNC251 - nothing is read meanwhile
    return PlainTextResponse("ok")


async def large(_: Request) -> Response:
    return Response(bytes(LARGE))


@contextmanager
def serving(limits: HttpLimits = LIMITS) -> Iterator[HttpServer]:
    routes = [
        Route("/livez", livez),
        Route("/busy", busy),
        Route("/echo", echo, methods=["POST"]),
        Route("/large", large),
    ]
    app = BoundedBodies(Starlette(routes=routes), most_bytes=limits.body_bytes, within_s=limits.body_within_s)
    server = HttpServer(app, address="127.0.0.1:0", limits=limits)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with serving() as running:
        yield running


def where(server: HttpServer) -> tuple[str, int]:
    return server.host, server.port


def connected(server: HttpServer) -> closing[socket.socket]:
    return closing(socket.create_connection(where(server), timeout=10))


@contextmanager
def well_behaved(server: HttpServer) -> Iterator[list[float]]:
    """Somebody who asks all the time, on new connections; how long this process worked for until each answer.

    Of its own time, not of the wall's: what else a machine does says nothing about a server.
    """
    took: list[float] = []
    done = threading.Event()

    def ask() -> None:
        while not done.wait(0.05):
            began = time.process_time()
            answer = httpx.get(f"http://127.0.0.1:{server.port}/livez", timeout=PATIENCE_S)
            took.append(time.process_time() - began if answer.status_code == 200 else 1_000)

    thread = threading.Thread(target=ask)
    thread.start()
    yield took
    done.set()
    thread.join()


def problem_in(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head, answer[:300]
    told = json.loads(body)
    assert head.split()[1] == str(told["status"]).encode()
    return told["status"], told["code"]


def put(size: int) -> bytes:
    return f"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode()


CHUNKED = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("size", [LIMITS.body_bytes + 1, 250 << 20, 10**19])
def test_a_body_that_says_it_is_too_large_is_not_read(server: HttpServer, size: int) -> None:
    with well_behaved(server) as took, connected(server) as caller:
        before = psutil.Process().memory_info().rss
        sent, answer = sent_of(caller, put(size), min(size, 250 << 20))
        grown = psutil.Process().memory_info().rss - before
        time.sleep(0.2)

    assert problem_in(answer) == (413, "LIMIT")
    assert sent < 100 << 20
    assert grown < 50 << 20
    assert took
    assert max(took) < 2


def test_a_body_without_a_length_is_read_as_far_as_it_may_be(server: HttpServer) -> None:
    with connected(server) as caller:
        caller.sendall(CHUNKED)
        for _ in range(LIMITS.body_bytes // 0x8000 + 1):
            caller.sendall(b"8000\r\n" + bytes(0x8000) + b"\r\n")
        answer = answer_of(caller)

    assert problem_in(answer) == (413, "LIMIT")


def test_a_body_of_the_largest_size_is_taken(server: HttpServer) -> None:
    answer = httpx.post(f"http://127.0.0.1:{server.port}/echo", content=bytes(LIMITS.body_bytes))

    assert (answer.status_code, answer.text) == (200, str(LIMITS.body_bytes))


@pytest.mark.parametrize("head", [put(100), CHUNKED])
def test_a_body_that_does_not_come_is_waited_for_so_long(server: HttpServer, head: bytes) -> None:
    began = time.monotonic()
    with connected(server) as caller:
        caller.sendall(head)
        answer = answer_of(caller)

    assert problem_in(answer) == (408, "DEADLINE")
    assert 0.9 < time.monotonic() - began < 5


def test_half_sent_requests_end_and_others_are_answered_meanwhile(server: HttpServer) -> None:
    with well_behaved(server) as took, half_sent(where(server), 300) as callers:
        poll_until(lambda: alive(callers) == 0, PATIENCE_S, "all half-sent requests ended")
        poll_until(lambda: len(took) > 5, PATIENCE_S, "others are answered")

    assert max(took) < 2


def test_more_half_sent_requests_than_connections_end_at_once() -> None:
    limits = replace(LIMITS, head_within_s=60)
    with serving(limits) as server, half_sent(where(server), 300) as callers:
        poll_until(
            lambda: alive(callers) <= limits.connections, PATIENCE_S, "those that waited longest ended"
        )


def test_a_request_that_came_with_too_many_connections_is_answered() -> None:
    with serving() as server, connected(server) as other:
        other.sendall(b"GET /busy HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(0.2)
        with connected(server) as caller:
            caller.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            with half_sent(where(server), 2 * LIMITS.connections):
                assert caller.recv(1_000).startswith(b"HTTP/1.1 200")


def test_a_request_that_comes_byte_by_byte_ends_too(server: HttpServer) -> None:
    began = time.monotonic()
    with connected(server) as caller:
        caller.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-A: ")
        while time.monotonic() < began + 6:
            try:
                caller.sendall(b"a")
            except ConnectionError:
                break
            time.sleep(0.02)

    assert time.monotonic() - began < 5


def test_after_an_answer_the_next_request_has_as_long(server: HttpServer) -> None:
    with connected(server) as caller:
        caller.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while not answer.endswith(b"\r\n\r\nok"):
            answer += caller.recv(1_000)
        caller.sendall(b"GET /livez HTTP/1.1\r\n")
        began = time.monotonic()
        assert answer_of(caller) == b""
        assert 0.5 < time.monotonic() - began < 5


@pytest.mark.parametrize(("age_s", "answers"), [(3_600.0, 3), (0.0, 1)])
def test_no_connection_lives_for_ever_however_often_it_asks(age_s: float, answers: int) -> None:
    asked = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
    with serving(replace(LIMITS, age_s=age_s)) as server, connected(server) as caller:
        got = b""
        for _ in range(3):
            before = len(got)
            with suppress(ConnectionError):
                caller.sendall(asked)
                while not got[before:].endswith(b"\r\n\r\nok") and (part := caller.recv(1_000)):
                    got += part
    assert got.count(b"HTTP/1.1 200") == answers
    assert (b"connection: close" in got.lower()) == (answers == 1)


def test_who_comes_while_all_connections_have_a_request_under_way_is_not_taken() -> None:
    limits = replace(LIMITS, connections=3, body_within_s=3)
    with serving(limits) as server:
        busy = [socket.create_connection(where(server), timeout=10) for _ in range(3)]
        for each in busy:
            each.sendall(put(10))
        time.sleep(0.3)
        with connected(server) as caller:
            assert answer_of(caller) == b""
        for each in busy:
            each.sendall(b"0123456789")
        answers = [each.recv(1_000) for each in busy]
        for each in busy:
            each.close()

    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /v1/groups/" + b"g" * (10 << 20) + b" HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n" + b"X-A: b\r\n" * 10_000 + b"\r\n",
        b"nonsense\r\n\r\n",
    ],
    ids=["a path of 10 MiB", "10,000 headers", "nonsense"],
)
def test_what_is_no_request_is_told_so(server: HttpServer, request_bytes: bytes) -> None:
    with well_behaved(server) as took, connected(server) as caller:
        sent, answer = sent_of(caller, request_bytes, 0)

    assert problem_in(answer) == (400, "INVALID_NAME")
    assert sent == 0
    assert max(took, default=0) < 2


def test_a_caller_that_takes_nothing_of_its_answer_is_given_up(server: HttpServer) -> None:
    with connected(server) as caller:
        caller.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        time.sleep(4)
        got = answer_of(caller)

    assert len(got) < LARGE


def test_a_caller_that_takes_its_answer_slowly_gets_all_of_it(server: HttpServer) -> None:
    got = 0
    with connected(server) as caller:
        caller.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        while part := caller.recv(1 << 22):
            got += len(part)
            time.sleep(0.2)

    assert got > LARGE


Mutant = Callable[[pytest.MonkeyPatch], None]


def _waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LimitedConnection, "_waited_long", lambda _: None)


def _each_byte_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    right = LimitedConnection._look

    def wrong(self: LimitedConnection) -> None:
        self._wait_no_longer()
        right(self)

    monkeypatch.setattr(LimitedConnection, "_look", wrong)


def _refuses_whoever_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "next", lambda _, default: default, raising=False)


def _reads_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    right = bodies.read_body

    async def wrong(*args: object, most_bytes: int, within_s: float) -> bytes:
        return await right(*args, most_bytes=most_bytes << 20, within_s=within_s)  # type: ignore[arg-type]

    monkeypatch.setattr(bodies, "read_body", wrong)


@pytest.mark.parametrize(
    ("mutant", "test"),
    [
        (_waits_for_ever, test_half_sent_requests_end_and_others_are_answered_meanwhile),
        (_each_byte_is_waited_for, test_a_request_that_comes_byte_by_byte_ends_too),
        (_refuses_whoever_comes, test_half_sent_requests_end_and_others_are_answered_meanwhile),
        (_reads_what_comes, test_a_body_without_a_length_is_read_as_far_as_it_may_be),
    ],
    ids=lambda item: item.__name__.strip("_"),
)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_each_limit_is_needed(
    monkeypatch: pytest.MonkeyPatch, mutant: Mutant, test: Callable[[HttpServer], None]
) -> None:
    mutant(monkeypatch)
    monkeypatch.setattr(sys.modules[__name__], "PATIENCE_S", 3.0)
    with serving() as server, pytest.raises((AssertionError, pytest.fail.Exception)):
        test(server)
