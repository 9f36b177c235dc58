"""The pages of replicator and sync job, tried as everybody who may read them, by tokens and by certificates."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from parallax.adapters.spark.application import Application
from parallax.adapters.spark.reporting import StatusTarget
from parallax.adapters.spark.status_server import REFUSED, StatusServer
from parallax.client.status import STATUSES
from parallax.config.auth import Auth, AuthRule, Jwt
from parallax.config.config import Service, StatusTls, Tls
from parallax.domain.rights import Policy
from parallax.errors import ConfigError
from parallax.identity.door import Door
from parallax.identity.identity import Identity
from replicator.leases.board import ProgressBoard
from replicator.leases.claims import Claims
from replicator.leases.status import ReplicationStatus
from syncjob.status import SyncBoard, SyncReport
from tests.worlds.authority import Authority, Issuer, Pair

TOKEN = "the run's"  # noqa: S105 - a test's own
READER, STRANGER = "spiffe://bank/prometheus", "spiffe://bank/stranger"
RULES = (AuthRule(principals=(READER,), groups=("billing",), allow=("read",)),)
PAGES = ("/metrics", "/status", "/nothing", "/%6Detrics", "/metrics/", "//metrics", "/livez/../metrics")
"""For readers alone; some are not there, and nobody else learns which."""


@dataclass
class Callers:
    """A status server that asks, and how everybody calls it."""

    server: StatusServer
    open: Callable[[str], httpx.Client]
    ca: str | None = None


def by_token(directory: Path) -> tuple[Auth, Callable[[StatusServer], Callable[[str], httpx.Client]]]:
    issuer, keys = Issuer(), directory / "keys.json"
    keys.write_bytes(issuer.document())
    jwt = Jwt(issuer=issuer.name, audience=issuer.audience, jwks=str(keys))

    def opener(server: StatusServer) -> Callable[[str], httpx.Client]:
        def client(who: str) -> httpx.Client:
            headers = {"Authorization": f"Bearer {issuer.token(who)}"} if who else {}
            return httpx.Client(base_url=f"http://127.0.0.1:{server.address[1]}", headers=headers, timeout=60)

        return client

    return Auth(mode="jwt", jwt=jwt, rules=RULES), opener


@pytest.fixture(params=["jwt", "mtls"])
def callers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callers]:
    parts = [ReplicationStatus(ProgressBoard([]), Claims([])), SyncBoard(1_000)]
    if request.param == "jwt":
        auth, opener = by_token(tmp_path)
        server = StatusServer("127.0.0.1:0", parts, token=TOKEN, identity=Identity(auth))
        callers = Callers(server, opener(server))
    else:
        authority = Authority(tmp_path)
        pair, ca = authority.server(), str(authority.certificate)
        tls = StatusTls(certificate_chain=str(pair.certificate), private_key=str(pair.key), ca=ca)
        identity = Identity(Auth(mode="mtls", rules=RULES))
        server = StatusServer("127.0.0.1:0", parts, token=TOKEN, tls=tls, identity=identity, client_ca=ca)
        pairs = {name: authority.client(name) for name in (READER, STRANGER)}
        callers = Callers(server, lambda who: over_tls(server, ca, pairs.get(who)), ca)
    server.start()
    yield callers
    server.close()


def over_tls(server: StatusServer, ca: str, pair: Pair | None) -> httpx.Client:
    context = ssl.create_default_context(cafile=ca)
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return httpx.Client(base_url=f"https://127.0.0.1:{server.address[1]}", verify=context, timeout=60)


@pytest.mark.parametrize(("who", "code"), [("", "UNAUTHENTICATED"), (STRANGER, "FORBIDDEN")])
def test_pages_are_for_readers_alone(callers: Callers, who: str, code: str) -> None:
    with callers.open(who) as http, capture_logs() as logs:
        for path in PAGES:
            answer = http.get(path)
            assert answer.json()["code"] == code, path
            assert answer.headers["content-type"] == "application/problem+json"
            assert (answer.status_code == 401) == ("www-authenticate" in answer.headers)
            assert "parallax_" not in answer.text
            assert "lease" not in answer.text
    assert {(line["event"], line["transport"], line["code"]) for line in logs} == {
        ("call_refused", "status", code)
    }


def test_a_reader_reads_every_page(callers: Callers) -> None:
    with callers.open(READER) as http:
        assert "parallax_replicator_leases_missing" in http.get("/metrics").text
        assert "parallax_sync_cycles_total" in http.get("/%6Detrics").text
        assert http.get("/status").json()["ready"] is False
        assert http.get("/nothing").status_code == 404


@pytest.mark.parametrize("who", ["", STRANGER, READER])
def test_probes_need_nothing_and_what_is_missing_is_told_to_readers_alone(callers: Callers, who: str) -> None:
    with callers.open(who) as http:
        assert (http.get("/livez").status_code, http.get("/readyz").status_code) == (200, 503)
        told = http.get("/readyz").text
    assert ("cycle" in told) == (who == READER)
    assert who == READER or told == "not ready\n"


def test_leases_show_the_token_of_the_run_and_nothing_else(callers: Callers) -> None:
    target = StatusTarget(*callers.server.address, TOKEN, callers.ca)
    assert target.request("/ending") == {"end": False}
    assert target.request("/sync-reports", SyncReport("x", {}).to_json()) == {"end": False}
    with pytest.raises(ValueError, match="403"):
        StatusTarget(*callers.server.address, "another run's", callers.ca).request("/ending")
    with callers.open(READER) as http:
        assert http.get("/ending").status_code == 403
        assert http.post("/sync-reports", json={}).status_code == 403


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"])
def test_no_other_method_shows_a_page(callers: Callers, method: str) -> None:
    with callers.open("") as http:
        answer = http.request(method, "/metrics", headers={"X-HTTP-Method-Override": "GET"})
    assert answer.status_code == 405
    assert "parallax_" not in answer.text


def test_the_statuses_are_those_of_rest() -> None:
    assert {kind: int(status) for kind, status in REFUSED.items()} == {
        kind: STATUSES[kind].http for kind in REFUSED
    }


MUTANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "nobody is asked": lambda patch: patch.setattr(Door, "let_in", lambda *_: None),
    "whoever is known reads": lambda patch: patch.setattr(Policy, "allows_somewhere", lambda *_: True),
    "readiness tells everybody": lambda patch: patch.setattr(Door, "admits", lambda *_: True),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_page_left_open_is_noticed(name: str, callers: Callers, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)

    def strangers_are_refused() -> None:
        test_pages_are_for_readers_alone(callers, STRANGER, "FORBIDDEN")
        test_probes_need_nothing_and_what_is_missing_is_told_to_readers_alone(callers, STRANGER)

    with pytest.raises((AssertionError, json.JSONDecodeError, KeyError)):
        strangers_are_refused()


def application(service: Service, address: str, tls: StatusTls | None = None) -> Application:
    return Application("x", [], [], address, tls, service)


def test_tokens_in_plain_text_are_refused_at_the_start(tmp_path: Path) -> None:
    auth, _ = by_token(tmp_path)
    with pytest.raises(ConfigError, match=r"plain text \(there is no status_tls\)"):
        application(Service(auth=auth), "0.0.0.0:0")._status_server(TOKEN)
    application(Service(auth=auth), "127.0.0.1:0")._status_server(TOKEN).close()


@pytest.mark.parametrize(("address", "told"), [("0.0.0.0:0", ["pages_for_anybody"]), ("127.0.0.1:0", [])])
def test_pages_that_a_network_may_read_are_warned_of(address: str, told: list[str]) -> None:
    with capture_logs() as logs:
        application(Service(), address)._status_server(TOKEN).close()
    assert [line["event"] for line in logs] == told


@pytest.mark.parametrize(
    ("master", "address", "values", "is_refused"),
    [
        ("spark://h:7077", "0.0.0.0:0", {}, True),
        ("yarn", "0.0.0.0:0", {}, True),
        ("spark://h:7077", "127.0.0.1:0", {}, False),
        ("local[2]", "0.0.0.0:0", {}, False),
        (None, "0.0.0.0:0", {}, False),
        ("spark://h:7077", "0.0.0.0:0", {"insecure": True}, False),
    ],
)
def test_leases_do_not_show_the_token_of_the_run_in_plain_text_to_a_network(
    master: str | None, address: str, values: dict[str, bool], *, is_refused: bool
) -> None:
    made = replace(application(Service(), address), master=master, **values)
    if is_refused:
        with pytest.raises(ConfigError, match=r"plain text.*replicator\.status_tls"):
            made._status_server(TOKEN)
    else:
        made._status_server(TOKEN).close()


def test_over_tls_leases_report_to_any_network(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    tls = StatusTls(
        certificate_chain=str(pair.certificate), private_key=str(pair.key), ca=str(authority.certificate)
    )
    made = replace(application(Service(), "0.0.0.0:0", tls), master="spark://h:7077")
    made._status_server(TOKEN).close()


def test_an_application_asks_as_the_service_does(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, ca = authority.server(), str(authority.certificate)
    paths = {"certificate_chain": str(pair.certificate), "private_key": str(pair.key)}
    service = Service(tls=Tls(**paths, client_ca=ca), auth=Auth(mode="mtls", rules=RULES))
    server = application(service, "127.0.0.1:0", StatusTls(**paths, ca=ca))._status_server(TOKEN)
    server.start()
    try:
        with over_tls(server, ca, authority.client(READER)) as http:
            assert http.get("/status").status_code == 200
        with over_tls(server, ca, None) as http:
            assert http.get("/status").status_code == 401
        foreign = tmp_path / "foreign"
        foreign.mkdir()
        with (
            over_tls(server, ca, Authority(foreign, "foreign").client(READER)) as http,
            pytest.raises(httpx.TransportError),
        ):
            http.get("/livez")
    finally:
        server.close()


def test_where_nobody_can_show_a_certificate_the_start_says_so(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, ca = authority.server(), str(authority.certificate)
    tls = Tls(certificate_chain=str(pair.certificate), private_key=str(pair.key), client_ca=ca)
    service = Service(tls=tls, auth=Auth(mode="mtls", rules=RULES))
    with capture_logs() as logs:
        server = application(service, "127.0.0.1:0")._status_server(TOKEN)
    assert [line["event"] for line in logs] == ["pages_for_nobody"]
    server.start()
    connection = http.client.HTTPConnection(*server.address, timeout=60)
    try:
        connection.request("GET", "/metrics")
        assert connection.getresponse().status == 401
    finally:
        connection.close()
        server.close()
