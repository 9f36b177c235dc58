"""One simulated life of a shard: owners that pause, fail and die, and a source that misbehaves; then the oracles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from parallax.config.config import Config
from parallax.domain.history import History
from parallax.domain.ids import Lineage, Route, RoutePartition, TargetOffset, TopicName, TopicPartition
from parallax.domain.index_rows import LineageRecord, RowBatch
from parallax.domain.runs import LostRange, Run
from parallax.errors import ClusterUnavailableError, FencedError, StoreUnavailableError
from parallax.runtime.retry import RetryPolicy
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.session_end import SessionError
from replicator.copying.state import lineage_of, lost_of, rows_of, topic_partition_of
from replicator.kafka.layout import snapshots
from replicator.lease import Lease, LeaseProgress
from replicator.mapping.feed import IndexFeed
from replicator.shard import copy_until_over
from tests.memory.index import MemoryMappingIndex
from tests.worlds.sim.doors import RUN_LOG, Faults, SimConnector, SimRunLog
from tests.worlds.sim.kafka import ABORTED, COMMITTED, OPEN, Cluster, Log, Transaction
from tests.worlds.sim.schedule import Actor, Schedule

ROUTE = Route.parse("a->b")
TOPIC = "trips"


def sim_config() -> Config:
    return Config.model_validate(
        {
            "regions": {
                "a": {"regional": {"bootstrap_servers": "none:1"}},
                "b": {"aggregate": {"bootstrap_servers": "none:1"}},
            },
            "cassandra": {"contact_points": ["none"]},
            "replicator": {
                "watermark_interval_ms": 200,
                "snapshot_interval_ms": 1_000,
                "snapshot_interval_records": 10,
                "discovery_interval_ms": 500,
            },
        }
    )


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record that a producer wrote; its serial number tells the order of all."""

    serial: int
    incarnation: str
    partition: int
    offset: int
    epoch: int


