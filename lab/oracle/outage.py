"""What a lost region takes with it for a while: records that lay nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lab.oracle.logs import TopicLog
from lab.workload.delivered import Delivery
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
    acknowledged: Iterable[Delivery], target: TopicLog, *, ends: Mapping[int, int], returned_at_ms: int
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


def possibly_unindexed(deliveries: Iterable[Delivery], starts: Mapping[int, int]) -> int:
    """How many records a group had consumed before its first move at or above these offsets, by partition."""
    return len(
        {
            item.record
            for item in deliveries
            if item.stage == 0 and item.record_offset >= starts.get(item.partition, 0)
        }
    )
