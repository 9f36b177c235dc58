"""Transactions that a cluster has decided and never ended: which way each of their partitions must go.

A coordinator that comes back with its whole cluster may take partitions whose leader is not elected yet for deleted
ones, leave out their markers and call the transaction complete (KAFKA-20734, brokers 4.2 and 4.3; unclean leader
elections do the same). Their last stable offset then stands still for ever, and the next transaction of the same
producer would end the old one as it ends itself: records of an aborted transaction would appear.

A shard's transaction is whole once its run-log entry is appended: the entry is written after every record of it was
acknowledged. So an entry that is neither committed nor aborted anywhere may be committed, whatever the coordinator
had decided: nobody has acted on it. Where one partition has its marker, the others follow it
(docs/decisions/0008-hanging-transactions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from parallax.domain.ids import TargetOffset, TopicPartition
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.state import PartitionState, topic_partition_of


@dataclass(frozen=True, slots=True)
class Fates:
    """What is to be done with partitions that a transaction hangs on."""

    commit: tuple[TopicPartition, ...] = ()
    abort: tuple[TopicPartition, ...] = ()


def first_records(entry: Entry) -> dict[TopicPartition, TargetOffset]:
    """Where the records of the entry's transaction begin, by target partition; watermarks are no records."""
    found: dict[TopicPartition, TargetOffset] = {}
    for part in entry.partitions:
        starts = [start for start, count in zip(part.target_start, part.count, strict=True) if count]
        if starts:
            found[topic_partition_of(part)] = TargetOffset(min(starts))
    return found


def fates_with_entry(
    hanging: Mapping[TopicPartition, TargetOffset],
    run_log: TopicPartition,
    entry: Entry,
    visible: Callable[[TopicPartition, TargetOffset], bool],
) -> Fates:
    """The fates where the run log hangs too: its entry is in doubt.

    Args:
        hanging: where the open transaction begins, by partition; the run log among them.
        run_log: the shard's partition of the run log.
        entry: what lies there where the transaction begins.
        visible: whether a `read_committed` reader is given the record at an offset of a partition whose
            transaction has ended.
    """
    records = first_records(entry)
    ended = {item: start for item, start in records.items() if item not in hanging}
    committed = all(visible(item, start) for item, start in ended.items())
    ours = {run_log, *(item for item in records if item in hanging and hanging[item] <= records[item])}
    others = sorted(hanging.keys() - ours)
    if committed:
        return Fates(commit=tuple(sorted(ours)), abort=tuple(others))
    return Fates(abort=tuple(sorted({*ours, *others})))


def fates_by_state(
    hanging: Mapping[TopicPartition, TargetOffset], states: Mapping[TopicPartition, PartitionState]
) -> Fates:
    """The fates where the run log does not hang: what its entries tell of was committed, anything else was not."""
    told = [item for item, start in hanging.items() if item in states and start < states[item].target_floor]
    return Fates(commit=tuple(sorted(told)), abort=tuple(sorted(hanging.keys() - set(told))))
