"""What a secure stack is told, before anything of it runs."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from lab.stack.access import kafka_client, kafka_cluster, let_in, offset_client
from lab.stack.errors import SpecError
from lab.stack.layout import StackLayout, port_names
from lab.stack.secure.brokers import (
    MECHANISMS,
    bindings,
    broker_certificate,
    broker_security,
    format_arguments,
)
from lab.stack.secure.material import ADMIN, BROKER, CONSUMER, OPERATOR, SCHEMA, USERS, Material, Mechanism
from lab.stack.secure.services import identity, viewer
from lab.stack.secure.setup import prepare_material
from lab.stack.secure.store import cassandra_security
from lab.stack.services import write_config
from lab.stack.spec import StackSpec
from parallax.config.config import load
from parallax.domain.acls import NEEDS, Operation, Process


@pytest.fixture
def layout(tmp_path: Path) -> StackLayout:
    spec = StackSpec(secure=True)
    found = StackLayout(spec, tmp_path, {name: 20_000 + n for n, name in enumerate(port_names(spec))})
    prepare_material(found)
    write_config(found)
    return found


def material_of(layout: StackLayout) -> Material:
    assert layout.material is not None
    return layout.material


def test_passwords_differ_stay_and_are_readable_to_their_owner_alone(layout: StackLayout) -> None:
    material = material_of(layout)
    secrets = list(material.secrets())
    assert len(secrets) == len(set(secrets)) >= len(USERS) + 4
    prepare_material(layout)
    assert list(material.secrets()) == secrets
    files = [path for path in material.directory.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE(layout.config_path.stat().st_mode) == 0o600


def test_nobody_but_the_lab_and_brokers_is_above_the_rules(layout: StackLayout) -> None:
    settings = broker_security(material_of(layout), "regional-a")
    assert settings["super.users"] == f"User:{ADMIN};User:{BROKER}"
    assert settings["allow.everyone.if.no.acl.found"] == "false"
    protocols = dict(item.split(":") for item in settings["listener.security.protocol.map"].split(","))
    assert set(protocols.values()) == {"SASL_SSL", "SSL"}
    assert protocols["CLIENTS"] == "SASL_SSL"
    for name in ("controller", "mutual"):
        assert protocols[name.upper()] == "SSL"
        assert settings[f"listener.name.{name}.ssl.client.auth"] == "required"


def test_no_password_stands_on_a_command_line(layout: StackLayout, tmp_path: Path) -> None:
    material = material_of(layout)
    arguments = format_arguments(material, tmp_path / "users.txt")
    assert arguments == [f"@{tmp_path / 'users.txt'}"]
    told = (tmp_path / "users.txt").read_text()
    for user in (*USERS, ADMIN, BROKER):
        assert not any(material.password(user) in argument for argument in arguments)
        assert f"name={user},password={material.password(user)}," in told


def test_cassandra_takes_no_connection_in_plain_text(layout: StackLayout) -> None:
    settings = cassandra_security(material_of(layout), "cassandra")
    for name in ("client_encryption_options", "server_encryption_options"):
        options = settings[name]
        assert isinstance(options, dict)
        assert options["require_client_auth"] is True
        assert options["optional"] is False
    assert settings["authenticator"] == "PasswordAuthenticator"


def test_every_process_is_known_by_a_name_of_its_own(layout: StackLayout) -> None:
    plain = load(layout.config_path, {})
    users = {"": plain.regions["a"].aggregate.security.sasl_username}  # type: ignore[union-attr]
    for process in ("spark", "offsetsvc-a"):
        config = load(layout.config_path, identity(layout, process))
        clusters = [
            cluster
            for region in config.regions.values()
            for cluster in (region.regional, region.aggregate)
            if cluster is not None
        ]
        (users[process],) = {cluster.security.sasl_username for cluster in clusters}
        assert config.service.tls is not None
        assert config.cassandra.tls is not None
        shown = (
            config.service.tls.certificate_chain,
            config.client.certificate_chain,
            config.cassandra.tls.certificate,
        )
        assert [Path(path or "").stem for path in shown] == [process] * 3
    assert users == {"": OPERATOR, "spark": "spark", "offsetsvc-a": "offsetsvc"}


@pytest.mark.parametrize("mechanism", get_args(Mechanism))
def test_everybody_is_told_how_to_prove_who_it_is(layout: StackLayout, mechanism: Mechanism) -> None:
    other = replace(layout, spec=replace(layout.spec, mechanism=mechanism))
    prepare_material(other)
    write_config(other)
    told = {process: identity(other, process) for process in ("spark", "offsetsvc-a")} | {"": {}}
    looking = load(other.config_path, identity(other, "offsetsvc-a") | viewer(other)).client
    assert [Path(path).stem for path in (looking.token_file, looking.certificate_chain) if path] == ["admin"]
    seen = set()
    for process, environment in told.items():
        config = load(other.config_path, environment)
        cluster = config.regions["b"].regional
        assert cluster is not None
        security = cluster.security
        assert (security.sasl_mechanism or "mtls") == mechanism
        assert security.protocol == ("SSL" if mechanism == "mtls" else "SASL_SSL")
        named = security.sasl_oauth.client_id if security.sasl_oauth else security.sasl_username
        seen.add(named or Path(security.ssl_certificate_location or "").stem)
        assert config.service.auth.mode == ("jwt" if mechanism == "OAUTHBEARER" else "mtls")
        shown = config.client.token_file if mechanism == "OAUTHBEARER" else config.client.certificate_chain
        assert Path(shown or "").stem == (process or OPERATOR)
        listener = "/mutual" if mechanism == "mtls" else ""
        assert cluster.bootstrap_servers == f"127.0.0.1:{other.ports[f'regional-b{listener}']}"
        assert all(Path(path).is_file() for path in environment.values() if path.startswith("/"))
    assert seen == {"spark", "offsetsvc", OPERATOR}
    with let_in(other.material):
        assert kafka_cluster("x:1").security.protocol == security.protocol
        with offset_client(["127.0.0.1:1"], CONSUMER):
            pass


def test_brokers_take_every_mechanism_at_once(layout: StackLayout) -> None:
    assert {*MECHANISMS, "mtls"} == set(get_args(Mechanism))
    settings = broker_security(material_of(layout), "regional-a")
    assert settings["sasl.enabled.mechanisms"].split(",") == list(MECHANISMS)
    for listener in ("clients", "far"):
        for mechanism in MECHANISMS:
            assert settings[f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"secure": True, "mechanism": "plain"}, "no 'plain'; there are SCRAM-SHA-512"),
        ({"mechanism": "PLAIN"}, "only a secure stack's brokers ask for PLAIN"),
        ({"secure": True, "mechanism": "mtls", "steerable": True}, "choose another one"),
        ({"secure": True, "mechanism": "mtls", "far": ("aggregate-a",)}, "choose another one"),
    ],
)
def test_a_mechanism_that_cannot_be_is_refused(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        StackSpec(**arguments)  # type: ignore[arg-type] # wrong on purpose


def test_users_have_the_rights_of_what_they_run_and_no_more() -> None:
    for kind in ("regional", "aggregate"):
        for user, processes in USERS.items():
            granted = {(acl.resource, acl.operation) for who, acl in bindings(kind) if who == user}
            needed = {
                (need.resource, need.operation)
                for need in NEEDS
                if need.process in processes and need.cluster == kind
            }
            assert granted == needed, (user, kind)
    assert {user for user, _ in bindings("regional")} == {"operator", "spark", "producer"}
    writers = {user for user, acl in bindings("aggregate") if acl.operation is Operation.WRITE}
    assert writers == {"spark"}


def test_every_process_of_the_list_is_run_by_somebody() -> None:
    assert {process for processes in USERS.values() for process in processes} == set(Process)


def test_another_stack_knows_nothing_of_all_this(tmp_path: Path) -> None:
    spec = StackSpec()
    layout = StackLayout(spec, tmp_path, {name: 20_000 + n for n, name in enumerate(port_names(spec))})
    prepare_material(layout)
    assert not (tmp_path / "security").exists()
    assert identity(layout, "spark") == {}
    assert (
        StackSpec.from_json(StackSpec(secure=True, certificate_life_s=60).to_json()).certificate_life_s == 60
    )


def test_brokers_that_just_speak_tls_have_certificates_and_nothing_else(tmp_path: Path) -> None:
    spec = StackSpec(tls=True)
    layout = StackLayout(spec, tmp_path, {name: 20_000 + n for n, name in enumerate(port_names(spec))})
    prepare_material(layout)
    write_config(layout)

    tls = layout.tls_material
    assert tls is not None
    shown = {path.stem for path in (tmp_path / "security" / "certificates").glob("*.pem")}
    assert shown == {"ca", *(f"{kind}-{region}" for kind in ("regional", "aggregate") for region in "ab")}
    assert not (tmp_path / "security" / "secrets").exists()
    assert broker_certificate(tls, "regional-a")["ssl.keystore.location"] == str(tls.leaf("regional-a").both)
    assert layout.tls_bootstrap("regional-a") != layout.bootstrap("regional-a")
    assert layout.material is None
    assert load(layout.config_path).regions["a"].regional.security.protocol == "PLAINTEXT"


def test_no_password_stands_in_the_configuration_or_the_environment(layout: StackLayout) -> None:
    told = layout.config_path.read_text(encoding="utf-8")
    for process in ("spark", "offsetsvc-b", SCHEMA):
        told += " ".join(identity(layout, process).values())
    assert not [secret for secret in material_of(layout).secrets() if secret in told]


def test_the_labs_clients_are_let_in_while_such_a_stack_runs(layout: StackLayout) -> None:
    assert kafka_client("x:1") == {"bootstrap.servers": "x:1"}
    with let_in(layout.material):
        assert kafka_client("x:1", CONSUMER)["sasl.username"] == CONSUMER
        assert kafka_cluster("x:1").security.sasl_username == ADMIN
        with offset_client(["127.0.0.1:1"], CONSUMER):
            pass
    assert kafka_client("x:1") == {"bootstrap.servers": "x:1"}
    assert kafka_cluster("x:1").security.protocol == "PLAINTEXT"
