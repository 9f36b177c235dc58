"""The copy loop of one shard between a start and the first thing that goes wrong.

Everything that it knows comes from the run log, and changes only by a committed entry. It never repairs itself:
whatever goes wrong ends the session, and the next one begins from the run log (`replicator.shard`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from parallax.domain.errors import InvariantError, ParallaxError
from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, SourceOffset, TargetOffset, TopicPartition
from parallax.domain.run import Run
from parallax.domain.run import watermark as watermark_row
from parallax.runtime.config import Replicator
from replicator.lease import Lease, PartitionProgress, PartitionStatus
from replicator.pb.runlog_pb2 import Entry
from replicator.reconcile import Beginning, Decision, begin, decide, lose
from replicator.shard_ports import (
    Clock,
    EndReached,
    OutOfRange,
    ReadFrom,
    RecordBlock,
    RecordRefusedError,
    SourceEvent,
    SourceReader,
    Survey,
    Surveyor,
    TargetWriter,
    TopicChanged,
)
from replicator.state import PartitionChange, PartitionState, encode
from replicator.transaction import OpenTransaction

log = structlog.get_logger(__name__)

MAX_RECORDS_PER_POLL = 5_000
MAX_RECORDS_PER_TRANSACTION = 40_000
"""Were each record a run of its own, the run-log entry would still stay below Kafka's 1 MB."""
_NEARLY_CAUGHT_UP_RECORDS = 500
_LONGEST_POLL_MS = 50
_PATH = "record"


class SessionError(ParallaxError):
    """The session can't go on; another one may, from the run log."""

    code = "SESSION"


class PartitionRefusedError(SessionError):
    """The target refused a record for good. The next session stops its partition before it.

    Attributes:
        stop: where and why.
    """

    def __init__(self, stop: Stop) -> None:
        super().__init__(f"{stop.topic_partition}: {stop.reason}")
        self.stop = stop


@dataclass(frozen=True, slots=True)
class Stop:
    """A partition that can't go beyond ``source_next``, for as long as its lineage lasts."""

    topic_partition: TopicPartition
    lineage: Lineage
    source_next: SourceOffset
    reason: str


@dataclass(slots=True)
class Counts:
    """What was committed since the lease began; outlives the session."""

    records: dict[TopicPartition, int] = field(default_factory=dict)
    size_bytes: int = 0
    transactions: int = 0
    aborts: int = 0
    watermarks: int = 0
    bytes_of: dict[TopicPartition, int] = field(default_factory=dict)


class TargetTailLostError(SessionError):
    """The target took records below what it had acknowledged before: it lost the end of its log.

    Attributes:
        cut: from where on, for the next session to act on.
    """

    def __init__(self, cut: TargetCut) -> None:
        super().__init__(f"{cut.topic_partition}: the target lost its tail: it goes on at {cut.target_end}")
        self.cut = cut


@dataclass(frozen=True, slots=True)
class TargetCut:
    """Rows of the lineage above ``target_end`` are void."""

    topic_partition: TopicPartition
    lineage: Lineage
    target_end: TargetOffset


RunHistory = Callable[[TopicPartition, Lineage], Iterable[Run]]
"""Every row of a partition and lineage that the run log still holds, in order."""


