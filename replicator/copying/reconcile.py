"""What a survey of both clusters means for each partition of a shard, and the changes for the run log that follow.

Pure decisions: nothing is done here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import structlog

from parallax.domain.ids import (
    NO_TOPIC,
    UNKNOWN_EPOCH,
    Lineage,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicPartition,
)
from parallax.domain.outcome import Outcome
from parallax.domain.runs import LostRange, Run
from parallax.domain.runs import watermark as watermark_row
from parallax.ports.clusters import TopicInfo
from replicator.copying.kept import RunHistory, Undone, kept_to, record_end
from replicator.copying.ports import LogEnd, OutOfRange, ReadFrom, Survey, TargetEnd
from replicator.copying.state import NOWHERE, PartitionChange, PartitionState
from replicator.lease import PartitionStatus, shard_of

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Beginning:
    """A lineage that is to begin.

    Attributes:
        source_first: where copying goes on.
        why: for the log.
        parted_at: the source's next offset up to which the copy holds, if something of the same incarnations was copied
            before: behind it source or target have lost what was copied.
        closes_at: the source's next offset at which the rows of the partition's present lineage end; None: with the
            last record, as they are all there, or nobody knows.
        leader_epoch: of the source's last record below `source_first`, where it is known: reading on from there
            shows at once if the source has lost more meanwhile.
        lost_epoch: where the target has lost its tail: what was written there afterwards has this leader epoch or a
            later one.
        target_record_end: of the state from which it goes on, if it is of the same incarnations.
    """

    lineage: Lineage
    source_first: SourceOffset
    why: str
    parted_at: SourceOffset | None = None
    closes_at: SourceOffset | None = None
    leader_epoch: int = UNKNOWN_EPOCH
    lost_epoch: int = UNKNOWN_EPOCH
    target_record_end: TargetOffset = NOWHERE


@dataclass(frozen=True, slots=True)
class PartitionDecision:
    """What is to be done with one partition.

    Attributes:
        begins: a lineage to begin first.
        lost_up_to: the source holds nothing below this any more: the range from the position on is lost.
        source_start: where the source's log begins.
    """

    topic_partition: TopicPartition
    status: PartitionStatus
    reason: str = ""
    begins: Beginning | None = None
    lost_up_to: SourceOffset | None = None
    source_start: int = 0


def decide(
    survey: Survey,
    states: Mapping[TopicPartition, PartitionState],
    *,
    positions: Mapping[TopicPartition, SourceOffset],
    out_of_range: Mapping[TopicPartition, OutOfRange],
    shard: int,
    shard_count: int,
    stops_at_recreated: bool = False,
) -> Iterator[PartitionDecision]:
    """Decide for every partition of the shard that the survey tells enough of.

    Args:
        survey: what both clusters answered.
        states: the partitions as committed.
        positions: each partition's position when the survey was asked for: a source that ends below it has lost
            records.
        out_of_range: partitions that could not be read, as told before the survey was asked for.
        shard: the shard's number.
        shard_count: how many shards there are.
        stops_at_recreated: a source topic that was made anew is not copied behind the one before.
    """
    if survey.target is None:
        return
    yield from _of_hidden(survey, states, shard, shard_count)
    source = survey.source
    for topic in sorted({*survey.target, *(source or {})} - survey.hidden.keys()):
        here, there = survey.target.get(topic), (source or {}).get(topic)
        if here is None:
            continue
        for partition in range(max(here.partitions, 0 if there is None else there.partitions)):
            item = TopicPartition(topic, partition)
            if shard_of(item, shard_count) != shard:
                continue
            state = states.get(item)
            if source is None:
                if state is None:
                    yield _nothing_copied(item, here, state, PartitionStatus.WAITING, "the source is away")
                else:  # what the target has lost is settled meanwhile
                    yield PartitionDecision(item, PartitionStatus.WAITING)
            elif there is None or partition >= there.partitions:
                why = (
                    "the source has no such topic yet" if there is None else "the source has fewer partitions"
                )
                yield _nothing_copied(item, here, state, PartitionStatus.ABSENT, why)
            elif problem := (stops_at_recreated and _made_anew(there, here, state)) or _misfit(
                survey, there, here, partition, state
            ):
                yield _nothing_copied(item, here, state, PartitionStatus.STOPPED, problem)
            else:
                yield _copied(item, there, here, survey, state, positions.get(item), out_of_range.get(item))


def _of_hidden(
    survey: Survey, states: Mapping[TopicPartition, PartitionState], shard: int, shard_count: int
) -> Iterator[PartitionDecision]:
    """Partitions of topics that one side does not show: stopped where they are."""
    for topic, reason in sorted(survey.hidden.items()):
        here, there = (survey.target or {}).get(topic), (survey.source or {}).get(topic)
        shown = max((info.partitions for info in (here, there) if info is not None), default=0)
        known = {item for item in states if item.topic == topic}
        for item in sorted(known.union(TopicPartition(topic, number) for number in range(shown))):
            if shard_of(item, shard_count) != shard:
                continue
            if here is None:
                yield PartitionDecision(item, PartitionStatus.STOPPED, reason)
            else:
                yield _nothing_copied(item, here, states.get(item), PartitionStatus.STOPPED, reason)


def _misfit(
    survey: Survey, source: TopicInfo, target: TopicInfo, partition: int, state: PartitionState | None
) -> str | None:
    """Why the partition can't be copied while the target's topic has too few of them; None: it can.

    What is being copied goes on: only the others wait for the target to grow.
    """
    copied = state is not None and state.lineage.source_topic_id != NO_TOPIC and partition < target.partitions
    if target.partitions >= source.partitions or copied:
        return None
    return survey.refused.get(source.topic) or _mismatch(source, target)


def _made_anew(source: TopicInfo, target: TopicInfo, state: PartitionState | None) -> str:
    """Why it is stopped, if what was copied to this very target topic came from another source topic of the name."""
    if (
        state is None
        or state.lineage.target_topic_id != target.topic_id
        or state.lineage.source_topic_id in {NO_TOPIC, source.topic_id}
    ):
        return ""
    return (
        f"SOURCE_RECREATED: {source.topic} was deleted at the source and made anew, which topics.on_recreate: stop does not "
        "copy behind the one before; to copy it, run the replicator with topics.on_recreate: continue until it has begun"
    )


def _mismatch(source: TopicInfo, target: TopicInfo) -> str:
    return (
        f"{Outcome.PARTITION_MISMATCH.name}: {source.topic} has {source.partitions} partitions at the source and "
        f"{target.partitions} at the target, which is to grow"
    )


def _nothing_copied(
    item: TopicPartition, here: TopicInfo, state: PartitionState | None, status: PartitionStatus, why: str
) -> PartitionDecision:
    """A partition of which nothing can be copied now; where nothing was yet, a lineage says so.

    Answers need it: without any row a source might have copied everything.
    """
    reason = why if status is PartitionStatus.STOPPED else ""
    known = state is not None and state.lineage.target_topic_id == here.topic_id
    if known or item.partition >= here.partitions:  # the target must have it for a watermark
        return PartitionDecision(item, status, reason)
    if state is not None:
        why = "the target topic was created anew"
    begins = Beginning(Lineage(NO_TOPIC, here.topic_id), SourceOffset(0), why)
    return PartitionDecision(item, status, reason, begins=begins)


def _copied(
    item: TopicPartition,
    there: TopicInfo,
    here: TopicInfo,
    survey: Survey,
    state: PartitionState | None,
    position: SourceOffset | None,
    unreadable: OutOfRange | None,
) -> PartitionDecision:
    source_log = survey.source_logs.get(item)
    if source_log is None:
        return PartitionDecision(item, PartitionStatus.WAITING)
    present = Lineage(there.topic_id, here.topic_id)
    status = PartitionStatus.COPYING
    known = None if state is None else state.lineage
    if state is None or known is None or _ids(known) != _ids(present):
        first, why = source_log.low_watermark, "first seen"
        never_copied = known is None or known.source_topic_id == NO_TOPIC
        if source_log.begins_at is not None and source_log.begins_at > first and never_copied:
            first, why = (
                source_log.begins_at,
                "first seen; what lay there before is left, as 'start' of the route says",
            )
        if known is not None and known.target_topic_id != present.target_topic_id:
            why = "the target topic was created anew: everything that the source holds is copied again"
        elif known is not None and known.source_topic_id != NO_TOPIC:
            why = "the source topic was created anew"
        begins = Beginning(present, first, why)
        return PartitionDecision(item, status, begins=begins, source_start=source_log.low_watermark)
    cut = _cut(state, source_log, position, unreadable)
    if cut is not None:
        generation = max(known.generation + 1, source_log.leader_epoch)
        begins = Beginning(
            known._replace(generation=generation),
            max(cut, source_log.low_watermark),
            f"the source lost its tail: it now ends at {cut}, records up to {state.source_next} had been copied",
            parted_at=cut,
            leader_epoch=UNKNOWN_EPOCH if unreadable is None else unreadable.leader_epoch,
        )
        return PartitionDecision(item, status, begins=begins, source_start=source_log.low_watermark)
    if unreadable is not None and state.source_next < source_log.low_watermark:
        return PartitionDecision(
            item, status, lost_up_to=source_log.low_watermark, source_start=source_log.low_watermark
        )
    return PartitionDecision(item, status, source_start=source_log.low_watermark)


def _ids(lineage: Lineage) -> tuple[TopicId, TopicId]:
    return lineage.source_topic_id, lineage.target_topic_id


def _cut(
    state: PartitionState, source_log: LogEnd, position: SourceOffset | None, unreadable: OutOfRange | None
) -> SourceOffset | None:
    """Where the source's log parts from what was copied; None: it does not."""
    if unreadable is not None and unreadable.diverged_at is not None:
        older = UNKNOWN_EPOCH < unreadable.leader_epoch < state.source_leader_epoch
        if unreadable.diverged_at < state.source_next or older:
            return unreadable.diverged_at
    # The position of when the survey was asked for: a later one may rightly lie above this answer. Where records
    # were copied, the end proves nothing (new ones may have come since): the reader asks by leader epoch.
    nothing_copied = state.source_leader_epoch == UNKNOWN_EPOCH
    if (
        nothing_copied
        and position is not None
        and source_log.high_watermark < min(position, state.source_next)
    ):
        return min(
            state.source_first, source_log.high_watermark
        )  # what is written there next is to be copied
    return None


