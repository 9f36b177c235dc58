"""Skip ranges: target offsets above the resume offset that hold records already consumed elsewhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from parallax.domain.ids import SourceId, TargetOffset
from parallax.domain.progress import SourceHistory, SourcePosition, consumed_spans, with_known_epochs


@dataclass(frozen=True, slots=True, order=True)
class SkipRange:
    """Target offsets ``[start, end)``, all consumed already."""

    start: TargetOffset
    end: TargetOffset

    @property
    def count(self) -> int:
        """The number of offsets to skip."""
        return self.end - self.start


_start: Callable[[SkipRange], int] = attrgetter("start")


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
        origin: rows of the cluster that the group came from; they tell of leader epochs that a position read
            from elsewhere does not name.
        destination: rows of the cluster that it moves to; those missing make the result smaller, never wrong.
        start: the first target offset of interest.
        end: the first target offset beyond it.
    """
    ranges: list[SkipRange] = []
    for item in destination:
        consumed = positions.get(item.source)
        if consumed is None:
            continue
        consumed = with_known_epochs(consumed, [other for other in origin if other.source == item.source])
        spans = consumed_spans(consumed, item.history)
        for row in item.history.between_targets(start, end):
            if row.source_start >= spans[-1][1]:
                break
            for first, bound in spans:
                low = max(row.target_start + max(first - row.source_start, 0), start)
                high = min(row.target_start + min(bound - row.source_start, row.count), end)
                if low < high:
                    ranges.append(SkipRange(TargetOffset(low), TargetOffset(high)))
    return merge_ranges(ranges)


def merge_ranges(ranges: Iterable[SkipRange]) -> list[SkipRange]:
    """The same offsets in as few ranges as possible, in order."""
    result: list[SkipRange] = []
    last_end = -1
    for item in sorted(ranges, key=_start):
        if item.start > last_end:
            result.append(item)
            last_end = item.end
        elif item.end > last_end:
            last_end = item.end
            result[-1] = SkipRange(result[-1].start, item.end)
    return result


def after_skips(resume_offset: TargetOffset, ranges: Sequence[SkipRange]) -> TargetOffset:
    """The resume offset, moved to the end of the skip range that it lies in, if any.

    Args:
        resume_offset: any target offset.
        ranges: as `skip_ranges` returns them: merged and in order.
    """
    index = bisect_right(ranges, resume_offset, key=lambda item: item.start)
    if index and resume_offset < ranges[index - 1].end:
        return ranges[index - 1].end
    return resume_offset
