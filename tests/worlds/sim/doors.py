"""The doors of the copy loop (`replicator.copying.ports`) onto clusters in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from parallax.config.config import Config
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    SourceOffset,
    TargetOffset,
    TopicName,
    TopicPartition,
)
from parallax.errors import ClusterUnavailableError, FencedError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.ports import (
    EndReached,
    LogEnd,
    NotAllowed,
    OutOfRange,
    ReadFrom,
    RecordBlock,
    SourceEvent,
    Survey,
    TargetEnd,
    TargetLog,
    TopicChanged,
)
from replicator.copying.recovery import States
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.layout import read_layout
from replicator.kafka.layout_record import LayoutRecord
from replicator.kafka.run_log import run_log_topic
from replicator.lease import Lease, shard_of, transactional_id
from tests.worlds.sim.kafka import ABORTED, COMMITTED, OPEN, Cluster, Log, Transaction
from tests.worlds.sim.run_logs import SimRunLog, run_log_of
from tests.worlds.sim.schedule import Schedule
from tests.worlds.sim.settling import infos_of, settle, settle_changes, unexplained


class Faults:
    """How the doors misbehave; tests change it.

    Attributes:
        fail: probability that a call on the target fails, with an outcome that the caller can't know.
        empty_run_log: probability that the run log seems empty to a lease that has found entries in it before.
        forbid: probability that a source refuses to be read, or a target a topic, each time that it is asked.
    """

    def __init__(self, fail: float = 0.0) -> None:
        self.fail = fail
        self.empty_run_log = 0.0
        self.forbid = 0.0

    def forbids(self, schedule: Schedule) -> bool:
        """Whether a right is missing this time."""
        return bool(self.forbid) and not schedule.calm and schedule.random.random() < self.forbid


class SimSource:
    def __init__(self, schedule: Schedule, cluster: Cluster, faults: Faults) -> None:
        self._schedule = schedule
        self._cluster = cluster
        self._faults = faults
        self._places: dict[TopicPartition, tuple[int, ReadFrom, int]] = {}
        self._told_end: dict[TopicPartition, int] = {}

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        for item, place in positions.items():
            self._places[item] = (place.source_next, place, place.leader_epoch)
            self._told_end.pop(item, None)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        for item in partitions:
            self._places.pop(item, None)

    def poll(self, max_records: int, timeout_ms: float) -> Sequence[SourceEvent]:
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
        if self._faults.forbids(self._schedule):
            del self._places[item]
            return [NotAllowed(item, "Read is missing at the source")]
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
        # As the batch reader, which names the epoch of whatever it has passed over, markers too.
        self._places[item] = (end, place, max(epoch, log.epoch_below(end)))
        return [EndReached(item, SourceOffset(end))]


class SimTarget:
    def __init__(
        self, schedule: Schedule, cluster: Cluster, lease: Lease, run_log: str, faults: Faults
    ) -> None:
        self._schedule = schedule
        self._cluster = cluster
        self._faults = faults
        self._id = transactional_id(lease.route, lease.layout, lease.shard)
        self._run_log, self._shard = run_log, lease.shard
        self._acknowledged: dict[TopicPartition, list[int]] = {}
        self._waiting: list[RecordBlock] = []
        self._confirmed: dict[TopicPartition, TargetLog] = {}
        self._by_batches = lease.epoch % 3 != 0
        """Whether it behaves as the batch path, which asks about logs once all is acknowledged, opens the run log and keeps to its
        connections, or as the record path, which asks before an entry."""
        self._opening: Entry | None = None
        self._opened_at: list[int] = []
        self._opened_in: Log | None = None
        """A topic that was made anew has no sequence to be out of."""
        self._ways: dict[Log, int] = {}
        """The connection over which each log was written to, known by how often the cluster has died by then."""
        self._transaction: Transaction | None = None
        schedule.step()
        self._may_fail()
        self._epoch = cluster.initialise(self._id)

    def begin(self, opening: Entry | None = None) -> None:
        self._acknowledged, self._waiting, self._transaction = {}, [], None
        self._confirmed = {}
        self._opening, self._opened_at = opening, []

    def produce(self, block: RecordBlock) -> None:
        self._waiting.append(block)
        if self._schedule.random.random() < 0.5:
            self._send()

    path = "record"
    calm_ms = 0.0

    @property
    def opens_run_log(self) -> bool:
        return self._by_batches

    def serve(self) -> None:
        self._send()

    def settle(self, logs: Mapping[TopicPartition, TargetLog]) -> Mapping[TopicPartition, Sequence[int]]:
        self._schedule.step()
        self._may_fail()
        self._may_refuse([block.topic_partition for block in self._waiting])
        self._send()
        if self._by_batches:
            self._confirm(logs)
            self._confirmed = dict(logs)
        return self._acknowledged

    def commit(self, entries: Sequence[Entry], logs: Mapping[TopicPartition, TargetLog]) -> Sequence[int]:
        self._schedule.step()
        log = run_log_of(self._cluster, self._run_log, self._shard)
        self._confirm({item: known for item, known in logs.items() if self._confirmed.get(item) != known})
        if any(self._opened_in is log and not log.holds(at, self._transaction) for at in self._opened_at):
            raise ClusterUnavailableError("the run log has lost the opening: what follows is out of sequence")
        self._may_fail()
        self._may_refuse(logs)
        transaction = self._mine()
        offsets = [*self._opened_at, *(self._append(log, entry) for entry in entries)]
        self._schedule.step()
        self._may_fail()
        if self._mine() is not transaction:
            raise FencedError("aborted meanwhile")
        self._cluster.decide(transaction, COMMITTED)
        self._may_fail()
        return offsets

    def ends(
        self,
        partitions: Mapping[TopicPartition, int],
        *,
        patient: bool = False,  # noqa: ARG002 - every leader is known here
    ) -> Mapping[TopicPartition, TargetEnd]:
        self._may_fail()
        found = {}
        for item, epoch in partitions.items():
            topic = self._cluster.topics.get(item.topic)
            if topic is not None:
                log = topic.logs[item.partition]
                kept_to = TargetOffset(log.end_of_epoch(epoch)) if 0 <= epoch < log.epoch else None
                found[item] = TargetEnd(TargetOffset(log.end), log.epoch, kept_to)
        self._schedule.step()
        return found

    def undone(
        self, records: Mapping[TopicPartition, tuple[TargetLog, TargetOffset]]
    ) -> Mapping[TopicPartition, bool]:
        self._schedule.step()
        self._may_fail()
        found = {}
        for item, (known, offset) in records.items():
            topic = self._cluster.topics.get(item.topic)
            log = None if topic is None or topic.topic_id != known.topic_id else topic.logs[item.partition]
            if log is not None and log.epoch == known.leader_epoch:
                found[item] = log.ending_at(offset) == ABORTED
        return found

    def close(self) -> None:
        pass

    def _confirm(self, logs: Mapping[TopicPartition, TargetLog]) -> None:
        for item, known in logs.items():
            topic = self._cluster.topics.get(item.topic)
            if topic is None or topic.topic_id != known.topic_id:
                raise ClusterUnavailableError(f"{item} is of another topic than it was")
            if known.leader_epoch not in {UNKNOWN_EPOCH, topic.logs[item.partition].epoch}:
                raise ClusterUnavailableError(f"{item} has another leader than it had")

    def _send(self) -> None:
        if self._waiting and self._opening is not None:
            self._opened_in = run_log_of(self._cluster, self._run_log, self._shard)
            self._opened_at = [self._append(self._opened_in, self._opening)]
            self._opening = None
        for block in self._waiting:
            transaction = self._mine()
            topic = self._cluster.topics.get(block.topic_partition.topic)
            if topic is None:
                raise ClusterUnavailableError(f"{block.topic_partition} is gone")
            log = topic.logs[block.topic_partition.partition]
            if log in transaction.torn:
                raise ClusterUnavailableError(f"{block.topic_partition}: out of sequence")
            offsets = [self._append(log, record) for record in block.records]
            self._acknowledged.setdefault(block.topic_partition, []).extend(offsets)
        self._waiting = []

    def _append(self, log: Log, value: object) -> int:
        if self._has_lost_connection(log):
            raise ClusterUnavailableError("the connection to the leader was lost")
        self._ways[log] = self._cluster.deaths
        return log.append(value, self._mine())

    def _has_lost_connection(self, log: Log) -> bool:
        return self._by_batches and self._ways.get(log, self._cluster.deaths) != self._cluster.deaths

    def _mine(self) -> Transaction:
        transaction = self._cluster.transaction(self._id, self._epoch)
        if self._transaction is None:
            self._transaction = transaction
        elif self._transaction.outcome != OPEN:
            raise FencedError("this transaction has been decided by another owner")
        return self._transaction

    def _may_refuse(self, items: Iterable[TopicPartition]) -> None:
        topics = sorted({item.topic for item in items} - {self._run_log})
        if topics and self._faults.forbids(self._schedule):
            raise TopicsRefusedError({topics[0]: "Write is missing at the target"})

    def _may_fail(self) -> None:
        while self._cluster.frozen_until_ms > self._schedule.now_ms:
            self._schedule.sleep(self._cluster.frozen_until_ms - self._schedule.now_ms)
        if not self._schedule.calm and self._schedule.random.random() < self._faults.fail:
            raise ClusterUnavailableError("no answer")


_USABLE = 0.5
"""Probability that a target which has refused a topic says that it takes it now; it may refuse it all the same."""


class SimSurveyor:
    def __init__(self, schedule: Schedule, source: Cluster, target: Cluster, lease: Lease) -> None:
        self._schedule = schedule
        self._source = source
        self._target = target
        self._lease = lease
        self._ticket = 0
        self._refused: list[TopicName] = []
        self._waiting = False

    def request(self, _known: Collection[TopicName], refused: Collection[TopicName]) -> int:
        self._ticket += 1
        self._refused = sorted(refused)
        self._waiting = True
        return self._ticket

    def result(self) -> Survey | None:
        if not self._waiting or self._schedule.random.random() < 0.6:
            return None
        self._waiting = False
        if not self._source.reachable:
            return Survey(self._ticket, None, {}, infos_of(self._target))
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
        usable = [name for name in self._refused if self._schedule.random.random() < _USABLE]
        return Survey(self._ticket, infos_of(self._source), logs, infos_of(self._target), usable=usable)

    def close(self) -> None:
        pass


class SimClock:
    """A process's clock: it may be stepped, but for its monotonic time."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.stepped_ms = 0

    def now_ms(self) -> int:
        return int(self._schedule.now_ms) + self.stepped_ms

    def monotonic_ms(self) -> float:
        return self._schedule.now_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self._schedule.sleep(duration_ms)