def read_from(state: PartitionState, source_start: int, position: SourceOffset) -> ReadFrom:
    """Where to read a partition.

    Args:
        state: the partition as committed.
        source_start: the first offset that retention has left.
        position: the settled position.
    """
    # From the end of the last record on, and not of what was skipped after it: the source can then tell by the record's
    # leader epoch whether its log is still the same up to there, and another log may have records where there were none.
    done, leader_epoch = state.last_run_end, state.source_leader_epoch
    if (
        state.passed_leader_epoch != UNKNOWN_EPOCH
    ):  # a record passed over tells the same, and need not be looked up again
        done, leader_epoch = state.source_next, state.passed_leader_epoch
    first = max(done, min(source_start, position))
    return ReadFrom(SourceOffset(first), leader_epoch, state.lineage.source_topic_id)


# --- changes for the run log -------------------------------------------------------------------------------------


def changes_for(
    decisions: Iterable[PartitionDecision],
    states: Mapping[TopicPartition, PartitionState],
    ends: Mapping[TopicPartition, TargetEnd],
    *,
    history: RunHistory,
    undone: Undone,
) -> list[PartitionChange]:
    """What to commit for these decisions.

    Args:
        decisions: what was decided.
        states: the partitions as committed.
        ends: the target's ends, read after everything in ``states`` was, and asked for the leader epoch that the
            state names; partitions without one wait.
        history: rows for finding the source of a cut.
        undone: asks the target, where it has another leader, for a transaction that was committed.
    """
    changes: list[PartitionChange] = []

    @cache
    def known(item: TopicPartition, lineage: Lineage) -> Sequence[PartitionChange]:
        return tuple(history(item, lineage))

    for decision in decisions:
        item = decision.topic_partition
        state, end = states.get(item), ends.get(item)
        if end is None:
            continue
        beginning = decision.begins
        if state is not None and not _other_target(beginning, state):
            kept = kept_to(state, end, history=known, undone=undone)
            if kept is None:
                continue
            beginning = _beginning(decision, state, kept, known)
            end = replace(end, next_offset=kept) if kept < state.target_floor else end
        if beginning is not None:
            log.warning("lineage_begun", partition=str(item), why=beginning.why)
            changes += begin(item, beginning, state, end)
        elif decision.lost_up_to is not None and state is not None:
            log.warning(
                "records_lost",
                partition=str(item),
                source_start=state.source_next,
                source_end=decision.lost_up_to,
            )
            changes.append(lose(state, decision.lost_up_to, end))
        elif state is not None and end.leader_epoch != state.target_leader_epoch:
            # It has kept everything: from now on that is what this leader holds, and what is written next.
            changes.append(PartitionChange(replace(state, target_leader_epoch=end.leader_epoch)))
    return changes


