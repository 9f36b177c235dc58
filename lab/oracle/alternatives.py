"""What other ways of choosing a resume offset would have done at the same moment on the same logs.

Each rule picks an offset in every partition of the destination; the group then reads everything from there on.
*Lost* are the records below it that the group had not consumed, *redelivered* those at or above it that it had.

- ``earliest`` and ``latest``: the log's start, and its end at the moment of the move.
- ``timestamp``: the first record whose timestamp is at or after a time some minutes before the move.
- ``nearest_checkpoint``: checkpoints pair a source record with its place in each aggregate cluster; here every
  1,000th record of each source partition is one, as soon as it is in the cluster. For each source, the last
  checkpoint at or before the group's position in the origin is looked up in the destination (where it has not
  arrived yet, the last one before it that has), and the smallest of these offsets is taken; a source without any
  checkpoint gives the log start.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.oracle.logs import Placed, TopicLog
from lab.workload.events import RecordId

CHECKPOINT_EVERY_RECORDS = 1_000


@dataclass(frozen=True, slots=True)
class Alternative:
    """The price of one rule."""

    lost_records: int
    redelivered_records: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A move as the logs show it.

    Attributes:
        origin: the aggregate topic that the group left.
        destination: the aggregate topic that it went to, read after everything had arrived.
        sources: the regional topics by region.
        consumed: what the group had delivered before the move.
        next_offsets: the group's positions in the origin, by partition.
        ends: the destination's ends at the moment of the move, by partition.
        at_ms: the time of the move, milliseconds since the Unix epoch.
    """

    origin: TopicLog
    destination: TopicLog
    sources: Mapping[str, TopicLog]
    consumed: set[RecordId]
    next_offsets: Mapping[int, int]
    ends: Mapping[int, int]
    at_ms: int


def weigh_alternatives(moment: Moment, *, minutes_back: int = 10) -> dict[str, Alternative]:
    """The price of each rule by its name."""
    back_to_ms = moment.at_ms - minutes_back * 60_000
    rules = {
        "earliest": dict.fromkeys(moment.destination.partitions, 0),
        "latest": dict(moment.ends),
        f"timestamp_{minutes_back}_minutes_back": {
            partition: _first_since(records, back_to_ms, moment.ends.get(partition, 0))
            for partition, records in moment.destination.partitions.items()
        },
        "nearest_checkpoint": nearest_checkpoints(moment),
    }
    return {name: _weigh(moment, offsets) for name, offsets in rules.items()}


def nearest_checkpoints(moment: Moment, every_records: int = CHECKPOINT_EVERY_RECORDS) -> dict[int, int]:
    """Where the nearest-checkpoint rule resumes, by partition."""
    at_origin, at_destination = moment.origin.places(), moment.destination.places()
    chosen = {}
    for partition in moment.destination.partitions:
        position, end = moment.next_offsets.get(partition, 0), moment.ends.get(partition, 0)
        offsets = []
        for source in moment.sources.values():
            checkpoints = [
                placed.record
                for placed in source.partitions.get(partition, ())[every_records - 1 :: every_records]
            ]
            passed = bisect_right(
                checkpoints, position, key=lambda record: at_origin.get(record, (partition, position + 1))[1]
            )
            arrived = bisect_left(
                checkpoints, end, key=lambda record: at_destination.get(record, (partition, end))[1]
            )
            usable = checkpoints[: min(passed, arrived)]
            offsets.append(at_destination[usable[-1]][1] if usable else 0)
        chosen[partition] = min(offsets, default=0)
    return chosen


def _first_since(records: Sequence[Placed], at_ms: int, end: int) -> int:
    """What a look-up by timestamp answers: the first record at or after that time, the end if there is none."""
    return next(
        (
            placed.record_offset
            for placed in records
            if placed.timestamp_ms >= at_ms and placed.record_offset < end
        ),
        end,
    )


def _weigh(moment: Moment, offsets: Mapping[int, int]) -> Alternative:
    lost = redelivered = 0
    for partition, records in moment.destination.partitions.items():
        for placed in records:
            consumed = placed.record in moment.consumed
            if placed.record_offset < offsets.get(partition, 0):
                lost += not consumed
            else:
                redelivered += consumed
    return Alternative(lost, redelivered)
