"""Runs an ASGI application in a thread of this process, within limits."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from parallax.adapters.http.connection import HttpLimits, LimitedConnection, connections_within
from parallax.config.config import Tls
from parallax.errors import ConfigError
from parallax.identity.tls import current_context, server_context
from parallax.runtime.deadline import Deadline

_START_MS = 10_000
_POLL_S = 0.01
_HANDSHAKE_WITHIN_S = 10.0


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose servers wait for TLS no longer than for a request, and for no more callers; asyncio's own bound is a minute.

    A connection is its protocol's once TLS is agreed on: until then nobody else could count it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._agreeing: dict[asyncio.Future[None], asyncio.Transport] = {}
        """Those that have not agreed on TLS yet, in the order in which they came."""

    def _make_ssl_transport(  # asyncio's own, for each connection that is taken
        self,
        rawsock: socket.socket,
        protocol: asyncio.BaseProtocol,
        sslcontext: object,
        waiter: asyncio.Future[None],
        **options: Any,
    ) -> asyncio.Transport:
        make = super()._make_ssl_transport  # type: ignore[misc] # as above
        transport: asyncio.Transport = make(rawsock, protocol, sslcontext, waiter, **options)
        self._agreeing[waiter] = transport
        waiter.add_done_callback(self._agreed)
        if isinstance(protocol, LimitedConnection) and len(self._agreeing) > protocol.limits.connections:
            longest = self._agreeing.pop(next(iter(self._agreeing)))
            self.call_soon(longest.abort)  # of those that came in one turn none has begun yet
        return transport

    def _agreed(self, waiter: asyncio.Future[None]) -> None:
        self._agreeing.pop(waiter, None)

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        """A server."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", _HANDSHAKE_WITHIN_S)
        return await super().create_server(*args, **options)


class HttpServer:
    """An HTTP server for one application.

    Args:
        app: the application; it bounds the bodies that it reads (`parallax.adapters.http.bodies`).
        address: ``host:port``; port 0 takes a free one.
        tls: certificates; None: plain text.
        without: whether callers may come without a certificate where ``tls`` asks for one.
        limits: what callers may cost.
        name: of its thread, and of what it serves in errors.

    Raises:
        ConfigError: the address can't be listened on, or a file of ``tls`` can't be used.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        address: str,
        tls: Tls | None = None,
        without: bool = False,
        limits: HttpLimits | None = None,
        name: str = "REST",
    ) -> None:
        self._name = name
        self._limits = limits or HttpLimits()
        if tls is not None:
            server_context(tls)  # the thread that serves could only log what is wrong with it
        self._socket = _listening(address, name)
        self.host, self.port = self._socket.getsockname()[:2]
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                loop=f"{__name__}:_Loop",
                http=connections_within(self._limits),
                interface="asgi3",
                ws="none",
                lifespan="off",
                # Who calls is what the connection says: no header changes that.
                proxy_headers=False,
                server_header=False,
                # Its warnings are of callers' mistakes, as many as callers like; errors go where all that is logged goes.
                log_config=None,
                log_level="error",
                access_log=False,
                h11_max_incomplete_event_size=self._limits.head_bytes,
                ssl_context_factory=None if tls is None else lambda *_: current_context(tls, without=without),
                timeout_graceful_shutdown=5,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name=f"http-{name}", daemon=True
        )

    def start(self) -> None:
        """Begin to serve; returns once requests are answered.

        Raises:
            ConfigError: the server ended at once; its log says why.
        """
        self._thread.start()
        deadline = Deadline.after_ms(_START_MS)
        while not self._server.started:
            self._thread.join(_POLL_S)
            if not self._thread.is_alive() or deadline.passed:
                raise ConfigError(f"the server of {self._name} did not start; its log says why")

    def stop(self) -> None:
        """Let requests under way end, then close."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()


def _listening(address: str, name: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except (OSError, ValueError) as error:
        if listener is not None:
            listener.close()
        raise ConfigError(f"{name} can't listen on {address!r} (host:port): {error}") from error
    return listener
