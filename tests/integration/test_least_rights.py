"""Every right of the list is needed, and they are enough: what each process does, with all of them and without each one.

On brokers that ask who is there. What is refused names the resource.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs

from lab.stack.secure.brokers import binding
from lab.stack.secure.material import ADMIN, SPARK
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.librdkafka import translated
from parallax.adapters.kafka.topic_settings import SettingsDoor
from parallax.config.config import Cluster, Config
from parallax.domain.acls import (
    NEEDS,
    Acl,
    AclNames,
    AclNeed,
    ClusterKind,
    Operation,
    Pattern,
    Process,
    Resource,
    acls_of,
)
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    Route,
    TargetOffset,
    TopicName,
    TopicPartition,
)
from parallax.errors import ParallaxError
from parallax.ports.clusters import TopicInfo
from parallax.runtime.deadline import Deadline
from parallax.upkeep.settings import SettingsKeeper
from replicator.kafka.canary import CanaryWriter
from replicator.kafka.layout import ensure_layout
from replicator.kafka.run_log import KafkaRunLog
from replicator.kafka.topics import TargetTopics, TopicAdmin, TopicPlan
from replicator.lease import Lease, LeaseProgress, PartitionProgress, PartitionStatus
from replicator.shard import hold_lease
from tests.support import poll_until, unique_name

pytestmark = pytest.mark.stack

PATIENCE_S = 30.0
CALL_MS = 8_000
FETCH_S = 1.0
"""So long a fetch may be under way: it goes by the rights of when it began."""
COPY_S = 30.0
"""So long a copy may take; it ends by itself once all is copied or stopped."""


class Secure:
    """One region whose brokers ask who is there, and one user of it whose rights change."""

    def __init__(self, stack: LocalStack) -> None:
        assert stack.layout.material is not None
        self.stack, self.material = stack, stack.layout.material
        self.admins = {kind: AdminClient(self.client(kind, ADMIN)) for kind in ("regional", "aggregate")}

    def client(self, kind: str, user: str = SPARK) -> dict[str, Any]:
        address = {"bootstrap.servers": self.stack.bootstrap(f"{kind}-a"), "log_level": 0}
        return {**address, **self.material.client_settings(user)}

    def cluster(self, kind: str, user: str = SPARK) -> Cluster:
        section = {"bootstrap_servers": self.stack.bootstrap(f"{kind}-a")}
        return Cluster.model_validate({**section, "security": self.material.cluster_security(user)})

    def grant(self, kind: str, acls: list[Acl]) -> None:
        """These rights, and no others, from now on."""
        admin = self.admins[kind]
        everything = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            f"User:{SPARK}",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for gone in admin.delete_acls([everything]).values():
            gone.result(PATIENCE_S)
        rules = [binding(SPARK, acl) for acl in acls]
        for made in admin.create_acls(rules).values() if rules else ():
            made.result(PATIENCE_S)
        self.heard(kind, everything, set(rules))

    def heard(self, kind: str, of: AclBindingFilter, wanted: set[AclBinding]) -> None:
        """Wait until the broker tells these rules: the controller answers before it has heard of them."""
        admin = self.admins[kind]
        poll_until(lambda: set(admin.describe_acls(of).result(PATIENCE_S)) == wanted, PATIENCE_S, "the rules")


def exactly_of(rule: AclBinding) -> AclBindingFilter:
    """Finds this rule alone."""
    return AclBindingFilter(
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


@dataclass(frozen=True)
class Place:
    """Names of one test's own."""

    secure: Secure
    topic: str

    @property
    def group(self) -> str:
        return f"group-{self.topic}"

    @property
    def route(self) -> Route:
        """From and to a region of the test's own: regions are names alone."""
        return Route(RegionName(self.topic), RegionName(self.topic))

    @property
    def names(self) -> dict[AclNames, list[Pattern]]:
        topic, group = Pattern(self.topic, prefix=True), Pattern(self.group, prefix=True)
        return {
            AclNames.REPLICATED: [topic],
            AclNames.OWN: [Pattern("parallax.", prefix=True)],
            AclNames.DRILL_TOPIC: [topic],
            AclNames.CANARY_TOPIC: [topic],
            AclNames.GROUPS: [group],
            AclNames.DRILL_GROUPS: [group],
            AclNames.APPLICATION_TOPICS: [topic],
            AclNames.APPLICATION_GROUPS: [group],
        }

    def config(self, user: str = SPARK) -> Config:
        sections = {kind: self.secure.cluster(kind, user) for kind in ("regional", "aggregate")}
        return Config.model_validate(
            {
                "regions": {self.topic: sections},
                "cassandra": {"contact_points": ["127.0.0.1"]},
                "topics": {"include": [f"{self.topic}.*"]},
                "replicator": {"discovery_interval_ms": 500},
            }
        )

    def make(self, kind: str, partitions: int = 1) -> TopicInfo:
        admin = self.secure.admins[kind]
        admin.create_topics([NewTopic(self.topic, partitions, 1)])[self.topic].result(PATIENCE_S)
        door = self.door(kind, ADMIN)
        return poll_until(lambda: door.topics().get(TopicName(self.topic)), PATIENCE_S, self.topic)

    def door(self, kind: str, user: str = SPARK) -> TopicAdmin:
        return TopicAdmin(ClusterName(f"{kind}-a"), self.secure.cluster(kind, user), timeout_ms=CALL_MS)

    def fill(self, kind: str, user: str = ADMIN) -> None:
        told: list[Any] = []
        producer = Producer(self.secure.client(kind, user))
        producer.produce(self.topic, value="v", on_delivery=lambda error, _message: told.append(error))
        assert producer.flush(PATIENCE_S) == 0
        if told[0] is not None:
            raise translated(KafkaException(told[0]), ClusterName(f"{kind}-a"), f"producing to {self.topic}")

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(TopicName(self.topic), 0)


