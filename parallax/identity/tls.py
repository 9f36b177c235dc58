"""TLS of our own servers, whose certificates may change while they serve."""

from __future__ import annotations

import ssl
from pathlib import Path

import grpc

from parallax.config.config import Tls
from parallax.errors import ConfigError
from parallax.runtime.files import Reread


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
    return grpc.dynamic_ssl_server_credentials(
        present.get(), present.get, require_client_authentication=tls.client_ca is not None
    )


def _certificates(tls: Tls) -> grpc.ServerCertificateConfiguration:
    server_context(tls)  # refuses a key that does not fit, of which gRPC would speak at each handshake
    authority = None if tls.client_ca is None else Path(tls.client_ca).read_bytes()
    pair = (Path(tls.private_key).read_bytes(), Path(tls.certificate_chain).read_bytes())
    return grpc.ssl_server_certificate_configuration([pair], root_certificates=authority)


def _paths(tls: Tls) -> list[str]:
    return [path for path in (tls.certificate_chain, tls.private_key, tls.client_ca) if path is not None]
