"""What is to become of a transaction that hangs: what the run log's entries tell of was committed, anything else was not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from parallax.domain.ids import UNKNOWN_EPOCH, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.state import PartitionState, rows_of, state_of, topic_partition_of, whole_entry
from replicator.kafka.transactions.endings import TransactionEnd
from replicator.lease import Lease

Endings = Callable[[Mapping[TopicPartition, TargetOffset]], Mapping[TopicPartition, TransactionEnd]]
"""Asks how the producer's transactions with the records at some offsets ended, by partition."""
Continued = Callable[[Mapping[TopicPartition, TargetOffset]], Collection[TopicPartition]]
"""Asks in which of some partitions that hang the producer has records from an offset on, or has had some."""


@dataclass(frozen=True, slots=True)
class Fates:
    """What is to be done with partitions that a transaction hangs on."""

    commit: tuple[TopicPartition, ...] = ()
    abort: tuple[TopicPartition, ...] = ()


def records_of(entry: Entry) -> dict[TopicPartition, tuple[TargetOffset, TargetOffset]]:
    """The first and the last record of the entry's transaction, by target partition; watermarks are no records."""
    found: dict[TopicPartition, tuple[TargetOffset, TargetOffset]] = {}
    for part in entry.partitions:
        runs = [row for row in rows_of(part) if row.count]
        if runs:
            last = TargetOffset(runs[-1].target_end - 1)
            found[topic_partition_of(part)] = runs[0].target_start, last
    return found


def entry_in_doubt(entry_at: Callable[[int], Entry | None], start: int) -> Entry | None:
    """The entry of a transaction that hangs in the run log; None: its owner never came to committing it.

    Args:
        entry_at: what lies at an offset of the run log, whether or not it is committed; None: nothing that is an entry.
        start: where the transaction begins there.

    Raises:
        ClusterUnavailableError: nothing that is an entry lies there.
    """
    first = entry_at(start)
    if first is None:
        raise ClusterUnavailableError(f"the run log has no entry at {start}, where a transaction begins")
    following = (entry_at(start + number) for number in range(1, first.pieces))
    return whole_entry([first, *(piece for piece in following if piece is not None)])


def fates_of(
    hanging: Mapping[TopicPartition, TargetOffset],
    run_log: TopicPartition,
    *,
    kept_from: int,
    entry_at: Callable[[int], Entry | None],
    by_entries: Callable[[Mapping[TopicPartition, TargetOffset]], Fates],
    endings_of: Endings,
    continued: Continued,
) -> Fates:
    """The fates of all that hangs.

    Args:
        hanging: where the open transaction begins, by partition.
        run_log: the shard's partition of the run log.
        kept_from: where that begins; retention has taken what lies below.
        entry_at: as in `entry_in_doubt`.
        by_entries: decides about partitions other than the run log by what is committed there (`fates_by_entries`).
        endings_of: as in `fates_with_entry`.
        continued: as there.
    """
    start = hanging.get(run_log)
    if start is None:
        return by_entries(hanging)
    entry = entry_in_doubt(entry_at, start) if start >= kept_from else None
    if entry is not None:
        return fates_with_entry(hanging, run_log, entry, endings_of, continued)
    # Nobody can have committed it, or nobody can tell any more. What hangs elsewhere may be of an earlier one, of which a committed entry tells.
    others = {item: start for item, start in hanging.items() if item != run_log}
    fates = by_entries(others) if others else Fates()
    return Fates(fates.commit, tuple(sorted((*fates.abort, run_log))))


