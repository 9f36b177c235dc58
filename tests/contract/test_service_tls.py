"""gRPC and REST over TLS, with and without certificates of clients."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.transport.grpc_server import GrpcServer
from offsetsvc.transport.rest import create_app
from parallax.adapters.http.server import HttpServer
from parallax.cli.connecting import connect
from parallax.client.client import OffsetClient
from parallax.client.credentials import ServiceCredentials
from parallax.config.config import Tls
from parallax.errors import ConfigError, ServiceUnavailableError
from parallax.identity.tls import server_credentials
from tests.worlds.authority import Authority, Pair
from tests.worlds.handshakes import shake_hands, shaking
from tests.worlds.offset_servers import serving
from tests.worlds.offset_world import World

CERTIFICATES = Path(__file__).parent / "certificates"
AUTHORITY = CERTIFICATES / "authority.pem"
CHAIN, KEY = CERTIFICATES / "server.pem", CERTIFICATES / "server.key.pem"


@pytest.fixture(params=[None, str(AUTHORITY)], ids=["tls", "mutual tls"])
def addresses(request: pytest.FixtureRequest) -> Iterator[tuple[str, str, bool]]:
    """Addresses of gRPC and REST, and whether clients must show a certificate."""
    tls = Tls(certificate_chain=str(CHAIN), private_key=str(KEY), client_ca=request.param)
    with ExitStack() as stack:
        service = stack.enter_context(World().service())
        metrics = ServiceMetrics()
        rest = HttpServer(create_app(service, metrics), address="127.0.0.1:0", tls=tls)
        rest.start()
        stack.callback(rest.stop)
        server = GrpcServer(service, metrics, address="127.0.0.1:0", credentials=server_credentials(tls))
        server.start()
        stack.callback(server.stop, 0.0)
        yield f"127.0.0.1:{server.port}", f"https://127.0.0.1:{rest.port}", request.param is not None


def _credentials(*, with_certificate: bool) -> ServiceCredentials:
    pair: dict[str, Any] = {"certificate": CHAIN, "key": KEY} if with_certificate else {}
    return ServiceCredentials(ca=AUTHORITY, **pair)


def _context(*, with_certificate: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(AUTHORITY))
    if with_certificate:
        context.load_cert_chain(CHAIN, KEY)
    return context


def test_clients_that_trust_the_authority_are_answered(addresses: tuple[str, str, bool]) -> None:
    target, url, mutual = addresses

    with OffsetClient(
        [target], credentials=_credentials(with_certificate=mutual), timeout_ms=20_000
    ) as client:
        assert len(client.list_routes().routes) == 4
    with httpx.Client(verify=_context(with_certificate=mutual), timeout=20) as http:
        assert http.get(f"{url}/livez").status_code == 200


def test_commands_show_and_trust_the_configured_certificate(
    addresses: tuple[str, str, bool], tmp_path: Path
) -> None:
    target, _, mutual = addresses
    tls = {"certificate_chain": str(CHAIN), "private_key": str(KEY)}
    values = {
        "regions": {
            "a": {
                "regional": {"bootstrap_servers": "127.0.0.1:1"},
                "aggregate": {"bootstrap_servers": "127.0.0.1:1"},
                "offsetsvc": {"grpc": target, "rest": "127.0.0.1:0"},
            }
        },
        "cassandra": {"contact_points": ["127.0.0.1:1"]},
        "service": {"tls": {**tls, **({"client_ca": str(AUTHORITY)} if mutual else {})}},
        "client": tls if mutual else {},
    }
    config = tmp_path / "parallax.yaml"
    config.write_text(yaml.safe_dump(values), encoding="utf-8")
    with connect(config, None, None, 20_000) as client:
        assert len(client.list_routes().routes) == 4


def test_an_operator_needs_no_key_of_a_service(tmp_path: Path) -> None:
    """It is an operator by a certificate of its own; what a service has is not on its machine."""
    authority = Authority(tmp_path)
    server, own = authority.server(), authority.client("spiffe://bank/operator")
    tls = {"certificate_chain": str(server.certificate), "client_ca": str(authority.certificate)}
    rules = [{"principals": ["spiffe://bank/operator"], "groups": [".*"], "allow": ["administer"]}]
    world = World(
        service={"tls": tls | {"private_key": str(server.key)}, "auth": {"mode": "mtls", "rules": rules}}
    )
    away = {"certificate_chain": "/nowhere/server.pem", "private_key": "/nowhere/server.key"}
    shown = {
        "ca": str(authority.certificate),
        "certificate_chain": str(own.certificate),
        "private_key": str(own.key),
    }
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    with serving(world) as served:
        region = {"regional": cluster, "aggregate": cluster, "offsetsvc": {"grpc": served.target}}
        values = {
            "regions": {"a": region},
            "cassandra": {"contact_points": ["127.0.0.1:1"]},
            "service": {"tls": away},
            "client": shown,
        }
        config = tmp_path / "operator.yaml"
        config.write_text(yaml.safe_dump(values), encoding="utf-8")
        with connect(config, None, None, 20_000) as client:
            client.list_audit(since_ms=0)


def test_plain_text_is_refused(addresses: tuple[str, str, bool]) -> None:
    target, _, _ = addresses

    with OffsetClient([target], timeout_ms=1_000) as client, pytest.raises(ServiceUnavailableError):
        client.list_routes()


def test_without_its_certificate_a_client_is_refused_where_one_is_asked_for(
    addresses: tuple[str, str, bool],
) -> None:
    target, url, mutual = addresses
    credentials = _credentials(with_certificate=False)
    with OffsetClient([target], credentials=credentials, timeout_ms=2_000) as client:
        if mutual:
            with pytest.raises(ServiceUnavailableError):
                client.list_routes()
        else:
            assert client.list_routes().routes
    with httpx.Client(verify=_context(with_certificate=False), timeout=20) as http:
        if mutual:
            with pytest.raises(httpx.TransportError):
                http.get(f"{url}/livez")
        else:
            assert http.get(f"{url}/livez").status_code == 200


def test_a_certificate_that_is_not_there_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.pem"):
        server_credentials(Tls(certificate_chain="nowhere.pem", private_key=str(KEY)))


def test_a_service_lives_through_a_burst_of_handshakes_while_its_certificate_changes(tmp_path: Path) -> None:
    """gRPC ended the process where two came at once (grpc/grpc#36693)."""
    authority = Authority(tmp_path)
    server, own = authority.server(), authority.client("spiffe://bank/operator")
    certificate, key = tmp_path / "served.pem", tmp_path / "served.key"

    def put(pair: Pair) -> None:
        for source, target in ((pair.key, key), (pair.certificate, certificate)):
            newer = target.with_suffix(".newer")
            newer.write_bytes(source.read_bytes())
            newer.replace(target)

    put(server)
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.check_hostname = False
    context.load_cert_chain(own.certificate, own.key)
    context.set_alpn_protocols(["h2"])
    with shaking(certificate, key, authority.certificate) as (process, port):
        assert shake_hands(port, context, 300, at_once=12) == 300
        put(authority.server())
        assert shake_hands(port, context, 300, at_once=12) == 300
        assert process.poll() is None
