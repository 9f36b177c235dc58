"""Rules of access follow their sources' on brokers that ask who is there, and beside MirrorMaker 2."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs
from typer.testing import CliRunner

from lab.bench.sides.mirrormaker import Flow, mirrormaker_spec, settings_of
from lab.stack.java import find_java
from lab.stack.process import Launcher, ManagedProcess
from lab.stack.secure.material import ADMIN, CONSUMER, PRODUCER, USERS
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from parallax.adapters.kafka.access_rules import AccessDoor
from parallax.cli import audited
from parallax.cli.acl import app
from parallax.config.config import Cluster, Config
from parallax.domain.access_rules import AccessKind, AccessOperation, AccessRule, NameMatch
from parallax.domain.audit import AuditStage
from parallax.domain.ids import ClusterName, RegionName
from parallax.ports.audit import Auditor
from parallax.runtime.deadline import wall_clock_ms
from parallax.upkeep.access import AccessKeeper
from tests.memory.audit import MemoryAuditLog
from tests.support import poll_until, unique_name

pytestmark = pytest.mark.stack

PATIENCE_S = 60.0
CALL_MS = 10_000
REFUSED = KafkaError.TOPIC_AUTHORIZATION_FAILED


class Guarded:
    """A regional and an aggregate cluster that ask who is there, and a topic in both."""

    def __init__(self, stack: LocalStack) -> None:
        assert stack.layout.material is not None
        self.stack, self.material = stack, stack.layout.material
        self.doors = {
            kind: AccessDoor(ClusterName(f"{kind}-a"), self.cluster(kind), timeout_ms=CALL_MS)
            for kind in ("regional", "aggregate")
        }

    def section(self, kind: str) -> dict[str, Any]:
        address = {"bootstrap_servers": self.stack.bootstrap(f"{kind}-a")}
        return {**address, "security": self.material.cluster_security(ADMIN)}

    def cluster(self, kind: str) -> Cluster:
        return Cluster.model_validate(self.section(kind))

    def client(self, kind: str, user: str) -> dict[str, Any]:
        address = {"bootstrap.servers": self.stack.bootstrap(f"{kind}-a"), "log_level": 0}
        return {**address, **self.material.client_settings(user)}

    def topic(self, name: str) -> str:
        for kind in self.doors:
            admin = AdminClient(self.client(kind, ADMIN))
            admin.create_topics([NewTopic(name, 1, 1)])[name].result(PATIENCE_S)
            poll_until(lambda admin=admin: name in admin.list_topics(timeout=10).topics, PATIENCE_S, name)  # type: ignore[misc]
        return name

    def forget(self, kind: str, user: str) -> None:
        """Take every rule about topics away that a user has; groups are no matter here."""
        found = [rule for rule in self.doors[kind].read() if rule.principal == f"User:{user}"]
        self.take(kind, [rule for rule in found if rule.kind is AccessKind.TOPIC])

    def values(self, topic: str, **acl_sync: Any) -> dict[str, Any]:
        return {
            "regions": {topic: {kind: self.section(kind) for kind in ("regional", "aggregate")}},
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "topics": {"include": [f"{topic}.*"], "acl_sync": acl_sync},
        }

    def give(self, kind: str, rules: Sequence[AccessRule]) -> None:
        """Add rules and wait until the broker tells them: the controller answers before it has heard of them."""
        door = self.doors[kind]
        assert not door.add(rules)
        poll_until(lambda: set(rules) <= set(door.read()), PATIENCE_S, "the rules are there")

    def take(self, kind: str, rules: Sequence[AccessRule]) -> None:
        """Take rules away and wait until the broker has heard of it."""
        door = self.doors[kind]
        assert not door.remove(rules)
        poll_until(lambda: not set(rules) & set(door.read()), PATIENCE_S, "the rules are gone")

    def rules(self, topic: str) -> frozenset[AccessRule]:
        """Those of the target about topics whose names begin or end so."""
        return frozenset(
            rule
            for rule in self.doors["aggregate"].read()
            if rule.kind is AccessKind.TOPIC and topic in rule.name
        )


def rule(
    name: str,
    user: str,
    operation: AccessOperation,
    *,
    match: NameMatch = NameMatch.LITERAL,
    allow: bool = True,
    kind: AccessKind = AccessKind.TOPIC,
) -> AccessRule:
    return AccessRule(kind, match, name, f"User:{user}", "*", operation, allow)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    spec = StackSpec(regions=("a",), services=False, store=False, secure=True)
    with LocalStack(spec, Path(tmp_path_factory.mktemp("guarded"))) as stack:
        yield Guarded(stack)


def reads(guarded: Guarded, topic: str) -> int | None:
    """What a consumer hears that reads the copy: an error's code, or None for a record."""
    settings = {
        "group.id": unique_name("reader"),
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer({**guarded.client("aggregate", CONSUMER), **settings})
    try:
        consumer.subscribe([topic])
        message = poll_until(lambda: consumer.poll(0.2), PATIENCE_S, "a record or an error")
        error = message.error()
        return None if error is None else int(error.code())
    finally:
        consumer.close()


def writes(guarded: Guarded, topic: str, user: str) -> int | None:
    told: list[KafkaError | None] = []
    producer = Producer(guarded.client("aggregate", user))
    producer.produce(topic, value="v", on_delivery=lambda error, _message: told.append(error))
    assert producer.flush(PATIENCE_S) == 0
    return None if told[0] is None else int(told[0].code())


def test_a_principal_is_refused_then_admitted_then_promoted_and_back(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = MemoryAuditLog()  # the cluster alone is real here
    monkeypatch.setattr(audited, "open_auditor", lambda _config: nullcontext(Auditor(kept, wall_clock_ms)))
    topic = guarded.topic(unique_name("moved"))
    for kind in guarded.doors:
        for user in USERS:
            guarded.forget(kind, user)
    file = tmp_path / "parallax.yaml"
    file.write_text(yaml.safe_dump(guarded.values(topic)), encoding="utf-8")

    def ran(*arguments: str) -> tuple[int, list[str]]:
        with capture_logs():  # in a process of its own a command logs to standard error
            result = CliRunner().invoke(app, [*arguments, "--config", str(file), "-o", "json"])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, [row["state"] for row in json.loads(result.stdout)]

    assert writes(guarded, topic, ADMIN) is None
    assert reads(guarded, topic) == REFUSED
    given = [
        rule(topic[:-3], CONSUMER, AccessOperation.ALL, match=NameMatch.PREFIXED),
        rule(topic, PRODUCER, AccessOperation.WRITE),
    ]
    foreign = rule(topic, "somebody", AccessOperation.READ)
    guarded.give("regional", given)
    guarded.give("aggregate", [foreign])

    assert ran("sync") == (0, ["ADD"])
    assert reads(guarded, topic) == REFUSED
    assert ran("sync", "--execute") == (0, ["ADDED"])
    admitted = {rule(topic, CONSUMER, AccessOperation.READ), foreign}
    poll_until(lambda: guarded.rules(topic) == admitted, PATIENCE_S, "the rule that was added")
    poll_until(lambda: reads(guarded, topic) is None, PATIENCE_S, "it may read")
    assert ran("diff", "--withheld") == (0, ["ACL_WITHHELD", "ACL_WITHHELD"])

    assert writes(guarded, topic, PRODUCER) == REFUSED
    assert ran("promote", "--to", topic) == (0, ["ACL_WITHHELD", "ACL_WITHHELD"])
    assert ran("promote", "--to", topic, "--execute") == (0, ["ADDED", "ADDED"])
    poll_until(lambda: writes(guarded, topic, PRODUCER) is None, PATIENCE_S, "it may write")
    assert ran("sync", "--execute") == (0, [])
    code, others = ran("check", "--own", f"User:{CONSUMER}")
    assert (code, others) == (1, [""] * len(others))
    assert ran("demote", "--to", topic, "--execute") == (0, ["REMOVED", "REMOVED"])
    poll_until(lambda: writes(guarded, topic, PRODUCER) == REFUSED, PATIENCE_S, "it may not write")

    guarded.take("regional", given)
    assert ran("sync", "--execute") == (0, ["REMOVED"])
    poll_until(lambda: guarded.rules(topic) == {foreign}, PATIENCE_S, "the rule that was removed")
    poll_until(lambda: reads(guarded, topic) == REFUSED, PATIENCE_S, "it may not read")
    done = [entry.call for entry in kept.entries() if entry.stage is AuditStage.DONE]
    assert done == ["acl sync", "acl promote", "acl demote", "acl sync"]


def test_mode_mm2_is_the_set_that_mirror_maker_2_makes(
    guarded: Guarded, topic_name: str, tmp_path: Path
) -> None:
    topic, theirs = guarded.topic(topic_name), f"src.{topic_name}"
    users: Sequence[tuple[str, AccessOperation, bool]] = [
        *((f"u-{operation.value.lower()}", operation, True) for operation in AccessOperation),
        ("denied", AccessOperation.WRITE, False),
        ("denied", AccessOperation.ALL, False),
    ]
    given = [rule(topic, user, operation, allow=allow) for user, operation, allow in users]
    given += [
        rule(topic[:-3], "prefixed", AccessOperation.READ, match=NameMatch.PREFIXED),
        rule(topic, "grouped", AccessOperation.READ, kind=AccessKind.GROUP),
    ]
    guarded.give("regional", given)
    config = Config.model_validate(guarded.values(topic, mode="mm2"))
    keeper = AccessKeeper(config, RegionName(topic))
    planned = keeper.plan()
    assert planned
    assert all(row.applied for row in keeper.carry_out(planned))
    wanted = {
        ("User:u-all", AccessOperation.READ, True),
        *(
            (f"User:{user}", operation, allow)
            for user, operation, allow in users
            if user not in ("u-all", "u-write")
        ),
    }

    def made() -> set[AccessRule]:
        return {item for item in guarded.rules(topic) if item.name == topic}

    poll_until(lambda: len(made()) >= len(wanted), PATIENCE_S, "the rules that were added")
    ours = made()
    assert {(item.principal, item.operation, item.allow) for item in ours} == wanted

    flow = Flow(
        "src",
        "dst",
        guarded.stack.bootstrap("regional-a"),
        guarded.stack.bootstrap("aggregate-a"),
        [topic],
        tasks=1,
    )
    settings = settings_of([flow], "latency") | {
        "replication.policy.class": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
        "src->dst.sync.topic.acls.enabled": "true",
        "sync.topic.acls.enabled": "true",
        "sync.topic.acls.interval.seconds": "2",
    }
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{ADMIN}" password="{guarded.material.password(ADMIN)}";'
    )
    for alias in ("src", "dst"):
        settings |= {
            f"{alias}.security.protocol": "SASL_SSL",
            f"{alias}.sasl.mechanism": "SCRAM-SHA-512",
            f"{alias}.sasl.jaas.config": jaas,
            f"{alias}.ssl.truststore.type": "PEM",
            f"{alias}.ssl.truststore.location": str(guarded.material.ca),
        }
    java, launcher = find_java(), Launcher()
    environment = os.environ | {"JAVA_HOME": str(java.home)}
    name = unique_name("mirrormaker2")
    process = ManagedProcess(
        mirrormaker_spec(name, settings, java=java, directory=tmp_path, environment=environment), launcher
    )

    def of_mirror_maker() -> set[AccessRule]:
        return {
            rule(topic, item.principal.removeprefix("User:"), item.operation, allow=item.allow)
            for item in guarded.rules(topic)
            if item.name == theirs
        }

    try:
        process.start()
        poll_until(lambda: of_mirror_maker() == ours, 2 * PATIENCE_S, "the same set")
    finally:
        process.kill()
        launcher.close()
