"""The regions in memory of `parallax.testing`, with what else happens to consumers: refusals, lost places, hanging clusters.

Records are ``(region, sequence)``; an aggregate partition holds them in an order of its own, each source's in order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from parallax import EventKind, FailoverConsumer, FailoverEvent
from parallax.consumer.ports import Key
from parallax.errors import ServiceUnavailableError
from parallax.testing import MemoryCluster, MemoryConsumer, MemoryService, SourceRecord
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import primaries_pb2

Record = SourceRecord

GROUP = "g"
TOPIC = "trips"


def records(region: str, *sequences: int) -> list[Record]:
    """Records of a region."""
    return [(region, sequence) for sequence in sequences]


A = records("a", *range(10))
B = records("b", *range(10))


@dataclass
class FakeCluster(MemoryCluster):
    """One aggregate cluster, and committed offsets of one group."""

    unsettled: bool = False
    """A transaction has sent offsets and is open: nobody is told what is committed."""
    refusal: KafkaError | None = None
    """What commits are refused with; those that nobody waits for are told of it at the next poll."""
    released: threading.Event = field(default_factory=threading.Event)
    """Set: a consumer that closes while the cluster is dead comes back from it."""

    @property
    def committed(self) -> dict[Key, tuple[int, str]]:
        """The group's committed offsets and metadata."""
        return self.groups[GROUP]

    def log(self, partition: int = 0) -> list[Record | None]:
        """A partition of the one topic; None stands for an offset without a record (a control record)."""
        return self.logs[TOPIC, partition]


class FakeConsumer(MemoryConsumer):
    """A consumer of a `FakeCluster` whose commits are refused, whose place is lost, whose coordinator is silent."""

    def __init__(self, cluster: FakeCluster, config: dict[str, Any]) -> None:
        super().__init__(cluster, config)
        self.cluster: FakeCluster = cluster
        self.commits: list[list[TopicPartition]] = []
        self.commits_in_vain = 0
        self.committed_when_leaving: dict[Key, tuple[int, str]] | None = None
        self.refused: list[tuple[KafkaError, list[TopicPartition]]] = []
        self.fatal: KafkaError | None = None
        self._fatal_told = False
        self.joins = True
        self.credentials: tuple[str, str] | None = None
        self._behind: list[tuple[str, list[Key]]] = []

    def rebalance_behind_records(self, kind: str, keys: Iterable[Key]) -> None:
        """What the coordinator does once a ``consume`` has taken records, in the same call: an error costs these."""
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
        super().unsubscribe()

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        assert timeout >= 0
        assert not self.closed
        if self.cluster.dead:
            return super().consume(num_messages, timeout)
        while self.refused:
            self.config["on_commit"](*self.refused.pop(0))
        self._call_back(self._rebalances)
        if self.fatal is not None:
            told, self._fatal_told = self._fatal_told, True
            return [] if told else [Message(topic="", partition=-1, offset=-1001, error=self.fatal)]
        found = super().consume(num_messages, timeout)
        if found:
            self._call_back(self._behind)
        return found

    def _call_back(self, rebalances: list[tuple[str, list[Key]]]) -> None:
        if self.joins:
            super()._call_back(rebalances)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        assert all(item.offset >= 0 for item in partitions), "every partition starts from a definite offset"
        super().incremental_assign(partitions)

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        assert all(len(item.metadata or "") <= 4096 for item in offsets)
        if not self.closed and self.fatal is not None:
            raise KafkaException(self.fatal)
        if self.cluster.dead:
            self.commits_in_vain += 1
        elif not self.closed:
            self.commits.append(offsets)
            if self.cluster.refusal is not None:
                if not asynchronous:
                    raise KafkaException(self.cluster.refusal)
                self.refused.append((self.cluster.refusal, offsets))
                return None
        return super().commit(offsets=offsets, asynchronous=asynchronous)

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert timeout > 0
        if self.cluster.unsettled:
            self._nothing.wait(min(timeout, 0.002))
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return super().committed(partitions, timeout)

    def get_watermark_offsets(
        self, partition: TopicPartition, timeout: float, *, cached: bool
    ) -> tuple[int, int]:
        assert timeout > 0
        assert not cached
        return super().get_watermark_offsets(partition, timeout, cached=cached)

    def cluster_id(self, timeout: float = -1) -> str:
        assert timeout > 0
        return super().cluster_id(timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.credentials = username, password

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        assert timeout > 0
        return super().offsets_for_times(partitions, timeout)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        assert topic is None or timeout
        return super().list_topics(topic, timeout)

    def close(self) -> None:
        if self.cluster.dead:
            self.cluster.released.wait(30)
        super().close()


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


class FakeService(MemoryService):
    """A service whose store may be away, whose index may lag, be empty or be of another topic."""

    def __init__(self, clusters: dict[str, FakeCluster]) -> None:
        super().__init__(clusters)
        self.refuses_reports = False
        self.asked: list[tuple[str, str, dict[Key, int]]] = []
        self.indexed_to: Callable[[str, Key], int] | None = None
        self.closed = False
        self.topic_ids: dict[str, str] = {}
        self.knows_rows = True
        """False: the index is empty, so that every answer is the log start."""

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
        positions = list(positions)
        answers = super().get_group_failover_offsets(
            group, to=to, origin=origin, positions=positions, topics=topics
        )
        given = {(item.topic, item.partition): item.next_offset for item in positions}
        self.asked.append((origin.region, to.region, given))
        return answers

    def answer(self, group: str, origin: str, to: str, key: Key, next_offset: int) -> pb.FailoverOffset:
        answer = super().answer(group, origin, to, key, next_offset)
        if not self.knows_rows:
            answer.outcome = pb.EARLIEST_FALLBACK
        if self.indexed_to is not None:
            getattr(answer, "from").indexed_to = self.indexed_to(origin, key)
        return answer

    def consumed(self, group: str, region: str, key: Key, next_offset: int) -> dict[str, int]:
        return super().consumed(group, region, key, next_offset) if self.knows_rows else {}

    def topic_id(self, region: str) -> str:
        return self.topic_ids.get(region, super().topic_id(region))

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
        if self.refuses_reports:
            raise ServiceUnavailableError("the store is away")
        return super().report_positions(group, at=at, positions=positions, moves=moves)

    def get_primary(self, group: str, *, timeout_ms: float | None = None) -> primaries_pb2.Primary:
        assert timeout_ms is not None
        return super().get_primary(group)

    def close(self) -> None:
        self.closed = True


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
            {"group.id": GROUP, "auto.commit.interval.ms": 1, **(config or {})},
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
