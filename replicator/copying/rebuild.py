"""What a shard's state is once its run log is lost: from the index, the two clusters, and what neither can prove.

Pure: `replicator.kafka.rebuild` gathers, this decides. The index follows the run log with a little delay, so what was copied
last may be on the target without a row. Where no such record is there, the position of the newest row is exact, and its
lineage goes on. Where there are some, nothing tells which source records they are: a new generation begins at the newest
proven position, and at most so many records come twice. Earlier than necessary repeats; later would lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, SourceOffset, TargetOffset, TopicId, TopicPartition
from parallax.domain.index_rows import LineageRecord
from parallax.domain.place import LogRange
from parallax.domain.runs import Run
from replicator.copying.ports import TargetEnd
from replicator.copying.reconcile import Beginning, begin
from replicator.copying.state import NOWHERE, PartitionChange, PartitionState


@dataclass(frozen=True, slots=True)
class PartitionSide:
    """A partition on one cluster: its topic's id, and what the log holds."""

    topic_id: TopicId
    log: LogRange


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left to know of a partition.

    Attributes:
        records: its lineages in the index; none: it was never indexed.
        newest: the newest row of the last lineage that lies within the target's log; None: there is none.
        cut: whether the lineage has rows of what the target does not hold any more, above ``newest``.
        source, target: the partition on both clusters; None: it is not there.
        unexplained: how many records lie on the target's topic above the newest row that no route's rows explain; None: that
            can't be known, since retention or compaction has been at them.
    """

    topic_partition: TopicPartition
    records: Sequence[LineageRecord]
    newest: Run | None
    cut: bool
    source: PartitionSide | None
    target: PartitionSide | None
    unexplained: int | None


class GoingOn(Enum):
    """How a partition goes on."""

    EXACT = "exact"
    """Where it was: nothing is lost, nothing comes twice."""
    NEW_GENERATION = "new generation"
    """From the newest proven position: nothing is lost, some records may come twice."""
    ANEW = "anew"
    """From the source's beginning, on the operator's word: what the target holds comes twice."""
    ENDED = "ended"
    """Its topic is gone: nothing is kept of it."""
    UNKNOWN = "unknown"
    """Nothing is known of it, and nothing of it is on the target: it begins when it is seen."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A partition as it goes on.

    Attributes:
        source_next: where copying goes on; None: with what the source holds when it is seen.
        changes: for the first snapshot of the new layout.
        twice: at most so many records come twice; None: nobody knows how many.
        why: in a few words.
    """

    topic_partition: TopicPartition
    going_on: GoingOn
    source_next: SourceOffset | None
    changes: tuple[PartitionChange, ...]
    twice: int | None
    why: str

    @property
    def state(self) -> PartitionState | None:
        """The state that it goes on with."""
        left = [change.state for change in self.changes if not change.closed]
        return left[-1] if left else None


def restored(remains: Remains, *, anew: bool) -> Restored:
    """Decide how a partition goes on.

    Args:
        remains: what is left to know of it.
        anew: copy everything again that the source holds, whatever is proven.
    """
    item, target, source = remains.topic_partition, remains.target, remains.source
    if not remains.records:
        return _never_indexed(remains)
    last = last_of(remains.records)
    state = _proven(last, remains.newest)
    ended = last.closed_at is not None
    if target is None or target.topic_id != last.lineage.target_topic_id:
        return _on_another_topic(remains, state, last.closed_at)
    same_source = source is not None and source.topic_id == last.lineage.source_topic_id
    if anew and same_source and source is not None:
        first = SourceOffset(source.log.low_watermark)
        again = max(0, state.source_next - first)
        twice = None if remains.unexplained is None else again + remains.unexplained
        return _next_generation(remains, target, state, first, GoingOn.ANEW, twice, "on the operator's word")
    if ended:
        why = "its lineage had ended, and the index knows of no later one"
    elif remains.cut:
        why = "the target does not hold all that is indexed of it any more"
    elif remains.unexplained is None:
        why = "retention or compaction has been at what was copied last"
    elif remains.unexplained:
        why = f"{remains.unexplained} records lie on the target that no row explains"
    else:
        why = "every record on the target is explained"
        return Restored(item, GoingOn.EXACT, state.source_next, (PartitionChange(state),), 0, why)
    position = state.source_next
    return _next_generation(
        remains, target, state, position, GoingOn.NEW_GENERATION, remains.unexplained, why
    )


def _on_another_topic(remains: Remains, state: PartitionState, closed_at: SourceOffset | None) -> Restored:
    """The topic of the last lineage is gone from the target."""
    item, source, target = remains.topic_partition, remains.source, remains.target
    if source is not None and target is not None and remains.unexplained != 0:
        return _begun_unheard_of(remains, source, target, state, closed_at)
    if target is None or closed_at is not None:
        return Restored(item, GoingOn.ENDED, None, (), 0, "its topic is gone from the target")
    why = "the target's topic is another one: what follows is a lineage of its own"
    return Restored(item, GoingOn.EXACT, state.source_next, (PartitionChange(state),), 0, why)


def last_of(records: Sequence[LineageRecord]) -> LineageRecord:
    """The lineage that was written last; of two in one entry the one that began."""
    return max(records, key=lambda item: (item.version, item.closed_at is None, item.sequence))


def _proven(last: LineageRecord, newest: Run | None) -> PartitionState:
    """The lineage's state after its newest row."""
    state = PartitionState(
        last.partition.topic_partition,
        last.lineage,
        last.sequence,
        last.source_first,
        last.target_first,
        source_next=last.source_first,
        last_run_end=last.source_first,
        target_floor=last.target_first,
    )
    if newest is not None:
        state = replace(
            state,
            source_next=newest.source_end,
            last_run_end=newest.last_record_end,
            target_floor=newest.target_end,
            source_leader_epoch=newest.source_leader_epoch,
            target_record_end=newest.target_end if newest.count else NOWHERE,
        )
    if last.closed_at is not None:
        state = replace(state, source_next=last.closed_at)  # rows above it are void
    return state


