"""One route between two real clusters, with regions of its own so that tests never meet."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from parallax.config.config import Config
from parallax.domain.history import History
from parallax.domain.ids import Lineage, RegionName, Route, TopicPartition
from parallax.domain.runs import LostRange, Run
from parallax.ports.index import MappingIndexWriter
from replicator.copying.state import lineage_of, lost_of, rows_of, topic_partition_of
from replicator.kafka.layout import ensure_layout
from replicator.kafka.run_log import KafkaRunLog
from replicator.lease import Lease, LeaseProgress, LeaseResult
from replicator.shard import hold_lease
from tests.support import Stack, poll_until, unique_name

PATIENCE_S = 60.0
LEASE_S = 600.0
"""A lease outlasts its test, in which each wait may take `PATIENCE_S`."""
_MARKERS_WITHIN_S = 5.0

Record = tuple[bytes | None, bytes | None, Any, Any]
"""Key, value, headers, (timestamp type, milliseconds)."""


@dataclass(slots=True)
class Owner:
    """A lease held in a thread."""

    lease: Lease
    thread: threading.Thread | None = None
    end: threading.Event = field(default_factory=threading.Event)
    progress: list[LeaseProgress] = field(default_factory=list)
    result: LeaseResult | None = None
    failure: BaseException | None = None

    def finish(self) -> LeaseResult:
        """Let it end, and hand out what it did; what it raised is raised here."""
        self.end.set()
        assert self.thread is not None
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive(), "the lease does not end"
        if self.failure is not None:
            raise self.failure
        assert self.result is not None
        return self.result

    def reason(self, item: str) -> str:
        """Why the partition is stopped, as last reported."""
        return self.reasons().get(item, "")

    def reasons(self) -> Mapping[str, str]:
        """All reasons as last reported."""
        if not self.progress:
            return {}
        return {f"{part.topic}-{part.partition}": part.reason for part in self.progress[-1].partitions}


class Harness:
    """Topics and leases of one route."""

    def __init__(
        self,
        stack: Stack,
        topic: str,
        copy_path: str = "batch",
        clusters: tuple[str, str] = ("regional-a", "aggregate-b"),
        source_replicas: int = 1,
    ) -> None:
        name = unique_name("r")
        self.copy_path = copy_path
        self.source_replicas = source_replicas
        self.topic = topic
        self.route = Route(RegionName(f"{name}s"), RegionName(f"{name}t"))
        self.source = stack.bootstrap(clusters[0])
        # librdkafka lets half a second pass before it asks for a producer id: a lone broker, which lives, is sent none.
        self._delivery = {"enable.idempotence": True} if "," in self.source else {"max.in.flight": 1}
        self.target = stack.bootstrap(clusters[1])
        self.source_admin = AdminClient({"bootstrap.servers": self.source})
        self.target_admin = AdminClient({"bootstrap.servers": self.target})

    def config(self, *, source: str | None = None, **replicator: Any) -> Config:
        """The configuration of the route; ``source`` replaces the source's address."""
        return Config.model_validate(
            {
                "regions": {
                    self.route.source: {"regional": {"bootstrap_servers": source or self.source}},
                    self.route.target: {"aggregate": {"bootstrap_servers": self.target}},
                },
                "cassandra": {"contact_points": ["127.0.0.1"]},
                "topics": {"include": [f"{self.topic}.*"]},
                "replicator": {
                    "discovery_interval_ms": 1_000,
                    "watermark_interval_ms": 300,
                    "copy_path": self.copy_path,
                    **replicator,
                },
            }
        )

    def create(self, partitions: int = 1, topic: str | None = None, **settings: str) -> str:
        """Create the source topic; its id."""
        return create(self.source_admin, topic or self.topic, partitions, settings, self.source_replicas)

    def lease(self, config: Config, *, shard: int = 0, shards: int = 1, available_now: bool = False) -> Lease:
        """A lease of the shard under the route's layout, which is made if need be."""
        layout = ensure_layout(config, self.route, shards).layout
        deadline = int((time.time() + LEASE_S) * 1_000)
        return Lease(self.route, shard, shards, layout, 1, deadline, available_now)

    def copy_now(self, config: Config | None = None, index: MappingIndexWriter | None = None) -> LeaseResult:
        """Copy to today's end."""
        config = config or self.config()
        lease = self.lease(config, available_now=True)
        result = hold_lease(lease, config, index=index, report=lambda _progress: None)
        await_markers(self.target, self.topic)
        return result

    def own(
        self,
        config: Config | None = None,
        index: MappingIndexWriter | None = None,
        lease: Lease | None = None,
    ) -> Owner:
        """Hold a lease in a thread."""
        config = config or self.config()
        owner = Owner(lease or self.lease(config))

        def work() -> None:
            try:
                owner.result = hold_lease(
                    owner.lease,
                    config,
                    index=index,
                    report=owner.progress.append,
                    end_asked=owner.end.is_set,
                )
            except BaseException as error:  # noqa: BLE001 - handed to the test by finish()
                owner.failure = error

        owner.thread = threading.Thread(target=work, name=str(owner.lease), daemon=True)
        owner.thread.start()
        return owner

    def produce(self, values: Iterable[str], partition: int = 0, topic: str | None = None) -> None:
        """Write records whose value is also their key."""
        producer = Producer({"bootstrap.servers": self.source, "linger.ms": 5, **self._delivery})
        for value in values:
            producer.produce(topic or self.topic, value=value, key=value, partition=partition)
        assert producer.flush(PATIENCE_S) == 0

    def wait_for_markers(self) -> None:
        """Wait until no transaction is open at the source: a commit returns before its markers are written."""

        def written() -> bool:
            return bool(ends(self.source, self.topic)) and not is_open(self.source, self.topic)

        poll_until(written, PATIENCE_S, f"the markers of {self.topic}")

    def copied(self, topic: str | None = None) -> dict[int, list[str]]:
        """The values on the target, by partition."""
        return {
            partition: [(value or b"").decode() for _, value, _, _ in records]
            for partition, records in content(self.target, topic or self.topic).items()
        }

    def wait_for(self, expected: Mapping[int, list[str]], topic: str | None = None) -> None:
        """Wait until the target holds exactly these values."""
        wanted = {partition: values for partition, values in expected.items() if values}
        poll_until(lambda: self.copied(topic) == wanted, PATIENCE_S, f"{wanted} in {topic or self.topic}")

    def rows(
        self, shard: int = 0, config: Config | None = None
    ) -> dict[tuple[TopicPartition, Lineage], tuple[list[Run], list[LostRange]]]:
        """What the run log says, in order."""
        found: dict[tuple[TopicPartition, Lineage], tuple[list[Run], list[LostRange]]] = defaultdict(
            lambda: ([], [])
        )
        reader = KafkaRunLog(config or self.config(), self.route, shard)
        for _, entry in reader.read(reader.start(), reader.end()):
            for part in entry.partitions:
                runs, lost = found[topic_partition_of(part), lineage_of(part)]
                runs += rows_of(part)
                lost += lost_of(part)
        return dict(found)


