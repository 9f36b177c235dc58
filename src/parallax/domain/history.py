"""The rows of one lineage of one route and partition, in order, with the invariants that make them usable.

A history may hold any subset of the rows that were ever written (a look-up fetches a few, coarse rows outlive
fine ones): each answer that it gives is a floor, so missing rows make it earlier, never wrong.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import replace

from parallax.domain.errors import InvariantError
from parallax.domain.ids import Lineage, SourceOffset, TargetOffset
from parallax.domain.run import LostRange, Run


class History:
    """Rows of one lineage, ordered, with these invariants:

    A. ``source_start`` and ``target_start`` never go back from one row to the next.
    B. Rows do not overlap: each starts at or above the end of the one before, on both sides.
    C. No run ends above a later row's ``previous_source_end``, nor that above the row's own ``source_start``.
    D. Nothing is negative.
    E. The source leader epoch of runs never goes back.

    A row that is there already is taken again without complaint, so replayed rows do no harm; a run that
    repeats a part of another with the same distance between source and target is the same fact and is merged.
    """

    __slots__ = ("_lost", "_rows", "_source_starts", "_target_starts", "lineage")

    def __init__(self, lineage: Lineage, rows: Iterable[Run] = (), lost: Iterable[LostRange] = ()) -> None:
        self.lineage = lineage
        self._rows = _normalised(rows)
        self._lost = sorted(set(lost), key=lambda gap: (gap.source_start, gap.source_end))
        check_invariants(self._rows)
        self._source_starts: list[int] = [row.source_start for row in self._rows]
        self._target_starts: list[int] = [row.target_start for row in self._rows]

    @property
    def rows(self) -> Sequence[Run]:
        """Runs and watermarks, in order."""
        return self._rows

    @property
    def lost(self) -> Sequence[LostRange]:
        """Lost ranges, in source order."""
        return self._lost

    @property
    def newest(self) -> Run | None:
        """The last row."""
        return self._rows[-1] if self._rows else None

    def add(self, *rows: Run) -> None:
        """Take further rows.

        Raises:
            InvariantError: a row contradicts the others; nothing was taken.
        """
        taken = _normalised([*self._rows, *rows])
        check_invariants(taken)
        self._rows = taken
        self._source_starts = [row.source_start for row in taken]
        self._target_starts = [row.target_start for row in taken]

    def floor_by_target(self, target: TargetOffset) -> Run | None:
        """The last row with ``target_start <= target``."""
        index = bisect_right(self._target_starts, target)
        return self._rows[index - 1] if index else None

    def floor_by_source(self, source: SourceOffset) -> Run | None:
        """The last row with ``source_start <= source``."""
        index = bisect_right(self._source_starts, source)
        return self._rows[index - 1] if index else None

    def successor_by_source(self, source: SourceOffset) -> Run | None:
        """The first row with ``source_start >= source``."""
        index = bisect_left(self._source_starts, source)
        return self._rows[index] if index < len(self._rows) else None

    def last_of_epoch(self, epoch: int) -> Run | None:
        """The last row whose source leader epoch is at most ``epoch``."""
        for row in reversed(self._rows):
            if row.source_leader_epoch <= epoch:
                return row
        return None

    def cut_at(self, target_end: TargetOffset) -> History:
        """The history without what the target lost: rows end at ``target_end``, watermarks above it are void."""
        kept = []
        for row in self._rows:
            if row.target_end <= target_end:
                kept.append(row)
            elif row.target_start < target_end:
                kept.append(replace(row, count=target_end - row.target_start))
        return History(self.lineage, kept, self._lost)

    def lost_from(self, source_next: SourceOffset) -> list[LostRange]:
        """Lost ranges that hold an offset at or above ``source_next``."""
        return [gap for gap in self._lost if gap.source_end > source_next]

    def without_lost_before(self, row: Run) -> SourceOffset:
        """The row's ``previous_source_end``, moved down over lost ranges that lead up to it.

        What was lost can lie nowhere on the target, so a lost range hides nothing between two rows.
        """
        end = row.previous_source_end
        for gap in reversed(self._lost):
            if gap.source_start < end <= gap.source_end:
                end = gap.source_start
        return end


def check_invariants(rows: Sequence[Run]) -> None:
    """Check invariants A to E from scratch.

    Raises:
        InvariantError: one does not hold; the message begins with its letter.
    """
    last_run_end = 0
    last_epoch: int | None = None
    for index, row in enumerate(rows):
        if index:
            before = rows[index - 1]
            if row.source_start < before.source_start or row.target_start < before.target_start:
                raise InvariantError(f"A: {row} goes back behind {before}")
            if row.source_start < before.source_end or row.target_start < before.target_end:
                raise InvariantError(f"B: {row} overlaps {before}")
        if row.previous_source_end < last_run_end:
            raise InvariantError(f"C: a run ends at source offset {last_run_end}, above what {row} knows of")
        if not row.is_watermark:
            last_run_end = row.source_end
            if last_epoch is not None and row.source_leader_epoch < last_epoch:
                raise InvariantError(
                    f"E: {row} has an older leader epoch than the run before it ({last_epoch})"
                )
            last_epoch = row.source_leader_epoch


def _order(row: Run) -> tuple[int, int, int]:
    return (row.source_start, row.target_start, row.count)


def _normalised(rows: Iterable[Run]) -> list[Run]:
    """Rows in order, each fact once: runs that repeat a part of another are merged with it."""
    result: list[Run] = []
    for row in sorted(set(rows), key=_order):
        before = result[-1] if result else None
        if before is None or not (
            row.target_start < before.target_end or row.source_start < before.source_end
        ):
            result.append(row)
            continue
        same_fact = row.source_start - row.target_start == before.source_start - before.target_start
        if not same_fact or row.is_watermark or row.source_leader_epoch != before.source_leader_epoch:
            raise InvariantError(f"B: {row} contradicts {before}")
        count = max(before.source_end, row.source_end) - before.source_start
        result[-1] = Run(
            before.source_start,
            before.target_start,
            count,
            before.previous_source_end,
            before.source_leader_epoch,
        )
    return result
