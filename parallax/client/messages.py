"""Domain values as messages of `proto/parallax/v1`, and back: what clients and services both need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import accumulate, chain
from operator import sub
from typing import Any, cast

from parallax.domain.ids import UNKNOWN_EPOCH, RegionName, SourceId, SourceOffset, TargetOffset, TopicId
from parallax.domain.lineage_history import Stretch
from parallax.domain.outcome import Outcome
from parallax.domain.progress import SourcePosition
from parallax.domain.skips import SkipRange
from parallax.errors import InvalidNameError, InvalidOffsetError
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import overview_pb2

_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
"""Asking the enum takes ten times as long, and every answer does so three times at least."""

NO_COMMIT = -1
"""Instead of a next offset, among positions that are asked for together: the group has none."""


def outcome_to_pb(outcome: Outcome) -> pb.Outcome:
    """The same word in the proto; both enums carry the same numbers too."""
    return cast("pb.Outcome", outcome.value)


def outcome_from_pb(value: int) -> Outcome:
    """The domain's outcome.

    Raises:
        InvalidNameError: the number is none of ours.
    """
    found = _OUTCOMES.get(value)
    if found is None:
        raise InvalidNameError(f"outcome {value} is unknown; the server may be newer than this client")
    return found


class PartitionSort(StrEnum):
    """How the partitions of a route are ordered, in the words of commands, URLs and pages."""

    NAME = "name"
    LAG = "lag"
    WORST = "worst"

    @property
    def asked(self) -> overview_pb2.PartitionOrder:
        """As the service is asked."""
        return _ORDERS[self]


_ORDERS = {
    PartitionSort.NAME: overview_pb2.BY_NAME,
    PartitionSort.LAG: overview_pb2.BY_LAG,
    PartitionSort.WORST: overview_pb2.WORST_FIRST,
}


def progress_to_pb(positions: Mapping[SourceId, SourcePosition]) -> list[pb.SourceProgress]:
    """A progress vector, in its order."""
    return [pb.SourceProgress(**fields) for fields in progress_fields(positions)]


def progress_fields(positions: Mapping[SourceId, SourcePosition]) -> list[dict[str, Any]]:
    """The fields of each ``SourceProgress`` of a progress vector: made within the message that holds them, they are not copied."""
    return [
        {
            "region": source.region,
            "source_topic_id": source.topic_id,
            "source_next_offset": position.source_next,
            "source_leader_epoch": position.leader_epoch,
            "epoch_ends": [
                {"leader_epoch": epoch, "source_next_offset": end} for epoch, end in position.epoch_ends
            ],
        }
        for source, position in positions.items()
    ]


def progress_from_pb(items: Iterable[pb.SourceProgress]) -> dict[SourceId, SourcePosition]:
    """The progress vector.

    Raises:
        InvalidOffsetError: an offset is negative, or a leader epoch none that can be.
    """
    return {
        SourceId(RegionName(item.region), TopicId(item.source_topic_id)): SourcePosition(
            epoch_from_pb(item.source_leader_epoch, "source_leader_epoch"),
            SourceOffset(offset_from_pb(item.source_next_offset, "source_next_offset")),
            tuple(
                (
                    epoch_from_pb(end.leader_epoch, "leader_epoch"),
                    SourceOffset(offset_from_pb(end.source_next_offset, "source_next_offset")),
                )
                for end in item.epoch_ends
            ),
        )
        for item in items
    }


def ranges_from_pb(items: Iterable[pb.OffsetRange]) -> tuple[SkipRange, ...]:
    """Skip ranges, in their order."""
    return tuple(SkipRange(TargetOffset(item.start), TargetOffset(item.end)) for item in items)


def packed(stretches: Iterable[Stretch]) -> list[int]:
    """Skip ranges, merged and in order, as ``FailoverOffset.packed_skip_ranges``."""
    bounds = list(chain.from_iterable(stretches))
    return list(map(sub, bounds, chain((0,), bounds)))


def skips_from_pb(answer: pb.FailoverOffset) -> tuple[SkipRange, ...]:
    """The skip ranges of an answer, packed or not."""
    if not answer.packed_skip_ranges:
        return ranges_from_pb(answer.skip_ranges)
    return unpacked(answer.packed_skip_ranges)


def unpacked(distances: Iterable[int]) -> tuple[SkipRange, ...]:
    """The skip ranges that `packed` has written so."""
    bounds = cast("list[TargetOffset]", list(accumulate(distances)))
    return tuple(map(SkipRange, bounds[::2], bounds[1::2]))


def epoch_from_pb(value: int, what: str) -> int:
    """A leader epoch that was sent, called so by ``what``.

    Raises:
        InvalidOffsetError: it is below `UNKNOWN_EPOCH`.
    """
    if value < UNKNOWN_EPOCH:
        raise InvalidOffsetError(f"{what} {value} is none; {UNKNOWN_EPOCH} is one that is not known")
    return value


def offset_from_pb(value: int, what: str) -> int:
    """An offset that was sent, called so by ``what``.

    Raises:
        InvalidOffsetError: it is negative.
    """
    if value < 0:
        raise InvalidOffsetError(f"{what} {value} is negative; leave an unknown offset out")
    return value