def seen(record: Record) -> tuple[Any, ...]:
    """What a reader sees of a record, whoever set its time."""
    key, value, headers, (_, timestamp_ms) = record
    return key, value, headers, timestamp_ms


def check_rows(harness: Harness, shards: int = 1, topic: str | None = None) -> int:
    """Each run points at the same record on both sides, and each copied record is in one; how many there are."""
    topic = topic or harness.topic
    there = {(partition, offset): record for partition, offset, record in numbered(harness.source, topic)}
    here = {(partition, offset): record for partition, offset, record in numbered(harness.target, topic)}
    mapped = 0
    for shard in range(shards):
        for (item, lineage), (rows, lost) in harness.rows(shard).items():
            if item.topic != topic:
                continue
            History(lineage, rows, lost)
            for row in rows:
                for index in range(row.count):
                    mapped += 1
                    source = there[item.partition, row.source_start + index]
                    assert seen(here[item.partition, row.target_start + index]) == seen(source)
    assert mapped == len(here)
    return mapped


def same_on_both_sides(harness: Harness, topic: str | None = None) -> int:
    """Compare every record and every run; how many there are."""
    topic = topic or harness.topic
    there, here = content(harness.source, topic), content(harness.target, topic)
    assert {partition: [seen(record) for record in records] for partition, records in here.items()} == {
        partition: [seen(record) for record in records] for partition, records in there.items()
    }
    assert check_rows(harness, topic=topic) == sum(map(len, there.values()))
    return sum(map(len, there.values()))


