"""`service.auth`: what fits together, and what is refused with a sentence that helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from parallax.config.auth import RightName
from parallax.config.config import Config, load
from parallax.config.values import is_loopback
from parallax.domain.rights import Right
from parallax.errors import ConfigError

JWT = {"issuer": "https://issuer.example", "audience": "parallax", "jwks": "https://issuer.example/keys"}
RULE = {"principals": ["team-.*"], "groups": ["billing"], "allow": ["report"]}
TLS = {"certificate_chain": "s.pem", "private_key": "s.key", "client_ca": "ca.pem"}


def loaded(tmp_path: Path, service: dict[str, Any], environ: dict[str, str] | None = None) -> Config:
    values = {
        "regions": {"a": {"aggregate": {"bootstrap_servers": "127.0.0.1:1"}}},
        "cassandra": {"contact_points": ["127.0.0.1"]},
        "service": service,
    }
    path = tmp_path / "parallax.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return load(path, environ or {})


def test_nobody_is_asked_for_a_name_unless_told(tmp_path: Path) -> None:
    assert loaded(tmp_path, {}).service.auth.mode == "none"


@pytest.mark.parametrize("auth", ["mtls", {"mode": "mtls"}])
def test_the_mode_alone_may_stand_for_the_section(tmp_path: Path, auth: Any) -> None:
    assert loaded(tmp_path, {"auth": auth, "tls": TLS}).service.auth.mode == "mtls"


def test_a_variable_may_set_the_mode(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"tls": TLS}, {"PARALLAX__SERVICE__AUTH": "mtls"}).service.auth.mode == "mtls"


def test_the_words_for_rights_are_the_rights() -> None:
    assert get_args(RightName) == tuple(right.word for right in Right)


@pytest.mark.parametrize(
    ("service", "told"),
    [
        ({"auth": "mtls"}, "client_ca"),
        ({"auth": "mtls", "tls": {**TLS, "client_ca": None}}, "client_ca"),
        ({"auth": "jwt"}, "go together"),
        ({"auth": {"mode": "none", "jwt": JWT}}, "go together"),
        ({"auth": {"mode": "none", "rules": [RULE]}}, "rules mean nothing"),
        ({"auth": {"mode": "jwt", "jwt": {**JWT, "jwks": "http://issuer.example/keys"}}}, "https"),
        ({"auth": {"mode": "jwt", "jwt": {**JWT, "jwks": "ftp://issuer.example/keys"}}}, "https"),
        ({"auth": {"mode": "jwt", "jwt": {**JWT, "jwks": "http://127.0.0.1@issuer.example/keys"}}}, "https"),
        ({"auth": {"mode": "jwt", "jwt": JWT, "rules": [{**RULE, "allow": ["write"]}]}}, "'read'"),
        ({"auth": {"mode": "jwt", "jwt": JWT, "rules": [{**RULE, "groups": ["["]}]}}, "regular expression"),
        ({"auth": {"mode": "jwt", "jwt": JWT, "rules": [{**RULE, "groups": []}]}}, "groups"),
        ({"auth": {"mode": "jwt", "jwt": JWT, "rules": [{**RULE, "group": ["x"]}]}}, "did you mean 'groups'"),
        ({"auth": "tls"}, "'mtls'"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, service: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        loaded(tmp_path, service)
    assert told in str(raised.value)


def test_a_token_of_the_whole_is_read(tmp_path: Path) -> None:
    auth = loaded(tmp_path, {"auth": {"mode": "jwt", "jwt": JWT, "rules": [RULE]}}).service.auth
    assert auth.jwt is not None
    assert (auth.jwt.principal_claim, auth.jwt.leeway_s) == ("sub", 30)
    assert auth.rules[0].allow == ("report",)


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("localhost.example:1", False),
        ("127.0.0.1.example:1", False),
        ("2130706433:1", False),
    ],
)
def test_an_address_that_only_this_machine_reaches(address: str, own: bool) -> None:  # noqa: FBT001
    assert is_loopback(address) == own
