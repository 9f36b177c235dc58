"""Where the console may listen, and what it speaks there."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from console import command
from console.command import require_private, start
from parallax.client.credentials import ServiceCredentials
from parallax.config.config import parse
from parallax.config.console import ConsoleSettings
from parallax.domain.ids import RegionName
from parallax.errors import ConfigError
from tests.worlds.authority import Authority, Pair

PROXY = {
    "mode": "proxy",
    "proxy": {"trusted": ["127.0.0.1/32"]},
    "roles": [{"role": "admin", "users": ["ada"]}],
}
FILES = {"certificate_chain": "own.pem", "private_key": "own.key"}
FAR = ["0.0.0.0:0", "10.0.0.1:7680", "[::]:7680", "console.bank.example:7680"]


def settings(**values: Any) -> ConsoleSettings:
    return ConsoleSettings.model_validate(values)


@pytest.mark.parametrize("listen", ["127.0.0.1:7680", "localhost:0", "[::1]:7680"])
@pytest.mark.parametrize("values", [{}, {"auth": PROXY}, {"tls": FILES}])
def test_on_this_machine_alone_everything_goes(listen: str, values: dict[str, Any]) -> None:
    with capture_logs() as logs:
        require_private(settings(**values), listen)
    assert logs == []


@pytest.mark.parametrize("listen", FAR)
@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "asks nobody who looks"),
        ({"tls": FILES}, "asks nobody who looks"),
        ({"auth": PROXY}, "no console.tls"),
    ],
)
def test_where_others_reach_it_who_looks_is_asked_over_tls(
    listen: str, values: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        require_private(settings(**values), listen)


@pytest.mark.parametrize("listen", FAR)
def test_over_tls_a_proxy_is_believed_and_in_plain_text_with_a_warning_alone(listen: str) -> None:
    with capture_logs() as logs:
        require_private(settings(tls=FILES, auth=PROXY), listen)
        assert logs == []
        require_private(settings(auth={**PROXY, "insecure": True}), listen)
    assert [(line["event"], line["log_level"]) for line in logs] == [("insecure", "warning")]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def address(authority: Authority) -> Iterator[str]:
    """A console that takes its proxy's certificate alone; no offset service is up."""
    pair = authority.server()
    tls = {
        "certificate_chain": str(pair.certificate),
        "private_key": str(pair.key),
        "client_ca": str(authority.certificate),
    }
    nowhere = {"bootstrap_servers": "127.0.0.1:1"}
    region = {"aggregate": nowhere, "offsetsvc": {"grpc": "127.0.0.1:1"}}
    config = parse(
        {
            "regions": {"a": region},
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "console": {"tls": tls, "auth": PROXY},
        }
    )
    with ExitStack() as stack:
        yield start(config, RegionName("a"), "127.0.0.1:0", stack)


def asking(address: str, authority: Authority, pair: Pair | None) -> httpx.Client:
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return httpx.Client(base_url=address, verify=context, timeout=60, headers={"X-Forwarded-User": "ada"})


def test_it_speaks_tls_to_its_proxy_and_to_nobody_else(
    address: str, authority: Authority, tmp_path: Path
) -> None:
    assert address.startswith("https://127.0.0.1:")
    with asking(address, authority, authority.client("spiffe://bank/proxy")) as http:
        assert http.get("/healthz").status_code == 200
        assert http.get("/static/picture.css").status_code == 200
    (tmp_path / "foreign").mkdir()
    foreign = Authority(tmp_path / "foreign", "foreign").client("spiffe://bank/proxy")
    for pair in (None, foreign):
        with asking(address, authority, pair) as http, pytest.raises(httpx.TransportError):
            http.get("/healthz")
    with (
        httpx.Client(base_url=address.replace("https", "http"), timeout=60) as plain,
        pytest.raises(httpx.TransportError),
    ):
        plain.get("/healthz")


def test_it_shows_what_variables_and_the_configuration_say(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[ServiceCredentials] = []

    def client(*_: object, credentials: ServiceCredentials, **__: object) -> None:
        shown.append(credentials)
        raise ConfigError("enough")

    monkeypatch.setattr(command, "OffsetClient", client)
    monkeypatch.setenv("PARALLAX_TOKEN_FILE", "/run/token")
    region = {"aggregate": {"bootstrap_servers": "127.0.0.1:1"}, "offsetsvc": {"grpc": "127.0.0.1:1"}}
    config = parse(
        {
            "regions": {"a": region},
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "client": {"ca": "/etc/ca.pem"},
        }
    )
    with pytest.raises(ConfigError, match="enough"), ExitStack() as stack:
        start(config, RegionName("a"), "127.0.0.1:0", stack)
    assert [(item.ca, item.token_file) for item in shown] == [("/etc/ca.pem", "/run/token")]
