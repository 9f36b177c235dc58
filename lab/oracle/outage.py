"""What a lost region takes with it for a while: records that lay nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lab.oracle.logs import TopicLog
from lab.workload.delivered import DeliveredRecord
from lab.workload.events import RecordId


def records_below(target: TopicLog, ends: Mapping[int, int]) -> set[RecordId]:
    """The records of a topic that lie below the ends of an earlier moment, by partition."""
    return {
        placed.record
        for partition, records in target.partitions.items()
        for placed in records
        if placed.record_offset < ends.get(partition, 0)
    }


def held_back(
    acknowledged: Iterable[DeliveredRecord], target: TopicLog, *, ends: Mapping[int, int], returned_at_ms: int
) -> set[RecordId]:
    """Records that the lost regional cluster had acknowledged, and that reached the target only after its return.

    Args:
        acknowledged: what its producers were told, and when.
        target: an aggregate topic that lived, read after everything had arrived.
        ends: where that one ended just before the return, by partition.
        returned_at_ms: when the region was started again.
    """
    told = {item.record for item in acknowledged if item.at_ms < returned_at_ms}
    return told - records_below(target, ends)


def possibly_unindexed(deliveries: Iterable[DeliveredRecord], starts: Mapping[int, int]) -> int:
    """How many records a group had consumed before its first move at or above these offsets, by partition."""
    return len(
        {
            item.record
            for item in deliveries
            if item.stage == 0 and item.record_offset >= starts.get(item.partition, 0)
        }
    )


def stalls_s(
    deliveries: Iterable[DeliveredRecord], stable_ends: Mapping[int, int], killed_at_ms: int
) -> dict[int, float | None]:
    """Seconds from the kill to the first record that a reader got from beyond the unfinished transaction.

    Args:
        deliveries: of a read_committed reader of the cluster.
        stable_ends: the last stable offset, after the kill, of each partition that an unfinished transaction holds.
        killed_at_ms: when the writers were killed, milliseconds since the Unix epoch.

    Returns:
        By partition; None where the reader never got beyond it.
    """
    found: dict[int, float | None] = dict.fromkeys(stable_ends)
    for delivery in deliveries:
        held = stable_ends.get(delivery.partition)
        if held is None or delivery.record_offset < held or found[delivery.partition] is not None:
            continue
        found[delivery.partition] = max(0, delivery.at_ms - killed_at_ms) / 1_000
    return found
