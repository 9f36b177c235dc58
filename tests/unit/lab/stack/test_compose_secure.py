"""compose/'s secure variant asks for what the secure local stack asks for, and each container has what it is asked for."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from lab.stack.layout import StackLayout, port_names
from lab.stack.secure.brokers import broker_security
from lab.stack.secure.containers import CASSANDRA_ADDRESS, INSIDE, PRINCIPALS, STEPS, write_material
from lab.stack.secure.material import SCHEMA, Material
from lab.stack.secure.services import secure_config
from lab.stack.secure.setup import prepare_material
from lab.stack.settings import CASSANDRA_SYSTEM_PROPERTIES
from lab.stack.spec import StackSpec
from parallax.config.config import load

COMPOSE = Path(__file__).parents[4] / "compose"
SPEC = StackSpec(secure=True, mechanism="mtls")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.secure.yaml").read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


@pytest.fixture(scope="module")
def security(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compose") / "security"
    write_material(folder)
    return folder


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> StackLayout:
    """The local stack whose mechanism is the same."""
    ports = {name: 20_000 + n for n, name in enumerate(port_names(SPEC))}
    layout = StackLayout(SPEC, tmp_path_factory.mktemp("stack"), ports)
    prepare_material(layout)
    return layout


def test_every_service_of_the_other_variant_has_its_part(services: dict[str, dict[str, Any]]) -> None:
    plain = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert set(services) == {*plain, "rights", "roles", "use"}
    assert set(PRINCIPALS) == set(plain)
    for name in plain:
        assert services[name]["volumes"][-1] == f"./security/containers/{name}:{INSIDE}:ro"


def test_brokers_ask_for_what_the_local_stacks_ask_for(
    services: dict[str, dict[str, Any]], local: StackLayout
) -> None:
    assert local.material is not None
    expected = broker_security(local.material, "regional-a")
    of_the_place = {"ssl.keystore.location": INSIDE / "own.pem", "ssl.truststore.location": INSIDE / "ca.pem"}
    same = {
        key: str(of_the_place.get(key, value))
        for key, value in expected.items()
        if not re.match(r"listener\.|inter\.broker|sasl\.", key)
    }
    same["ssl.client.auth"] = "required"
    for cluster in SPEC.clusters:
        told = {
            key.removeprefix("KAFKA_").lower().replace("_", "."): value.replace("$$", "$")
            for key, value in services[cluster.name]["environment"].items()
        }
        assert set(told.pop("listener.security.protocol.map").split(",")) == {
            "INTERNAL:SSL",
            "EXTERNAL:SSL",
            "CONTROLLER:SSL",
        }
        assert told == same
        assert services[cluster.name]["healthcheck"]["test"][-1] == str(INSIDE / "client.properties")


def test_the_config_says_what_the_local_stacks_says(security: Path, local: StackLayout) -> None:
    text = (COMPOSE / "parallax.secure.yaml").read_text(encoding="utf-8")
    assert (COMPOSE / "parallax.secure.yaml").is_file()
    config = load(COMPOSE / "parallax.secure.yaml", environ={})
    named = set(re.findall(rf"{INSIDE}/([\w.]+)", text))
    for name in ("replicator-a", "replicator-b", "offsetsvc-a", "offsetsvc-b", "syncjob", "schema"):
        assert named <= {path.name for path in (security / "containers" / name).iterdir()}
    own = secure_config(local)
    assert [rule.model_dump(mode="json") for rule in config.service.auth.rules] == own["service"]["auth"][
        "rules"
    ]
    assert config.service.auth.mode == own["service"]["auth"]["mode"] == "mtls"
    for region in config.regions.values():
        for cluster in (region.regional, region.aggregate):
            assert cluster is not None
            told = cluster.security.model_dump(exclude_unset=True)
            assert set(told) == set(own["regions"]["a"]["regional"]["security"])
            assert told["protocol"] == "SSL"
    plain = load(COMPOSE / "parallax.yaml", environ={})
    for name, region in plain.regions.items():
        there = config.regions[name]
        assert there.offsetsvc == region.offsetsvc
        assert there.regional is not None
        assert region.regional is not None
        assert there.regional.bootstrap_servers == region.regional.bootstrap_servers
    assert config.replicator.status_address == plain.replicator.status_address
    assert config.sync.status_address == plain.sync.status_address


def test_each_container_shows_who_it_is_and_has_nothing_of_others(security: Path) -> None:
    assert stat.S_IMODE(security.stat().st_mode) == 0o700
    material = Material.load(security)
    for name, principal in PRINCIPALS.items():
        own = security / "containers" / name
        (certificate,) = x509.load_pem_x509_certificates((own / "own.crt").read_bytes())[:1]
        assert certificate.subject.rfc4514_string() == f"CN={principal}"
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert name in names.get_values_for_type(x509.DNSName)
        addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
        assert (CASSANDRA_ADDRESS in addresses) == (name == "cassandra")
        content = "".join(path.read_text(encoding="utf-8") for path in own.iterdir())
        role = SCHEMA if name == "schema" else "parallax"
        held = {secret for secret in material.secrets() if secret in content}
        assert held == ({material.password(role)} if (own / "password").exists() else set())
        assert str(security) not in content


def test_cassandra_reads_a_configuration_of_its_own(
    compose: dict[str, Any], services: dict[str, dict[str, Any]], security: Path
) -> None:
    told = yaml.safe_load((security / "containers" / "cassandra" / "cassandra.yaml").read_text("utf-8"))
    assert told["client_encryption_options"]["require_client_auth"] is True
    assert told["client_encryption_options"]["keystore"] == str(INSIDE / "own.pem")
    assert told["authenticator"] == "PasswordAuthenticator"
    assert told["broadcast_rpc_address"] == CASSANDRA_ADDRESS
    service = services["cassandra"]
    properties = dict(
        option.removeprefix("-D").split("=") for option in service["environment"]["JVM_EXTRA_OPTS"].split()
    )
    assert properties.pop("cassandra.config") == f"file://{INSIDE}/cassandra.yaml"
    assert properties == CASSANDRA_SYSTEM_PROPERTIES
    assert service["networks"]["default"]["ipv4_address"] == CASSANDRA_ADDRESS
    (subnet,) = compose["networks"]["default"]["ipam"]["config"]
    assert CASSANDRA_ADDRESS.startswith(subnet["subnet"].removesuffix("0/24"))


def test_rights_are_given_in_order(services: dict[str, dict[str, Any]]) -> None:
    for name in ("rights", "roles", "use"):
        assert services[name]["command"] == [name, "/security"]
        assert name in STEPS
    assert set(services["rights"]["depends_on"]) == {cluster.name for cluster in SPEC.clusters}
    assert [set(services[name]["depends_on"]) for name in ("roles", "schema", "use")] == [
        {"cassandra"},
        {"roles"},
        {"schema"},
    ]
    for name in ("replicator-a", "replicator-b", "offsetsvc-a", "offsetsvc-b", "syncjob"):
        assert set(services[name]["depends_on"]) == {"rights", "use"}
