"""Skip ranges: target offsets above the resume offset that hold records already consumed elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from parallax.domain.ids import SourceId, TargetOffset
from parallax.domain.resume import SourceHistory, SourcePosition, comparable_position


@dataclass(frozen=True, slots=True, order=True)
class SkipRange:
    """Target offsets ``[start, end)``, all consumed already."""

    start: TargetOffset
    end: TargetOffset

    @property
    def count(self) -> int:
        """The number of records to skip."""
        return self.end - self.start


def skip_ranges(
    *,
    positions: Mapping[SourceId, SourcePosition],
    origin: Sequence[SourceHistory],
    destination: Sequence[SourceHistory],
    start: TargetOffset,
    end: TargetOffset,
) -> list[SkipRange]:
    """The consumed target offsets of ``[start, end)``, merged and in order.

    Args:
        positions: how far each source was consumed.
        origin: rows of the cluster that the group came from; needed only where leader epochs differ.
        destination: rows of the cluster that it moves to; those missing make the result smaller, never wrong.
        start: the first target offset of interest.
        end: the first target offset beyond it.
    """
    ranges: list[SkipRange] = []
    for item in destination:
        consumed = positions.get(item.source)
        if consumed is None:
            continue
        same_source = [other for other in origin if other.source == item.source]
        bound = comparable_position(consumed, same_source, item.history)
        for row in item.history.rows:
            if row.is_watermark or row.source_start >= bound:
                continue
            low = max(row.target_start, start)
            high = min(row.to_target(min(bound, row.source_end)), end)
            if low < high:
                ranges.append(SkipRange(TargetOffset(low), TargetOffset(high)))
    return merged(ranges)


def merged(ranges: Iterable[SkipRange]) -> list[SkipRange]:
    """The same offsets in as few ranges as possible, in order."""
    result: list[SkipRange] = []
    for item in sorted(ranges):
        if result and item.start <= result[-1].end:
            result[-1] = SkipRange(result[-1].start, max(result[-1].end, item.end))
        else:
            result.append(item)
    return result


def beyond(resume_offset: TargetOffset, ranges: Sequence[SkipRange]) -> TargetOffset:
    """The resume offset, moved to the end of the skip range that it lies in, if any."""
    for item in ranges:
        if item.start <= resume_offset < item.end:
            return item.end
    return resume_offset