class ShardSession:
    """Copies one shard.

    Args:
        lease: the shard.
        settings: intervals and bounds.
        source: where records come from.
        target: where they go; initialised, so that older owners are fenced.
        surveyor: tells of topics.
        clock: time.
        states: the partitions as the run log has them.
        history: rows for finding the source of a cut, should the target have lost its tail.
        stops: partitions that a record refused by the target holds up.
        cuts: partitions of which the target lost the end, as an earlier session found.
        goal: what an earlier session of this lease found to be the source's end (``available_now``).
        counts: where to count.
        committed: called with each committed entry and its offset in the run log.
    """

    def __init__(
        self,
        lease: Lease,
        settings: Replicator,
        *,
        source: SourceReader,
        target: TargetWriter,
        surveyor: Surveyor,
        clock: Clock,
        states: Mapping[TopicPartition, PartitionState],
        history: RunHistory,
        stops: Collection[Stop] = (),
        cuts: Collection[TargetCut] = (),
        goal: Mapping[TopicPartition, SourceOffset] | None = None,
        counts: Counts | None = None,
        committed: Callable[[int, Entry], None] = lambda _offset, _entry: None,
    ) -> None:
        self._lease = lease
        self._settings = settings
        self._source = source
        self._target = target
        self._surveyor = surveyor
        self._clock = clock
        self._states = dict(states)
        self._history = history
        self._stops = {stop.topic_partition: stop for stop in stops}
        self._cuts = {cut.topic_partition: cut for cut in cuts}
        self._behind: set[TopicPartition] = set(self._cuts)
        self.counts = counts if counts is not None else Counts()
        self._committed = committed
        self._open: OpenTransaction | None = None
        self._taken: dict[TopicPartition, SourceOffset] = {}
        self._skipped_to: dict[TopicPartition, SourceOffset] = {}
        self._status: dict[TopicPartition, tuple[PartitionStatus, str]] = {}
        self._latency_ms: dict[TopicPartition, float] = {}
        self._out_of_range: dict[TopicPartition, OutOfRange] = {}
        now = clock.monotonic_ms()
        self._row_at: dict[TopicPartition, float] = {}
        self._last_commit_at = now
        self._watermark_at = now
        self._survey_at = now
        self._snapshot_at = -math.inf  # the first entry is a snapshot: it shows that this owner has begun
        self._entries_since_snapshot = 0
        self._asked: dict[
            int, tuple[dict[TopicPartition, SourceOffset], dict[TopicPartition, OutOfRange]]
        ] = {}
        self.goal = goal
        self._ask()

    # --- the loop ----------------------------------------------------------------------------------------------

    @property
    def open_for_ms(self) -> float:
        """Age of the open transaction; 0 if none is open."""
        return 0 if self._open is None else self._clock.monotonic_ms() - self._open.began_at_ms

    @property
    def states(self) -> Mapping[TopicPartition, PartitionState]:
        """Every partition of the shard as committed."""
        return self._states

    def step(self) -> None:
        """Do what is to be done now; waits a little while there is nothing.

        Raises:
            FencedError: another owner has taken over.
            SessionError: the session is over; its open transaction is void.
            ClusterUnavailableError: the target failed; as above.
        """
        survey = self._surveyor.result()
        if survey is not None:
            self._reconcile(survey)
        now = self._clock.monotonic_ms()
        if now - self._survey_at >= self._settings.discovery_interval_ms:
            self._ask()
        events = self._source.poll(MAX_RECORDS_PER_POLL, self._patience_ms(now))
        for event in events:
            self._take_in(event)
        if self._open is not None:
            self._target.serve()
        now = self._clock.monotonic_ms()
        watermark_due = now - self._watermark_at >= self._settings.watermark_interval_ms
        if (self._open is not None and self._commit_due(now)) or watermark_due:
            self.commit()

    def finished(self) -> bool:
        """Whether everything is copied that the source held when it was first seen (``available_now``)."""
        if self.goal is None or self._open is not None:
            return False
        return all(
            item in self._states and self._position(item) >= goal
            for item, goal in self.goal.items()
            if self._status.get(item, (PartitionStatus.WAITING, ""))[0] is not PartitionStatus.STOPPED
        )

    def progress(self) -> tuple[PartitionProgress, ...]:
        """Each partition's part of a report; latencies are of what was committed since the last call."""
        ends = self._source.end_offsets(self._taken)
        parts = []
        for item in sorted({*self._states, *self._status}):
            state = self._states.get(item)
            position = 0 if state is None else self._position(item)
            status, reason = self._status.get(item, (PartitionStatus.WAITING, ""))
            parts.append(
                PartitionProgress(
                    topic=item.topic,
                    partition=item.partition,
                    records=self.counts.records.get(item, 0),
                    size_bytes=self.counts.bytes_of.get(item, 0),
                    source_next=position,
                    lag_records=max(0, ends.get(item, position) - position),
                    replication_latency_ms=self._latency_ms.get(item),
                    status=status,
                    reason=reason,
                )
            )
        self._latency_ms.clear()
        return tuple(parts)

    def _patience_ms(self, now: float) -> int:
        if self._open is not None:
            wait = self._settings.commit_min_interval_ms - (now - self._last_commit_at)
            return max(0 if wait <= 0 else 1, round(wait))
        wait = min(
            _LONGEST_POLL_MS,
            self._settings.watermark_interval_ms - (now - self._watermark_at),
        )
        return max(1, round(wait))

    def _commit_due(self, now: float) -> bool:
        opened = self._open
        if opened is None:
            return False
        if (
            opened.size_bytes >= self._settings.commit_max_bytes
            or opened.records >= MAX_RECORDS_PER_TRANSACTION
            or now - opened.began_at_ms >= self._settings.commit_max_interval_ms
        ):
            return True
        if now - self._last_commit_at < self._settings.commit_min_interval_ms:
            return False
        ends = self._source.end_offsets(opened.partitions)
        return all(
            ends.get(item, 0) - opened.source_next(item) < _NEARLY_CAUGHT_UP_RECORDS
            for item in opened.partitions
        )

    # --- what the source tells ---------------------------------------------------------------------------------

    def _take_in(self, event: SourceEvent) -> None:
        if isinstance(event, RecordBlock):
            self._copy(event)
        elif isinstance(event, EndReached):
            item = event.topic_partition
            if event.source_next >= self._taken.get(item, event.source_next + 1):
                self._taken[item] = event.source_next
                if self._open is not None and item in self._open:
                    self._open.reached_end(item, event.source_next)
                else:
                    self._skipped_to[item] = event.source_next
        elif isinstance(event, OutOfRange):
            if event.topic_partition in self._taken:
                self._let_go(event.topic_partition)
                self._out_of_range[event.topic_partition] = event
                self._ask()
        elif isinstance(event, TopicChanged):
            for item in [item for item in self._taken if item.topic == event.topic]:
                self._let_go(item)
            self._ask()
        else:
            log.info("source", lease=str(self._lease), event=event.text)

    def _copy(self, block: RecordBlock) -> None:
        item = block.topic_partition
        reading_from = self._taken.get(item)
        if reading_from is None:
            return
        stop = self._stop_of(item)
        if stop is not None and block.offsets[-1] >= stop.source_next:
            block = block.before(stop.source_next)
            self._let_go(item)
            self._status[item] = (PartitionStatus.STOPPED, stop.reason)
            if not block.offsets:
                return
        if block.offsets[0] < reading_from:
            raise SessionError(
                f"{item}: the source handed out offset {block.offsets[0]} after {reading_from}"
            )
        if (self._open is None or item not in self._open) and block.offsets[0] < self._position(item):
            # Where nothing visible was, there are records now: that end of the source's log was thrown away.
            state = self._states[item]
            self._let_go(item)
            self._out_of_range[item] = OutOfRange(item, state.last_run_end, state.source_leader_epoch)
            self._ask()
            return
        if self._open is None:
            self._target.begin()
            self._open = OpenTransaction(self._clock.monotonic_ms())
        self._target.produce(block)
        self._open.add(block)
        if item in self._taken:
            self._taken[item] = SourceOffset(block.offsets[-1] + 1)
        self._skipped_to.pop(item, None)

    def _let_go(self, item: TopicPartition) -> None:
        self._source.drop([item])
        self._taken.pop(item, None)

    def _position(self, item: TopicPartition) -> SourceOffset:
        """The settled position: what is committed, and the non-records after it."""
        return max(self._states[item].source_next, self._skipped_to.get(item, SourceOffset(0)))

    # --- commit ------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit what is open together with the watermarks that are due."""
        opened = self._open
        changes = [] if opened is None else self._changes_of(opened)
        changes += self._watermarks(opened)
        self._write(changes)
        self._watermark_at = self._clock.monotonic_ms()

    def _changes_of(self, opened: OpenTransaction) -> list[PartitionChange]:
        try:
            targets = self._target.settle()
        except RecordRefusedError as error:
            item = error.topic_partition
            refused_at = SourceOffset(opened.record_offset(item, error.index))
            reason = (
                f"{item}: record at source offset {refused_at} of {self._lease.route}: {error.reason}; "
                f"copying of this partition stops before it"
            )
            raise PartitionRefusedError(Stop(item, self._states[item].lineage, refused_at, reason)) from error
        for item in opened.partitions:
            state, acknowledged = self._states[item], targets.get(item)
            if acknowledged and acknowledged[0] < state.target_floor:
                raise TargetTailLostError(TargetCut(item, state.lineage, TargetOffset(acknowledged[0])))
        try:
            return [opened.change(self._states[item], targets.get(item, ())) for item in opened.partitions]
        except InvariantError as error:
            raise SessionError(f"the target's acknowledgements don't fit: {error}") from error

    def _watermarks(self, opened: OpenTransaction | None) -> list[PartitionChange]:
        """Watermarks for partitions without a row for long enough and without records in this transaction.

        The position is settled before the target's end is read, and both hold only if the entry is committed.
        """
        now = self._clock.monotonic_ms()
        # A little early rather than a whole interval late.
        idle_since = now - self._settings.watermark_interval_ms / 2
        due = [
            item
            for item in self._states
            if (opened is None or item not in opened) and self._row_at.get(item, -math.inf) <= idle_since
        ]
        if not due:
            return []
        ends = self._target.ends(due)
        changes = []
        for item in due:
            state, end = self._states[item], ends.get(item)
            if end is None:
                continue
            if end < state.target_floor:
                self._behind.add(item)
                self._survey_at = -math.inf  # its answer tells whether the topic was created anew
                continue
            position = self._position(item)
            row = watermark_row(
                source_next=position,
                target_end=end,
                last_run_end=state.last_run_end,
                source_leader_epoch=state.source_leader_epoch,
            )
            changes.append(PartitionChange(state.after((row,), position), (row,)))
        self.counts.watermarks += len(changes)
        return changes

    def _write(self, changes: list[PartitionChange]) -> None:
        """Commit an entry with these changes, and with the data of the open transaction."""
        opened, now = self._open, self._clock.monotonic_ms()
        snapshot = (
            now - self._snapshot_at >= self._settings.snapshot_interval_ms
            or self._entries_since_snapshot >= self._settings.snapshot_interval_records
        )
        if not changes and not snapshot:
            return
        after = dict(self._states)
        for change in changes:
            if change.closed:
                after.pop(change.state.topic_partition, None)
            else:
                after[change.state.topic_partition] = change.state
        entry = encode(
            layout=self._lease.layout,
            shard=self._lease.shard,
            path=_PATH,
            changes=changes,
            everything=after if snapshot else None,
            committed_at_ms=self._clock.now_ms(),
        )
        if opened is None:
            self._target.begin()
        offset = self._target.commit(entry)
        self._states = after
        self._open = None
        self._entries_since_snapshot = 0 if snapshot else self._entries_since_snapshot + 1
        now = self._clock.monotonic_ms()
        self._last_commit_at = now
        if snapshot:
            self._snapshot_at = now
        self.counts.transactions += 1
        for change in changes:
            self._row_at[change.state.topic_partition] = now
        if opened is not None:
            self._count(opened)
        self._committed(offset, entry)

    def _count(self, opened: OpenTransaction) -> None:
        wall_ms = self._clock.now_ms()
        for item in opened.partitions:
            count = opened.count(item)
            self.counts.records[item] = self.counts.records.get(item, 0) + count
            share = opened.size_bytes * count // opened.records
            self.counts.bytes_of[item] = self.counts.bytes_of.get(item, 0) + share
            newest = opened.newest_ms(item)
            if newest > 0:
                self._latency_ms[item] = max(0.0, wall_ms - newest)
        self.counts.size_bytes += opened.size_bytes

    # --- topics ------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Ask for a survey; what is known now is remembered, because its answer will be compared with it."""
        self._survey_at = self._clock.monotonic_ms()
        ticket = self._surveyor.request()
        self._asked = {number: asked for number, asked in self._asked.items() if number > ticket - 8}
        positions = {item: state.source_next for item, state in self._states.items()}
        self._asked[ticket] = (positions, dict(self._out_of_range))

    def _reconcile(self, survey: Survey) -> None:
        if self._open is not None:
            self.commit()
        positions, out_of_range = self._asked.get(survey.ticket, ({}, {}))
        decisions = list(
            decide(
                survey,
                self._states,
                positions=positions,
                out_of_range=out_of_range,
                shard=self._lease.shard,
                shard_count=self._lease.shard_count,
            )
        )
        self._set_goal(survey)
        for decision in decisions:
            item, status, reason = decision.topic_partition, decision.status, decision.reason
            stop = self._stop_of(item)
            if stop is not None and self._states[item].source_next >= stop.source_next:
                status, reason = PartitionStatus.STOPPED, stop.reason
            if status is PartitionStatus.WAITING and item in self._taken:
                continue
            self._status[item] = (status, reason)
            if item in self._taken and status is not PartitionStatus.COPYING:
                self._let_go(item)
        readable = [
            item
            for item in decisions
            if item.status is PartitionStatus.COPYING
            and (item.topic_partition not in self._out_of_range or item.topic_partition in out_of_range)
        ]
        changing = {
            item.topic_partition: item
            for item in decisions
            if item.begins or item.lost_up_to is not None or item.topic_partition in self._behind
        }
        changing |= {
            item.topic_partition: item for item in readable if item.topic_partition not in self._taken
        }
        if changing:
            self._change(changing)
        self._read(readable)

    def _stop_of(self, item: TopicPartition) -> Stop | None:
        stop, state = self._stops.get(item), self._states.get(item)
        if stop is None or state is None or stop.lineage != state.lineage:
            return None
        return stop

    def _set_goal(self, survey: Survey) -> None:
        if self.goal is None and self._lease.available_now and survey.source is not None:
            self.goal = {item: found.stable_end for item, found in survey.source_logs.items()}

    def _change(self, decisions: Mapping[TopicPartition, Decision]) -> None:
        """Commit the beginnings and losses that were decided, each with the target's end."""
        ends = self._target.ends(decisions)
        changes: list[PartitionChange] = []
        for item, decision in decisions.items():
            state, end = self._states.get(item), ends.get(item)
            if end is None:
                continue
            self._behind.discard(item)
            beginning = decision.begins
            if state is not None and not _other_target(beginning, state):
                cut = self._cuts.get(item)
                valid_to = end if cut is None or cut.lineage != state.lineage else min(end, cut.target_end)
                if valid_to < state.target_floor:
                    beginning = self._cut_by_target(state, valid_to)
            if beginning is not None:
                log.warning("lineage begins", lease=str(self._lease), partition=str(item), why=beginning.why)
                if item in self._taken:
                    self._let_go(item)
                self._skipped_to.pop(item, None)
                changes += begin(item, beginning, state, end)
            elif decision.lost_up_to is not None and state is not None:
                log.warning(
                    "records lost to retention",
                    lease=str(self._lease),
                    partition=str(item),
                    source_start=state.source_next,
                    source_end=decision.lost_up_to,
                )
                self._skipped_to.pop(item, None)
                changes.append(lose(state, decision.lost_up_to, end))
        if changes:
            self._write(changes)

    def _cut_by_target(self, state: PartitionState, end: TargetOffset) -> Beginning:
        """The target lost its tail: go back to the source of its new end, under a new generation."""
        cut, epoch = state.source_first, UNKNOWN_EPOCH
        for row in self._history(state.topic_partition, state.lineage):
            if row.target_end <= end:
                cut, epoch = row.source_end, row.source_leader_epoch
            elif row.target_start < end:
                cut, epoch = row.to_source(end), row.source_leader_epoch
        return Beginning(
            replace(state.lineage, generation=state.lineage.generation + 1),
            cut,
            cut,
            predecessor_unknown=True,
            why=f"the target lost its tail: it ends at {end}, records up to {state.target_floor} had been written",
            leader_epoch=epoch,
        )

    def _read(self, decisions: Iterable[Decision]) -> None:
        """Begin to read what is to be copied, is not being read, and has no stop at its position."""
        taking: dict[TopicPartition, ReadFrom] = {}
        for decision in decisions:
            item = decision.topic_partition
            state = self._states.get(item)
            if item in self._taken or state is None or self._status[item][0] is not PartitionStatus.COPYING:
                continue
            if decision.begins is not None and state.lineage != decision.begins.lineage:
                continue  # not committed: the target's end was not to be had
            self._out_of_range.pop(item, None)
            topic_id = state.lineage.source_topic_id
            if decision.source_start <= state.last_run_end:
                # From the end of the last record on, and not of what was skipped after it: the source can then
                # tell by the record's leader epoch whether its log is still the same up to there.
                taking[item] = ReadFrom(state.last_run_end, state.source_leader_epoch, topic_id)
            else:
                taking[item] = ReadFrom(self._position(item), UNKNOWN_EPOCH, topic_id)
        for item, place in taking.items():
            self._taken[item] = place.source_next
        if taking:
            self._source.take(taking)


def _other_target(beginning: Beginning | None, state: PartitionState) -> bool:
    return beginning is not None and beginning.lineage.target_topic_id != state.lineage.target_topic_id