# --- what processes do: each raises, or returns what it said ------------------------------------------------------


def copy(place: Place, user: str = SPARK) -> str:
    """Copy a record; what went wrong."""
    config = place.config(user)
    layout = ensure_layout(config, place.route, 1).layout
    lease = Lease(place.route, 0, 1, layout, 1, int((time.time() + COPY_S) * 1_000), available_now=True)
    with capture_logs() as logs:
        result = hold_lease(lease, config, index=None, report=lambda _progress: None)
    return "" if result.records else f"{dict(result.stopped)} {logs}"


def copy_a_record(place: Place) -> str:
    place.make("regional")
    place.fill("regional")
    return copy(place)


def create_the_target(place: Place) -> None:
    TargetTopics(place.config(), place.route).fit(place.make("regional"))


def grow_the_target(place: Place) -> None:
    place.make("aggregate")
    TargetTopics(place.config(), place.route).fit(place.make("regional", 3))


def look_at_settings(kind: str, place: Place) -> None:
    place.make(kind)
    assert place.door(kind).configs([TopicName(place.topic)])


def look_at_own_settings(place: Place) -> None:
    layout = ensure_layout(place.config(ADMIN), place.route, 1)
    assert place.door("aggregate").configs([TopicName(layout.run_log)])


def change_settings(place: Place) -> str:
    """Put a target topic in step; what went wrong."""
    for kind in ("regional", "aggregate"):
        place.make(kind)
    regional = SettingsDoor(
        ClusterName("regional-a"), place.secure.cluster("regional", ADMIN), timeout_ms=CALL_MS
    )
    regional.change(TopicName(place.topic), {"retention.ms": "3600000"})
    keeper = SettingsKeeper(place.config(), place.route.target)
    return "".join(row.line() for row in keeper.carry_out(keeper.plan()) if not row.applied)


def begin_a_run_log(place: Place) -> None:
    ensure_layout(place.config(), place.route, 1)


def grow_the_run_log(place: Place) -> None:
    ensure_layout(place.config(ADMIN), place.route, 1)
    ensure_layout(place.config(), place.route, 2)