def fates_with_entry(
    hanging: Mapping[TopicPartition, TargetOffset],
    run_log: TopicPartition,
    entry: Entry,
    endings_of: Endings,
    continued: Continued,
) -> Fates:
    """The fates where the run log hangs too: its entry is in doubt.

    Where a partition has what retention has left of the transaction, its marker there decides. If none has, nobody can have acted
    on it, or nobody can tell any more. A partition that was left open from an earlier transaction on, or that the next one has joined,
    can't be committed, whatever those were: what of it was told to be committed is missed when the target is looked at, and copied again.

    Args:
        hanging: where the open transaction begins, by partition; the run log among them.
        run_log: the shard's partition of the run log.
        entry: what lies there where the transaction begins.
        endings_of: asks how the producer's transactions with the records at some offsets ended, by partition.
        continued: asks in which partitions the producer has written more, from the end of the entry's records on.
    """
    records = records_of(entry)
    endings = {
        *endings_of({item: last for item, (_, last) in records.items() if item not in hanging}).values()
    }
    if TransactionEnd.ABORTED in endings and TransactionEnd.COMMITTED not in endings:
        return Fates(abort=tuple(sorted(hanging)))
    ends = {
        item: TargetOffset(last + 1) for item, (first, last) in records.items() if hanging.get(item) == first
    }
    whole = {run_log, *ends} - set(continued(ends) if ends else ())
    return Fates(commit=tuple(sorted(whole)), abort=tuple(sorted(hanging.keys() - whole)))


def fates_by_entries(
    hanging: Mapping[TopicPartition, TargetOffset],
    topic_ids: Mapping[TopicName, TopicId],
    entries: Iterable[Entry],
    ends_of: Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, TargetOffset]],
    continued: Continued,
) -> Fates:
    """The fates where the run log does not hang: what its entries tell of was committed, anything else was not.

    Where a log has both for one transaction, all of it is aborted: what was told to be committed is missed when the target is looked at,
    and copied again.

    Args:
        hanging: where the open transaction begins, by partition.
        topic_ids: of the target's present topics: rows of one of the same name that is gone tell nothing.
        entries: the shard's own that the run log still holds, in order.
        ends_of: asks where leader epochs end, by partition: rows from there on are void, though nobody has said so yet.
        continued: asks in which partitions the producer has written more, from the end of what is told on.
    """
    told: dict[TopicPartition, int] = {}
    """The number of the lineage whose rows hold the first record."""
    told_ends: dict[TopicPartition, TargetOffset] = {}
    """Where the last record ends that is told of."""
    newest: dict[TopicPartition, PartitionState] = {}
    for entry in entries:
        for part in entry.partitions:
            item = topic_partition_of(part)
            start = hanging.get(item)
            if start is None:
                continue
            state, before = state_of(part), newest.get(item)
            if before is not None and before.lineage.target_topic_id != state.lineage.target_topic_id:
                told.pop(item, None)
                told_ends.pop(item, None)
            newest[item] = state
            if state.sequence > told.get(item, state.sequence) and state.target_first <= start:
                told.pop(item)  # the target lost it, and gave the offset again
            if before is not None and before.sequence < state.sequence and item in told_ends:
                told_ends[item] = min(told_ends[item], state.target_first)
            for row in rows_of(part):
                if row.target_start <= start < row.target_end:
                    told[item] = state.sequence
                if row.count:
                    told_ends[item] = row.target_end
    present = {item for item in told if newest[item].lineage.target_topic_id == topic_ids.get(item.topic)}
    epochs = {item: newest[item].target_leader_epoch for item in present}
    kept_to = ends_of({item: epoch for item, epoch in epochs.items() if epoch != UNKNOWN_EPOCH})
    void = {item for item, end in kept_to.items() if hanging[item] >= end}
    ends = {item: min(told_ends[item], kept_to.get(item, told_ends[item])) for item in present - void}
    committed = ends.keys() - set(continued(ends) if ends else ())
    return Fates(commit=tuple(sorted(committed)), abort=tuple(sorted(hanging.keys() - committed)))


def is_settled_change(entry: Entry, lease: Lease) -> bool:
    """Whether a change of the layout wrote the entry that was told to be committed: the lease is of it, or a later one."""
    return entry.path == "layout" and entry.layout <= lease.layout
