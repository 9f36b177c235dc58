"""Up to where a partition of the target holds what run-log entries tell of it, after it has got another leader.

Two things may be gone: what that leader never had, which it tells by leader epochs, and what it has and was undone since. A
transaction of which the election took the marker, but not the records, is open again in that log. What the same producer sends
there next joins it, and one marker ends both (docs/decisions/0003-lineage.md): if that one aborts, records that were
committed count no more, and nothing about the log's ends or epochs says so.

Pure, but for the two questions that are handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from parallax.domain.ids import Lineage, TargetOffset, TopicPartition
from parallax.domain.runs import Run
from replicator.copying.ports import TargetEnd, TargetLog, TargetWriter
from replicator.copying.state import NOWHERE, PartitionChange, PartitionState

RunHistory = Callable[[TopicPartition, Lineage], Iterable[PartitionChange]]
"""Every change of a partition that the run log still holds under the lineage's topic ids, whatever the generation: in the
order in which they were committed."""

Undone = Callable[[TopicPartition, TargetOffset], bool | None]
"""Whether the target's log has aborted the transaction of the record at an offset; None: its leader does not tell."""


def kept_to(
    state: PartitionState, end: TargetEnd, *, history: RunHistory, undone: Undone
) -> TargetOffset | None:
    """Up to where the target holds what the state tells, at most its ``target_floor``; None: nobody knows yet.

    Only the last transaction below the place where the leaders' logs part may have lost its marker: a producer's next one follows
    the marker of the one before.

    Args:
        state: the partition as committed.
        end: the target's, asked for the leader epoch that the state names.
        history: rows, should the last transaction be undone or lost.
        undone: asks the target.
    """
    item = state.topic_partition
    kept = end.has_kept(state.target_floor, state.target_leader_epoch)
    if kept is None or end.leader_epoch == state.target_leader_epoch or not state.target_record_end:
        return kept
    if state.target_record_end <= kept:
        told = undone(item, TargetOffset(state.target_record_end - 1))
        if not told:
            return None if told is None else kept
    for rows in reversed(_transactions(state, history)):
        below = [row for row in rows if row.target_start < kept]
        if not below:
            continue
        told = undone(item, TargetOffset(min(below[-1].target_end, kept) - 1))
        if told is None:
            return None
        if not told:
            break
        kept = below[0].target_start
    return kept


class UndoneRecords:
    """`Undone`, asked of the target's leaders: at once for each partition that has another leader than its state names.

    Args:
        target: whose leaders.
        states: the partitions as committed.
        ends: what the target told of them.
    """

    def __init__(
        self,
        target: TargetWriter,
        states: Mapping[TopicPartition, PartitionState],
        ends: Mapping[TopicPartition, TargetEnd],
    ) -> None:
        self._target = target
        self._logs = {
            item: TargetLog(states[item].lineage.target_topic_id, end.leader_epoch)
            for item, end in ends.items()
            if item in states and states[item].target_leader_epoch != end.leader_epoch
        }
        last = {item: states[item].target_record_end for item in self._logs}
        self._told: dict[tuple[TopicPartition, TargetOffset], bool] = {}
        self._ask({item: TargetOffset(end - 1) for item, end in last.items() if end})

    def __call__(self, item: TopicPartition, offset: TargetOffset) -> bool | None:
        """Whether the transaction of the record was aborted; None: its leader does not tell."""
        if (item, offset) not in self._told:
            self._ask({item: offset})
        return self._told.get((item, offset))

    def _ask(self, offsets: Mapping[TopicPartition, TargetOffset]) -> None:
        if offsets:
            records = {item: (self._logs[item], offset) for item, offset in offsets.items()}
            told = self._target.undone(records)
            self._told |= {(item, offset): told[item] for item, offset in offsets.items() if item in told}


def record_end(state: PartitionState, below: TargetOffset, history: RunHistory) -> TargetOffset:
    """Where the last record ends that entries tell of below an offset; 0: there is none."""
    if state.target_record_end <= below:
        return state.target_record_end
    for rows in reversed(_transactions(state, history)):
        ends = [min(row.target_end, below) for row in rows if row.target_start < below]
        if ends:
            return TargetOffset(ends[-1])
    return NOWHERE


def _transactions(state: PartitionState, history: RunHistory) -> Sequence[Sequence[Run]]:
    """The runs of each transaction, without what is void: above the beginning of a later lineage."""
    found: list[list[Run]] = []
    sequence = -1
    for change in history(state.topic_partition, state.lineage):
        if change.state.sequence > sequence:
            sequence, first = change.state.sequence, change.state.target_first
            found = [[_cut(row, first) for row in rows if row.target_start < first] for rows in found]
        runs = [row for row in change.rows if row.count]
        if runs:
            found.append(runs)
    return found


def _cut(row: Run, at: TargetOffset) -> Run:
    return row if row.target_end <= at else replace(row, count=at - row.target_start)
