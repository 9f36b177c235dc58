"""What callers may cost an HTTP server before they have agreed on TLS: a file of the process each, for ten seconds."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from parallax.adapters.http import server as module
from parallax.adapters.http.connection import HttpLimits
from parallax.adapters.http.server import HttpServer
from parallax.config.config import Tls
from tests.support import poll_until
from tests.worlds.authority import Authority

MOST, CALLERS = 20, 60


async def livez(_: Request) -> Response:
    return PlainTextResponse("ok")


@contextmanager
def serving(authority: Authority) -> Iterator[HttpServer]:
    pair = authority.server()
    server = HttpServer(
        Starlette(routes=[Route("/livez", livez)]),
        address="127.0.0.1:0",
        tls=Tls(certificate_chain=str(pair.certificate), private_key=str(pair.key)),
        limits=HttpLimits(connections=MOST),
    )
    server.start()
    yield server
    server.stop()


def is_ended(caller: socket.socket) -> bool:
    caller.settimeout(0.0)
    try:
        return caller.recv(1_000) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def callers_that_say_nothing_are_ended(authority: Authority, within_s: float) -> None:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with serving(authority) as server:
        callers = [socket.create_connection(("127.0.0.1", server.port), timeout=10) for _ in range(CALLERS)]
        try:
            poll_until(
                lambda: sum(map(is_ended, callers)) >= CALLERS - MOST, within_s, "all but so many are ended"
            )
            assert not any(map(is_ended, callers[-MOST // 2 :])), "those who came last have their time"
            with httpx.Client(
                base_url=f"https://127.0.0.1:{server.port}", verify=context, timeout=30
            ) as http:
                for _ in range(3):
                    assert http.get("/livez").text == "ok"
        finally:
            for caller in callers:
                caller.close()


def test_callers_that_never_agree_on_tls_make_room_for_others(tmp_path: Path) -> None:
    callers_that_say_nothing_are_ended(Authority(tmp_path), within_s=8)


def test_a_loop_that_waits_for_any_number_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Loop, "_make_ssl_transport", asyncio.SelectorEventLoop._make_ssl_transport)  # type: ignore[attr-defined]
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        callers_that_say_nothing_are_ended(Authority(tmp_path), within_s=2)


def test_connections_that_have_agreed_count_no_more(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with serving(authority) as server:
        for _ in range(2 * MOST):
            answer = httpx.get(f"https://127.0.0.1:{server.port}/livez", verify=context, timeout=30)
            assert answer.text == "ok"
