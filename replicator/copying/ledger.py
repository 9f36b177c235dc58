"""A session's side of the target: the open transaction, the states that commits leave, watermarks and snapshots."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import structlog

from parallax.config.config import Replicator
from parallax.domain.ids import UNKNOWN_EPOCH, SourceOffset, TopicPartition
from parallax.domain.runs import watermark as watermark_row
from parallax.errors import InvariantError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.copied_until import CopiedUntil
from replicator.copying.open_transaction import OpenTransaction
from replicator.copying.openings import MOST_RUNS_OPENED, Openings, following, opening_of
from replicator.copying.ports import Clock, RecordBlock, RecordRefusedError, TargetLog, TargetWriter
from replicator.copying.recovery import Shard
from replicator.copying.session_end import Counts, PartitionRefusedError, SessionError, Stop
from replicator.copying.state import PartitionChange, PartitionState, encode
from replicator.lease import Lease, PartitionProgress, PartitionStatus

log = structlog.get_logger(__name__)

MAX_RUNS_PER_TRANSACTION = 40_000
"""With as many the run-log entry still stays below Kafka's 1 MB."""
_MANY_PIECES = 8
"""A snapshot of so many, 4 MB, is worth a warning: it is written every few seconds, and read at every start."""
_IDLE_SHARE, _CHECK_SHARE = 0.75, 0.25
"""Of the watermark interval: a partition idle for the first gets a watermark, looked for every so often. Together
no partition goes without a row for longer than the interval."""

Positions = Callable[[TopicPartition], SourceOffset]
"""A partition's settled position: what is committed, and the non-records after it."""


