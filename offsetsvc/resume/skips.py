"""Skip ranges of one partition within limits: the rows above the resume offset, read page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from offsetsvc.index.rows import LineageRows
from parallax.domain.ids import SourceId, TargetOffset
from parallax.domain.place import Via, position_of
from parallax.domain.progress import SourceHistory, SourcePosition, last_consumed_end, with_known_epochs
from parallax.domain.skips import SkipRange, after_skips, merge_ranges, skip_ranges

_FIRST_PAGE_ROWS = 128
"""What is read beyond the last consumed record was read in vain, and mostly that is not far."""

_PAGE_ROWS = 2_000
"""Rows of one read at most: so many that its round trip does not count, few beside `service.max_rows`."""


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
        destination: lineages of the cluster where the group is; rows are fetched into them.
        start: the first target offset of interest.
        limits: what is cut off is told by `Skips.cut_at`.
    """
    concerned = [rows for rows in destination if rows.view.source in positions]
    budget = max(1, limits.rows // max(1, len(concerned)))
    ends = [_fetch(rows, positions[rows.view.source], origin, start, budget) for rows in concerned]
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


def _fetch(
    rows: LineageRows,
    consumed: SourcePosition,
    origin: Sequence[SourceHistory],
    start: TargetOffset,
    budget: int,
) -> TargetOffset | None:
    """Fetch the rows that may hold consumed records from ``start`` on; where the budget ended, or None."""
    newest = rows.view.newest
    if newest is None or newest.row.target_end <= start:
        return None
    bound = last_consumed_end(
        with_known_epochs(consumed, [item for item in origin if item.source == rows.view.source]),
        rows.history().history,
    )
    place, via, row = position_of(bound, rows.history().history)
    proven = via is Via.EXACT or (via is Via.AFTER and row is not None and row.source_end == bound)
    if bound == 0 or (proven and place is not None and place <= start):
        return None  # every consumed record lies below
    last = place if proven else None
    size = _FIRST_PAGE_ROWS
    while budget > 0:
        page, complete_to = rows.page(start, min(budget, size), last)
        size = min(4 * size, _PAGE_ROWS)
        if any(item.source_start >= bound for item in page):
            return None
        if complete_to >= (newest.row.target_end if last is None else last) or complete_to <= start:
            return None
        budget -= max(1, len(page))
        start = complete_to
    return start


def _beyond_all(destination: Sequence[LineageRows], start: TargetOffset) -> TargetOffset:
    ends = [
        newest.target_end for rows in destination if (newest := rows.history().history.newest) is not None
    ]
    return max([*ends, start])
