"""The rows of one lineage of one route and partition, in order, with the invariants that make them usable.

A history may hold any subset of the rows that were ever written (a look-up fetches a few, coarse rows outlive
fine ones): each answer that it gives is a floor, so missing rows make it earlier, never wrong.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import attrgetter

from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, SourceOffset, TargetOffset
from parallax.domain.runs import LostRange, Run
from parallax.errors import InvariantError

_order: Callable[[Run], tuple[int, int, int]] = attrgetter("source_start", "target_start", "count")


class History:
    """Rows of one lineage, in order. Its invariants.

    A. ``source_start`` and ``target_start`` never go back from one row to the next.
    B. Rows do not overlap: each starts at or above the end of the one before, on both sides.
    C. No run ends above a later row's ``previous_source_end``, nor that above the row's own ``source_start``.
    D. Nothing is negative.
    E. The source leader epoch of runs never goes back.

    A row that is there already is taken again without complaint, so replayed rows do no harm; a run that
    repeats a part of another with the same distance between source and target is the same fact and is merged,
    and so is a watermark inside a run.
    """

    __slots__ = (
        "_epoch_ends",
        "_extra_epoch_ends",
        "_lost",
        "_proven_from",
        "_rows",
        "_source_starts",
        "_target_starts",
        "lineage",
    )

    def __init__(
        self,
        lineage: Lineage,
        rows: Iterable[Run] = (),
        lost: Iterable[LostRange] = (),
        epoch_ends: Iterable[tuple[int, SourceOffset]] = (),
    ) -> None:
        """Take rows and lost ranges in any order.

        Args:
            lineage: what the rows belong to.
            rows: runs and watermarks.
            lost: lost ranges.
            epoch_ends: pairs (source leader epoch, next offset after a record of it) known apart from the
                rows, for look-ups that fetch a few rows only. An epoch without row or pair makes answers
                early where the other side knows that epoch alone.
        """
        self.lineage = lineage
        self._lost = sorted(set(lost), key=lambda gap: (gap.source_start, gap.source_end))
        self._extra_epoch_ends = tuple(epoch_ends)
        self._take(_normalised(rows))

    def _take(self, rows: list[Run]) -> None:
        check_invariants(rows)
        self._rows = rows
        self._source_starts: list[int] = [row.source_start for row in rows]
        self._target_starts: list[int] = [row.target_start for row in rows]
        self._proven_from = self._floors(rows)
        self._epoch_ends = tuple(sorted(_with_ends(dict(self._extra_epoch_ends), rows).items()))

    def _floors(self, rows: Sequence[Run]) -> list[int]:
        """For each row the lowest source offset from which on nothing lies below the row's start. Ascends."""
        floors: list[int] = []
        following: int | None = None
        lost = bool(self._lost)
        for row in reversed(rows):
            lowest: int = self.without_lost_before(row) if lost else row.previous_source_end
            if following is not None:
                lowest = min(lowest, following)  # what is empty before a later row is empty here
            floors.append(lowest)
            following = lowest
        floors.reverse()
        return floors

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

    @property
    def epoch_ends(self) -> Sequence[tuple[int, SourceOffset]]:
        """Pairs (source leader epoch, next offset after its last known record), ascending."""
        return self._epoch_ends

    @property
    def read_ends(self) -> Sequence[tuple[int, SourceOffset]]:
        """As `epoch_ends`, but none ends in or behind a lost range for it: of what was lost nobody knows the epoch."""
        if not self._lost:
            return self._epoch_ends
        ends = dict(self._extra_epoch_ends)
        return tuple(sorted(_with_ends(ends, self._rows, self.without_lost_before).items()))

    def read_below(
        self, source_next: SourceOffset, *, lost_before: Sequence[LostRange] = (), passed_over: bool = False
    ) -> tuple[tuple[int, SourceOffset], ...]:
        """What a reader of the log below an offset has read: `read_ends` up to there, as `SourcePosition` names them.

        An epoch of which all lies behind a lost range was read from the range's beginning on, and not at all by a reader
        that stands before it: the range may hide that the source had thrown away what was read before, and that its log
        has other records there.

        Args:
            source_next: where the reader stands.
            lost_before: what older generations lost below this one's beginning: it stands behind that as well.
            passed_over: the reader may have come to where a range lies with records from behind it, and none from before:
                what it has read begins at the range's end then, be the range the log's beginning.
        """
        if not self._lost and not lost_before:
            return tuple((epoch, min(end, source_next)) for epoch, end in self._epoch_ends)
        first: dict[int, int] = {}
        for row in self._rows:
            # A watermark has the epoch of the last record before it, so one at a range's end still tells of below.
            first.setdefault(row.source_leader_epoch, row.source_start + (row.count > 0))
        gaps = self._whole_gaps(lost_before)
        pairs: list[tuple[int, SourceOffset]] = []
        for epoch, end in self.read_ends:
            behind = [
                gap_end if passed_over else gap
                for gap, gap_end in gaps
                if epoch not in first or first[epoch] > gap_end
            ]
            start = max(behind, default=SourceOffset(0))
            if behind and start >= source_next:
                continue
            if start:
                pairs.append((epoch, start))
            pairs.append((epoch, max(min(end, source_next), start)))
        return tuple(pairs)

    def _whole_gaps(self, lost_before: Sequence[LostRange] = ()) -> list[tuple[SourceOffset, SourceOffset]]:
        """Beginning and end of what is lost; ranges between which no record was read are one."""
        gaps: list[tuple[SourceOffset, SourceOffset]] = []
        for gap in sorted({*lost_before, *self._lost}, key=lambda gap: (gap.source_start, gap.source_end)):
            if gaps and gap.source_start <= gaps[-1][1]:
                gaps[-1] = (gaps[-1][0], max(gaps[-1][1], gap.source_end))
            else:
                gaps.append((gap.source_start, gap.source_end))
        return gaps

    def holds_nothing_in(self, start: SourceOffset, end: SourceOffset) -> bool:
        """Whether the rows prove that the log has no record in ``[start, end)``."""
        row = self.last_proven_by(start)
        return row is not None and row.source_start >= end

    def add(self, *rows: Run) -> None:
        """Take further rows.

        Raises:
            InvariantError: a row contradicts the others; nothing was taken.
        """
        newest = self.newest
        further = _normalised(rows)
        if newest is None or not further or _order(further[0]) <= _order(newest):
            self._take(_normalised([*self._rows, *rows]))
            return
        since_last_run = len(self._rows) - 1
        while since_last_run and self._rows[since_last_run].is_watermark:
            since_last_run -= 1
        tail = _normalised([*self._rows[since_last_run:], *further])
        self._take_tail(since_last_run, tail)

    def _take_tail(self, first: int, tail: list[Run]) -> None:
        """Put ``tail`` in the place of the rows from index ``first`` on, at a cost that the tail decides."""
        check_invariants(tail)
        del self._rows[first:], self._source_starts[first:], self._target_starts[first:]
        del self._proven_from[first:]
        floors = self._floors(tail)
        index = first - 1
        while index >= 0 and self._proven_from[index] > floors[0]:
            self._proven_from[index] = floors[0]
            index -= 1
        self._rows += tail
        self._source_starts += [row.source_start for row in tail]
        self._target_starts += [row.target_start for row in tail]
        self._proven_from += floors
        self._epoch_ends = tuple(sorted(_with_ends(dict(self._epoch_ends), tail).items()))

    def floor_by_target(self, target: TargetOffset) -> Run | None:
        """The last row with ``target_start <= target``."""
        index = bisect_right(self._target_starts, target)
        return self._rows[index - 1] if index else None

    def floor_by_source(self, source: SourceOffset) -> Run | None:
        """The last row with ``source_start <= source``."""
        index = bisect_right(self._source_starts, source)
        return self._rows[index - 1] if index else None

    def last_proven_by(self, source: SourceOffset) -> Run | None:
        """The last row before whose start no record at or above ``source`` lies, but perhaps in the row's run.

        It is the floor by source or a row above it that nothing separates from ``source``.
        """
        index = bisect_right(self._proven_from, source)
        return self._rows[index - 1] if index else None

    def between_targets(self, start: TargetOffset, end: TargetOffset) -> Sequence[Run]:
        """The rows that may hold records of the target range ``[start, end)``."""
        first = max(bisect_right(self._target_starts, start) - 1, 0)
        return self._rows[first : bisect_left(self._target_starts, end)]

    def cut_at(self, target_end: TargetOffset) -> History:
        """The history without what the target lost: rows end at ``target_end``, watermarks above it are void."""
        kept = []
        for row in self._rows:
            if row.target_end <= target_end:
                kept.append(row)
            elif row.target_start < target_end:
                kept.append(replace(row, count=target_end - row.target_start))
        return History(self.lineage, kept, [gap for gap in self._lost if gap.target_at <= target_end])

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
    """Check invariants A to E from scratch (D, and C within a row, are checked by `Run` itself).

    Raises:
        InvariantError: one does not hold; the message begins with its letter.
    """
    # Plain numbers: answers check hundreds of rows, and a property costs more than its sum.
    last_run_end = 0
    last_epoch: int | None = None
    before: Run | None = None
    source_end = target_end = 0
    for row in rows:
        source_start, target_start, count = row.source_start, row.target_start, row.count
        if before is not None and (source_start < source_end or target_start < target_end):
            if source_start < before.source_start or target_start < before.target_start:
                raise InvariantError(f"A: {row} goes back behind {before}")
            raise InvariantError(f"B: {row} overlaps {before}")
        before, source_end, target_end = row, source_start + count, target_start + count
        if row.previous_source_end < last_run_end:
            raise InvariantError(f"C: a run ends at source offset {last_run_end}, above what {row} knows of")
        if count:
            last_run_end = source_end
            if last_epoch is not None and row.source_leader_epoch < last_epoch:
                raise InvariantError(
                    f"E: {row} has an older leader epoch than the run before it ({last_epoch})"
                )
            last_epoch = row.source_leader_epoch