def read_the_run_log(place: Place) -> None:
    place.make("regional")
    place.fill("regional")
    assert not copy(place, ADMIN)
    reader = KafkaRunLog(place.config(), place.route, 0, timeout_ms=CALL_MS // 2)
    assert list(reader.read(reader.start(), reader.end()))


def aggregate(place: Place) -> KafkaCluster:
    return KafkaCluster(ClusterName("aggregate-a"), place.secure.cluster("aggregate"), timeout_ms=CALL_MS)


def ask_for_log_ends(place: Place) -> None:
    place.make("aggregate")
    assert aggregate(place).log_ranges([place.partition])


def ask_for_a_time(place: Place) -> None:
    place.make("aggregate")
    place.fill("aggregate")
    assert aggregate(place).time_at(place.partition, TargetOffset(0)) is not None


def commit(place: Place) -> None:
    place.make("aggregate")
    aggregate(place).commit_for(
        GroupName(place.group), {place.partition: GroupCommit(TargetOffset(0), -1, "")}
    )


def ask_for_commits(place: Place) -> None:
    assert aggregate(place).committed(GroupName(place.group)) == {}


def create_the_drills_topic(place: Place) -> None:
    plan = TopicPlan(TopicName(place.topic), 1, {})
    place.door("regional").create(plan, Deadline.after_ms(CALL_MS))


def write_canaries(partitions: int, place: Place) -> None:
    """Into a topic that has so many partitions; 0: that is not there. A route has two shards."""
    if partitions:
        place.make("regional", partitions)
    values = place.config().model_dump(mode="json")
    values["replicator"]["shards_per_route"] = 2
    config = Config.model_validate(values | {"canary": {"enabled": True, "topic": place.topic}})
    CanaryWriter(config, config.source_cluster(place.route), [place.route], "test").round()


def produce(place: Place) -> None:
    place.make("regional")
    place.fill("regional", SPARK)


def consume(place: Place) -> None:
    place.make("aggregate")
    place.fill("aggregate")
    settings = {"group.id": place.group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**place.secure.client("aggregate"), **settings})
    try:
        consumer.subscribe([place.topic])
        message = poll_until(lambda: consumer.poll(0.1), PATIENCE_S, "a record or an error")
        if (error := message.error()) is not None:
            raise translated(KafkaException(error), ClusterName("aggregate-a"), f"consuming as {place.group}")
    finally:
        consumer.close()


