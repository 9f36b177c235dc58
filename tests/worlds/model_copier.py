"""The replicator of one route and partition in the model: brute force around the decisions of the real one.

What it reads and writes are plain lists; what it decides, and the rows that it commits, are production's own
(`replicator.copying`). So the rule is tried with what replicators really write.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    Lineage,
    RegionName,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import LineageRecord, RouteTopic, StampedRow
from parallax.domain.runs import LostRange, Run, watermark
from parallax.errors import InvariantError
from parallax.ports.clusters import TopicInfo
from replicator.copying.open_transaction import OpenTransaction
from replicator.copying.ports import LogEnd, OutOfRange, RecordBlock, Survey, TargetEnd
from replicator.copying.reconcile import changes_for, decide, read_from
from replicator.copying.state import PartitionChange, PartitionState
from replicator.lease import PartitionStatus
from tests.worlds.model_logs import Cluster, Record, SourceLog

ITEM = TopicPartition(TopicName("t"), 0)


@dataclass
class _Reading:
    position: int
    epoch: int


@dataclass
class LoggedLineage:
    """What the run log tells of one lineage."""

    record: LineageRecord
    rows: list[Run] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    newest_version: int = 0


class Copier:
    """Copies one region to one cluster."""

    def __init__(
        self, chance: random.Random, cluster: Cluster, region: RegionName, unknowable: set[Record]
    ) -> None:
        self._random = chance
        self._unknowable = unknowable
        """Of which nothing is left that tells of them (docs/decisions/0003-lineage.md)."""
        self._cluster = cluster
        self.route = Route(region, RegionName(cluster.name.removeprefix("aggregate-")))
        self.run_log: list[PartitionChange] = []
        self.run_log_first = 0
        """What was before is gone from the run log; the index has it all."""
        self.state: PartitionState | None = None
        self.open_batch: list[tuple[Record, int]] = []
        """Records of the open transaction, and where they lie on the target."""
        self._opened: OpenTransaction | None = None
        self._reading: _Reading | None = None
        self._skipped_to = 0
        self._unreadable: OutOfRange | None = None
        self._copied: tuple[int, int] = (0, UNKNOWN_EPOCH)
        """The last record that was copied of the source's log: its end and leader epoch."""
        self._lost_to = 0
        self._lineage: Lineage | None = None
        self._lineages: dict[Lineage, LoggedLineage] = {}
        self.lost_records: dict[LostRange, set[Record]] = {}
        """By name what retention took before it was copied."""

    @property
    def source_next(self) -> int:
        """The position of the last committed transaction."""
        return 0 if self.state is None else self.state.source_next

    @property
    def position(self) -> int:
        """The settled position: what is committed, and the non-records after it."""
        return max(self.source_next, self._skipped_to)

    @property
    def newest(self) -> Run | None:
        return next((change.rows[-1] for change in reversed(self.run_log) if change.rows), None)

    @property
    def cut_at(self) -> int:
        """The run log's next offset after what it tells of the target's losses."""
        return max(
            (at + 1 for at, change in enumerate(self.run_log) if change.state.lost_epoch != UNKNOWN_EPOCH),
            default=0,
        )

    def has_all_of(self, source: SourceLog) -> bool:
        state = self.state
        return (
            state is not None
            and state.lineage.source_topic_id == source.source.topic_id
            and state.target_leader_epoch == self._cluster.leader_epoch
            and not self.open_batch
            and self._reading is not None
            and self.position >= len(source.log)
        )

    # --- copying -----------------------------------------------------------------------------------------------

    def work(self, source: SourceLog | None) -> None:
        """Begin a transaction, commit it, or abort it. ``source`` is the region's topic as it is now, if there is one."""
        self.look_at_target(source)
        if self.open_batch:
            if self._random.random() < 0.2:
                self.abort()
            else:
                self.commit()
        elif self._random.random() < 0.05:
            self._end_session()  # the lease ended: the next owner reads on from the run log
        else:
            self._copy(source)

    def look_at_target(self, source: SourceLog | None) -> None:
        """What the target has lost is settled before anything else."""
        if self.state is not None and self.state.target_leader_epoch != self._cluster.leader_epoch:
            self.abort()
            self._reconcile(source)

    def settle(self, source: SourceLog) -> None:
        """Commit what is open, and see what the source and the target are now."""
        self.look_at_target(source)
        self.commit()
        if self.state is None or self.state.lineage.source_topic_id != source.source.topic_id:
            self._reconcile(source)

    def _copy(self, source: SourceLog | None) -> None:
        known = None if self.state is None else self.state.lineage.source_topic_id
        if source is not None and source.source.topic_id != known:
            self._stop_reading()
        if self._reading is None:
            self._reconcile(source)
        if self._reading is None or source is None:
            return
        blocks = self._fetch(self._reading, source)
        for block in blocks:
            if not self.open_batch and block.offsets[0] < self.position:
                # Where nothing visible was, there are records now: that end of the source's log was thrown away.
                assert self.state is not None
                self._out_of_range(OutOfRange(ITEM, self.state.last_run_end, self.state.source_leader_epoch))
                return
            if self.state is not None and block.leader_epoch < self.state.source_leader_epoch:
                self._out_of_range(OutOfRange(ITEM, SourceOffset(block.offsets[0]), block.leader_epoch))
                return
            self._send(block)
        if self._opened is not None and self._reading.position == len(source.log):
            self._opened.reached_end(ITEM, SourceOffset(self._reading.position))
        if self.open_batch and self._random.random() < 0.7:
            self.commit()

    def _fetch(self, reading: _Reading, source: SourceLog) -> list[RecordBlock]:
        """A Fetch request, answered as KIP-595 says."""
        at, epoch = reading.position, reading.epoch
        if epoch != UNKNOWN_EPOCH and source.low <= at:
            found, end = source.end_of(epoch)
            if found < epoch or end < at:
                self._out_of_range(OutOfRange(ITEM, SourceOffset(end), found))
                return []
        if not source.low <= at <= len(source.log):
            self._out_of_range(OutOfRange(ITEM, None))
            return []
        self._unknowable |= self._gone_unseen(source)
        by_epoch: dict[int, list[Record]] = {}
        left = self._random.randint(1, 6)
        while at < len(source.log) and left:
            record, epoch = source.log[at], source.epoch_at(at)
            at += 1
            if record is not None:
                by_epoch.setdefault(epoch, []).append(record)
                left -= 1
        reading.position, reading.epoch = at, epoch
        if at == len(source.log) and not by_epoch:
            self._skipped_to = at
        return [
            RecordBlock(ITEM, of, [record.offset for record in records], records, 0)
            for of, records in by_epoch.items()
        ]

    def _gone_unseen(self, source: SourceLog) -> set[Record]:
        """The source lost its tail, and retention took all that would tell where: the records that it is about.

        They are those of its log that were never copied, and those that it has thrown away since they were.
        """
        copied_to, epoch = self._copied
        passed = {record for record in source.log[max(copied_to, self._lost_to) : source.low] if record}
        if not copied_to or epoch == UNKNOWN_EPOCH or source.agrees(copied_to, epoch):
            return passed
        found, end = source.parting(epoch)
        here = {record for record in self._cluster.entries if record is not None}
        missing = {
            record for record in source.log[self._lost_to : copied_to] if record and record not in here
        }
        thrown_away = {
            record
            for record in source.ever
            if record.offset < source.low
            and record != source.log[record.offset]
            and (record.epoch > found or record.offset >= end)
        }
        return passed | thrown_away | missing

    def _send(self, block: RecordBlock) -> None:
        self._opened = self._opened or OpenTransaction(0)
        self._opened.add(block, sent_at_ms=0)
        self._skipped_to = 0
        for record in block.records:
            self.open_batch.append((record, len(self._cluster.entries)))
            self._cluster.entries.append(record)

    def commit(self) -> None:
        """Commit the open transaction."""
        if self._opened is None or self.state is None:
            return
        try:
            change = self._opened.change(self.state, [place for _, place in self.open_batch])
        except InvariantError:
            self.abort()  # the session ends
            return
        self._cluster.entries.append(None)
        self.open_batch, self._opened = [], None
        self._write(change)

    def abort(self) -> None:
        """The session ends, and what is open is void."""
        for _, place in self.open_batch:
            if place < len(self._cluster.entries):
                self._cluster.entries[place] = None
        if self.open_batch:
            self._cluster.entries.append(None)
        self.open_batch, self._opened = [], None
        self._end_session()

    def watermark(self, source_next: int, target_end: int) -> None:
        """Commit a watermark."""
        if self.state is None:
            return
        row = watermark(
            source_next=SourceOffset(source_next),
            target_end=TargetOffset(target_end),
            last_run_end=self.state.last_run_end,
            source_leader_epoch=self.state.source_leader_epoch,
        )
        self._write(PartitionChange(self.state.after((row,), row.source_start), (row,)))

    def _stop_reading(self) -> None:
        self._reading = None

    def _end_session(self) -> None:
        self._reading, self._skipped_to, self._unreadable = None, 0, None

    def _out_of_range(self, event: OutOfRange) -> None:
        self._unreadable = event
        if self.open_batch and self._random.random() < 0.5:
            self.abort()
        self.commit()
        self._stop_reading()

    # --- decisions ---------------------------------------------------------------------------------------------

    def _reconcile(self, source: SourceLog | None) -> None:
        cluster, state = self._cluster, self.state
        there = {} if source is None else {ITEM.topic: TopicInfo(ITEM.topic, source.source.topic_id, 1)}
        end = 0 if source is None else len(source.log)
        survey = Survey(
            0,
            there,
            {}
            if source is None
            else {ITEM: LogEnd(SourceOffset(source.low), *[SourceOffset(end)] * 2, source.epoch)},
            {ITEM.topic: TopicInfo(ITEM.topic, cluster.topic_id, 1)},
        )
        states = {} if state is None else {ITEM: state}
        (decision,) = decide(
            survey,
            states,
            positions={} if state is None else {ITEM: state.source_next},
            out_of_range={} if self._unreadable is None else {ITEM: self._unreadable},
            shard=0,
            shard_count=1,
        )
        for change in changes_for(
            [decision], states, {ITEM: self._target_end()}, history=self._history, undone=lambda *_: False
        ):
            for gap in change.lost:
                taken = [] if source is None else source.log[gap.source_start : gap.source_end]
                self.lost_records.setdefault(gap, set()).update(record for record in taken if record)
            self._write(change)
            self._reading, self._skipped_to = None, 0
        if decision.status is not PartitionStatus.COPYING or self.state is None:
            return
        if decision.begins is None or decision.begins.lineage == self.state.lineage:
            self._unreadable = None
            place = read_from(self.state, decision.source_start, SourceOffset(self.position))
            self._reading = _Reading(place.source_next, place.leader_epoch)

    def _target_end(self) -> TargetEnd:
        """The target's answer, asked for the leader epoch that is recorded."""
        cluster = self._cluster
        known = UNKNOWN_EPOCH if self.state is None else self.state.target_leader_epoch
        kept_to = TargetOffset(cluster.kept_since(known)) if known < cluster.leader_epoch else None
        return TargetEnd(TargetOffset(len(cluster.entries)), cluster.leader_epoch, kept_to)

    def _history(self, _: TopicPartition, lineage: Lineage) -> Iterable[PartitionChange]:
        ids = lineage.source_topic_id, lineage.target_topic_id
        return [
            change
            for change in self.run_log[self.run_log_first :]
            if (change.state.lineage.source_topic_id, change.state.lineage.target_topic_id) == ids
        ]

    def _write(self, change: PartitionChange) -> None:
        self._tell(self._lineages, change, len(self.run_log))
        self.run_log.append(change)
        self.state = None if change.closed else change.state
        state, begins = change.state, change.state.lineage != self._lineage
        if change.lost:
            self._copied = (change.lost[0].source_start, state.source_leader_epoch)
            self._lost_to = change.lost[0].source_end
        elif begins or any(row.count for row in change.rows):
            self._copied = (state.last_run_end, state.source_leader_epoch)
            self._lost_to = 0 if begins else self._lost_to
        self._lineage = state.lineage

    # --- what the index makes of it ------------------------------------------------------------------------------

    def lineages(self, entries: int | None = None) -> dict[Lineage, LoggedLineage]:
        """The lineages as the first ``entries`` of the run log tell them."""
        if entries is None:
            return self._lineages
        result: dict[Lineage, LoggedLineage] = {}
        for version, change in enumerate(self.run_log[:entries]):
            self._tell(result, change, version)
        return result

    def _tell(self, told: dict[Lineage, LoggedLineage], change: PartitionChange, version: int) -> None:
        state = change.state
        known = told.get(state.lineage)
        if known is None or change.closed:
            record = LineageRecord(
                RoutePartition(self.route, ITEM),
                state.lineage,
                state.sequence,
                state.source_first,
                state.target_first,
                state.source_next if change.closed else None,
                version,
                state.lost_epoch,
            )
            if known is None:
                known = told[state.lineage] = LoggedLineage(record)
            known.record = record
        known.rows += change.rows
        known.lost += change.lost
        if change.rows:
            known.newest_version = version


def route_topic(lineages: Iterable[LoggedLineage]) -> RouteTopic:
    """What the index holds of the route's topic."""
    items = list(lineages)
    return RouteTopic(
        [item.record for item in items],
        {
            (ITEM.partition, item.record.lineage): StampedRow(item.rows[-1], item.newest_version)
            for item in items
            if item.rows
        },
    )
