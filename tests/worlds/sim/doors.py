"""The doors of the copy loop (`replicator.copying.ports`) onto clusters in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from parallax.domain.ids import SourceOffset, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, FencedError
from parallax.ports.clusters import TopicInfo
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.ports import (
    EndReached,
    LogEnd,
    OutOfRange,
    ReadFrom,
    RecordBlock,
    SourceEvent,
    Survey,
    TopicChanged,
)
from replicator.kafka.layout import LayoutRecord
from replicator.lease import Lease, shard_of, transactional_id
from tests.worlds.sim.kafka import COMMITTED, OPEN, Cluster, Log, Transaction
from tests.worlds.sim.schedule import Schedule

RUN_LOG = "parallax.runs"


class Faults:
    """How the doors misbehave; tests and mutants change it.

    Attributes:
        fail: probability that a call on the target fails, with an outcome that the caller can't know.
        last_stable_offset: `ends` answers the last stable offset (a mutant).
        unfenced_watermarks: entries without data are written outside of any transaction (a mutant).
        empty_run_log: probability that the run log seems empty to a lease that has found entries in it before.
    """

    def __init__(self, fail: float = 0.0) -> None:
        self.fail = fail
        self.last_stable_offset = False
        self.unfenced_watermarks = False
        self.empty_run_log = 0.0


class SimSource:
    def __init__(self, schedule: Schedule, cluster: Cluster) -> None:
        self._schedule = schedule
        self._cluster = cluster
        self._places: dict[TopicPartition, tuple[int, ReadFrom, int]] = {}
        self._told_end: dict[TopicPartition, int] = {}

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        for item, place in positions.items():
            self._places[item] = (place.source_next, place, place.leader_epoch)
            self._told_end.pop(item, None)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        for item in partitions:
            self._places.pop(item, None)

    def poll(self, max_records: int, timeout_ms: int) -> Sequence[SourceEvent]:
        self._schedule.step()
        events: list[SourceEvent] = []
        if self._cluster.reachable:
            for item in list(self._places):
                topic = self._cluster.topics.get(item.topic)
                if topic is not None and topic.topic_id != self._places[item][1].topic_id:
                    del self._places[item]
                    events.append(TopicChanged(item.topic))
                elif topic is not None and self._schedule.random.random() < 0.7:
                    events += self._fetch(item, min(max_records, self._schedule.random.choice((1, 3, 20))))
        if not events:
            self._schedule.sleep(timeout_ms)
        return events

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {item: log.end for item in partitions if (log := self._log(item)) is not None}

    def close(self) -> None:
        self._places.clear()

    def _log(self, item: TopicPartition) -> Log | None:
        topic = self._cluster.topics.get(item.topic)
        return None if topic is None else topic.logs[item.partition]

    def _fetch(self, item: TopicPartition, limit: int) -> list[SourceEvent]:
        position, place, epoch = self._places[item]
        log = self._cluster.topics[item.topic].logs[item.partition]
        diverged = log.end_of_epoch(epoch) if epoch >= 0 else log.end
        if (epoch >= 0 and diverged < position) or not log.start <= position <= log.end:
            del self._places[item]
            if epoch < 0 or diverged >= position:
                return [OutOfRange(item, None)]
            return [OutOfRange(item, SourceOffset(diverged), log.epoch_below(diverged))]
        slots = list(log.committed(position))[:limit]
        if slots:
            slots = [slot for slot in slots if slot.epoch == slots[0].epoch]
            self._places[item] = (slots[-1].offset + 1, place, slots[-1].epoch)
            offsets = [slot.offset for slot in slots]
            return [
                RecordBlock(item, slots[0].epoch, offsets, [slot.value for slot in slots], len(slots) * 10)
            ]
        end = log.stable_end
        if end == self._told_end.get(item, position if position == 0 else -1):
            return []
        self._told_end[item] = end
        self._places[item] = (end, place, epoch)
        return [EndReached(item, SourceOffset(end))]


class SimTarget:
    def __init__(self, schedule: Schedule, cluster: Cluster, lease: Lease, faults: Faults) -> None:
        self._schedule = schedule
        self._cluster = cluster
        self._faults = faults
        self._id = transactional_id(lease.route, lease.layout, lease.shard)
        self._shard = lease.shard
        self._acknowledged: dict[TopicPartition, list[int]] = {}
        self._waiting: list[RecordBlock] = []
        self._transaction: Transaction | None = None
        schedule.step()
        self._may_fail()
        self._epoch = cluster.initialise(self._id)

    def begin(self) -> None:
        self._acknowledged, self._waiting, self._transaction = {}, [], None

    def produce(self, block: RecordBlock) -> None:
        self._waiting.append(block)
        if self._schedule.random.random() < 0.5:
            self._send()

    path = "record"

    def serve(self) -> None:
        self._send()

    def settle(self) -> Mapping[TopicPartition, Sequence[int]]:
        self._schedule.step()
        self._may_fail()
        self._send()
        return self._acknowledged

    def commit(self, entry: Entry) -> int:
        self._schedule.step()
        log = _run_log(self._cluster, self._shard)
        if self._faults.unfenced_watermarks and not self._acknowledged:
            return log.append(entry)
        self._may_fail()
        transaction = self._mine()
        offset = log.append(entry, transaction)
        self._schedule.step()
        self._may_fail()
        if self._mine() is not transaction:
            raise FencedError("aborted meanwhile")
        transaction.decide(COMMITTED)
        self._may_fail()
        return offset

    def ends(
        self,
        partitions: Collection[TopicPartition],
        *,
        patient: bool = False,  # noqa: ARG002 - every leader is known here
    ) -> Mapping[TopicPartition, TargetOffset]:
        self._may_fail()
        found = {}
        for item in partitions:
            topic = self._cluster.topics.get(item.topic)
            if topic is not None:
                log = topic.logs[item.partition]
                found[item] = TargetOffset(log.stable_end if self._faults.last_stable_offset else log.end)
        self._schedule.step()
        return found

    def close(self) -> None:
        pass

    def _send(self) -> None:
        for block in self._waiting:
            transaction = self._mine()
            topic = self._cluster.topics.get(block.topic_partition.topic)
            if topic is None:
                raise ClusterUnavailableError(f"{block.topic_partition} is gone")
            log = topic.logs[block.topic_partition.partition]
            offsets = [log.append(record, transaction) for record in block.records]
            self._acknowledged.setdefault(block.topic_partition, []).extend(offsets)
        self._waiting = []

    def _mine(self) -> Transaction:
        transaction = self._cluster.transaction(self._id, self._epoch)
        if self._transaction is None:
            self._transaction = transaction
        elif self._transaction.outcome != OPEN:
            raise FencedError("this transaction has been decided by another owner")
        return self._transaction

    def _may_fail(self) -> None:
        if not self._schedule.calm and self._schedule.random.random() < self._faults.fail:
            raise ClusterUnavailableError("no answer")


def _run_log(cluster: Cluster, shard: int) -> Log:
    if RUN_LOG not in cluster.topics:
        raise ClusterUnavailableError("the run log is gone")
    return cluster.topics[RUN_LOG].logs[shard]


class SimRunLog:
    def __init__(self, schedule: Schedule, cluster: Cluster, shard: int) -> None:
        self._schedule = schedule
        self._cluster = cluster
        self._shard = shard
        self.seems_empty = False
        self.was_read: Callable[[], object] = lambda: None

    @property
    def _log(self) -> Log:
        return _run_log(self._cluster, self._shard)

    def topic_id(self) -> TopicId | None:
        topic = self._cluster.topics.get(RUN_LOG)
        return None if topic is None else TopicId(topic.topic_id)

    def end(self) -> int:
        return 0 if self.seems_empty else self._log.end

    def stable_end(self) -> int:
        return self._log.stable_end

    def start(self) -> int:
        return self._log.start

    def read(self, start: int, end: int) -> Iterable[tuple[int, Entry | None]]:
        self._schedule.step()
        if self._log.stable_end < end:
            raise ClusterUnavailableError("a transaction is still open")
        entries = list(self._log.committed(start, end))
        for slot in entries:
            yield slot.offset, slot.value if isinstance(slot.value, Entry) else None
        if entries:
            self.was_read()

    def close(self) -> None:
        pass


class SimSurveyor:
    def __init__(self, schedule: Schedule, source: Cluster, target: Cluster, lease: Lease) -> None:
        self._schedule = schedule
        self._source = source
        self._target = target
        self._lease = lease
        self._ticket = 0
        self._waiting = False

    def request(self) -> int:
        self._ticket += 1
        self._waiting = True
        return self._ticket

    def result(self) -> Survey | None:
        if not self._waiting or self._schedule.random.random() < 0.6:
            return None
        self._waiting = False
        if not self._source.reachable:
            return Survey(self._ticket, None, {}, _infos(self._target))
        for name, topic in self._source.topics.items():
            if name not in self._target.topics:
                self._target.create(name, len(topic.logs))
        logs = {}
        for name, topic in self._source.topics.items():
            for number, log in enumerate(topic.logs):
                item = TopicPartition(TopicName(name), number)
                if shard_of(item, self._lease.shard_count) == self._lease.shard:
                    logs[item] = LogEnd(
                        SourceOffset(log.start),
                        SourceOffset(log.end),
                        SourceOffset(log.stable_end),
                        log.epoch,
                    )
        return Survey(self._ticket, _infos(self._source), logs, _infos(self._target))

    def close(self) -> None:
        pass


def _infos(cluster: Cluster) -> dict[TopicName, TopicInfo]:
    return {
        TopicName(name): TopicInfo(TopicName(name), TopicId(topic.topic_id), len(topic.logs))
        for name, topic in cluster.topics.items()
        if not name.startswith("parallax.")
    }


class SimClock:
    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def now_ms(self) -> int:
        return int(self._schedule.now_ms)

    def monotonic_ms(self) -> float:
        return self._schedule.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._schedule.sleep(duration_ms)


class SimConnector:
    def __init__(self, schedule: Schedule, source: Cluster, target: Cluster, faults: Faults) -> None:
        self._schedule = schedule
        self._source = source
        self._target = target
        self._faults = faults
        self._clock = SimClock(schedule)
        self._read_before: set[int] = set()
        self.layout_record = LayoutRecord(
            1, 1, settled=True, run_log=RUN_LOG, run_log_id=TopicId(target.topics[RUN_LOG].topic_id)
        )

    @property
    def clock(self) -> SimClock:
        return self._clock

    def settle(self, lease: Lease) -> None:
        """Markers are never lost here."""

    def target(self, lease: Lease) -> SimTarget:
        return SimTarget(self._schedule, self._target, lease, self._faults)

    def source(self, lease: Lease) -> SimSource:
        del lease
        return SimSource(self._schedule, self._source)

    def surveyor(self, lease: Lease) -> SimSurveyor:
        return SimSurveyor(self._schedule, self._source, self._target, lease)

    def run_log(self, lease: Lease) -> SimRunLog:
        run_log = SimRunLog(self._schedule, self._target, lease.shard)
        run_log.seems_empty = (
            lease.epoch in self._read_before
            and not self._schedule.calm
            and self._schedule.random.random() < self._faults.empty_run_log
        )
        run_log.was_read = lambda: self._read_before.add(lease.epoch)
        return run_log

    def foreign_records(self, lease: Lease) -> None:
        del lease

    def layout(self, lease: Lease) -> LayoutRecord:
        del lease
        self._schedule.step()
        return self.layout_record
