"""A store that is not the one to trust, or does not trust us, is refused by name; nobody waits for it."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cassandra.connection import DefaultEndPoint
from cassandra.policies import SimpleConvictionPolicy
from cassandra.pool import Host, _HostReconnectionHandler
from structlog.testing import capture_logs

from parallax.adapters.cassandra.connection import (
    CassandraConnection,
    PasswordRefusedError,
    contact_points,
    open_cluster,
    tls_context,
)
from parallax.config.config import Cassandra
from parallax.errors import ConfigError
from tests.worlds.certificates import Authority, tls_server


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def connect(address: str, tls: dict[str, Any]) -> None:
    settings = Cassandra.model_validate({"contact_points": [address], "tls": tls})
    CassandraConnection(settings, lambda _session: None).connect()


def test_a_store_of_another_authority_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    foreign = Authority(tmp_path / "foreign")
    began = time.monotonic()
    with (
        tls_server(foreign.pair("server")) as address,
        pytest.raises(
            ConfigError, match=rf"store: .*{address}: its certificate is not signed by an authority"
        ),
    ):
        connect(address, {"ca": str(authority.certificate)})
    assert time.monotonic() - began < 5


def test_another_name_is_another_store(authority: Authority) -> None:
    with (
        tls_server(authority.pair("server", host="store.example")) as address,
        pytest.raises(ConfigError, match="its certificate is for another name"),
    ):
        connect(address, {"ca": str(authority.certificate)})


def test_an_expired_certificate_is_named(authority: Authority) -> None:
    with (
        tls_server(authority.pair("server", life=timedelta(hours=-1))) as address,
        pytest.raises(ConfigError, match="its certificate has expired: renew it there"),
    ):
        connect(address, {"ca": str(authority.certificate)})


def test_a_port_without_tls_is_named(authority: Authority) -> None:
    with (
        plain_server() as address,
        pytest.raises(ConfigError, match="it does not speak TLS there"),
    ):
        connect(address, {"ca": str(authority.certificate)})


@contextmanager
def plain_server() -> Iterator[str]:
    """One that answers in plain text."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer_once, args=(listening,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        thread.join(10)


def answer_once(listening: socket.socket) -> None:
    taken, _ = listening.accept()
    with taken:
        taken.recv(1)
        taken.sendall(b"\x84\x00\x00\x00\x00 plain text of some length")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (
            {"ca": "/nowhere.pem"},
            r"/nowhere\.pem: can't be used as certificates of authorities: No such file",
        ),
        ({"certificate": "/nowhere.pem"}, r"/nowhere\.pem and .*: can't be used as certificate and key"),
        ({"key_password": "wrong"}, "a wrong password of the key shows so too"),
    ],
)
def test_a_file_that_can_t_be_used_is_named(
    authority: Authority, changed: dict[str, str], problem: str
) -> None:
    pair = authority.pair("client", password="opens it")  # noqa: S106 - of a test's own key
    tls = {"ca": str(authority.certificate), "certificate": str(pair.certificate), "key": str(pair.key)}
    good = Cassandra.model_validate(
        {"contact_points": ["127.0.0.1"], "tls": tls | {"key_password": "opens it"}}
    )
    assert open_cluster(good).ssl_context.check_hostname
    with pytest.raises(ConfigError, match=f"cassandra.tls: .*{problem}"):
        connect("127.0.0.1:1", tls | changed)