class Ledger:
    """What is committed and what is about to be.

    Args:
        lease: the shard.
        shard: whose entries are written, and where to.
        run_log_leader_epoch: of the run log when its states were read. Nothing is committed there under another: what
            that leader has lost is to be seen first.
        settings: intervals and bounds.
        target: where records and entries go.
        clock: time.
        states: the partitions as the run log has them.
        counts: where to count.
        committed: called with each committed entry and its offset in the run log.
    """

    def __init__(
        self,
        lease: Lease,
        settings: Replicator,
        *,
        shard: Shard,
        run_log_leader_epoch: int,
        target: TargetWriter,
        clock: Clock,
        states: Mapping[TopicPartition, PartitionState],
        counts: Counts,
        committed: Callable[[int, Entry], None],
    ) -> None:
        self._lease = lease
        self._shard = shard
        self._run_log_leader_epoch = run_log_leader_epoch
        self._settings = settings
        self._target = target
        self._clock = clock
        self._committed = committed
        self.states: dict[TopicPartition, PartitionState] = dict(states)
        self.counts = counts
        self.open: OpenTransaction | None = None
        self._passed: dict[TopicPartition, int] = {}
        """The leader epoch of what was passed over last, by partition of which nothing was sent since."""
        self.attempted: Sequence[Entry] = ()
        """What was last to be committed, whether or not it was: an entry in its pieces."""
        self._openings = Openings()
        self._begun_at: float | None = None
        self._last_commit_at = clock.monotonic_ms()
        self._last_commit_partitions = 0
        self._latency_ms: dict[TopicPartition, float] = {}
        self._age_ms: dict[TopicPartition, float] = {}
        self._row_at: dict[TopicPartition, float] = {}
        self.copied_until = CopiedUntil()
        self._no_end: dict[TopicPartition, tuple[float, float]] = {}
        """Partitions of which the target told no end, such as a deleted topic's: when to ask again, and the pause after
        the next miss, ms."""
        self._watermark_at = clock.monotonic_ms()
        self._snapshot_at = -math.inf  # the first entry is a snapshot: it shows that this owner has begun
        self._entries_since_snapshot = 0
        self._told_large = False

    def holds(self, item: TopicPartition) -> bool:
        """Whether the open transaction has records of the partition."""
        return self.open is not None and item in self.open

    def send(self, block: RecordBlock) -> None:
        """Send records in the open transaction, beginning one if there is none."""
        if self.open is None:
            opening = self._next_opening()
            self._begin(opening)
            self.open = OpenTransaction(self._clock.monotonic_ms(), opening)
        self._target.produce(block)
        self.open.add(block, self._clock.now_ms())
        self._passed.pop(block.topic_partition, None)

    def pass_over(self, item: TopicPartition, leader_epoch: int) -> None:
        """The last record below the partition's settled position is none that the route copies, and of this leader epoch."""
        self._passed[item] = leader_epoch

    def _with_passed(self, change: PartitionChange) -> PartitionChange:
        """The change, from which reading can go on behind what was passed over."""
        leader_epoch = self._passed.get(change.state.topic_partition)
        if leader_epoch is None:
            return change
        return replace(change, state=replace(change.state, passed_leader_epoch=leader_epoch))

    @property
    def open_for_ms(self) -> float:
        """Age of the transaction that was begun last and is not committed; 0 if there is none."""
        return 0 if self._begun_at is None else self._clock.monotonic_ms() - self._begun_at

    def _begin(self, opening: Entry | None = None) -> None:
        self._begun_at = self._clock.monotonic_ms()
        self._target.begin(opening)

    def _next_opening(self) -> Entry | None:
        # A snapshot may need more records than one.
        if not (self._target.opens_run_log and self._openings.wanted(len(self.states))) or self._snapshot_due:
            return None
        return opening_of(
            run_log_id=self._shard.run_log_id,
            layout=self._lease.layout,
            shard=self._lease.shard,
            path=self._target.path,
            committed_at_ms=self._clock.now_ms(),
            run_log_leader_epoch=self._run_log_leader_epoch,
        )

    @property
    def _snapshot_due(self) -> bool:
        return (
            self._clock.monotonic_ms() - self._snapshot_at >= self._settings.snapshot_interval_ms
            or self._entries_since_snapshot >= self._settings.snapshot_interval_records
        )

    def full(self) -> bool:
        """Whether the open transaction has reached a bound."""
        if self.open is None:
            return False
        most_runs = MAX_RUNS_PER_TRANSACTION if self.open.opening is None else MOST_RUNS_OPENED
        return (
            self.open.size_bytes >= self._settings.commit_max_bytes
            or self.open.most_runs >= most_runs
            or not self.left_ms
        )

    @property
    def rest_ms(self) -> float:
        """What is left of the pause after the last commit: longer the more partitions had records in it.

        Each of them costs the target a marker, so many slow partitions are better committed less often. While the target had
        better be left alone, what is open may as well grow.
        """
        rests = self._settings.rests
        pause_ms = max(
            rests.between_commits_ms, self._last_commit_partitions * rests.between_commits_per_partition_ms
        )
        return max(self._target.calm_ms, pause_ms - (self._clock.monotonic_ms() - self._last_commit_at))

    @property
    def left_ms(self) -> float:
        """How long the open transaction may still grow; infinite if there is none."""
        if self.open is None:
            return math.inf
        age_ms = self._clock.monotonic_ms() - self.open.began_at_ms
        return max(0.0, self._settings.commit_max_interval_ms - age_ms)

    def watermarks_due(self) -> bool:
        """Whether it is time to look for partitions without a row for long enough."""
        share = self._settings.watermark_interval_ms * _CHECK_SHARE
        return self._clock.monotonic_ms() - self._watermark_at >= share

    def commit(self, settled: Positions) -> Collection[TopicPartition]:
        """Commit what is open together with the watermarks that are due.

        Returns:
            Partitions whose target ends below what was committed, or has another leader than it had: its tail may be
            lost, or it was created anew.
        """
        opened = self.open
        changes = [] if opened is None else self._changes_of(opened)
        behind: list[TopicPartition] = []
        if self.watermarks_due():
            changes += self._watermarks(settled, behind)
            self._watermark_at = self._clock.monotonic_ms()
        self.write(changes)
        return behind

    def _changes_of(self, opened: OpenTransaction) -> list[PartitionChange]:
        try:
            targets = self._target.settle(self._logs(opened, ()))
        except RecordRefusedError as error:
            item = error.topic_partition
            refused_at = SourceOffset(opened.record_offset(item, error.index))
            reason = (
                f"{item}: record at source offset {refused_at} of {self._lease.route}: {error.reason}; "
                f"copying of this partition stops before it"
            )
            raise PartitionRefusedError(Stop(item, self.states[item].lineage, refused_at, reason)) from error
        for item in opened.partitions:
            state, acknowledged = self.states[item], targets.get(item)
            if acknowledged and acknowledged[0] < state.target_floor:
                # What it has kept is asked by its leader epoch, once this transaction is aborted.
                raise SessionError(f"{item}: the target lost its tail: it goes on at {acknowledged[0]}")
        try:
            return [
                self._with_passed(opened.change(self.states[item], targets.get(item, ())))
                for item in opened.partitions
            ]
        except InvariantError as error:
            raise SessionError(f"the target's acknowledgements don't fit: {error}") from error

    def _watermarks(self, settled: Positions, behind: list[TopicPartition]) -> list[PartitionChange]:
        """Watermarks for partitions without a row for long enough and without records in this transaction.

        The position is settled before the target's end is read, and both hold only if the entry is committed.
        """
        now = self._clock.monotonic_ms()
        idle_since = now - self._settings.watermark_interval_ms * _IDLE_SHARE
        positions = {
            item: settled(item)
            for item in self.states
            if self._row_at.get(item, -math.inf) <= idle_since
            and not self.holds(item)
            and self._no_end.get(item, (-math.inf, 0))[0] <= now
        }
        leader_epochs = {item: self.states[item].target_leader_epoch for item in positions}
        ends = self._target.ends(leader_epochs) if positions else {}
        changes = []
        for item, position in positions.items():
            state, end = self.states[item], ends.get(item)
            if end is None:
                # At first only the leader may not be known yet.
                pause_ms = self._no_end.get(item, (now, 0.0))[1]
                longer_ms = max(2 * pause_ms, self._settings.watermark_interval_ms * _CHECK_SHARE)
                self._no_end[item] = (now + pause_ms, min(longer_ms, self._settings.discovery_interval_ms))
                continue
            if state.target_leader_epoch == UNKNOWN_EPOCH:
                state = replace(state, target_leader_epoch=end.leader_epoch)
            if end.next_offset < state.target_floor or end.leader_epoch != state.target_leader_epoch:
                behind.append(item)
                continue
            row = watermark_row(
                source_next=position,
                target_end=end.next_offset,
                last_run_end=state.last_run_end,
                source_leader_epoch=state.source_leader_epoch,
            )
            changes.append(self._with_passed(PartitionChange(state.after((row,), position), (row,))))
        self.counts.watermarks += len(changes)
        return changes

    def write(self, changes: Collection[PartitionChange]) -> None:
        """Commit an entry with these changes, and with the data of the open transaction."""
        opened = self.open
        opening = None if opened is None else opened.opening
        snapshot = opening is None and self._snapshot_due
        if not changes and not snapshot:
            return
        after = dict(self.states)
        for change in changes:
            if change.closed:
                after.pop(change.state.topic_partition, None)
            else:
                after[change.state.topic_partition] = change.state
        entry = encode(
            run_log_id=self._shard.run_log_id,
            layout=self._lease.layout,
            shard=self._lease.shard,
            path=self._target.path,
            changes=list(changes),
            everything=after if snapshot else None,
            committed_at_ms=self._clock.now_ms(),
            run_log_leader_epoch=self._run_log_leader_epoch,
        )
        if opened is None:
            self._begin()
        pieces = following(opening, entry)
        self.attempted = pieces if opening is None else [opening, *pieces]
        self._tell_large(entry, len(after), len(pieces))
        self._forget_passed(changes)
        offsets = self._target.commit(pieces, self._logs(opened, changes))
        self._begun_at = None
        self.states = after
        self.open = None
        self._entries_since_snapshot = 0 if snapshot else self._entries_since_snapshot + 1
        now = self._clock.monotonic_ms()
        self._last_commit_at = now
        self._last_commit_partitions = 0 if opened is None else len(opened.partitions)
        if snapshot:
            self._snapshot_at = now
        self.counts.transactions += 1
        for change in changes:
            self._row_at[change.state.topic_partition] = now
            self._no_end.pop(change.state.topic_partition, None)
        if opened is not None:
            self._openings.note(opened.size_bytes, opened.most_runs)
            self._count(opened)
        for offset, piece in zip(offsets, self.attempted, strict=True):
            if piece is not opening:  # which tells of nothing
                self._committed(offset, piece)

    def _tell_large(self, entry: Entry, partitions: int, pieces: int) -> None:
        """Warn once of a snapshot that is very large."""
        if pieces >= _MANY_PIECES and not self._told_large:
            self._told_large = True
            log.warning(
                "snapshot_large",
                lease=str(self._lease),
                partitions=partitions,
                size_bytes=entry.ByteSize(),
                advice="raise replicator.shards_per_route, or replicate fewer partitions",
            )

    def _forget_passed(self, changes: Iterable[PartitionChange]) -> None:
        """Of partitions that go on somewhere else."""
        for change in changes:
            known = self.states.get(change.state.topic_partition)
            if change.lost or (known is not None and known.lineage != change.state.lineage):
                self._passed.pop(change.state.topic_partition, None)

    def _logs(
        self, opened: OpenTransaction | None, changes: Iterable[PartitionChange]
    ) -> dict[TopicPartition, TargetLog]:
        """The logs that have to be the same at the commit: of what has records in it, or begins with it."""
        written = [] if opened is None else [self.states[item] for item in opened.partitions]
        for change in changes:
            state = change.state
            known = self.states.get(state.topic_partition)
            if not change.closed and (known is None or known.lineage != state.lineage):
                written.append(state)
        told = {
            state.topic_partition: TargetLog(state.lineage.target_topic_id, state.target_leader_epoch)
            for state in written
        }
        told[self._shard.run_log] = TargetLog(self._shard.run_log_id, self._run_log_leader_epoch)
        return told

    def _count(self, opened: OpenTransaction) -> None:
        wall_ms = self._clock.now_ms()
        for item in opened.partitions:
            count = opened.count(item)
            self.counts.records[item] = self.counts.records.get(item, 0) + count
            share = opened.size_bytes * count // opened.records
            self.counts.bytes_of[item] = self.counts.bytes_of.get(item, 0) + share
            newest, sent_at_ms = opened.newest_ms(item)
            self.copied_until.copied(item, newest, wall_ms)
            if newest > 0:
                self._latency_ms[item] = max(0.0, wall_ms - newest)
                self._age_ms[item] = max(0.0, sent_at_ms - newest)
        for newest, sent_at_ms, count in opened.times:
            self.counts.record_ages.add(sent_at_ms - newest, count)
            self.counts.latencies.add(wall_ms - newest, count)
        self.counts.size_bytes += opened.size_bytes

    def progress(
        self,
        status: Mapping[TopicPartition, tuple[PartitionStatus, str]],
        settled: Positions,
        lag: Callable[[TopicPartition], int],
    ) -> tuple[PartitionProgress, ...]:
        """Each partition's part of a report; latencies are of what was committed since the last call."""
        parts = []
        now = self._clock.monotonic_ms()
        for item in sorted({*self.states, *status}):
            row_at = self._row_at.get(item)
            position = settled(item) if item in self.states else 0
            state, reason = status.get(item, (PartitionStatus.WAITING, ""))
            parts.append(
                PartitionProgress(
                    topic=item.topic,
                    partition=item.partition,
                    records=self.counts.records.get(item, 0),
                    size_bytes=self.counts.bytes_of.get(item, 0),
                    source_next=position,
                    lag_records=lag(item),
                    replication_latency_ms=self._latency_ms.get(item),
                    status=state,
                    reason=reason,
                    watermark_age_ms=None if row_at is None else now - row_at,
                    copied_until_ms=self.copied_until.of(item, position),
                    record_age_ms=self._age_ms.get(item),
                )
            )
        self._latency_ms.clear()
        self._age_ms.clear()
        return tuple(parts)