def _beginning(
    decision: PartitionDecision, state: PartitionState, kept: TargetOffset, history: RunHistory
) -> Beginning | None:
    """What begins, if anything does, of a target's topic that is the same: what it has lost comes first."""
    found = decision.begins
    if kept < state.target_floor:
        found = cut_by_target(state, kept, history)
    elif found is not None and found.parted_at is not None:
        found = cut_by_source(found, state, decision.source_start, history)
    if found is None or _ids(found.lineage) != _ids(state.lineage):
        return found
    return replace(found, target_record_end=record_end(state, kept, history))


def cut_by_source(
    beginning: Beginning, state: PartitionState, source_start: int, history: RunHistory
) -> Beginning:
    """The source has another log than the one that was copied: go back to where the two part.

    The source tells where its own log ends in an epoch that is not later than the one that was read. Two logs that have
    the same epoch are the same up to where it ends in the shorter one: if it is the epoch of the last record that was
    copied, nothing else has to be known, and the rows from before may be gone with the run log's head. Of an older epoch
    the source may hold records that were never copied: what was read there had another epoch. So copying goes back to
    the end of what was copied in such epochs too, as a follower cuts its log (KIP-101); where no row of them is left, to
    the source's first record. What is copied a second time comes twice on the target, and what the source no longer
    holds is told as lost: neither is passed in silence.
    """
    if beginning.parted_at is None:
        return beginning
    if (
        beginning.leader_epoch == UNKNOWN_EPOCH
    ):  # nothing was copied: what was there when the lineage began still is
        present = [row for at, row in _record_ends(state, history) if at.lineage == state.lineage]
        # Without the opening nobody knows what was lost before it: all of it may be.
        parted_at = min(present[0].source_start if present else SourceOffset(0), beginning.source_first)
        return replace(beginning, parted_at=parted_at)
    cut, epoch = min(beginning.parted_at, state.last_run_end), state.source_leader_epoch
    if beginning.leader_epoch < epoch:
        cut, epoch = _copied_below(cut, beginning.leader_epoch, state, history)
    return replace(
        beginning, source_first=SourceOffset(max(cut, source_start)), parted_at=cut, leader_epoch=epoch
    )