class SimConnector:
    """The doors of one process."""

    def __init__(
        self, schedule: Schedule, source: Cluster, target: Cluster, config: Config, faults: Faults
    ) -> None:
        self._schedule = schedule
        self._source = source
        self._target = target
        self._config = config
        self._faults = faults
        self._clock = SimClock(schedule)
        self._read_before: set[int] = set()

    @property
    def clock(self) -> SimClock:
        return self._clock

    def settle(self, lease: Lease) -> None:
        self._schedule.step()
        settle_changes(self._schedule, self._target)
        settle(self._schedule, self._target, self._config, lease)

    def target(self, lease: Lease) -> SimTarget:
        name = run_log_topic(self._config, lease.route.source)
        return SimTarget(self._schedule, self._target, lease, name, self._faults)

    def source(self, lease: Lease) -> SimSource:
        del lease
        return SimSource(self._schedule, self._source, self._faults)

    def surveyor(self, lease: Lease) -> SimSurveyor:
        return SimSurveyor(self._schedule, self._source, self._target, lease)

    def run_log(self, lease: Lease) -> SimRunLog:
        name = run_log_topic(self._config, lease.route.source)
        run_log = SimRunLog(self._schedule, self._target, name, lease.shard)
        run_log.seems_empty = (
            lease.epoch in self._read_before
            and not self._schedule.calm
            and self._schedule.random.random() < self._faults.empty_run_log
        )
        run_log.was_read = lambda: self._read_before.add(lease.epoch)
        return run_log

    def foreign_records(self, lease: Lease) -> None:
        del lease

    def unexplained(self, lease: Lease, states: States) -> Mapping[TopicPartition, int]:
        self._schedule.step()
        return unexplained(self._target, self._config, lease, states)

    def layout(self, lease: Lease) -> LayoutRecord | None:
        return read_layout(self._config, lease.route)
