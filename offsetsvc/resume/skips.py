"""Skip ranges of one partition within limits: the rows above the resume offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parallax.domain.ids import SourceId, TargetOffset
from parallax.domain.lineage_history import Stretch
from parallax.domain.progress import SourceHistory, SourcePosition, consumed_spans, with_known_epochs
from parallax.domain.skips import SkipRange, as_ranges, consumed_stretches, merge_stretches


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one partition's skip ranges (`service.max_skip_ranges`, `service.max_rows`)."""

    skip_ranges: int
    rows: int


@dataclass(frozen=True, slots=True)
class Skips:
    """Skip ranges from some offset on.

    Attributes:
        ranges: merged and in order.
        first_new: ``start``, moved to the end of the range that it lies in.
        by_source: how many records of each source they hold from ``first_new`` on.
        cut_at: a limit cut them short here; None: they are all.
    """

    ranges: tuple[SkipRange, ...]
    first_new: TargetOffset
    by_source: Mapping[SourceId, int]
    cut_at: TargetOffset | None


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
    concerned = [item for item in destination if item.source in positions]
    budget = max(1, limits.rows // max(1, len(concerned)))
    of_source: dict[SourceId, list[Stretch]] = {}
    cuts: list[TargetOffset] = []
    for item in concerned:
        newest = item.history.newest
        if newest is None or newest.target_end <= start:
            continue
        consumed = with_known_epochs(
            positions[item.source], [other for other in origin if other.source == item.source]
        )
        spans = consumed_spans(consumed, item.history)
        found, cut = consumed_stretches(spans, item.history, start, newest.target_end, budget)
        before = of_source.get(item.source)
        # Rows of a lineage that another one cut short may overlap its.
        of_source[item.source] = found if before is None else merge_stretches([*before, *found])
        if cut is not None:
            cuts.append(cut)
    cut_at = end = min(cuts, default=None)
    stretches = merge_stretches(item for items in of_source.values() for item in items)
    if cut_at is not None:
        stretches = _below(stretches, cut_at)
    if len(stretches) > limits.skip_ranges:
        cut_at = end = TargetOffset(stretches[limits.skip_ranges][0])
        stretches = stretches[: limits.skip_ranges]
    first_new = start
    if stretches and stretches[0][0] <= start:
        first_new = TargetOffset(stretches[0][1])
    by_source = {source: _offsets_in(of_source.get(source, ()), first_new, end) for source in positions}
    return Skips(tuple(as_ranges(stretches)), first_new, by_source, cut_at)


def _below(stretches: Sequence[Stretch], end: int) -> list[Stretch]:
    return [(start, min(stop, end)) for start, stop in stretches if start < end]


def _offsets_in(stretches: Sequence[Stretch], start: int, end: int | None) -> int:
    """How many offsets of ``[start, end)`` they hold."""
    if end is not None:
        stretches = _below(stretches, end)
    return sum([stop - max(first, start) for first, stop in stretches if stop > start])
