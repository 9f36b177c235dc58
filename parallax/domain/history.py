"""The rows of one lineage of one route and partition, in order, with the invariants that make them usable."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, SourceOffset, TargetOffset
from parallax.domain.lineage_history import EpochRows, LineageHistory, epochs_of
from parallax.domain.runs import LostRange, Run
from parallax.errors import InvariantError

_order: Callable[[Run], tuple[int, int, int]] = attrgetter("source_start", "target_start", "count")


class History(LineageHistory):
    """Rows of one lineage in a list, such as a look-up fetches them. Its invariants.

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
        "_epochs",
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
    ) -> None:
        """Take rows and lost ranges in any order."""
        self.lineage = lineage
        self._lost = sorted(set(lost), key=lambda gap: (gap.source_start, gap.source_end))
        self._take(_normalised(rows))

    def _take(self, rows: list[Run]) -> None:
        check_invariants(rows)
        self._rows = rows
        self._source_starts: list[int] = [row.source_start for row in rows]
        self._target_starts: list[int] = [row.target_start for row in rows]
        self._proven_from = self._floors(rows)
        self._epochs: dict[int, EpochRows] = {}
        self._epoch_ends: tuple[tuple[int, SourceOffset], ...] = ()
        self._note_epochs(rows)

    def _note_epochs(self, rows: Sequence[Run]) -> None:
        epochs = epochs_of(rows, self._epochs)
        self._epochs |= epochs
        ends = dict(self._epoch_ends)
        ends.update((epoch, known.end) for epoch, known in epochs.items() if epoch != UNKNOWN_EPOCH)
        self._epoch_ends = tuple(sorted(ends.items()))

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
    def first(self) -> Run | None:
        """The first row."""
        return self._rows[0] if self._rows else None

    @property
    def newest(self) -> Run | None:
        """The last row."""
        return self._rows[-1] if self._rows else None

    @property
    def epochs(self) -> Mapping[int, EpochRows]:
        """What the rows tell of each source leader epoch, `UNKNOWN_EPOCH` included."""
        return self._epochs

    @property
    def epoch_ends(self) -> Sequence[tuple[int, SourceOffset]]:
        """Pairs (source leader epoch, next offset after its last known record), ascending."""
        return self._epoch_ends

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
        self._note_epochs(tail)

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
