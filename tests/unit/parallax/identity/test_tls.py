"""TLS of our own servers: whoever an authority vouched for once has to be vouched for today."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from parallax.config.config import Tls
from parallax.identity import tls as module
from parallax.identity.tls import current_context
from tests.worlds.authority import Authority, Pair

VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@contextmanager
def served(context: ssl.SSLContext) -> Iterator[int]:
    """A server of one byte a connection; the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer_all() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.settimeout(5)
            try:
                with context.wrap_socket(connection, server_side=True) as encrypted:
                    encrypted.sendall(encrypted.recv(1))
                    encrypted.recv(1)
            except OSError:
                connection.close()

    thread = Thread(target=answer_all, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def call(port: int, client: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
    """What would take up this connection's session again."""
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as plain,
        client.wrap_socket(plain, session=session) as encrypted,
    ):
        encrypted.sendall(b"x")
        if encrypted.recv(1) != b"x":
            raise ConnectionResetError
        return encrypted.session


def call_again_without_the_authority(directory: Path, version: ssl.TLSVersion) -> None:
    authority, later = Authority(directory), Authority(directory, "later")
    server, own = authority.server(), authority.client("spiffe://bank/operator")
    trusted = directory / "trusted.pem"
    trusted.write_bytes(authority.certificate.read_bytes())
    client = client_context(authority, own, version)
    settings = Tls(
        certificate_chain=str(server.certificate), private_key=str(server.key), client_ca=str(trusted)
    )
    with served(current_context(settings)) as port:
        session = call(port, client, None)
        trusted.write_bytes(later.certificate.read_bytes() + b"\n")
        call(port, client, session)


def client_context(authority: Authority, own: Pair, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.check_hostname = False
    context.load_cert_chain(own.certificate, own.key)
    context.maximum_version = version
    return context


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_does_not_outlive_the_authority_that_vouched_for_it(
    tmp_path: Path, version: ssl.TLSVersion
) -> None:
    with pytest.raises(OSError):  # noqa: PT011 - an alert, or the end of the connection
        call_again_without_the_authority(tmp_path, version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_server_that_takes_up_sessions_again_is_noticed(
    tmp_path: Path, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = module.server_context

    def resuming(settings: Tls, **options: bool) -> ssl.SSLContext:
        context = make(settings, **options)
        context.options &= ~ssl.OP_NO_TICKET
        context.num_tickets = 2
        return context

    monkeypatch.setattr(module, "server_context", resuming)
    call_again_without_the_authority(tmp_path, version)