DEEDS: dict[tuple[Process, ClusterKind, Resource, AclNames, Operation], Callable[[Place], str | None]] = {
    (Process.REPLICATOR, "regional", Resource.TOPIC, AclNames.REPLICATED, Operation.READ): copy_a_record,
    (
        Process.REPLICATOR,
        "regional",
        Resource.TOPIC,
        AclNames.REPLICATED,
        Operation.DESCRIBE_CONFIGS,
    ): partial(look_at_settings, "regional"),
    (
        Process.REPLICATOR,
        "regional",
        Resource.TOPIC,
        AclNames.CANARY_TOPIC,
        Operation.CREATE,
    ): partial(write_canaries, 0),
    (
        Process.REPLICATOR,
        "regional",
        Resource.TOPIC,
        AclNames.CANARY_TOPIC,
        Operation.WRITE,
    ): partial(write_canaries, 2),
    (
        Process.REPLICATOR,
        "regional",
        Resource.TOPIC,
        AclNames.CANARY_TOPIC,
        Operation.ALTER,
    ): partial(write_canaries, 1),
    (
        Process.REPLICATOR,
        "aggregate",
        Resource.TOPIC,
        AclNames.REPLICATED,
        Operation.CREATE,
    ): create_the_target,
    (Process.REPLICATOR, "aggregate", Resource.TOPIC, AclNames.REPLICATED, Operation.WRITE): copy_a_record,
    (Process.REPLICATOR, "aggregate", Resource.TOPIC, AclNames.REPLICATED, Operation.READ): copy_a_record,
    (Process.REPLICATOR, "aggregate", Resource.TOPIC, AclNames.REPLICATED, Operation.ALTER): grow_the_target,
    (
        Process.REPLICATOR,
        "aggregate",
        Resource.TOPIC,
        AclNames.REPLICATED,
        Operation.DESCRIBE_CONFIGS,
    ): partial(look_at_settings, "aggregate"),
    (
        Process.REPLICATOR,
        "aggregate",
        Resource.TOPIC,
        AclNames.REPLICATED,
        Operation.ALTER_CONFIGS,
    ): change_settings,
    (
        Process.REPLICATOR,
        "aggregate",
        Resource.GROUP,
        AclNames.GROUPS,
        Operation.DESCRIBE,
    ): ask_for_commits,
    (Process.REPLICATOR, "aggregate", Resource.TOPIC, AclNames.OWN, Operation.CREATE): begin_a_run_log,
    (Process.REPLICATOR, "aggregate", Resource.TOPIC, AclNames.OWN, Operation.WRITE): begin_a_run_log,
    (Process.REPLICATOR, "aggregate", Resource.TOPIC, AclNames.OWN, Operation.READ): read_the_run_log,
    (Process.REPLICATOR, "aggregate", Resource.TOPIC, AclNames.OWN, Operation.ALTER): grow_the_run_log,
    (
        Process.REPLICATOR,
        "aggregate",
        Resource.TOPIC,
        AclNames.OWN,
        Operation.DESCRIBE_CONFIGS,
    ): look_at_own_settings,
    (
        Process.REPLICATOR,
        "aggregate",
        Resource.TRANSACTIONAL_ID,
        AclNames.OWN,
        Operation.WRITE,
    ): begin_a_run_log,
    (
        Process.OFFSET_SERVICE,
        "aggregate",
        Resource.TOPIC,
        AclNames.REPLICATED,
        Operation.DESCRIBE,
    ): ask_for_log_ends,
    (
        Process.OFFSET_SERVICE,
        "aggregate",
        Resource.TOPIC,
        AclNames.REPLICATED,
        Operation.READ,
    ): ask_for_a_time,
    (
        Process.OFFSET_SERVICE,
        "aggregate",
        Resource.GROUP,
        AclNames.GROUPS,
        Operation.DESCRIBE,
    ): ask_for_commits,
    (Process.OFFSET_SERVICE, "aggregate", Resource.GROUP, AclNames.GROUPS, Operation.READ): commit,
    (Process.SYNC_JOB, "aggregate", Resource.TOPIC, AclNames.REPLICATED, Operation.READ): commit,
    (Process.SYNC_JOB, "aggregate", Resource.GROUP, AclNames.GROUPS, Operation.READ): commit,
    (Process.OPERATOR, "aggregate", Resource.TOPIC, AclNames.REPLICATED, Operation.READ): commit,
    (Process.OPERATOR, "aggregate", Resource.TOPIC, AclNames.OWN, Operation.READ): read_the_run_log,
    (
        Process.OPERATOR,
        "aggregate",
        Resource.TOPIC,
        AclNames.OWN,
        Operation.DESCRIBE_CONFIGS,
    ): look_at_own_settings,
    (Process.OPERATOR, "aggregate", Resource.GROUP, AclNames.GROUPS, Operation.READ): commit,
    (
        Process.DRILL,
        "regional",
        Resource.TOPIC,
        AclNames.DRILL_TOPIC,
        Operation.CREATE,
    ): create_the_drills_topic,
    (Process.DRILL, "regional", Resource.TOPIC, AclNames.DRILL_TOPIC, Operation.WRITE): produce,
    (Process.DRILL, "aggregate", Resource.TOPIC, AclNames.DRILL_TOPIC, Operation.READ): consume,
    (Process.DRILL, "aggregate", Resource.GROUP, AclNames.DRILL_GROUPS, Operation.READ): consume,
    (Process.CONSUMER, "aggregate", Resource.TOPIC, AclNames.APPLICATION_TOPICS, Operation.READ): consume,
    (Process.CONSUMER, "aggregate", Resource.GROUP, AclNames.APPLICATION_GROUPS, Operation.READ): consume,
    (Process.PRODUCER, "regional", Resource.TOPIC, AclNames.APPLICATION_TOPICS, Operation.WRITE): produce,
}
"""For each right, something that needs it."""


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """Brokers of one region."""
    spec = StackSpec(regions=("a",), services=False, store=False, secure=True)
    with LocalStack(spec, Path(tmp_path_factory.mktemp("secure"))) as stack:
        yield Secure(stack)


def key(need: AclNeed) -> tuple[Process, ClusterKind, Resource, AclNames, Operation]:
    return need.process, need.cluster, need.resource, need.names, need.operation


def rights(place: Place, need: AclNeed, *, with_it: bool) -> dict[str, list[Acl]]:
    """Of the need's process at both clusters; without it a lesser right is left, so that the resource can be seen."""
    found = {kind: acls_of({need.process}, kind, place.names) for kind in ("regional", "aggregate")}  # type: ignore[arg-type] # a literal
    if not with_it:
        taken = [Acl(need.resource, pattern, need.operation) for pattern in place.names[need.names]]
        lesser = [Acl(need.resource, acl.pattern, Operation.DESCRIBE) for acl in taken]
        implied = need.operation in {Operation.READ, Operation.WRITE, Operation.ALTER}
        if need.operation is Operation.DESCRIBE_CONFIGS:  # who may alter settings may see them
            taken += [Acl(need.resource, acl.pattern, Operation.ALTER_CONFIGS) for acl in taken]
        keep = [acl for acl in found[need.cluster] if acl not in taken]
        if need.operation is Operation.DESCRIBE:
            keep = [
                acl
                for acl in keep
                if acl.resource is not need.resource or acl.pattern not in place.names[need.names]
            ]
        found[need.cluster] = keep + [acl for acl in lesser if implied and acl not in keep]
    return found


