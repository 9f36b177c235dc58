"""A document behind an address, all of it within one time: a socket's time-out begins anew with each byte that comes."""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def fetch(
    request: urllib.request.Request, *, context: ssl.SSLContext | None, within_s: float, most_bytes: int
) -> bytes:
    """What the server answers; a redirection is an answer, too, and not followed.

    Args:
        request: over https, or over http to loopback, where no proxy leads.
        context: whom to trust over https; None: as the system does.
        within_s: for all of it; for looking up the name, connecting and TLS it is each one's own.
        most_bytes: a longer answer is refused.

    Raises:
        TimeoutError: the answer was not there in time.
        ValueError: it is too long.
        urllib.error.HTTPError: another status than 2xx, with the beginning of what came with it.
        OSError: the server can't be reached, is not to be trusted, or does not answer as HTTP demands.
    """
    connections = _Connections(context)
    ways = [connections.encrypted] if request.type == "https" else [connections.plain, _NoProxy({})]
    with connections.ended_after(within_s):
        try:
            with urllib.request.build_opener(_NoRedirects(), *ways).open(request, timeout=within_s) as answer:
                document = _beginning(answer, most_bytes + 1)
                if len(document) <= most_bytes and answer.length:
                    raise ConnectionError(f"the answer ends {answer.length} bytes early")
        except urllib.error.HTTPError as error:
            with error:
                said = io.BytesIO(_beginning(error, most_bytes))
            raise urllib.error.HTTPError(error.url, error.code, error.msg, error.headers, said) from None
        except http.client.RemoteDisconnected:
            raise
        except http.client.HTTPException as error:
            raise ConnectionError(f"the answer is not HTTP: {type(error).__name__}") from error
    if len(document) > most_bytes:
        raise ValueError(f"more than {most_bytes} bytes")
    return document


def _beginning(answer: Any, most_bytes: int) -> bytes:
    document = bytearray()
    while len(document) < most_bytes and (piece := answer.read1(most_bytes - len(document))):
        document += piece
    return bytes(document)


class _Connections:
    """The connections of one fetch, which end when its time is up.

    Attributes:
        plain: opens those without TLS.
        encrypted: opens the others.
    """

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._sockets: list[socket.socket] = []
        self._late = threading.Event()
        made = self

        class Plain(http.client.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                made.keep(self.sock)

        class Encrypted(http.client.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                made.keep(self.sock)

        class PlainHandler(urllib.request.HTTPHandler):
            def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(Plain, request)

        class EncryptedHandler(urllib.request.HTTPSHandler):
            def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(Encrypted, request, context=context)

        self.plain, self.encrypted = PlainHandler(), EncryptedHandler()

    def keep(self, connected: socket.socket) -> None:
        """Take a connection in."""
        self._sockets.append(connected)
        if self._late.is_set():
            self._end()

    @contextmanager
    def ended_after(self, seconds: float) -> Iterator[None]:
        """Do something on these connections; they end after so long.

        Raises:
            TimeoutError: they had to.
        """
        timer = threading.Timer(seconds, self._end)
        timer.daemon = True
        timer.start()
        try:
            yield
        except Exception as error:
            if not self._late.is_set():
                raise
            raise TimeoutError(f"all of the answer was not there after {seconds:g} s") from error
        else:
            if self._late.is_set():  # an end looks like the end of a document without a length
                raise TimeoutError(f"all of the answer was not there after {seconds:g} s")
        finally:
            timer.cancel()

    def _end(self) -> None:
        self._late.set()
        for connected in self._sockets:
            with contextlib.suppress(OSError):  # it has ended by itself
                connected.shutdown(socket.SHUT_RDWR)


class _NoProxy(urllib.request.ProxyHandler):
    """An empty one takes the place of the one that reads the environment."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """What is fetched comes from the address that is configured, and secrets go to no other."""

    def redirect_request(self, *_: Any) -> None:
        """None: the answer stands, as an error."""