class FlakyIndex(MemoryMappingIndex):
    """An index that is away now and then, in the middle of a write too; checks that it is never ahead."""

    def __init__(self, schedule: Schedule, run_log: Log) -> None:
        super().__init__()
        self._schedule = schedule
        self._run_log = run_log

    def write_lineages(self, records: Sequence[LineageRecord]) -> None:
        self._may_be_away()
        super().write_lineages(records)

    def write_rows(self, batches: Sequence[RowBatch]) -> None:
        self._may_be_away()
        committed = {slot.offset for slot in self._run_log.committed()}
        for batch in batches:
            assert batch.version & ((1 << 48) - 1) in committed, "a row was indexed before it was committed"
        super().write_rows(batches[: len(batches) // 2])
        self._may_be_away()
        super().write_rows(batches)

    def save_indexed_up_to(self, route: Route, layout: int, shard: int, run_log_next: int) -> None:
        self._may_be_away()
        assert run_log_next <= self._run_log.stable_end, "the index claims more than the run log holds"
        super().save_indexed_up_to(route, layout, shard, run_log_next)

    def _may_be_away(self) -> None:
        self._schedule.step()
        if not self._schedule.calm and self._schedule.random.random() < 0.1:
            raise StoreUnavailableError("away")


class World:
    """A route with one shard, one topic of two partitions, and everything that can go wrong with it."""

    def __init__(self, seed: int, faults: Faults | None = None) -> None:
        self.schedule = Schedule(seed)
        self.random = self.schedule.random
        self.faults = faults or Faults(fail=self.random.choice((0.0, 0.01, 0.03)))
        self.source, self.target = Cluster("source"), Cluster("target")
        self.target.create(RUN_LOG)
        self.config = sim_config()
        self.connector = SimConnector(self.schedule, self.source, self.target, self.faults)
        self.run_log = self.target.topics[RUN_LOG].logs[0]
        for _, _, _, first in snapshots(self.connector.layout_record, {}):
            self.run_log.append(Entry.FromString(first))
        self.index = FlakyIndex(self.schedule, self.run_log)
        self.records: list[SourceRecord] = []
        self.thrown_away: set[int] = set()
        self.gone_unseen: set[int] = set()
        self.aborted: dict[int, Transaction] = {}
        self.gone_incarnations: set[str] = set()
        self.owners: list[Actor] = []
        self.finish = False
        self.report: Callable[[LeaseProgress], None] = lambda _progress: None
        self._open: list[Transaction] = []
        self._others = 0
        self._foreign: list[Transaction] = []
        if self.random.random() < 0.8:
            self.source.create(TOPIC, 2)
        if self.random.random() < 0.5:
            self.target.create(TOPIC, 2)
        for _ in range(self.random.choice((0, 5))):
            self._produce()
        if self.random.random() < 0.2 and TOPIC in self.source.topics:
            self.source.topics[TOPIC].logs[0].retain_from(2)

    # --- life --------------------------------------------------------------------------------------------------

    def live(self, steps: int) -> None:
        """Everything goes wrong for so many steps; then one owner is left in peace until it has caught up."""
        self.schedule.on_step = self._something_happens
        self._own()
        self.schedule.run(lambda: self.schedule.steps >= steps, at_most_steps=steps + 10_000)
        self.schedule.calm = True
        self.source.reachable = True
        if TOPIC not in self.source.topics:
            self.source.create(TOPIC, 2)
            self._produce()
        for transaction in [*self._open, *self._foreign]:
            if transaction.outcome == OPEN:
                transaction.decide(COMMITTED)
        old = list(self.owners)
        self._own()
        zombies_until = self.schedule.steps + 150
        self.schedule.run(lambda: self.schedule.steps >= zombies_until, at_most_steps=1_000)
        for owner in old:
            owner.doomed = True
        if self.owners[-1].over:  # a zombie woke up later than it and took the shard back, rightly
            self._own()
        self.schedule.run(self._caught_up, at_most_steps=30_000)
        self.finish = True
        self.schedule.run(lambda: all(actor.over for actor in self.schedule.actors), at_most_steps=30_000)

    def _own(self) -> None:
        lease = Lease(ROUTE, 0, 1, 1, len(self.owners), 10**15)
        feed = IndexFeed(
            self.index,
            SimRunLog(self.schedule, self.target, 0),
            route=ROUTE,
            layout=1,
            shard=0,
            clock=self.connector.clock,
            bound_entries=8,
        )

        def own() -> None:
            try:
                copy_until_over(
                    lease,
                    self.config,
                    self.connector,
                    feed=feed,
                    report=self.report,
                    end_asked=lambda: self.finish,
                    retries=RetryPolicy(random=self.random),
                )
            except FencedError:
                return

        owner = self.schedule.spawn(f"owner {lease.epoch}", own)

        def carry() -> None:
            while not (owner.doomed and owner.over):
                with suppress(StoreUnavailableError, ClusterUnavailableError, SessionError):
                    feed.turn()
                if owner.over and feed.complete:
                    return
                self.schedule.sleep(100)

        self.owners.append(owner)
        self.schedule.spawn(f"index {lease.epoch}", carry)

    def _caught_up(self) -> bool:
        if self.owners[-1].over:
            self._own()
        topic = self.source.topics[TOPIC]
        here = self.target.topics.get(TOPIC)
        if here is None:
            return False
        positions, entries = {}, list(self.entries())
        for _, entry in entries:
            for part in entry.partitions:
                if part.source_topic_id == topic.topic_id and part.target_topic_id == here.topic_id:
                    positions[part.partition] = 0 if part.closed else part.source_next
        # What an owner committed in its last moment is indexed by the next one: wait until that has begun.
        indexed = bool(entries) and self.index.indexed_up_to(ROUTE, 1, 0) > entries[-1][0]
        return indexed and all(positions.get(number, -1) >= log.end for number, log in enumerate(topic.logs))

    def _something_happens(self) -> None:
        if self.schedule.calm or self.random.random() > 0.25:
            return
        happening = self.random.choices(
            (
                self._produce,
                self._source_transaction,
                self._decide_one,
                self._write_from_elsewhere,
                self._lose_connection,
                self._retain,
                self._elect_unclean,
                self._recreate,
                self._pause_an_owner,
                self._kill_an_owner,
                self._start_an_owner,
            ),
            (40, 12, 12, 12, 3, 2, 2, 1, 4, 3, 4),
        )[0]
        happening()

    def _log(self) -> Log | None:
        topic = self.source.topics.get(TOPIC)
        return None if topic is None else self.random.choice(topic.logs)

    def _write(self, log: Log, transaction: Transaction | None) -> None:
        topic = self.source.topics[TOPIC]
        record = SourceRecord(len(self.records), topic.topic_id, topic.logs.index(log), log.end, log.epoch)
        self.records.append(record)
        if transaction is not None:
            self.aborted[record.serial] = transaction
        log.append(record, transaction)

    def _produce(self) -> None:
        log = self._log()
        if log is not None:
            for _ in range(self.random.choice((1, 2, 5))):
                self._write(log, None)

    def _source_transaction(self) -> None:
        if len(self._open) < 2 and self._log() is not None:
            transaction = Transaction()
            for _ in range(self.random.choice((1, 3))):
                log = self._log()
                assert log is not None
                self._write(log, transaction)
            self._open.append(transaction)

    def _decide_one(self) -> None:
        if self._open:
            self._open.pop(0).decide(self.random.choice((COMMITTED, ABORTED)))

    def _write_from_elsewhere(self) -> None:
        """Another route's transaction on the target: it may stay open for long, which holds back readers."""
        topic = self.target.topics.get(TOPIC)
        if self._foreign and self.random.random() < 0.5:
            self._foreign.pop(0).decide(self.random.choice((COMMITTED, ABORTED)))
        elif topic is not None:
            transaction = Transaction()
            for _ in range(2):
                self._others += 1
                self.random.choice(topic.logs).append(("other", self._others), transaction)
            self._foreign.append(transaction)

    def _lose_connection(self) -> None:
        self.source.reachable = not self.source.reachable

    def _retain(self) -> None:
        log = self._log()
        if log is None or log.stable_end <= log.start:
            return
        start = self.random.randint(log.start, log.stable_end)
        # Written over what an unclean election threw away, and gone before anyone looked: nothing tells of these.
        self.gone_unseen |= {
            slot.value.serial
            for slot in log.slots
            if slot.offset < start and isinstance(slot.value, SourceRecord) and slot.epoch > 0
        }
        log.retain_from(start)

    def _elect_unclean(self) -> None:
        log = self._log()
        if log is None or self._open:
            return
        cut = self.random.randint(max(log.start, log.end - 6), log.end)
        self.thrown_away |= {
            slot.value.serial
            for slot in log.slots
            if slot.offset >= cut and isinstance(slot.value, SourceRecord)
        }
        log.elect_unclean(cut)

    def _recreate(self) -> None:
        if TOPIC in self.source.topics and not self._open:
            self.gone_incarnations.add(self.source.topics.pop(TOPIC).topic_id)
        if self.random.random() < 0.7 and TOPIC not in self.source.topics:
            self.source.create(TOPIC, 2)

    def _pause_an_owner(self) -> None:
        alive = [owner for owner in self.owners if not owner.over]
        if alive:
            self.random.choice(alive).asleep_until = self.schedule.now_ms + self.random.choice((200, 2_000))

    def _kill_an_owner(self) -> None:
        alive = [owner for owner in self.owners if not owner.over]
        if alive:
            self.random.choice(alive).doomed = True

    def _start_an_owner(self) -> None:
        if sum(1 for owner in self.owners if not owner.over) < 2:
            self._own()

    # --- oracles -----------------------------------------------------------------------------------------------

    def entries(self) -> Iterator[tuple[int, Entry]]:
        for slot in self.run_log.committed():
            assert isinstance(slot.value, Entry)
            yield slot.offset, slot.value

    def check(self) -> None:
        """Everything that must hold of what was copied, whatever happened."""
        rows: dict[tuple[TopicPartition, Lineage], list[Run]] = defaultdict(list)
        lost: dict[tuple[TopicPartition, Lineage], list[LostRange]] = defaultdict(list)
        for _, entry in self.entries():
            for part in entry.partitions:
                key = (topic_partition_of(part), lineage_of(part))
                rows[key] += rows_of(part)
                lost[key] += lost_of(part)
        for partition, log in enumerate(self.target.topics[TOPIC].logs):
            item = TopicPartition(TopicName(TOPIC), partition)
            copied = {
                slot.offset: slot.value for slot in log.committed() if isinstance(slot.value, SourceRecord)
            }
            self._check_content(item, copied, lost)
            mapped: dict[int, int] = {}
            for (where, lineage), found in rows.items():
                if where == item:
                    self._check_rows(lineage, found, copied, mapped)
                    self._check_index(item, lineage, found)
            assert mapped.keys() == copied.keys(), "a copied record is in no run"

    def _check_content(
        self,
        item: TopicPartition,
        copied: dict[int, SourceRecord],
        lost: dict[tuple[TopicPartition, Lineage], list[LostRange]],
    ) -> None:
        serials = [copied[offset].serial for offset in sorted(copied)]
        assert serials == sorted(set(serials)), f"{item}: copied twice or out of order: {serials}"
        assert all(record.partition == item.partition for record in copied.values())
        got = set(serials)
        for record in self.records:
            transaction = self.aborted.get(record.serial)
            if transaction is not None and transaction.outcome != COMMITTED:
                assert record.serial not in got, f"{record} was aborted at the source"
                continue
            if record.partition != item.partition or record.serial in got:
                continue
            if record.serial in self.thrown_away | self.gone_unseen:
                continue
            if record.incarnation in self.gone_incarnations:
                continue
            assert any(
                gap.source_start <= record.offset < gap.source_end
                for (where, lineage), gaps in lost.items()
                if where == item and lineage.source_topic_id == record.incarnation
                for gap in gaps
            ), f"{record} is missing, and no lost range says so"

    def _check_rows(
        self, lineage: Lineage, rows: list[Run], copied: dict[int, SourceRecord], mapped: dict[int, int]
    ) -> None:
        History(lineage, rows)  # invariants A to E
        of_lineage: list[tuple[int, int]] = []
        for row in rows:
            for index in range(row.count):
                record = copied.get(row.target_start + index)
                assert record is not None, f"{lineage}: {row} points at no record of ours"
                assert (record.incarnation, record.offset) == (
                    lineage.source_topic_id,
                    row.source_start + index,
                ), f"{lineage}: {row} points at {record}"
                assert record.epoch == row.source_leader_epoch
                assert row.target_start + index not in mapped, "in two runs"
                mapped[row.target_start + index] = record.offset
                of_lineage.append((record.offset, row.target_start + index))
        for row in rows:
            for source, target in of_lineage:
                below = source < row.source_start
                assert not below or target < row.target_start, f"{lineage}: {row} does not hold for {source}"
                beyond = source >= row.source_end
                assert not beyond or target >= row.target_end, f"{lineage}: {row} does not hold for {source}"
                assert not row.previous_source_end <= source < row.source_start, f"{row} hides {source}"

    def _check_index(self, item: TopicPartition, lineage: Lineage, rows: list[Run]) -> None:
        partition = RoutePartition(ROUTE, item)
        page = self.index.rows_from_target(partition, lineage, TargetOffset(0), 100_000)
        History(lineage, page.rows)

        def mapping(some: Sequence[Run]) -> set[tuple[int, int]]:
            return {(row.source_start + i, row.target_start + i) for row in some for i in range(row.count)}

        assert mapping(page.rows) == mapping(rows), "the index and the run log differ"
        newest = max(rows, key=lambda row: (row.target_end, row.source_end), default=None)
        if newest is not None:
            stored = self.index.newest(ROUTE, item.topic)[item.partition, lineage].row
            assert (stored.target_end, stored.source_end) == (newest.target_end, newest.source_end)
