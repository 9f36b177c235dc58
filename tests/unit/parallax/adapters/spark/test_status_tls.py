"""Reports and pages of a status server over TLS: a lease tells its progress to nobody else."""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lab.stack.secure.authority import Authority
from parallax.adapters.http import server as http_server
from parallax.adapters.spark.reporting import StatusTarget
from parallax.adapters.spark.status_server import StatusServer
from parallax.config.config import StatusTls
from parallax.errors import ConfigError
from replicator.leases.board import ProgressBoard
from replicator.leases.claims import Claims
from replicator.leases.status import ReplicationStatus

TOKEN = "token"  # noqa: S105 - a test's own


@pytest.fixture
def tls(tmp_path: Path) -> StatusTls:
    authority = Authority(tmp_path)
    leaf = authority.leaf("spark")
    return StatusTls(
        certificate_chain=str(leaf.certificate),
        private_key=str(leaf.private_key),
        ca=str(authority.certificate),
    )


@pytest.fixture
def server(tls: StatusTls) -> Iterator[StatusServer]:
    parts = [ReplicationStatus(ProgressBoard([]), Claims([]))]
    running = StatusServer("127.0.0.1:0", parts, token=TOKEN, tls=tls)
    running.start()
    yield running
    running.close()


def test_a_lease_reports_to_a_server_of_its_authority(server: StatusServer, tls: StatusTls) -> None:
    target = StatusTarget(*server.address, TOKEN, tls.ca)
    assert target.request("/ending") == {"end": False}
    server.end_leases()
    assert target.application_ends()


def test_a_lease_tells_nothing_to_a_server_of_another_authority(
    server: StatusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Authority(tmp_path / "other").certificate
    target = StatusTarget(*server.address, TOKEN, str(other))
    with pytest.raises(ssl.SSLCertVerificationError):
        target.request("/ending")
    server.end_leases()
    assert not target.application_ends()
    # Whoever leaves the check out is told:
    made = ssl.create_default_context

    def careless(**arguments: Any) -> ssl.SSLContext:
        context = made(**arguments)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    monkeypatch.setattr(ssl, "create_default_context", careless)
    assert target.application_ends()


def test_nobody_is_answered_in_plain_text(server: StatusServer) -> None:
    with pytest.raises((OSError, http.client.HTTPException)):
        StatusTarget(*server.address, TOKEN).request("/ending")


def test_who_says_nothing_is_not_waited_for(tls: StatusTls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_HANDSHAKE_WITHIN_S", 0.5)
    server = StatusServer("127.0.0.1:0", [], token=TOKEN, tls=tls)
    server.start()
    with closing(server), socket.create_connection(server.address, timeout=20) as silent:
        assert silent.recv(1) == b""


def test_a_certificate_that_is_missing_is_said_at_once(tls: StatusTls) -> None:
    with pytest.raises(ConfigError, match=r"status_address .*TLS: .*gone\.pem"):
        StatusServer(
            "127.0.0.1:0", [], token=TOKEN, tls=tls.model_copy(update={"certificate_chain": "gone.pem"})
        )