def _copied_below(
    source_next: SourceOffset, epoch: int, state: PartitionState, history: RunHistory
) -> tuple[SourceOffset, int]:
    """Where the source's log, as it was copied, ends below an offset in an epoch or an older one, and in which."""
    bound, kept_to, at = source_next, state.target_floor, state
    for then, row in reversed(_record_ends(state, history)):
        if then.lineage != at.lineage:
            bound, kept_to, at = min(bound, at.source_first), min(kept_to, at.target_first), then
        void = row.target_start > kept_to or (row.count and row.target_start == kept_to)
        if row.source_leader_epoch > epoch or void or (row.count and row.source_start >= bound):
            continue
        return min(bound, row.to_source(min(row.target_end, kept_to))), row.source_leader_epoch
    return SourceOffset(0), UNKNOWN_EPOCH


def _record_ends(state: PartitionState, history: RunHistory) -> list[tuple[PartitionState, Run]]:
    """The runs, and for the opening of each lineage a watermark at the end of the last record before it.

    An opening names the place where copying began, which is higher where the source had lost more by then. Nobody has read
    that: a lineage that begins at such a place again would count it as read. Other watermarks are left out: between the
    last record and them may lie what a later epoch wrote, or what was lost.
    """
    result: list[tuple[PartitionState, Run]] = []
    opened: set[Lineage] = set()
    for change in history(state.topic_partition, state.lineage):
        at = change.state
        for row in change.rows:
            if row.count:
                result.append((at, row))
            elif row.source_start == at.source_first and at.lineage not in opened:
                opened.add(at.lineage)
                end = change.lost[0].source_start if change.lost else row.previous_source_end
                result.append((at, replace(row, source_start=end, previous_source_end=end)))
    return result


