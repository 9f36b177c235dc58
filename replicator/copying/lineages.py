"""How lineages end and begin, and how losses are written down: as changes for the run log, nothing is done here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import structlog

from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, SourceOffset, TargetOffset, TopicPartition
from parallax.domain.runs import LostRange, Run
from parallax.domain.runs import watermark as watermark_row
from replicator.copying.reconcile import Beginning, PartitionDecision
from replicator.copying.session_end import TargetCut
from replicator.copying.state import PartitionChange, PartitionState

log = structlog.get_logger(__name__)

RunHistory = Callable[[TopicPartition, Lineage], Iterable[Run]]
"""Every row of a partition and lineage that the run log still holds, in order."""


def changes_for(
    decisions: Iterable[PartitionDecision],
    states: Mapping[TopicPartition, PartitionState],
    ends: Mapping[TopicPartition, TargetOffset],
    *,
    cuts: Mapping[TopicPartition, TargetCut],
    history: RunHistory,
) -> list[PartitionChange]:
    """What to commit for these decisions.

    Args:
        decisions: what was decided.
        states: the partitions as committed.
        ends: the target's ends, read after everything in ``states`` was; partitions without one wait.
        cuts: partitions of which the target is known to have lost the end.
        history: rows for finding the source of a cut.
    """
    changes: list[PartitionChange] = []
    for decision in decisions:
        item = decision.topic_partition
        state, end = states.get(item), ends.get(item)
        if end is None:
            continue
        beginning = decision.begins
        if state is not None and not _other_target(beginning, state):
            cut = cuts.get(item)
            valid_to = end if cut is None or cut.lineage != state.lineage else min(end, cut.target_end)
            if valid_to < state.target_floor:
                beginning = cut_by_target(state, valid_to, history)
        if beginning is not None:
            log.warning("lineage begins", partition=str(item), why=beginning.why)
            changes += begin(item, beginning, state, end)
        elif decision.lost_up_to is not None and state is not None:
            log.warning(
                "records lost to retention",
                partition=str(item),
                source_start=state.source_next,
                source_end=decision.lost_up_to,
            )
            changes.append(lose(state, decision.lost_up_to, end))
    return changes


def cut_by_target(state: PartitionState, end: TargetOffset, history: RunHistory) -> Beginning:
    """The target lost its tail: go back to the source of its new end, under a new generation."""
    cut, epoch = state.source_first, UNKNOWN_EPOCH
    for row in history(state.topic_partition, state.lineage):
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


def begin(
    item: TopicPartition, beginning: Beginning, old: PartitionState | None, target_end: int
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
        target_first=TargetOffset(target_end),
        source_next=beginning.source_first,
        last_run_end=beginning.source_first,
        target_floor=TargetOffset(target_end),
        source_leader_epoch=beginning.leader_epoch,
    )
    first = beginning.source_first
    opening = watermark_row(
        source_next=first,
        target_end=end.target_first,
        last_run_end=first if beginning.predecessor_unknown else SourceOffset(0),
        source_leader_epoch=beginning.leader_epoch,
    )
    lost_from = beginning.closes_at if beginning.predecessor_unknown else SourceOffset(0)
    lost: tuple[LostRange, ...] = ()
    if lost_from is not None and lost_from < first:
        lost = (LostRange(lost_from, first, end.target_first),)
    opened = PartitionChange(end, (opening,), lost)
    if old is None:
        return (opened,)
    closes_at = old.source_next if beginning.closes_at is None else beginning.closes_at
    return (PartitionChange(replace(old, source_next=closes_at), closed=True), opened)


def lose(state: PartitionState, up_to: SourceOffset, target_end: int) -> PartitionChange:
    """The change that records what retention took: a lost range, and a watermark from which copying goes on."""
    end = TargetOffset(target_end)
    row: Run = watermark_row(
        source_next=up_to,
        target_end=end,
        last_run_end=up_to,
        source_leader_epoch=state.source_leader_epoch,
    )
    after = replace(state, source_next=up_to, last_run_end=up_to, target_floor=end)
    return PartitionChange(after, (row,), (LostRange(state.source_next, up_to, end),))


def _other_target(beginning: Beginning | None, state: PartitionState) -> bool:
    return beginning is not None and beginning.lineage.target_topic_id != state.lineage.target_topic_id