def _with_ends(
    ends: dict[int, SourceOffset],
    rows: Iterable[Run],
    before: Callable[[Run], int] = attrgetter("previous_source_end"),
) -> dict[int, SourceOffset]:
    for row in rows:
        epoch, count = row.source_leader_epoch, row.count
        end = row.source_start + count if count else before(row)
        if epoch != UNKNOWN_EPOCH and end > ends.get(epoch, -1):
            ends[epoch] = SourceOffset(end)
    return ends


def _normalised(rows: Iterable[Run]) -> list[Run]:
    """Rows in order, each fact once: rows that repeat a part of a run are merged with it."""
    result: list[Run] = []
    source_end = target_end = 0
    for row in sorted(set(rows), key=_order):
        if row.target_start >= target_end and row.source_start >= source_end:
            result.append(row)
        else:
            result[-1] = _one(result[-1], row)
        source_end, target_end = result[-1].source_end, result[-1].target_end
    return result


def _one(before: Run, row: Run) -> Run:
    """Two rows that overlap as one.

    Raises:
        InvariantError: they contradict each other.
    """
    same_distance = row.source_start - row.target_start == before.source_start - before.target_start
    same_epoch = row.is_watermark or row.source_leader_epoch == before.source_leader_epoch
    if not same_distance or not same_epoch:
        raise InvariantError(f"B: {row} contradicts {before}")
    previous = before.previous_source_end
    if row.source_start == before.source_start:
        previous = min(previous, row.previous_source_end)  # both are true: the lower one says more
    count = max(row.source_end, before.source_end) - before.source_start
    return replace(before, count=count, previous_source_end=previous)