def cut_by_target(state: PartitionState, kept_to: TargetOffset, history: RunHistory) -> Beginning:
    """The target lost its tail: go back to the source of its new end, under a new generation.

    The place is told by the last row of any generation that survived: the present one may have begun above the cut. Where
    the run log no longer has one, everything that the source still holds is copied again: what of it survived on the target
    comes twice. Nobody knows then where the rows of the present lineage end, which may be further than those that an answer
    has: it is closed at an end that they don't reach.
    """
    lineage, cut, epoch = state.lineage, SourceOffset(0), UNKNOWN_EPOCH
    closes_at: SourceOffset | None = None
    for _, row in _record_ends(state, history):
        if row.target_end <= kept_to:
            cut, epoch = row.source_end, row.source_leader_epoch
        elif row.target_start < kept_to:
            cut, epoch = row.to_source(kept_to), row.source_leader_epoch
        else:
            continue
        closes_at = cut
    told = state.target_leader_epoch
    return Beginning(
        lineage._replace(generation=lineage.generation + 1),
        cut,
        f"the target lost its tail: {kept_to} is what it kept, records up to {state.target_floor} had been written",
        parted_at=cut,
        closes_at=closes_at,
        leader_epoch=epoch,
        lost_epoch=UNKNOWN_EPOCH if told == UNKNOWN_EPOCH else told + 1,
    )


def begin(
    item: TopicPartition, beginning: Beginning, old: PartitionState | None, target: TargetEnd
) -> tuple[PartitionChange, ...]:
    """The changes that close a partition's lineage and open the next, beginning with its activation watermark.

    Where the target holds nothing of the source incarnation yet, the watermark says that nothing lies before it
    (`previous_source_end` 0); source records that were gone by then are a lost range of their own.
    """
    end = PartitionState(
        item,
        beginning.lineage,
        0 if old is None else old.sequence + 1,
        beginning.source_first,
        target_first=target.next_offset,
        source_next=beginning.source_first,
        last_run_end=beginning.source_first,
        target_floor=target.next_offset,
        source_leader_epoch=beginning.leader_epoch,
        target_leader_epoch=target.leader_epoch,
        lost_epoch=beginning.lost_epoch,
        target_record_end=beginning.target_record_end,
    )
    first = beginning.source_first
    opening = watermark_row(
        source_next=first,
        target_end=end.target_first,
        last_run_end=SourceOffset(0) if beginning.parted_at is None else first,
        source_leader_epoch=beginning.leader_epoch,
    )
    lost_from = SourceOffset(0) if beginning.parted_at is None else beginning.parted_at
    lost: tuple[LostRange, ...] = ()
    if lost_from < first:
        lost = (LostRange(lost_from, first, end.target_first),)
    opened = PartitionChange(end, (opening,), lost)
    if old is None:
        return (opened,)
    closes_at = old.last_run_end if beginning.closes_at is None else beginning.closes_at
    return (PartitionChange(replace(old, source_next=closes_at), closed=True), opened)


def lose(state: PartitionState, up_to: SourceOffset, target: TargetEnd) -> PartitionChange:
    """The change that records what retention took: a lost range, and a watermark from which copying goes on.

    The range begins where the last record ended, not at the position: between the two nothing was to be seen, and no
    row behind the range could say so.
    """
    end = target.next_offset
    row: Run = watermark_row(
        source_next=up_to,
        target_end=end,
        last_run_end=up_to,
        source_leader_epoch=state.source_leader_epoch,
    )
    after = replace(
        state,
        source_next=up_to,
        last_run_end=up_to,
        target_floor=end,
        target_leader_epoch=target.leader_epoch,
        passed_leader_epoch=UNKNOWN_EPOCH,
    )
    return PartitionChange(after, (row,), (LostRange(state.last_run_end, up_to, end),))


def _other_target(beginning: Beginning | None, state: PartitionState) -> bool:
    return beginning is not None and beginning.lineage.target_topic_id != state.lineage.target_topic_id