def test_each_new_connection_proves_itself_by_the_password_of_now(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("the old one\n", encoding="utf-8")
    settings = Cassandra.model_validate(
        {"contact_points": ["127.0.0.1"], "username": "parallax", "password_file": str(file)}
    )
    auth = open_cluster(settings).auth_provider
    assert auth.new_authenticator("node").initial_response() == b"\x00parallax\x00the old one"

    newer = tmp_path / "newer"
    newer.write_text("the new one\n", encoding="utf-8")
    newer.replace(file)
    assert auth.new_authenticator("node").initial_response() == b"\x00parallax\x00the new one"


@contextmanager
def asking_for_passwords(right: bytes) -> Iterator[str]:
    """A node that takes one password alone: of Cassandra's protocol (version 4) it knows what comes before the first question."""
    supported = b"\0\x02" + b"\0\x0bCQL_VERSION\0\x01\0\x053.0.0" + b"\0\x0bCOMPRESSION\0\0"
    answers = {
        0x05: (0x06, supported),  # OPTIONS: SUPPORTED
        0x01: (0x03, b"\0\x03any"),  # STARTUP: AUTHENTICATE
    }

    def answer(taken: socket.socket) -> None:
        with taken, suppress(OSError):
            while head := taken.recv(9, socket.MSG_WAITALL):
                size = int.from_bytes(head[5:], "big")
                body = taken.recv(size, socket.MSG_WAITALL) if size else b""
                if head[4] in answers:
                    kind, content = answers[head[4]]
                elif body.endswith(b"\0" + right):
                    kind, content = 0x10, b"\xff\xff\xff\xff"  # AUTH_SUCCESS
                else:
                    kind, content = 0x00, b"\0\0\x01\0\0\x07refused"  # ERROR: bad credentials
                taken.sendall(
                    b"\x84\0" + head[2:4] + bytes([kind]) + len(content).to_bytes(4, "big") + content
                )

    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=answer, args=(listening.accept()[0],), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def test_a_node_that_refused_the_password_is_asked_again_with_the_next_one(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("the old one\n", encoding="utf-8")
    with asking_for_passwords(b"the new one") as address:
        settings = Cassandra.model_validate(
            {"contact_points": [address], "username": "parallax", "password_file": str(file)}
        )
        cluster = open_cluster(settings)
        cluster.connection_class.initialize_reactor()
        host = Host(DefaultEndPoint(*contact_points(settings)[0]), SimpleConvictionPolicy)
        connect = cluster._make_connection_factory(host)  # what the driver keeps, and tries again and again
        with pytest.raises(PasswordRefusedError, match="refused") as refused:
            connect()
        driver = _HostReconnectionHandler(None, None, False, None, None, None, None, None)  # noqa: FBT003 - the driver's
        assert driver.on_exception(refused.value, 1.0)
        file.write_text("the new one\n", encoding="utf-8")
        connect().close()


def test_a_node_that_refuses_the_password_is_named(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("the old one\n", encoding="utf-8")
    with asking_for_passwords(b"the new one") as address:
        settings = Cassandra.model_validate(
            {"contact_points": [address], "username": "parallax", "password_file": str(file)}
        )
        with pytest.raises(ConfigError, match=f"{address} refuses cassandra.username and its password"):
            CassandraConnection(settings, lambda _session: None).connect()


def test_each_new_connection_goes_by_the_certificates_of_now(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path / "other")
    old, new = authority.pair("client"), other.pair("client")
    tls = {"ca": str(authority.certificate), "certificate": str(old.certificate), "key": str(old.key)}
    context = tls_context(Cassandra.model_validate({"contact_points": ["127.0.0.1"], "tls": tls}))
    assert context is not None

    def greeted(address: str) -> bytes:
        host, port = address.split(":")
        bare = socket.create_connection((host, int(port)), timeout=10)
        with bare, context.wrap_socket(bare, server_hostname=host) as connection:
            return connection.recv(1)  # empty: it agreed, and closed

    with (
        tls_server(authority.pair("server"), clients=authority.certificate) as before,
        tls_server(other.pair("server"), clients=other.certificate) as after,
    ):
        assert greeted(before) == b""
        with pytest.raises(ssl.SSLCertVerificationError):
            greeted(after)
        other.certificate.replace(tls["ca"])
        new.certificate.replace(old.certificate)
        with capture_logs() as logs, pytest.raises(ssl.SSLError):
            greeted(after)  # the key is still the old one's, so nothing is taken
        assert [line["event"] for line in logs] == ["files_not_usable"]
        new.key.replace(old.key)
        assert greeted(after) == b""
        with pytest.raises(ssl.SSLCertVerificationError):
            greeted(before)


def test_a_password_that_is_not_there_is_named_before_anything_is_asked(tmp_path: Path) -> None:
    settings = Cassandra.model_validate(
        {"contact_points": ["127.0.0.1:1"], "username": "parallax", "password_file": str(tmp_path / "none")}
    )
    with pytest.raises(ConfigError, match=r"cassandra\.password_file: .*cannot be read"):
        open_cluster(settings)


def test_a_key_needs_its_certificate() -> None:
    with pytest.raises(ValueError, match="set certificate too"):
        Cassandra.model_validate({"contact_points": ["x"], "tls": {"key": "x"}})