def ends(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> list[int]:
    """High watermarks of the topic's partitions, or last stable offsets; empty while they are not there."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ends",
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    try:
        known = consumer.list_topics(topic, timeout=10).topics[topic]
        if known.error is not None:
            return []
        found = (
            consumer.get_watermark_offsets(KafkaPartition(topic, number), timeout=10)
            for number in sorted(known.partitions)
        )
        return [0 if pair is None else pair[1] for pair in found]
    except KafkaException:  # a topic that was just created may have no leader yet
        return []
    finally:
        consumer.close()


def hold_in_process(config: str, lease: Lease) -> None:
    """Hold a lease in a process of its own, which a test may kill."""
    hold_lease(lease, Config.model_validate_json(config), index=None, report=lambda _progress: None)


def create(
    admin: AdminClient, topic: str, partitions: int, settings: Mapping[str, str], replicas: int = 1
) -> str:
    """Create a topic, also one of a name that is just being deleted; its id."""

    def attempt() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, replicas, config=dict(settings))])[
                topic
            ].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return False
            raise
        return True

    poll_until(attempt, PATIENCE_S, f"creating {topic}")
    return str(poll_until(lambda: described(admin, topic), PATIENCE_S, f"describing {topic}"))


def described(admin: AdminClient, topic: str) -> str | None:
    """The topic's id; None while it is not there."""
    try:
        return str(admin.describe_topics(TopicCollection([topic]))[topic].result().topic_id)
    except KafkaException:
        return None


def await_markers(bootstrap: str, topic: str) -> None:
    """Let the markers of what was committed be written, for a commit returns before; somebody else's transaction may stay open."""
    deadline = time.monotonic() + _MARKERS_WITHIN_S
    while is_open(bootstrap, topic) and time.monotonic() < deadline:
        time.sleep(0.01)


def is_open(bootstrap: str, topic: str) -> bool:
    """Whether a transaction has no marker yet in a partition of the topic."""
    return ends(bootstrap, topic) != ends(bootstrap, topic, "read_committed")


def content(bootstrap: str, topic: str) -> dict[int, list[Record]]:
    """Every committed record of the topic."""
    found: dict[int, list[Record]] = defaultdict(list)
    for partition, _, record in numbered(bootstrap, topic):
        found[partition].append(record)
    return dict(found)


def numbered(bootstrap: str, topic: str) -> list[tuple[int, int, Record]]:
    """Every committed record as (partition, offset, record)."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "content",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[tuple[int, int, Record]] = []
    try:
        known = consumer.list_topics(topic, timeout=10).topics[topic]
        waiting = set(known.partitions) if known.error is None else set()
        consumer.assign([KafkaPartition(topic, partition, 0) for partition in waiting])
        deadline = time.monotonic() + PATIENCE_S
        while waiting:
            assert time.monotonic() < deadline, f"{topic} can't be read to its end"
            for message in consumer.consume(5_000, 0.02):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    waiting.discard(partition)
                    continue
                assert offset is not None
                record = (message.key(), message.value(), message.headers(), message.timestamp())
                found.append((partition, offset, record))  # type: ignore[arg-type] # bytes as no one decodes
    finally:
        consumer.close()
    return found


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    poll_until(lambda: bool(condition()), PATIENCE_S, what)