# --- a topic for which one right is missing, beside one that has all ----------------------------------------------


class Pair:
    """Two topics on one route, one of which has all rights, under one lease that is held all the time.

    Args:
        secure: the brokers.
        copy_path: of the lease.
    """

    def __init__(self, secure: Secure, copy_path: str) -> None:
        self.secure = secure
        self.held, self.free = (Place(secure, unique_name(f"{name}-")) for name in ("held", "free"))
        values = self.held.config().model_dump(mode="json")
        values["topics"]["include"] = [self.held.topic, self.free.topic]
        values["replicator"] |= {
            "copy_path": copy_path,
            "discovery_interval_ms": 500,
            "watermark_interval_ms": 300,
        }
        self.config = Config.model_validate(values)
        self.reports: list[LeaseProgress] = []
        self.failure: BaseException | None = None
        self._end = threading.Event()

    def allow_all(self) -> None:
        """Every right of the list, for both topics."""
        names = {**self.held.names, AclNames.REPLICATED: [Pattern(self.held.topic), Pattern(self.free.topic)]}
        for kind in ("regional", "aggregate"):
            self.secure.grant(kind, acls_of({Process.REPLICATOR}, kind, names))  # type: ignore[arg-type] # a literal

    def take(self, kind: str, operation: Operation, *, shown: bool) -> None:
        """One right of the first topic away, and no other for a moment; ``shown``: the topic can be seen all the same."""
        if shown:
            self.give(kind, Operation.DESCRIBE)
        self.remove(kind, Acl(Resource.TOPIC, Pattern(self.held.topic), operation))

    def remove(self, kind: str, acl: Acl) -> None:
        """A right of the replicator's away."""
        exactly = exactly_of(binding(SPARK, acl))
        for gone in self.secure.admins[kind].delete_acls([exactly]).values():
            assert gone.result(PATIENCE_S)
        self.secure.heard(kind, exactly, set())
        time.sleep(FETCH_S)

    def give(self, kind: str, operation: Operation) -> None:
        """A right of the first topic."""
        self.add(kind, Acl(Resource.TOPIC, Pattern(self.held.topic), operation))

    def add(self, kind: str, acl: Acl) -> None:
        """A right of the replicator's."""
        rule = binding(SPARK, acl)
        for made in self.secure.admins[kind].create_acls([rule]).values():
            made.result(PATIENCE_S)
        self.secure.heard(kind, exactly_of(rule), {rule})

    @contextmanager
    def copying(self) -> Iterator[None]:
        """While a lease is held."""
        route = self.held.route
        layout = ensure_layout(self.config, route, 1).layout
        lease = Lease(route, 0, 1, layout, 1, int((time.time() + 10 * PATIENCE_S) * 1_000))

        def hold() -> None:
            try:
                hold_lease(
                    lease, self.config, index=None, report=self.reports.append, end_asked=self._end.is_set
                )
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                self.failure = error

        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert self.failure is None

    def part(self, place: Place) -> PartitionProgress | None:
        """What was last said of the place's partition."""
        parts = self.reports[-1].partitions if self.reports else ()
        return next((part for part in parts if part.topic == place.topic), None)

    def produce(self, place: Place, *values: str) -> None:
        producer = Producer(self.secure.client("regional", ADMIN))
        for value in values:
            producer.produce(place.topic, value=value)
        assert producer.flush(PATIENCE_S) == 0

    def copied(self, place: Place) -> list[str]:
        """The values of the place's topic at the target."""
        settings = {
            "group.id": "look",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        consumer = Consumer({**self.secure.client("aggregate", ADMIN), **settings})
        consumer.assign([KafkaPartition(place.topic, 0, 0)])
        found: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    found.append((message.value() or b"").decode())
                elif message is not None:
                    break
        finally:
            consumer.close()
        return found


@pytest.mark.parametrize(
    ("kind", "operation", "shown"),
    [
        ("regional", Operation.READ, True),
        ("regional", Operation.READ, False),
        ("aggregate", Operation.READ, True),
        ("aggregate", Operation.WRITE, True),
    ],
    ids=["source-read", "source-hidden", "target-read", "target-write"],
)
@pytest.mark.parametrize("copy_path", ["batch", "record"])
def test_a_topic_without_a_right_is_stopped_alone_and_goes_on_by_itself_once_it_is_given(
    secure: Secure, copy_path: str, kind: str, operation: Operation, *, shown: bool
) -> None:
    pair = Pair(secure, copy_path)
    pair.allow_all()
    for place in (pair.held, pair.free):
        place.make("regional")
    with pair.copying():
        for place in (pair.held, pair.free):
            pair.produce(place, "1")
            poll_until(lambda it=place: pair.copied(it) == ["1"], 2 * PATIENCE_S, "the first record")  # type: ignore[misc]
        pair.take(kind, operation, shown=shown)
        for place in (pair.held, pair.free):
            pair.produce(place, "2", "3")
        poll_until(
            lambda: (part := pair.part(pair.held)) is not None and part.status is PartitionStatus.STOPPED,
            2 * PATIENCE_S,
            "the stop",
        )
        told = pair.part(pair.held)
        assert told is not None
        assert f"{operation} on topic {pair.held.topic} at {kind}-{pair.held.topic}" in told.reason
        assert told.source_next == 1
        poll_until(lambda: pair.copied(pair.free) == ["1", "2", "3"], 2 * PATIENCE_S, "the other topic")
        pair.produce(pair.free, "4")
        poll_until(lambda: pair.copied(pair.free) == ["1", "2", "3", "4"], 2 * PATIENCE_S, "once more")
        assert pair.copied(pair.held) == ["1"]
        pair.give(kind, operation)
        poll_until(lambda: pair.copied(pair.held) == ["1", "2", "3"], 2 * PATIENCE_S, "what had stopped")
        poll_until(
            lambda: (part := pair.part(pair.held)) is not None and part.status is PartitionStatus.COPYING,
            PATIENCE_S,
            "that it goes on",
        )
    assert pair.copied(pair.held) == ["1", "2", "3"]
    assert pair.copied(pair.free) == ["1", "2", "3", "4"]
    told_stops = {part.reason for report in pair.reports for part in report.partitions if part.reason}
    assert len(told_stops) <= 1 + (not shown), told_stops


@pytest.mark.parametrize("copy_path", ["batch", "record"])
def test_a_shard_without_its_transactional_id_waits_by_name_and_goes_on_once_it_may(
    secure: Secure, copy_path: str
) -> None:
    pair = Pair(secure, copy_path)
    pair.allow_all()
    pair.free.make("regional")
    own = Acl(Resource.TRANSACTIONAL_ID, Pattern("parallax.", prefix=True), Operation.WRITE)
    with pair.copying():
        pair.produce(pair.free, "1")
        poll_until(lambda: pair.copied(pair.free) == ["1"], 2 * PATIENCE_S, "the first record")
        pair.remove("aggregate", own)
        pair.produce(pair.free, "2")
        poll_until(lambda: pair.reports[-1].waiting_for, 2 * PATIENCE_S, "that the shard waits")
        told = pair.reports[-1].waiting_for
        assert told.startswith("RIGHT_MISSING: Write on transactional id parallax."), told
        assert f"at aggregate-{pair.held.topic} " in told
        assert pair.copied(pair.free) == ["1"]
        pair.add("aggregate", own)
        poll_until(lambda: pair.copied(pair.free) == ["1", "2"], 2 * PATIENCE_S, "what waited")
        poll_until(lambda: not pair.reports[-1].waiting_for, PATIENCE_S, "that it goes on")


def test_there_is_a_deed_for_every_right() -> None:
    assert set(DEEDS) == {key(need) for need in NEEDS}


@pytest.mark.parametrize("with_it", [True, False], ids=["with", "without"])
@pytest.mark.parametrize("need", NEEDS, ids=lambda need: "-".join(key(need)).replace(" ", "_"))
def test_each_right_is_needed_and_all_are_enough(secure: Secure, need: AclNeed, *, with_it: bool) -> None:
    place = Place(secure, unique_name("t"))
    for kind, acls in rights(place, need, with_it=with_it).items():
        secure.grant(kind, acls)
    deed = DEEDS[key(need)]
    said, code = "", "CONFIG"
    try:
        said = deed(place) or ""
    except ParallaxError as error:
        said, code = str(error), error.code
    if with_it:
        assert said == ""
        return
    assert code == "CONFIG" or need.operation is Operation.ALTER, said
    assert "authorization" in said.lower()
    shown = {
        Resource.GROUP: place.group,
        Resource.TRANSACTIONAL_ID: "transactional",
        Resource.TOPIC: "parallax." if need.names is AclNames.OWN else place.topic,
    }
    assert shown[need.resource] in said
