"""compose/ holds the same parts, versions and settings as the local stack."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.core import TyperGroup

from lab.stack.layout import StackLayout, port_names
from lab.stack.settings import (
    BROKER_HEAP_MIB,
    CASSANDRA_HEAP_MIB,
    CASSANDRA_SETTINGS,
    CASSANDRA_SYSTEM_PROPERTIES,
    broker_settings,
)
from lab.stack.spec import StackSpec
from lab.stack.versions import load_versions
from parallax.cli.main import app
from parallax.config.config import load

COMPOSE = Path(__file__).parents[4] / "compose"
SPEC = StackSpec()
ONE_SHOTS = {"schema"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text(encoding="utf-8"))
    return document


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = compose["services"]
    return found


def setting_variable(key: str) -> str:
    """How the official Kafka image names a setting of server.properties."""
    return "KAFKA_" + key.upper().replace(".", "_")


def test_it_has_the_parts_of_the_local_stack(services: dict[str, dict[str, Any]]) -> None:
    layout = StackLayout(SPEC, Path(), dict.fromkeys(port_names(SPEC), 1))
    infrastructure = set(layout.infrastructure_names)
    offset_services = {name for name in layout.service_names if name.startswith("offsetsvc-")}
    # The local stack's one Spark application is three containers here.
    spark = {"replicator-a", "replicator-b", "syncjob"}
    assert set(services) == infrastructure | offset_services | spark | ONE_SHOTS


@pytest.mark.parametrize("cluster", SPEC.clusters, ids=lambda cluster: cluster.name)
def test_brokers_have_the_local_stacks_settings(services: dict[str, dict[str, Any]], cluster: Any) -> None:
    service = services[cluster.name]
    environment = service["environment"]
    expected = {
        setting_variable(key): value for key, value in broker_settings(cluster.kind, cluster.brokers).items()
    }
    assert {key: environment.get(key) for key in expected} == expected
    assert environment["KAFKA_HEAP_OPTS"] == f"-Xms{BROKER_HEAP_MIB}m -Xmx{BROKER_HEAP_MIB}m"
    assert service["image"] == load_versions().kafka.image


def test_no_broker_setting_is_unknown_to_the_local_stack(services: dict[str, dict[str, Any]]) -> None:
    of_the_place = {
        "KAFKA_HEAP_OPTS",
        "KAFKA_NODE_ID",
        "KAFKA_PROCESS_ROLES",
        "KAFKA_CONTROLLER_QUORUM_VOTERS",
        "KAFKA_CONTROLLER_LISTENER_NAMES",
        "KAFKA_INTER_BROKER_LISTENER_NAME",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
        "KAFKA_LISTENERS",
        "KAFKA_ADVERTISED_LISTENERS",
        "KAFKA_LOG_DIRS",
        "CLUSTER_ID",
    }
    known = of_the_place | {setting_variable(key) for key in broker_settings("regional", 1)}
    for cluster in SPEC.clusters:
        assert set(services[cluster.name]["environment"]) <= known


def test_each_cluster_has_its_own_valid_id(services: dict[str, dict[str, Any]]) -> None:
    ids = [services[cluster.name]["environment"]["CLUSTER_ID"] for cluster in SPEC.clusters]
    assert len(set(ids)) == len(ids)
    assert {len(base64.urlsafe_b64decode(cluster_id + "==")) for cluster_id in ids} == {16}


def test_brokers_advertise_what_they_publish(services: dict[str, dict[str, Any]]) -> None:
    for cluster in SPEC.clusters:
        environment = services[cluster.name]["environment"]
        published = services[cluster.name]["ports"][0].split(":")
        advertised = f"INTERNAL://{cluster.name}:9092,EXTERNAL://{published[0]}:{published[1]}"
        assert environment["KAFKA_ADVERTISED_LISTENERS"] == advertised
        assert f"EXTERNAL://:{published[2]}" in environment["KAFKA_LISTENERS"]


def test_cassandra_has_the_local_stacks_settings(services: dict[str, dict[str, Any]]) -> None:
    service = services["cassandra"]
    environment = service["environment"]
    assert service["image"] == load_versions().cassandra.image
    assert environment["MAX_HEAP_SIZE"] == f"{CASSANDRA_HEAP_MIB}M"
    assert environment["CASSANDRA_NUM_TOKENS"] == str(CASSANDRA_SETTINGS["num_tokens"])
    assert environment["CASSANDRA_ENDPOINT_SNITCH"] == CASSANDRA_SETTINGS["endpoint_snitch"]
    assert environment["CASSANDRA_DC"] == SPEC.cassandra_nodes["cassandra"]
    properties = dict(
        option.removeprefix("-D").split("=") for option in environment["JVM_EXTRA_OPTS"].split()
    )
    assert properties == CASSANDRA_SYSTEM_PROPERTIES


def test_every_lasting_service_has_a_health_check(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        if name in ONE_SHOTS:
            assert service["restart"] == "no"
        else:
            check = service["healthcheck"]
            assert check["test"][0] == "CMD"
            assert check["retries"] * int(check["interval"].rstrip("s")) >= 60
            assert service["restart"] == "unless-stopped"


def test_services_wait_for_what_they_need(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        for needed, how in service.get("depends_on", {}).items():
            condition = "service_completed_successfully" if needed in ONE_SHOTS else "service_healthy"
            assert (name, needed, how) == (name, needed, {"condition": condition})
            assert needed in services
    brokers = {cluster.name for cluster in SPEC.clusters}
    for name in ("replicator-a", "replicator-b", "offsetsvc-a", "offsetsvc-b", "syncjob"):
        assert brokers | {"schema"} <= set(services[name]["depends_on"])
    assert set(services["schema"]["depends_on"]) == {"cassandra"}


def test_ports_are_published_on_the_loopback_interface_only(services: dict[str, dict[str, Any]]) -> None:
    published = [port for service in services.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published)


def test_data_lies_in_declared_volumes(compose: dict[str, Any], services: dict[str, dict[str, Any]]) -> None:
    for name in (*(cluster.name for cluster in SPEC.clusters), "cassandra"):
        volume, _, _ = services[name]["volumes"][0].partition(":")
        assert volume in compose["volumes"]


def test_the_config_names_the_containers(services: dict[str, dict[str, Any]]) -> None:
    config = load(COMPOSE / "parallax.yaml", environ={})
    assert tuple(config.regions) == SPEC.regions
    hosts = [
        cluster.bootstrap_servers
        for region in config.regions.values()
        for cluster in (region.regional, region.aggregate)
        if cluster is not None
    ]
    assert hosts == [f"{cluster.name}:9092" for cluster in SPEC.clusters]
    for region, settings in config.regions.items():
        assert settings.offsetsvc is not None
        service = services[f"offsetsvc-{region}"]
        for address, port in zip(
            (settings.offsetsvc.grpc, settings.offsetsvc.rest), service["ports"], strict=True
        ):
            assert address == f"offsetsvc-{region}:{port.rpartition(':')[2]}"
        assert f"http://{settings.offsetsvc.rest}/readyz" in service["healthcheck"]["test"][-1]
    assert config.cassandra.contact_points == ("cassandra:9042",)
    assert config.cassandra.local_datacenter == services["cassandra"]["environment"]["CASSANDRA_DC"]
    replicator, sync = config.replicator.status_address, config.sync.status_address
    for name, address in (("replicator-a", replicator), ("replicator-b", replicator), ("syncjob", sync)):
        assert f":{address.rpartition(':')[2]}/readyz" in services[name]["healthcheck"]["test"][-1]


def test_services_read_the_mounted_config(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        if service["image"] == "parallax":
            source, target, _ = service["volumes"][0].split(":")
            command = service["command"]
            assert (COMPOSE / source).is_file(), name
            assert command[command.index("--config") + 1] == target


def test_commands_exist_with_their_options(services: dict[str, dict[str, Any]]) -> None:
    parallax = typer.main.get_command(app)
    commands = [service["command"] for service in services.values() if service["image"] == "parallax"]
    assert len(commands) == 6
    for arguments in commands:
        command: Any = parallax
        rest = list(arguments)
        while isinstance(command, TyperGroup) and not rest[0].startswith("-"):  # `sync` itself runs, too
            command = command.get_command(typer.Context(command), rest.pop(0))
        context = command.make_context(command.name, rest)
        assert str(context.params["config"]) == "/etc/parallax/parallax.yaml"


def test_the_image_is_built_on_the_pinned_java_and_does_not_run_as_root() -> None:
    lines = (COMPOSE / "Dockerfile").read_text(encoding="utf-8").splitlines()
    java = load_versions().java
    assert f"FROM {java.image}" in lines
    assert java.package in "\n".join(lines)
    major = re.search(r"\d+", java.package)
    assert major is not None
    assert int(major[0]) in java.accepted
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users
    assert users[-1] not in ("root", "0")


def test_the_image_gets_what_it_copies() -> None:
    root = COMPOSE.parent
    kept = {
        line.removeprefix("!")
        for line in (COMPOSE / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = {
        source
        for line in (COMPOSE / "Dockerfile").read_text(encoding="utf-8").splitlines()
        if line.startswith("COPY ")
        for source in line.split()[1:-1]
    }
    assert copied
    for source in copied:
        assert (root / source).exists(), source
        assert source.split("/")[0] in kept, source
