"""Skip ranges of one partition within limits: the rows above the resume offset."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from parallax.domain.ids import SourceId, SourceOffset, TargetOffset
from parallax.domain.lineage_history import LineageHistory, Stretch
from parallax.domain.progress import (
    SourceHistory,
    SourcePosition,
    Span,
    consumed_spans,
    with_known_epochs,
)
from parallax.domain.resume import SourceAnswer
from parallax.domain.skips import consumed_stretches, merge_stretches


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one partition's skip ranges (`service.max_skip_ranges`, `service.max_rows`)."""

    skip_ranges: int
    rows: int


class Skips(NamedTuple):
    """Skip ranges from some offset on.

    Attributes:
        ranges: merged and in order.
        first_new: ``start``, moved to the end of the range that it lies in.
        by_source: how many records of each source they hold from ``first_new`` on.
        cut_at: a limit cut them short here; None: they are all.
    """

    ranges: Sequence[Stretch]
    first_new: TargetOffset
    by_source: Mapping[SourceId, int]
    cut_at: TargetOffset | None


_Consumed = tuple[SourceId, LineageHistory, Sequence[Span]]
"""A source, its rows where the group is, and which of their records were consumed."""


def collect_skips(
    *,
    positions: Mapping[SourceId, SourcePosition],
    origin: Sequence[SourceHistory],
    destination: Sequence[SourceHistory],
    start: TargetOffset,
    limits: Limits,
) -> Skips:
    """The consumed target offsets from ``start`` on.

    Args:
        positions: how far each source was consumed.
        origin: rows of the cluster that the group came from, for leader epochs.
        destination: lineages of the cluster where the group is.
        start: the first target offset of interest.
        limits: what is cut off is told by `Skips.cut_at`.
    """

    def spans_of(item: SourceHistory) -> Sequence[Span]:
        same = [other for other in origin if other.source == item.source]
        return consumed_spans(with_known_epochs(positions[item.source], same), item.history)

    concerned = [
        (item.source, item.history, spans_of(item)) for item in destination if item.source in positions
    ]
    return _within_limits(positions, concerned, start, limits)


def collect_plain_skips(
    answers: Sequence[SourceAnswer],
    destination: Sequence[SourceHistory],
    start: TargetOffset,
    limits: Limits,
) -> Skips | None:
    """The same by what the resume rule's short cut found of each source; None: it did not say enough.

    Args:
        answers: what it found (`parallax.domain.plain`).
        destination: the lineages of these sources where the group goes.
        start: as above.
        limits: as above.
    """
    ends = {answer.source: answer.consumed_there for answer in answers}
    concerned: list[_Consumed] = []
    for item in destination:
        end = ends[item.source]
        if end is None:
            return None
        concerned.append((item.source, item.history, ((SourceOffset(0), end),)))
    return _within_limits(ends, concerned, start, limits)


def _within_limits(
    sources: Collection[SourceId], concerned: Sequence[_Consumed], start: TargetOffset, limits: Limits
) -> Skips:
    budget = max(1, limits.rows // max(1, len(concerned)))
    of_source: dict[SourceId, list[Stretch]] = {}
    cuts: list[TargetOffset] = []
    for source, history, spans in concerned:
        newest = history.newest
        if newest is None or newest.target_end <= start:
            continue
        found, cut = consumed_stretches(spans, history, start, newest.target_end, budget)
        before = of_source.get(source)
        # Rows of a lineage that another one cut short may overlap its.
        of_source[source] = found if before is None else merge_stretches([*before, *found])
        if cut is not None:
            cuts.append(cut)
    cut_at = end = min(cuts, default=None)
    stretches = merge_stretches(chain.from_iterable(of_source.values()))
    if cut_at is not None:
        stretches = _below(stretches, cut_at)
    if len(stretches) > limits.skip_ranges:
        cut_at = end = TargetOffset(stretches[limits.skip_ranges][0])
        stretches = stretches[: limits.skip_ranges]
    first_new = start
    if stretches and stretches[0][0] <= start:
        first_new = TargetOffset(stretches[0][1])
    by_source = {source: _offsets_in(of_source.get(source, ()), first_new, end) for source in sources}
    return Skips(stretches, first_new, by_source, cut_at)


def _below(stretches: Sequence[Stretch], end: int) -> list[Stretch]:
    return [(start, min(stop, end)) for start, stop in stretches if start < end]


def _offsets_in(stretches: Sequence[Stretch], start: int, end: int | None) -> int:
    """How many offsets of ``[start, end)`` they hold; they are in order, and apart."""
    if end is not None:
        stretches = _below(stretches, end)
    first = 0
    while first < len(stretches) and stretches[first][1] <= start:
        first += 1
    held = sum([stop - begin for begin, stop in stretches[first:]])
    return held - max(0, start - stretches[first][0]) if first < len(stretches) else held
