"""TLS of our own servers, whose certificates may change while they serve."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import grpc

from parallax.config.config import Tls
from parallax.errors import ConfigError
from parallax.runtime.files import Reread, filled

T = TypeVar("T")

HANDSHAKE_BEGINS_S = 1.0
"""Within this time gRPC has made the handshake for which it asked: microseconds, on a machine that is not starved."""


def server_context(tls: Tls, *, without: bool = False) -> ssl.SSLContext:
    """The certificate that a server shows, and those that it asks for, as the files have them now.

    Args:
        tls: the files.
        without: whether a caller may come without a certificate; one of a foreign authority is refused all the same.

    Raises:
        ConfigError: a file can't be read, or certificate and key don't fit.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # No session is taken up again: that skips the question whether an authority that is trusted today vouches for the caller.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    path = tls.certificate_chain
    try:
        context.load_cert_chain(tls.certificate_chain, tls.private_key)
        if tls.client_ca is not None:
            path = tls.client_ca
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL if without else ssl.CERT_REQUIRED
    except OSError as error:  # what OpenSSL refuses is one, too
        raise ConfigError(f"TLS: {path}: can't be used (with its key): {error}") from error
    return context


def current_context(tls: Tls, *, without: bool = False) -> ssl.SSLContext:
    """A context for as long as a server lives: each handshake goes by the files as they are then.

    Raises:
        ConfigError: see `server_context`.
    """
    present = Reread(_paths(tls), lambda: server_context(tls, without=without))
    context = server_context(tls, without=without)

    def take(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _first: ssl.SSLContext) -> None:
        # Called for every handshake, with or without a name. Certificate, key and the authority of clients come with the context.
        connection.context = present.get()

    context.sni_callback = take
    return context


def server_credentials(tls: Tls | None) -> grpc.ServerCredentials | None:
    """The same for gRPC; None: plain text.

    Raises:
        ConfigError: see `server_context`.
    """
    if tls is None:
        return None
    present = Reread(_paths(tls), lambda: _certificates(tls))
    first = present.get()
    handed = HandedOver(first, present.get)
    return grpc.dynamic_ssl_server_credentials(
        first,
        handed.newer,  # type: ignore[arg-type]  # None is documented as "nothing newer"; the stubs leave it out
        require_client_authentication=tls.client_ca is not None,
    )


class HandedOver(Generic[T]):
    """What gRPC is given to serve with, so that it never drops what a handshake is still being made from.

    gRPC asks before each handshake, one at a time, and replaces what it has when it is told of something. The handshake itself is
    made a moment later from a bare pointer (grpc/grpc#36693): a replacement within that moment ends the process. So it is
    told of nothing while nothing has changed, and of a change only when the last handshake's moment is long over; those that
    begin meanwhile wait.

    Args:
        first: what gRPC begins with.
        present: gives what is right now; the same object while nothing has changed.
        now: seconds of a clock that never goes back.
        rest: waits for so many seconds.
    """

    def __init__(
        self,
        first: T,
        present: Callable[[], T],
        now: Callable[[], float] = time.monotonic,
        rest: Callable[[float], None] = time.sleep,
    ) -> None:
        self._handed = first
        self._present = present
        self._now = now
        self._rest = rest
        self._lock = threading.Lock()
        self._last_s = now()

    def newer(self) -> T | None:
        """What is to be served with from now on; None: what was given before."""
        with self._lock:
            present = self._present()
            newer = None
            if present is not self._handed:
                self._rest(max(0.0, self._last_s + HANDSHAKE_BEGINS_S - self._now()))
                self._handed = newer = present
            self._last_s = self._now()
            return newer


def _certificates(tls: Tls) -> grpc.ServerCertificateConfiguration:
    server_context(tls)  # refuses a key that does not fit, of which gRPC would speak at each handshake
    authority = None if tls.client_ca is None else filled(tls.client_ca)
    pair = (filled(tls.private_key), filled(tls.certificate_chain))
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=authority)


def _paths(tls: Tls) -> list[str]:
    return [path for path in (tls.certificate_chain, tls.private_key, tls.client_ca) if path is not None]