def _next_generation(
    remains: Remains,
    target: PartitionSide,
    state: PartitionState,
    first: SourceOffset,
    going_on: GoingOn,
    twice: int | None,
    why: str,
) -> Restored:
    """Close the lineage at what is proven of it, and begin the next above everything that the target holds.

    Its key is one that no row has: old and new rows are never combined.
    """
    ids = (state.lineage.source_topic_id, state.lineage.target_topic_id)
    generations = [
        record.lineage.generation
        for record in remains.records
        if (record.lineage.source_topic_id, record.lineage.target_topic_id) == ids
    ]
    beginning = Beginning(
        state.lineage._replace(generation=max(generations) + 1),
        first,
        why,
        parted_at=state.source_next,
        closes_at=last_of(remains.records).closed_at,
        leader_epoch=state.source_leader_epoch if first == state.source_next else UNKNOWN_EPOCH,
    )
    changes = begin(remains.topic_partition, beginning, state, _end_of(target))
    return Restored(remains.topic_partition, going_on, first, changes, twice, why)


def _never_indexed(remains: Remains) -> Restored:
    source, target = remains.source, remains.target
    if source is None or target is None or remains.unexplained == 0:
        return Restored(
            remains.topic_partition, GoingOn.UNKNOWN, None, (), 0, "the index has never heard of it"
        )
    return _begun_unheard_of(remains, source, target)


def _begun_unheard_of(
    remains: Remains,
    source: PartitionSide,
    target: PartitionSide,
    old: PartitionState | None = None,
    closed_at: SourceOffset | None = None,
) -> Restored:
    """Go on where a lineage that was never indexed has copied something, whose key may be any of the first.

    What of it came before the source's present beginning nobody knows: all that may have been there is told as lost.
    """
    first = SourceOffset(source.log.low_watermark)
    why = "the index has never heard of what lies on the target's topic, and no row explains it"
    lineage = Lineage(source.topic_id, target.topic_id, 1)
    beginning = Beginning(lineage, first, why, parted_at=SourceOffset(0), closes_at=closed_at)
    changes = begin(remains.topic_partition, beginning, old, _end_of(target))
    return Restored(remains.topic_partition, GoingOn.NEW_GENERATION, first, changes, remains.unexplained, why)


def _end_of(target: PartitionSide) -> TargetEnd:
    return TargetEnd(TargetOffset(target.log.high_watermark))
