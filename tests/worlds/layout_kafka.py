"""A route's run log and layouts on Kafka in memory, behind the names that `replicator.kafka.layout` calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import pytest

from parallax.domain.ids import (
    ClusterName,
    Lineage,
    Route,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.place import LogRange
from parallax.domain.runs import Run
from parallax.ports.clusters import TopicInfo
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.recovery import LoggedRecord
from replicator.copying.state import PartitionChange, PartitionState, encode
from replicator.kafka import layout as layouts
from replicator.kafka.layout import LayoutRecord, shard_in
from replicator.kafka.run_log import load_states
from replicator.lease import Lease, shard_of, transactional_id
from tests.worlds.sim.kafka import COMMITTED, Cluster, Log
from tests.worlds.sim.world import ROUTE, sim_config

RUNS = "parallax.runs.a"
ITEM = TopicPartition(TopicName("trips"), 0)


class Admin:
    """Topics of the target."""

    cluster = ClusterName("aggregate-b")

    def __init__(self, kafka: Cluster) -> None:
        self._kafka = kafka

    def create(self, plan: object, _deadline: object) -> TopicInfo:
        topic, partitions = plan.topic, plan.partitions  # type: ignore[attr-defined]
        if topic not in self._kafka.topics:
            self._kafka.create(topic, partitions)
        return self.topics()[topic]

    def grow(self, topic: TopicName, partitions: int, _deadline: object) -> TopicInfo:
        logs = self._kafka.topics[topic].logs
        logs += [Log() for _ in range(partitions - len(logs))]
        return self.topics()[topic]

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        return {
            TopicName(name): TopicInfo(TopicName(name), TopicId(topic.topic_id), len(topic.logs))
            for name, topic in self._kafka.topics.items()
        }

    def log_ranges(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        found = {}
        for place in places:
            log = self._kafka.topics[place.topic].logs[place.partition]
            found[place] = LogRange(TargetOffset(log.start), TargetOffset(log.end))
        return found


class LayoutKafka:
    """The target cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cluster = Cluster("target")
        self.config = sim_config()
        self.while_watched: Callable[[], object] = lambda: None
        """Done while somebody looks whether the run log grows."""
        monkeypatch.setattr(layouts.SystemClock, "sleep_ms", lambda *_: self.while_watched())
        monkeypatch.setattr(layouts, "TopicAdmin", lambda *_, **__: Admin(self.cluster))
        monkeypatch.setattr(layouts, "KafkaRunLog", lambda _config, _route, shard: self.run_log(shard))
        monkeypatch.setattr(layouts, "settle", lambda *_: None)
        monkeypatch.setattr(layouts, "read_partition", self._read)
        for name, method in (
            ("__init__", self._open),
            ("__enter__", self._initialise),
            ("commit", self._commit),
        ):
            monkeypatch.setattr(layouts.Writer, name, _as_method(method))
        monkeypatch.setattr(layouts.Writer, "__exit__", lambda *_: None)

    @property
    def logs(self) -> list[Log]:
        return self.cluster.topics[RUNS].logs

    # --- a transactional producer

    def _open(self, writer: layouts.Writer, _settings: object, route: Route, transactional: str) -> None:
        writer._route = route
        writer.transactional = transactional  # type: ignore[attr-defined]

    def _initialise(self, writer: layouts.Writer) -> layouts.Writer:
        writer.epoch = self.cluster.initialise(writer.transactional)  # type: ignore[attr-defined]
        return writer

    def _commit(self, writer: layouts.Writer, records: Iterable[layouts.Record]) -> None:
        for topic, partition, key, value in records:
            transaction = self.cluster.transaction(writer.transactional, writer.epoch)  # type: ignore[attr-defined]
            self.cluster.topics[topic].logs[partition].append((key, value), transaction)
        transaction.decide(COMMITTED)

    # --- readers

    def _read(
        self, _settings: object, _cluster: object, topic: str, *rest: object, **_: object
    ) -> Iterator[tuple]:
        partition, span = rest
        for slot in self.cluster.topics[topic].logs[partition].committed(*span):  # type: ignore[index, misc]
            yield slot.offset, *slot.value  # type: ignore[misc]

    def run_log(self, shard: int) -> RunLog:
        return RunLog(self.cluster, shard)

    def copy(self, layout: LayoutRecord, source_start: int, source_end: int) -> None:
        """What an owner of the partition's shard does: fence, then commit."""
        shard = shard_of(ITEM, layout.shards)
        name = transactional_id(ROUTE, layout.layout, shard, "batch")
        epoch = self.cluster.initialise(name)
        count = source_end - source_start
        row = Run(SourceOffset(source_start), TargetOffset(source_start), count, SourceOffset(source_start))
        entry = encode(
            run_log_id=layout.run_log_id,
            layout=layout.layout,
            shard=shard,
            path="batch",
            changes=[PartitionChange(state(source_end), (row,))],
            everything={},
            committed_at_ms=1,
            run_log_leader_epoch=self.logs[shard].epoch,
        )
        transaction = self.cluster.transaction(name, epoch)
        self.logs[shard].append((None, entry.SerializeToString()), transaction)
        transaction.decide(COMMITTED)

    def states(self, layout: LayoutRecord) -> dict[TopicPartition, PartitionState]:
        found: dict[TopicPartition, PartitionState] = {}
        for shard in range(layout.shards):
            lease = Lease(ROUTE, shard, layout.shards, layout.layout, 0, 0)
            found |= load_states(
                self.run_log(shard), shard_in(layout, lease), unexplained=lambda _states: {}
            )[0]
        return found


class RunLog:
    def __init__(self, cluster: Cluster, shard: int) -> None:
        self._topic = cluster.topics[RUNS]
        self._log = self._topic.logs[shard]

    def topic_id(self) -> TopicId:
        return TopicId(self._topic.topic_id)

    def leader_epoch(self) -> int:
        return self._log.epoch

    def partitions(self) -> int:
        return len(self._topic.logs)

    def start(self) -> int:
        return self._log.start

    def end(self) -> int:
        return self._log.end

    def stable_end(self) -> int:
        return self._log.stable_end

    def read(self, start: int, end: int) -> Iterator[LoggedRecord]:
        for slot in self._log.committed(start, end):
            yield slot.offset, Entry.FromString(slot.value[1])  # type: ignore[index]

    def close(self) -> None: ...


def _as_method(bound: Callable[..., object]) -> Callable[..., object]:
    def method(writer: layouts.Writer, *arguments: object) -> object:
        return bound(writer, *arguments)

    return method


def state(source_next: int) -> PartitionState:
    end, zero = SourceOffset(source_next), SourceOffset(0)
    lineage = Lineage(TopicId("s"), TopicId("d"))
    return PartitionState(ITEM, lineage, 0, zero, TargetOffset(0), end, end, TargetOffset(source_next), 0)
