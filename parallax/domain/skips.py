"""Skip ranges: target offsets above the resume offset that hold records already consumed elsewhere."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from typing import NamedTuple, cast

from parallax.domain.ids import SourceId, TargetOffset
from parallax.domain.lineage_history import LineageHistory, Stretch
from parallax.domain.progress import SourceHistory, SourcePosition, Span, consumed_spans, with_known_epochs


class SkipRange(NamedTuple):
    """Target offsets ``[start, end)``, all consumed already. A tuple: an answer may name thousands."""

    start: TargetOffset
    end: TargetOffset

    @property
    def offsets(self) -> int:
        """The number of offsets to skip."""
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
        origin: rows of the cluster that the group came from; they tell of leader epochs that a position read
            from elsewhere does not name.
        destination: rows of the cluster that it moves to; those missing make the result smaller, never wrong.
        start: the first target offset of interest.
        end: the first target offset beyond it.
    """
    found: list[Stretch] = []
    for item in destination:
        consumed = positions.get(item.source)
        if consumed is None:
            continue
        consumed = with_known_epochs(consumed, [other for other in origin if other.source == item.source])
        spans = consumed_spans(consumed, item.history)
        found += consumed_stretches(spans, item.history, start, end)[0]
    return as_ranges(merge_stretches(found))


def consumed_stretches(
    spans: Sequence[Span],
    history: LineageHistory,
    start: TargetOffset,
    end: TargetOffset,
    most_rows: int | None = None,
) -> tuple[list[Stretch], TargetOffset | None]:
    """The target offsets of ``[start, end)`` at which a history has records that were consumed.

    Args:
        spans: which of its records were (`consumed_spans`).
        history: the rows.
        start: the first target offset of interest.
        end: the first target offset beyond it.
        most_rows: at least one; further rows are not looked at.

    Returns:
        The offsets, in order, and where the first row begins that was not looked at for ``most_rows``; None: all were.
    """
    last = spans[-1][1]
    if len(spans) == 1 and not spans[0][0]:
        return history.stretches_below(last, start, end, most_rows)
    found: list[Stretch] = []
    for number, (source_start, target_start, count) in enumerate(history.numbers_between(start, end)):
        if source_start >= last:
            break
        if most_rows is not None and number >= most_rows and target_start > start:
            return found, TargetOffset(target_start)
        for first, bound in spans:
            low = target_start + first - source_start if first > source_start else target_start
            high = target_start + (bound - source_start if bound < source_start + count else count)
            low = max(low, start)
            high = min(high, end)
            if low < high:
                found.append((low, high))
    return found, None


def merge_stretches(stretches: Iterable[Stretch]) -> list[Stretch]:
    """The same offsets in as few stretches as possible, in order."""
    result: list[Stretch] = []
    last_end = -1
    for item in sorted(stretches):
        start, end = item
        if start > last_end:
            result.append(item)
            last_end = end
        elif end > last_end:
            last_end = end
            result[-1] = (result[-1][0], end)
    return result


def as_ranges(stretches: Iterable[Stretch]) -> list[SkipRange]:
    """Stretches as they are told."""
    return list(starmap(SkipRange, cast("Iterable[tuple[TargetOffset, TargetOffset]]", stretches)))


def merge_ranges(ranges: Iterable[SkipRange]) -> list[SkipRange]:
    """The same offsets in as few ranges as possible, in order."""
    return as_ranges(merge_stretches((item.start, item.end) for item in ranges))


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
