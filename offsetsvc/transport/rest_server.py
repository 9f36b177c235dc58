"""Runs the REST application in a thread of this process."""

from __future__ import annotations

import socket
import ssl
import threading

import uvicorn
from fastapi import FastAPI

from parallax.config.config import Tls
from parallax.errors import ConfigError
from parallax.runtime.deadline import Deadline

_START_MS = 10_000
_POLL_S = 0.01


class RestServer:
    """An HTTP server for one application.

    Args:
        app: the application.
        address: ``host:port``; port 0 takes a free one.
        tls: certificates; None: plain text.

    Raises:
        ConfigError: the address can't be listened on.
    """

    def __init__(self, app: FastAPI, *, address: str, tls: Tls | None = None) -> None:
        self._socket = _listening(address)
        self.port: int = self._socket.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                ssl_certfile=None if tls is None else tls.certificate_chain,
                ssl_keyfile=None if tls is None else tls.private_key,
                ssl_ca_certs=None if tls is None else tls.client_ca,
                ssl_cert_reqs=ssl.CERT_REQUIRED
                if tls is not None and tls.client_ca is not None
                else ssl.CERT_NONE,
                timeout_graceful_shutdown=5,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="offsetsvc-rest", daemon=True
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
                raise ConfigError("the REST server did not start; its log says why")

    def stop(self) -> None:
        """Let requests under way end, then close."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()


def _listening(address: str) -> socket.socket:
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
        raise ConfigError(f"REST can't listen on {address!r} (host:port): {error}") from error
    return listener
