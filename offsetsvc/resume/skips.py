"""Skip ranges of one partition within limits: the rows above the resume offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offsetsvc.index.memory import LineageRows
from parallax.domain.ids import SourceId, TargetOffset
from parallax.domain.place import Via, position_of
from parallax.domain.progress import SourceHistory, SourcePosition, last_consumed_end, with_known_epochs
from parallax.domain.skips import SkipRange, after_skips, merge_ranges, skip_ranges


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
    destination: Sequence[LineageRows],
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
    concerned = [rows for rows in destination if rows.view.source in positions]
    budget = max(1, limits.rows // max(1, len(concerned)))
    ends = [_budget_end(rows, positions[rows.view.source], origin, start, budget) for rows in concerned]
    cut_at = min((end for end in ends if end is not None), default=None)
    end = cut_at if cut_at is not None else _beyond_all(concerned, start)
    histories = [rows.history() for rows in concerned]
    of_source = {
        source: skip_ranges(
            positions={source: position}, origin=origin, destination=histories, start=start, end=end
        )
        for source, position in positions.items()
    }
    ranges = merge_ranges(item for items in of_source.values() for item in items)
    if len(ranges) > limits.skip_ranges:
        cut_at = end = ranges[limits.skip_ranges].start
        ranges = ranges[: limits.skip_ranges]
    first_new = after_skips(start, ranges)
    by_source = {
        source: sum(max(0, min(item.end, end) - max(item.start, first_new)) for item in items)
        for source, items in of_source.items()
    }
    return Skips(tuple(ranges), first_new, by_source, cut_at)


def _budget_end(
    rows: LineageRows,
    consumed: SourcePosition,
    origin: Sequence[SourceHistory],
    start: TargetOffset,
    budget: int,
) -> TargetOffset | None:
    """Where, from ``start`` on, more rows that may hold consumed records begin than the budget allows; None: nowhere."""
    history = rows.history().history
    newest = history.newest
    if newest is None or newest.target_end <= start:
        return None
    bound = last_consumed_end(
        with_known_epochs(consumed, [item for item in origin if item.source == rows.view.source]), history
    )
    place, via, row = position_of(bound, history)
    proven = via is Via.EXACT or (via is Via.AFTER and row is not None and row.source_end == bound)
    if bound == 0 or (proven and place is not None and place <= start):
        return None  # every consumed record lies below
    end = place if proven and place is not None else newest.target_end
    for number, found in enumerate(history.between_targets(start, end)):
        if found.source_start >= bound:
            return None
        if number >= budget and found.target_start > start:
            return found.target_start
    return None


def _beyond_all(destination: Sequence[LineageRows], start: TargetOffset) -> TargetOffset:
    ends = [
        newest.target_end for rows in destination if (newest := rows.history().history.newest) is not None
    ]
    return max([*ends, start])
