"""Two or more aggregate clusters in memory, consumers of them as librdkafka behaves, and an offset service.

The service knows nothing of our arithmetic: it answers from the sets of records that were consumed. Records are
``(region, sequence)``; an aggregate partition holds them in an order of its own, each source's in order.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from parallax.consumer.consumer import EventKind, FailoverConsumer, FailoverEvent
from parallax.consumer.ports import Key, Rebalance
from parallax.errors import ServiceUnavailableError, UnknownTopicError
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import primaries_pb2

Record = tuple[str, int]

TOPIC = "trips"


def records(region: str, *sequences: int) -> list[Record]:
    """Records of a region."""
    return [(region, sequence) for sequence in sequences]


A = records("a", *range(10))
B = records("b", *range(10))


@dataclass
class FakeCluster:
    """One aggregate cluster: logs by topic and partition, and committed offsets of one group."""

    name: str
    logs: dict[Key, list[Record | None]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[Key, tuple[int, str]] = field(default_factory=dict)
    dead: bool = False
    unsettled: bool = False
    """A transaction has sent offsets and is open: nobody is told what is committed."""
    refusal: KafkaError | None = None
    """What commits are refused with; those that nobody waits for are told of it at the next poll."""
    released: threading.Event = field(default_factory=threading.Event)
    """Set: a consumer that closes while the cluster is dead comes back from it."""

    def log(self, partition: int = 0) -> list[Record | None]:
        """A partition of the one topic; None stands for an offset without a record (a control record)."""
        return self.logs[TOPIC, partition]


class FakeConsumer:
    """A consumer of a `FakeCluster`: positions, pause, resume, seek and rebalance callbacks."""

    def __init__(self, cluster: FakeCluster, config: dict[str, Any]) -> None:
        self.cluster = cluster
        self.config = config
        self.positions: dict[Key, int] = {}
        self.paused: set[Key] = set()
        self.commits: list[list[TopicPartition]] = []
        self.commits_in_vain = 0
        self.closed = False
        self.committed_when_leaving: dict[Key, tuple[int, str]] | None = None
        self.refused: list[tuple[KafkaError, list[TopicPartition]]] = []
        self.fatal: KafkaError | None = None
        self._fatal_told = False
        self.joins = True
        self.credentials: tuple[str, str] | None = None
        self._member_id = ""
        self._callbacks: dict[str, Rebalance] = {}
        self._rebalances: list[tuple[str, list[Key]]] = []
        self._behind: list[tuple[str, list[Key]]] = []
        self._turn = 0
        self._nothing = threading.Event()

    def subscribe(
        self, topics: list[str], *, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance
    ) -> None:
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        self._rebalances.append(("assign", [key for key in sorted(self.cluster.logs) if key[0] in topics]))

    def rebalance(self, kind: str, keys: Iterable[Key]) -> None:
        """What the group coordinator does at the next poll."""
        self._rebalances.append((kind, list(keys)))

    def rebalance_behind_records(self, kind: str, keys: Iterable[Key]) -> None:
        """What it does once a ``consume`` has taken records, in the same call: an error costs these records."""
        self._behind.append((kind, list(keys)))

    def assign_only(self, keys: Iterable[Key]) -> None:
        """The coordinator's first word: these, whatever else there is."""
        self._rebalances[:] = [("assign", list(keys))]

    def fail_for_good(
        self, why: str = "Static consumer fenced by other consumer", *, lost: bool = True
    ) -> None:
        """What librdkafka does once it was told that another consumer has this one's instance id.

        Args:
            why: the error's text.
            lost: it tells of the partitions before it tells why.
        """
        self.fatal = KafkaError(KafkaError._FATAL, why)
        if lost:
            self.rebalance("lost", list(self.positions))
        else:
            self.positions.clear()

    @property
    def gave_up_place(self) -> bool:
        """Whether it has told the group that it leaves."""
        return self.committed_when_leaving is not None

    def unsubscribe(self) -> None:
        self.committed_when_leaving = dict(self.cluster.committed)
        if self._callbacks:
            self._rebalances.append(("revoke", list(self.positions)))

    def poll(self, timeout: float) -> Message | None:
        messages = self.consume(1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        assert timeout >= 0
        assert not self.closed
        if self.cluster.dead:
            self._nothing.wait(min(timeout, 0.002))
            return []
        while self.refused:
            self.config["on_commit"](*self.refused.pop(0))
        self._call_back(self._rebalances)
        if self.fatal is not None:
            told, self._fatal_told = self._fatal_told, True
            return [] if told else [Message(topic="", partition=-1, offset=-1001, error=self.fatal)]
        found: list[Message] = []
        idle = 0
        keys = sorted(self.positions)
        while keys and len(found) < num_messages and idle < len(keys):
            key = keys[self._turn % len(keys)]
            self._turn += 1
            message = None if key in self.paused else self._next(key)
            idle = idle + 1 if message is None else 0
            if message is not None:
                found.append(message)
        if not found:
            self._nothing.wait(min(timeout, 0.002))
        else:
            self._call_back(self._behind)
        return found

    def _call_back(self, rebalances: list[tuple[str, list[Key]]]) -> None:
        while rebalances and self.joins:
            kind, keys = rebalances.pop(0)
            places = [TopicPartition(*key) for key in keys]
            self._member_id = "" if self.gave_up_place else "a member"
            self._callbacks[kind](self, places)
            if kind != "assign":
                self.incremental_unassign(places)  # as confluent-kafka does where the callback did not

    def _next(self, key: Key) -> Message | None:
        log = self.cluster.logs[key]
        while self.positions[key] < len(log):
            offset = self.positions[key]
            self.positions[key] += 1
            record = log[offset]
            if record is not None:
                value = f"{record[0]}:{record[1]}".encode()
                return Message(topic=key[0], partition=key[1], offset=offset, value=value, leader_epoch=0)
        return None

    def assign(self, partitions: list[TopicPartition]) -> None:
        self.positions.clear()  # but not what is paused, as librdkafka
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        for item in partitions:
            assert item.offset >= 0, "every partition starts from a definite offset"
            self.positions[item.topic, item.partition] = item.offset

    def unassign(self) -> None:
        self.positions.clear()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for item in partitions:
            self.positions.pop((item.topic, item.partition), None)

    def assignment(self) -> list[TopicPartition]:
        return [TopicPartition(*key) for key in self.positions]

    def memberid(self) -> str | None:
        return self._member_id or None

    def consumer_group_metadata(self) -> FakeConsumer:
        return self

    def cluster_id(self, timeout: float = -1) -> str:
        assert timeout > 0
        return self.cluster.name

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.credentials = username, password

    def offsets_for_times(
        self, partitions: list[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        assert timeout > 0
        return [TopicPartition(item.topic, item.partition, 0) for item in partitions]

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        if self.closed:
            raise RuntimeError("Consumer closed")
        if self.fatal is not None:
            raise KafkaException(self.fatal)
        if self.cluster.dead:
            self.commits_in_vain += 1
            if asynchronous:
                return None
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        self.commits.append(offsets)
        if self.cluster.refusal is not None:
            if not asynchronous:
                raise KafkaException(self.cluster.refusal)
            self.refused.append((self.cluster.refusal, offsets))
            return None
        for item in offsets:
            assert len(item.metadata or "") <= 4096
            self.cluster.committed[item.topic, item.partition] = (item.offset, item.metadata or "")
        return None if asynchronous else offsets

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        if self.cluster.dead or self.cluster.unsettled:
            self._nothing.wait(min(timeout, 0.002))
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        answers = []
        for item in partitions:
            offset, metadata = self.cluster.committed.get((item.topic, item.partition), (-1001, ""))
            answers.append(TopicPartition(item.topic, item.partition, offset, metadata=metadata))
        return answers

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float, *, cached: bool
    ) -> tuple[int, int]:
        assert timeout > 0
        assert not cached
        return 0, len(self.cluster.logs[partition.topic, partition.partition])

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {(item.topic, item.partition) for item in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {(item.topic, item.partition) for item in partitions}

    def seek(self, partition: TopicPartition) -> None:
        self.positions[partition.topic, partition.partition] = partition.offset

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        assert topic is None or timeout
        return sorted({key[0] for key in self.cluster.logs})

    def close(self) -> None:
        if self.cluster.dead:
            self.cluster.released.wait(30)
        self.closed = True


class FakeProducer:
    """Transactions of a producer of a `FakeCluster`, as far as they touch a group."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.cluster = cluster
        self._offsets: list[TopicPartition] = []

    def send_offsets_to_transaction(self, positions: list[TopicPartition], group_metadata: object) -> None:
        assert isinstance(group_metadata, FakeConsumer)
        if (
            group_metadata.cluster is not self.cluster
            or group_metadata.closed
            or group_metadata.gave_up_place
        ):
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
        self._offsets = positions
        self.cluster.unsettled = True

    def commit_transaction(self) -> None:
        for item in self._offsets:
            if item.offset >= 0:
                place = item.topic, item.partition
                self.cluster.committed[place] = item.offset, item.metadata or ""
        self.abort_transaction()

    def abort_transaction(self) -> None:
        self._offsets, self.cluster.unsettled = [], False


Vector = dict[str, int]
"""By region: the next sequence number."""


@dataclass
class FakeWatch:
    """What `OffsetClient.watch_skips` returns."""

    updates: Iterator[pb.SkipUpdate]
    closed: threading.Event

    def __iter__(self) -> FakeWatch:
        return self

    def __next__(self) -> pb.SkipUpdate:
        return next(self.updates)

    def close(self) -> None:
        self.closed.set()


class FakeService:
    """Answers by looking at the logs, as a service whose index is complete."""

    def __init__(self, clusters: dict[str, FakeCluster]) -> None:
        self.clusters = clusters
        self.away = False
        self.refuses_reports = False
        self.asked: list[tuple[str, str, dict[Key, int]]] = []
        self.reports: list[pb.ReportPositionsRequest] = []
        self.progress: dict[tuple[str, Key], tuple[int, Vector]] = {}
        self.indexed_to: Callable[[str, Key], int] | None = None
        self.most_ranges = 1_000
        self.changed = threading.Condition()
        self.closed = False
        self.topic_ids: dict[str, str] = {}
        self.primary: primaries_pb2.Primary | None = None
        self.knows_rows = True
        """False: the index is empty, so that every answer is the log start."""

    def get_primary(self, group: str, *, timeout_ms: float | None = None) -> primaries_pb2.Primary:
        assert timeout_ms is not None
        self._check()
        return primaries_pb2.Primary(group=group) if self.primary is None else self.primary

    def get_group_failover_offsets(
        self,
        group: str,
        *,
        to: pb.Place,
        origin: pb.Place | None = None,
        positions: Iterable[pb.PartitionPosition] = (),
        topics: Iterable[str] = (),
        record_move: bool = False,
        timeout_ms: float | None = None,
    ) -> pb.GetGroupFailoverOffsetsResponse:
        assert origin is not None
        assert not record_move
        assert timeout_ms is not None
        self._check()
        known_topics = {topic for cluster in self.clusters.values() for topic, _ in cluster.logs}
        if not known_topics.issuperset(topics):
            raise UnknownTopicError(f"one of {list(topics)} is known to no cluster")
        given = {(item.topic, item.partition): item.next_offset for item in positions}
        self.asked.append((origin.region, to.region, given))
        known = {key: offset for key, (offset, _) in self.clusters[origin.region].committed.items()}
        wanted = set(topics)
        keys = sorted(set(given) | {key for key in known if not wanted or key[0] in wanted})
        offsets = [
            self._answer(group, origin.region, to.region, key, given.get(key, known.get(key, 0)))
            for key in keys
        ]
        return pb.GetGroupFailoverOffsetsResponse(offsets=offsets, outcome=pb.OK)

    def _answer(self, group: str, origin: str, to: str, key: Key, commit: int) -> pb.FailoverOffset:
        vector = self.consumed(origin, key, commit) if self.knows_rows else {}
        log = list(self.clusters[to].logs[key])
        resume = next((offset for offset, record in enumerate(log) if is_new(record, vector)), len(log))
        there = vector_of(log)
        pending = sum(max(0, end - there.get(region, 0)) for region, end in vector.items())
        answer = pb.FailoverOffset(
            group=group,
            topic=key[0],
            partition=key[1],
            resume_offset=resume,
            outcome=pb.PENDING if pending else pb.OK,
            pending_records=pending,
            progress=[pb.SourceProgress(region=r, source_next_offset=n) for r, n in sorted(vector.items())],
        )
        if not self.knows_rows:
            answer.outcome = pb.EARLIEST_FALLBACK
        answer.to.topic_id = f"{to}-id"
        answer.to.high_watermark = len(log)
        side: pb.ClusterPosition = getattr(answer, "from")
        side.next_offset = commit
        side.indexed_to = commit if self.indexed_to is None else self.indexed_to(origin, key)
        if not self.clusters[origin].dead:
            side.high_watermark = len(self.clusters[origin].logs[key])
        ranges = skip_ranges(log, resume, vector)
        if pending:
            answer.complete_to = len(log)
        if len(ranges) > self.most_ranges:
            answer.skip_ranges_continue_at = ranges[self.most_ranges].start
        answer.skip_ranges.extend(ranges[: self.most_ranges])
        return answer

    def consumed(self, region: str, key: Key, commit: int) -> Vector:
        """What a group at ``commit`` has consumed, an earlier move included."""
        vector = vector_of(self.clusters[region].logs[key][:commit])
        floor, moved = self.progress.get((region, key), (0, {}))
        if commit >= floor:
            vector = {name: max(vector.get(name, 0), moved.get(name, 0)) for name in {*vector, *moved}}
        return vector

    def watch_skips(
        self,
        topic: str,
        partition: int,
        *,
        at: pb.Place,
        target_topic_id: str,
        progress: Iterable[pb.SourceProgress],
        start: int,
        origin: pb.Place | None = None,
    ) -> FakeWatch:
        assert origin is None or origin.region in self.clusters
        vector = {item.region: item.source_next_offset for item in progress}
        closed = threading.Event()
        log = self.clusters[at.region].logs[topic, partition]

        def updates() -> Iterator[pb.SkipUpdate]:
            place = start
            told = False
            while not closed.is_set():
                if self.away:
                    closed.wait(0.005)
                    continue
                if target_topic_id != self.topic_ids.get(at.region, f"{at.region}-id"):
                    raise UnknownTopicError("the topic was created anew")
                seen = list(log)
                there = vector_of(seen)
                pending = any(end > there.get(region, 0) for region, end in vector.items())
                if not told or len(seen) > place or not pending:
                    ranges = skip_ranges(seen, place, vector)
                    cut = len(ranges) > self.most_ranges
                    update = pb.SkipUpdate(skip_ranges=ranges[: self.most_ranges])
                    if cut:
                        place = update.complete_to = ranges[self.most_ranges].start
                    elif pending:
                        place = update.complete_to = max(place, len(seen))
                    told = True
                    yield update
                    if not cut and not pending:
                        return
                else:
                    closed.wait(0.002)

        return FakeWatch(updates(), closed)

    def report_positions(
        self,
        group: str,
        *,
        at: pb.Place,
        positions: Iterable[pb.PartitionPosition],
        moves: Iterable[pb.PartitionMove] = (),
        timeout_ms: float | None = None,
    ) -> pb.ReportPositionsResponse:
        assert timeout_ms is not None
        self._check()
        if self.refuses_reports:
            raise ServiceUnavailableError("the store is away")
        request = pb.ReportPositionsRequest(group=group, at=at, positions=positions, moves=moves)
        self.reports.append(request)
        for move in request.moves:
            vector = {item.region: item.source_next_offset for item in move.progress}
            self.progress[at.region, (move.topic, move.partition)] = (move.resume_offset, vector)
        return pb.ReportPositionsResponse()

    def close(self) -> None:
        self.closed = True

    def _check(self) -> None:
        if self.away:
            raise ServiceUnavailableError("no target answered")


def vector_of(records: Iterable[Record | None]) -> Vector:
    """How far each region is in the records; each region's come in order and without holes."""
    vector: Vector = {}
    for record in records:
        if record is not None:
            vector[record[0]] = max(vector.get(record[0], 0), record[1] + 1)
    return vector


def is_new(record: Record | None, vector: Vector) -> bool:
    """Whether a record is not covered by the vector."""
    return record is not None and record[1] >= vector.get(record[0], 0)


def skip_ranges(log: list[Record | None], start: int, vector: Vector) -> list[pb.OffsetRange]:
    """Maximal ranges of consumed records from ``start`` on."""
    ranges: list[pb.OffsetRange] = []
    for offset in range(start, len(log)):
        if log[offset] is None or is_new(log[offset], vector):
            continue
        if ranges and ranges[-1].end == offset:
            ranges[-1].end = offset + 1
        else:
            ranges.append(pb.OffsetRange(start=offset, end=offset + 1))
    return ranges


def record_of(message: Message) -> Record:
    """The record in a message."""
    value = message.value()
    assert value is not None
    region, sequence = value.decode().split(":")
    return region, int(sequence)


class World:
    """Clusters, a service, and a consumer whose deliveries are counted by record."""

    def __init__(self, *regions: str) -> None:
        self.clusters = {region: FakeCluster(region) for region in regions or ("a", "b")}
        self.service = FakeService(self.clusters)
        self.inner: list[FakeConsumer] = []
        self.coordinator_answers = True
        self.invalid: set[str] = set()
        """Regions whose settings librdkafka refuses."""
        self.events: list[FailoverEvent] = []
        self.delivered: list[Record] = []
        self.consumer: FailoverConsumer | None = None
        self._returned = 0

    def log(self, region: str, partition: int = 0) -> list[Record | None]:
        """A partition's records at a region's aggregate cluster."""
        return self.clusters[region].log(partition)

    def start(
        self, region: str, config: dict[str, Any] | None = None, *, subscribe: bool = True, **arguments: Any
    ) -> FailoverConsumer:
        """A consumer that begins in ``region``."""
        settings = {"report_interval_ms": 20, "service_timeout_ms": 100, "index_wait_ms": 0} | arguments
        self.consumer = FailoverConsumer(
            {"group.id": "g", "auto.commit.interval.ms": 1, **(config or {})},
            clusters={name: name for name in self.clusters},
            region=region,
            services=self.service,
            on_event=self.events.append,
            consumer_factory=self._make,
            **settings,
        )
        if subscribe:
            self.consumer.subscribe([TOPIC])
        return self.consumer

    def _make(self, config: dict[str, Any]) -> FakeConsumer:
        if config["bootstrap.servers"] in self.invalid:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "ssl.ca.location failed: no such file"))
        consumer = FakeConsumer(self.clusters[config["bootstrap.servers"]], config)
        consumer.joins = self.coordinator_answers
        self.inner.append(consumer)
        return consumer

    def poll(self) -> Message | None:
        """One short poll; what comes is counted."""
        assert self.consumer is not None
        message = self.consumer.poll(0.01)
        if message is not None:
            assert message.error() is None
            self.delivered.append(record_of(message))
        return message

    def poll_until(self, condition: Callable[[], bool], what: str, within_s: float = 5.0) -> None:
        """Poll until the condition holds."""
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {within_s} s; delivered {self.delivered}")
            self.poll()

    def poll_records(self, count: int) -> list[Record]:
        """The next ``count`` records not yet returned from here, in the order of their delivery."""
        before = self._returned
        self.poll_until(lambda: len(self.delivered) >= before + count, f"{count} more records")
        self._returned = before + count
        return self.delivered[before : self._returned]

    def poll_nothing(self, polls: int = 20) -> None:
        """Nothing is delivered for a while."""
        for _ in range(polls):
            self.poll()
        assert self.delivered[self._returned :] == []

    def move(self, region: str) -> None:
        """Move and poll until the partitions are assigned there; what comes meanwhile is counted."""
        assert self.consumer is not None
        self.consumer.move_to(region)
        self.poll_until(lambda: not self.consumer.moving, f"the move to {region}")

    def kinds(self) -> list[EventKind]:
        """Kinds of the events so far."""
        return [event.kind for event in self.events]

    def close(self) -> None:
        """Close the consumer, as if its process ended."""
        if self.consumer is not None:
            for cluster in self.clusters.values():
                cluster.released.set()
            self.consumer.close()
