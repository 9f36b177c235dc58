"""Ways around a rule that REST must not have: other spellings of a path, other methods, what proxies say in headers."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from offsetsvc.transport import rest_access
from parallax.domain.ids import GroupName, RegionName
from parallax.domain.primary import Change
from parallax.runtime.deadline import Deadline
from tests.worlds.authority import Authority, Issuer
from tests.worlds.offset_servers import Served, serving
from tests.worlds.offset_world import World

MINE, SECRET = "mine", "secret"


@dataclass
class Door:
    """A service on which a reader may read one group, and another one is there."""

    served: Served
    token: str

    def ask(
        self, method: str, target: str, *, reader: bool, headers: Mapping[str, str] | None = None
    ) -> tuple[int, str, str]:
        """Status, code and text of the answer to a request whose target goes out as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.served.rest.port, timeout=60)
        shown = {"Authorization": f"Bearer {self.token}"} if reader else {}
        try:
            connection.request(method, target, headers={**shown, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        code = json.loads(text).get("code", "") if text.startswith("{") else ""
        return answer.status, code, text


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    issuer = Issuer()
    keys = tmp_path_factory.mktemp("issuer") / "keys.json"
    keys.write_bytes(issuer.document())
    jwt = {"issuer": issuer.name, "audience": issuer.audience, "jwks": str(keys)}
    rules = [{"principals": ["reader"], "groups": [MINE], "allow": ["decide"]}]
    world = World(("a", "b"), service={"auth": {"mode": "jwt", "jwt": jwt, "rules": rules}})
    world.commit("a", 0)
    with serving(world) as served:
        for name in (MINE, SECRET):
            served.service.primaries.set(Change(GroupName(name), RegionName("a")), Deadline.after_ms(5_000))
        yield Door(served, issuer.token("reader", exp=2**31))


OTHER_GROUPS = (
    f"/v1/groups/{SECRET}/primary",
    "/v1/groups/%73%65cret/primary",
    f"/v1/groups/{SECRET}/primary?group={MINE}",
    f"/v1/groups/{SECRET}%00/primary",
    f"/v1/groups/{MINE}%00/primary",
    f"/v1/groups/{MINE}%0A/primary",
    f"/v1/groups/{MINE};/primary",
    f"/v1/groups/%20{MINE}/primary",
    f"/v1/groups/{MINE.upper()}/primary",
    "/v1/groups/../primary",
    "/v1/groups/%2E%2E/primary",
    f"/v1/groups/{MINE}%252F..%252F{SECRET}/primary",
    f"/v1/groups/{MINE}%5C..%5C{SECRET}/primary",
)
"""The text between two slashes, decoded once, is the group that the rules are asked about."""

NO_PATHS = (
    f"/v1/groups/{MINE}%2F..%2F{SECRET}/primary",
    f"/v1/groups/{MINE}/../{SECRET}/primary",
    f"/v1/groups/{MINE}/primary/../../{SECRET}/primary",
    f"//v1/groups/{SECRET}/primary",
    f"/v1//groups/{SECRET}/primary",
    f"/./v1/groups/{SECRET}/primary",
    f"/V1/groups/{SECRET}/primary",
    f"/livez/../v1/groups/{SECRET}/primary",
    f"http://127.0.0.1/v1/groups/{SECRET}/primary",
)
"""A slash is one however it is written, and two dots are no way up."""


@pytest.mark.parametrize("target", OTHER_GROUPS)
def test_another_spelling_of_a_group_is_another_group(door: Door, target: str) -> None:
    assert door.ask("GET", target, reader=True)[:2] == (403, "FORBIDDEN")
    assert door.ask("GET", target, reader=False)[:2] == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize("target", NO_PATHS)
def test_another_spelling_of_a_path_is_no_path(door: Door, target: str) -> None:
    assert door.ask("GET", target, reader=True)[:2] == (404, "NOT_FOUND")
    assert door.ask("GET", target, reader=False)[:2] == (401, "UNAUTHENTICATED")


@pytest.mark.parametrize(
    "target",
    ["/livez/", "/livez/../metrics", "/livez%2F..%2Fmetrics", "/livez%00", "/livez;", "/readyz/x", "//livez"],
)
def test_what_begins_like_a_page_for_anybody_is_not_one(door: Door, target: str) -> None:
    assert door.ask("GET", target, reader=False)[:2] == (401, "UNAUTHENTICATED")
    assert door.ask("GET", "/%6Civez?/metrics", reader=False)[2] == '{"status":"ok"}'


def test_pages_for_anybody_that_go_by_their_beginning_are_noticed(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Beginnings(frozenset[str]):
        def __contains__(self, path: object) -> bool:
            return str(path).startswith(tuple(self))

    monkeypatch.setattr(rest_access, "PAGES_FOR_ANYBODY", Beginnings({"/livez", "/readyz"}))
    with pytest.raises(AssertionError):
        test_what_begins_like_a_page_for_anybody_is_not_one(door, "/livez/../metrics")


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "POST", "PATCH", "DELETE", "TRACE", "PROPFIND", "get"])
def test_no_other_method_is_a_way_in(door: Door, method: str) -> None:
    """Nor one that calls itself PUT in a header."""
    before = door.served.service.primaries.all()
    override = {"X-HTTP-Method-Override": "PUT", "X-HTTP-Method": "PUT", "X-Method-Override": "GET"}
    for group in (MINE, SECRET):
        target = f"/v1/groups/{group}/primary"
        status, _, text = door.ask(method, target, reader=False, headers=override)
        assert (status, "fencing" in text) == (401, False)
        status, _, text = door.ask(method, target, reader=True, headers=override)
        assert (status, "fencing" in text) == (405, False)
    assert door.served.service.primaries.all() == before


PROXY_HEADERS = {
    "Forwarded": "for=127.0.0.1;proto=https",
    "X-Forwarded-For": "127.0.0.1",
    "X-Forwarded-Host": "localhost",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Prefix": "/v1",
    "X-Real-IP": "127.0.0.1",
    "X-Original-URL": "/livez",
    "X-Rewrite-URL": "/livez",
    "X-Forwarded-User": "administrator",
    "X-Remote-User": "administrator",
    "X-Forwarded-Client-Cert": "URI=spiffe://bank/operator",
    "X-SSL-Client-S-DN": "CN=operator",
    "X-SSL-Client-Verify": "SUCCESS",
    "Proxy-Authorization": "Bearer x",
}


@pytest.mark.parametrize("name", PROXY_HEADERS)
def test_what_a_proxy_says_proves_nothing_and_leads_nowhere(door: Door, name: str) -> None:
    headers = {name: PROXY_HEADERS[name]}
    assert door.ask("GET", "/v1/routes", reader=False, headers=headers)[:2] == (401, "UNAUTHENTICATED")
    target = f"/v1/groups/{SECRET}/primary"
    assert door.ask("GET", target, reader=True, headers=headers)[:2] == (403, "FORBIDDEN")
    assert door.ask("GET", f"/v1/groups/{MINE}/primary", reader=True, headers=headers)[0] == 200
    assert door.ask("GET", "/groups/mine/primary", reader=True, headers=headers)[0] == 404


def test_a_certificate_in_a_header_is_none(tmp_path: Path) -> None:
    """Only the one of the connection counts."""
    authority = Authority(tmp_path)
    server, stranger = authority.server(), authority.client("spiffe://bank/stranger")
    operator = authority.client("spiffe://bank/operator")
    tls = {
        "certificate_chain": str(server.certificate),
        "private_key": str(server.key),
        "client_ca": str(authority.certificate),
    }
    rules = [{"principals": ["spiffe://bank/operator"], "groups": [".*"], "allow": ["administer"]}]
    world = World(("a", "b"), service={"tls": tls, "auth": {"mode": "mtls", "rules": rules}})
    told = ssl.PEM_cert_to_DER_cert(operator.certificate.read_text())
    with serving(world) as served, served.https(authority.certificate, stranger) as client:
        for value in ("URI=spiffe://bank/operator", told.hex()):
            for name in ("X-Forwarded-Client-Cert", "X-Client-Cert", "X-SSL-Client-Cert", "Client-Cert"):
                answer = client.get("/v1/routes", headers={name: value})
                assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")
                assert "stranger" in answer.json()["detail"]
