"""A part of a lineage in which no row is missing, and what it answers in the index's place."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.index_rows import (
    AFTER,
    BEFORE,
    LineageTail,
    RowPage,
    RowPlace,
    around_source,
    around_target,
)
from parallax.domain.lineages import LineageView
from parallax.domain.runs import LostRange, Run


@dataclass(frozen=True, slots=True)
class RowWindow:
    """Every indexed row of a lineage with ``low <= target_start < high``, in order.

    Attributes:
        low: 0 also where the lineage's first row is among them.
        high: None: the lineage's last row is among them.
    """

    rows: Sequence[Run]
    low: int
    high: int | None

    def around_target(self, target: TargetOffset) -> Sequence[Run] | None:
        """What `MappingIndexReader.rows_at_target` answers; None: that needs rows outside."""
        if target < self.low or (self.high is not None and target >= self.high):
            return None
        successor = bisect_right(self.rows, target, key=lambda row: row.target_start)
        return around_target(self.rows, target) if self._surrounds(successor) else None

    def around_source(self, source: SourceOffset) -> Sequence[Run] | None:
        """What `MappingIndexReader.rows_at_source` answers; None: that needs rows outside."""
        successor = bisect_right(self.rows, source, key=lambda row: row.source_start)
        return around_source(self.rows, source) if self._surrounds(successor) else None

    def around(self, place: RowPlace) -> Sequence[Run] | None:
        """As `around_target` or `around_source`, whichever offset the place names."""
        if place.target is not None:
            return self.around_target(place.target)
        return None if place.source is None else self.around_source(place.source)

    def page(self, start: TargetOffset, limit: int) -> RowPage | None:
        """What `MappingIndexReader.rows_from_target` answers; None: that needs rows outside."""
        if start < self.low or (self.high is not None and start >= self.high):
            return None
        floor = bisect_right(self.rows, start, key=lambda row: row.target_start)
        # Of the rows that start below, only the last ones can reach beyond.
        first = floor - BEFORE - 1
        if first < 0 and self.low > 0:
            return None
        last = floor + limit
        rows = self.rows[max(first, 0) : last]
        if last < len(self.rows):
            end = int(self.rows[last].target_start)
        elif self.high is not None:
            end = self.high
        else:
            end = max((int(row.target_end) for row in rows), default=int(start))
            return RowPage(_beyond(rows, start), TargetOffset(max(end, start)))
        if end <= start:
            return None
        return RowPage(_beyond([row for row in rows if row.target_start < end], start), TargetOffset(end))

    def _surrounds(self, successor: int) -> bool:
        """Whether all neighbours of a place in ``rows`` are here."""
        begins = self.low == 0 or successor > BEFORE
        ends = self.high is None or successor <= len(self.rows) - AFTER
        return begins and ends and len(self.rows) > 0


def _beyond(rows: Sequence[Run], start: TargetOffset) -> tuple[Run, ...]:
    return tuple(row for row in rows if row.target_end > start)


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a lineage.

    Attributes:
        window: its rows from some place on; None: they are gone, the lineage ended long ago.
        lost: every lost range of the lineage.
    """

    window: RowWindow | None
    lost: tuple[LostRange, ...]


def tail_of(view: LineageView, tail: LineageTail) -> Tail:
    """What was read of a lineage's end, as far as it reaches the newest row that is known."""
    if view.newest is None or not tail.rows or tail.rows[-1].target_end < view.newest.row.target_end:
        return Tail(None, tail.lost)
    whole = tail.rows[0].previous_source_end <= view.record.source_first
    low = 0 if whole and tail.complete_from <= tail.rows[0].target_start + 1 else int(tail.complete_from)
    return Tail(RowWindow([row for row in tail.rows if row.target_start >= low], low, None), tail.lost)
