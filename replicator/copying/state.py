"""What a shard knows of each partition, and how a run-log entry says it.

The run log is the truth: the state after a start is what its entries say, and the state in memory changes only
when an entry has been committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    Lineage,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.runs import LostRange, Run
from parallax.errors import InvariantError
from parallax.v1.runlog_pb2 import Entry, Lost, PartitionEntry

ENTRY_FORMAT = 1
"""What is written, and the newest that is read (docs/formats.md)."""

NOWHERE = TargetOffset(0)
"""The end of the last of no records."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition as the run log has it.

    Attributes:
        lineage: the source and target incarnations that the position holds for.
        sequence: number of the lineage; 0 for the partition's first.
        source_first, target_first: where the lineage began.
        source_next: the position: everything below it was copied or holds no record.
        last_run_end: what the next row takes for its ``previous_source_end``.
        target_floor: no row of the lineage ends above it, every later row starts at or above it.
        source_leader_epoch: of the last record copied.
        target_leader_epoch: whose leader at the target held everything below ``target_floor``.
        lost_epoch: of a lineage that the target's loss began: what was written there after the loss has this leader
            epoch or a later one.
        passed_leader_epoch: of the last record below ``source_next``, where that is one that the route has passed over
            because it is not of the kind that it copies.
        target_record_end: where the last record ends on the target's topic that was copied from the source's; 0: there is
            none, or nobody told.
    """

    topic_partition: TopicPartition
    lineage: Lineage
    sequence: int
    source_first: SourceOffset
    target_first: TargetOffset
    source_next: SourceOffset
    last_run_end: SourceOffset
    target_floor: TargetOffset
    source_leader_epoch: int = UNKNOWN_EPOCH
    target_leader_epoch: int = UNKNOWN_EPOCH
    lost_epoch: int = UNKNOWN_EPOCH
    passed_leader_epoch: int = UNKNOWN_EPOCH
    target_record_end: TargetOffset = NOWHERE

    def after(self, rows: Sequence[Run], source_next: SourceOffset) -> PartitionState:
        """The state once these rows and this position are committed.

        Raises:
            InvariantError: a row goes back behind what was committed before.
        """
        state = self
        for row in rows:
            if row.target_start < state.target_floor or row.source_start < state.last_run_end:
                raise InvariantError(f"B: {self.topic_partition}: {row} goes back behind {state}")
            if not row.is_watermark and row.source_leader_epoch < state.source_leader_epoch:
                raise InvariantError(f"E: {self.topic_partition}: {row} has an older epoch than {state}")
            state = replace(
                state,
                last_run_end=state.last_run_end if row.is_watermark else row.source_end,
                target_floor=row.target_end,
                source_leader_epoch=state.source_leader_epoch
                if row.is_watermark
                else row.source_leader_epoch,
                passed_leader_epoch=state.passed_leader_epoch if row.is_watermark else UNKNOWN_EPOCH,
                target_record_end=state.target_record_end if row.is_watermark else row.target_end,
            )
        if source_next < max(state.source_next, state.last_run_end):
            raise InvariantError(f"A: {self.topic_partition}: position {source_next} is behind {state}")
        return replace(state, source_next=source_next)


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """What one transaction says of a partition: rows, lost ranges, and the state after it."""

    state: PartitionState
    rows: tuple[Run, ...] = ()
    lost: tuple[LostRange, ...] = ()
    closed: bool = False

    def encoded(self) -> PartitionEntry:
        """The change as the run log keeps it."""
        state = self.state
        return PartitionEntry(
            topic=state.topic_partition.topic,
            partition=state.topic_partition.partition,
            source_topic_id=state.lineage.source_topic_id,
            target_topic_id=state.lineage.target_topic_id,
            generation=state.lineage.generation,
            lineage_sequence=state.sequence,
            lineage_source_first=state.source_first,
            lineage_target_first=state.target_first,
            source_next=state.source_next,
            last_run_source_end=state.last_run_end,
            last_run_target_end=state.target_floor,
            source_leader_epoch=state.source_leader_epoch,
            source_start=[row.source_start for row in self.rows],
            target_start=[row.target_start for row in self.rows],
            count=[row.count for row in self.rows],
            previous_source_end=[row.previous_source_end for row in self.rows],
            run_leader_epoch=[row.source_leader_epoch for row in self.rows],
            lost=[
                Lost(source_start=gap.source_start, source_end=gap.source_end, target_at=gap.target_at)
                for gap in self.lost
            ],
            closed=self.closed,
            target_leader_epoch=_told(state.target_leader_epoch),
            lost_epoch=_told(state.lost_epoch),
            passed_leader_epoch=_told(state.passed_leader_epoch),
            target_record_end=state.target_record_end,
        )


def _told(leader_epoch: int) -> int | None:
    return None if leader_epoch == UNKNOWN_EPOCH else leader_epoch


def topic_partition_of(entry: PartitionEntry) -> TopicPartition:
    """The partition that the entry speaks of."""
    return TopicPartition(TopicName(entry.topic), entry.partition)


def lineage_of(entry: PartitionEntry) -> Lineage:
    """The lineage that the entry speaks of."""
    return Lineage(TopicId(entry.source_topic_id), TopicId(entry.target_topic_id), entry.generation)


def state_of(entry: PartitionEntry) -> PartitionState:
    """The partition's state after the entry."""
    return PartitionState(
        topic_partition=topic_partition_of(entry),
        lineage=lineage_of(entry),
        sequence=entry.lineage_sequence,
        source_first=SourceOffset(entry.lineage_source_first),
        target_first=TargetOffset(entry.lineage_target_first),
        source_next=SourceOffset(entry.source_next),
        last_run_end=SourceOffset(entry.last_run_source_end),
        target_floor=TargetOffset(entry.last_run_target_end),
        source_leader_epoch=entry.source_leader_epoch,
        target_leader_epoch=entry.target_leader_epoch
        if entry.HasField("target_leader_epoch")
        else UNKNOWN_EPOCH,
        lost_epoch=entry.lost_epoch if entry.HasField("lost_epoch") else UNKNOWN_EPOCH,
        passed_leader_epoch=entry.passed_leader_epoch
        if entry.HasField("passed_leader_epoch")
        else UNKNOWN_EPOCH,
        target_record_end=TargetOffset(entry.target_record_end),
    )


def rows_of(entry: PartitionEntry) -> tuple[Run, ...]:
    """The runs and watermarks that the entry committed, in order."""
    return tuple(
        Run(SourceOffset(source), TargetOffset(target), count, SourceOffset(previous), epoch)
        for source, target, count, previous, epoch in zip(
            entry.source_start,
            entry.target_start,
            entry.count,
            entry.previous_source_end,
            entry.run_leader_epoch,
            strict=True,
        )
    )


def lost_of(entry: PartitionEntry) -> tuple[LostRange, ...]:
    """The lost ranges that the entry committed."""
    return tuple(
        LostRange(SourceOffset(gap.source_start), SourceOffset(gap.source_end), TargetOffset(gap.target_at))
        for gap in entry.lost
    )


def fold(
    states: Mapping[TopicPartition, PartitionState], entries: Iterable[Entry]
) -> dict[TopicPartition, PartitionState]:
    """The states after these entries, in the order of the run log."""
    result = dict(states)
    for entry in entries:
        if entry.snapshot and entry.piece == 0:
            result = {}
        for part in entry.partitions:
            if part.closed:
                result.pop(topic_partition_of(part), None)
            else:
                result[topic_partition_of(part)] = state_of(part)
    return result


def encode(
    *,
    run_log_id: TopicId,
    layout: int,
    shard: int,
    path: str,
    changes: Sequence[PartitionChange],
    everything: Mapping[TopicPartition, PartitionState] | None,
    committed_at_ms: int,
    run_log_leader_epoch: int = UNKNOWN_EPOCH,
) -> Entry:
    """The run-log entry of one transaction.

    Args:
        run_log_id: of the topic that it goes to.
        layout: number of the layout.
        shard: number of the shard.
        path: ``record``, ``batch`` or ``layout``.
        changes: what the transaction did, each partition's changes in order.
        everything: every partition of the shard, changed or not, makes the entry a snapshot; None: no snapshot.
        committed_at_ms: now, milliseconds since the Unix epoch.
        run_log_leader_epoch: that the run log's leader had before the entry is appended.
    """
    parts = [change.encoded() for change in changes]
    if everything is not None:
        named = {change.state.topic_partition for change in changes if not change.closed}
        parts += [
            PartitionChange(state).encoded()
            for topic_partition, state in everything.items()
            if topic_partition not in named
        ]
    return Entry(
        run_log_id=run_log_id,
        layout=layout,
        shard=shard,
        path=path,
        snapshot=everything is not None,
        partitions=parts,
        committed_at_ms=committed_at_ms,
        run_log_leader_epoch=_told(run_log_leader_epoch),
        format=ENTRY_FORMAT,
    )


_TAG_BYTES = 6
LARGEST_PIECE_BYTES = 512 * 1024
"""Half of what a broker takes in one record by default; a single partition's change is never divided, and may be larger."""


def pieces_of(entry: Entry, largest_bytes: int = LARGEST_PIECE_BYTES) -> list[Entry]:
    """The entry as records that a broker takes: itself, or several that are written in one transaction, in order."""
    if entry.ByteSize() <= largest_bytes:
        return [entry]
    cut: list[list[PartitionEntry]] = []
    size_bytes = largest_bytes
    for part in entry.partitions:
        part_bytes = part.ByteSize() + _TAG_BYTES
        if size_bytes + part_bytes > largest_bytes:
            cut.append([])
            size_bytes = 0
        cut[-1].append(part)
        size_bytes += part_bytes
    head = Entry()
    head.CopyFrom(entry)
    del head.partitions[:]
    pieces = []
    for number, parts in enumerate(cut):
        piece = Entry(partitions=parts, piece=number, pieces=len(cut))
        piece.MergeFrom(head)
        pieces.append(piece)
    return pieces


def whole_entry(pieces: Sequence[Entry]) -> Entry | None:
    """The entry that these pieces are, in order; None if some are missing."""
    numbers = [(piece.piece, piece.pieces) for piece in pieces]
    if numbers not in ([(0, 0)], [(number, len(pieces)) for number in range(len(pieces))]):
        return None
    whole = Entry()
    for piece in pieces:
        whole.MergeFrom(piece)
    whole.piece = whole.pieces = 0
    return whole
