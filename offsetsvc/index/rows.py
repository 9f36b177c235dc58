"""The few rows of a lineage that one answer needs, fetched as the need shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from offsetsvc.index.window import Tail
from parallax.domain.history import History
from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, RoutePartition, SourceOffset, TargetOffset
from parallax.domain.index_rows import RowPlace
from parallax.domain.lineages import LineageView
from parallax.domain.progress import SourceHistory, SourcePosition
from parallax.domain.runs import LostRange, Run
from parallax.ports.index import MappingIndexReader

_CHAIN_LOOKUPS = 8
"""Rows that nothing separates from an offset are followed this far; giving up makes answers earlier only."""

_LOST_LOOKUPS = 64
"""The newest lost ranges that are looked at; those before make answers earlier only."""

_EPOCH_LOOKUPS = 64
"""A binary search over source offsets (63 bits) ends before."""


class LineageRows:
    """The rows of one lineage that were fetched so far, as a history without void rows.

    Args:
        index: what is asked for rows.
        view: the lineage.
        tail: what it ended with, where that was read already.
    """

    def __init__(self, index: MappingIndexReader, view: LineageView, tail: Tail | None = None) -> None:
        self.view = view
        self._index = index
        self._window = None if tail is None else tail.window
        self._rows: set[Run] = set()
        self._lost: Sequence[LostRange] | None = None if tail is None else tail.lost
        self._history: SourceHistory | None = None
        self._ahead: dict[RowPlace, Sequence[Run]] = {}
        self._around: list[tuple[Run, Run]] = []
        """First and last of rows that were read together, and between which no run is missing."""
        if view.newest is not None:
            self._add([view.newest.row])

    def history(self) -> SourceHistory:
        """What was fetched, with every lost range.

        Raises:
            InvariantError: the stored rows contradict each other.
        """
        if self._history is None:
            if self._lost is None:
                self._lost = self._index.lost_ranges(self.view.partition, self.view.lineage)
            history = History(self.view.lineage, self._rows, self._lost)
            if self.view.cut is not None:
                history = history.cut_at(self.view.cut)
            self._history = SourceHistory(self.view.source, history, self.view.record.closed_at)
        return self._history

    def place_at_target(self, target: TargetOffset) -> RowPlace | None:
        """What `at_target` has to read; None: nothing."""
        if self.view.newest is None:
            return None
        if self.view.cut is not None and target > self.view.cut:
            target = self.view.cut
        if any(first.target_start <= target < last.target_start for first, last in self._around):
            return None
        return RowPlace(self.view.partition, self.view.lineage, target=target)

    def place_at_source(self, source: SourceOffset) -> RowPlace | None:
        """What `at_source` has to read first; None: nothing."""
        if self.view.newest is None or self._has_around_source(source):
            return None
        return RowPlace(self.view.partition, self.view.lineage, source=source)

    def at_target(self, target: TargetOffset) -> None:
        """Fetch what tells which of the source's records lie below ``target``."""
        place = self.place_at_target(target)
        if place is not None:
            self._add_around(self._read(place))

    def at_source(self, source: SourceOffset) -> None:
        """Fetch what tells where the first record at or above ``source`` can lie."""
        if self.view.newest is None:
            return
        if self.view.cut is not None:
            self.at_target(self.view.cut)
        for _ in range(_CHAIN_LOOKUPS):
            if not self._has_around_source(source):
                self._fetch_at_source(source)
            further = self.history().history.last_proven_by(source)
            if further is None or further.source_start <= source:
                return
            source = further.source_start

    def around_lost(self, below: SourceOffset) -> None:
        """Fetch the last row before each lost range that begins up to an offset: whether its leader epoch is that of what follows."""
        for gap in reversed(self.history().history.lost[-_LOST_LOOKUPS:]):
            before = SourceOffset(gap.source_start - 1)
            if gap.source_start <= below and before >= 0 and not self._has_around_source(before):
                self._fetch_at_source(before)

    def row_before(self, source: SourceOffset) -> Run | None:
        """The last row that starts below ``source``, which `at_source` has fetched the rows around."""
        floor = self.history().history.floor_by_source(source)
        if floor is None or floor.source_start < source or source == 0:
            return floor
        below = SourceOffset(source - 1)
        if not self._has_around_source(below):
            self._fetch_at_source(below)
        return self.history().history.floor_by_source(below)

    def last_of_epoch(self, epoch: int, below: SourceOffset) -> Run | None:
        """The last row below ``below`` that is not of a later source leader epoch; it is fetched too."""
        low, high = 0, int(below)
        best: Run | None = None
        for _ in range(_EPOCH_LOOKUPS):
            if low >= high:
                break
            middle = SourceOffset((low + high) // 2)
            rows = self._fetch_at_source(middle)
            floor = max((row for row in rows if row.source_start <= middle), key=_place, default=None)
            following = min((row for row in rows if row.source_start > middle), key=_place, default=None)
            if floor is not None and floor.source_leader_epoch > epoch:
                high = floor.source_start
                continue
            best = floor if floor is not None else best
            if following is None or following.source_leader_epoch > epoch:
                break
            low = following.source_start
        return best

    def run_before_target(self, target: TargetOffset) -> None:
        """Fetch the last run, watermarks left out, that starts below ``target``."""
        below = TargetOffset(max(0, target - 1))
        self.at_target(below)
        self._fetch_run_of(self.history().history.floor_by_target(below))

    def run_at_source(self, source: SourceOffset) -> None:
        """Fetch the last run, watermarks left out, that starts at or below ``source``."""
        if self.view.newest is not None:
            if not self._has_around_source(source):
                self._fetch_at_source(source)
            self._fetch_run_of(self.history().history.floor_by_source(source))

    def _fetch_run_of(self, row: Run | None) -> None:
        if row is not None and row.is_watermark and row.previous_source_end > 0:
            self._fetch_at_source(SourceOffset(row.previous_source_end - 1))

    def page(
        self, start: TargetOffset, limit: int, end: TargetOffset | None
    ) -> tuple[Sequence[Run], TargetOffset]:
        """Rows from ``start`` on, at most about ``limit``, and the offset below which none is missing.

        Rows that begin at or above ``end`` may be left out.
        """
        page = None if self._window is None else self._window.page(start, limit)
        if page is None:
            page = self._index.rows_from_target(self.view.partition, self.view.lineage, start, limit, end)
        self._add(page.rows)
        return page.rows, page.complete_to

    def _fetch_at_source(self, source: SourceOffset) -> Sequence[Run]:
        rows = self._read(RowPlace(self.view.partition, self.view.lineage, source=source))
        self._add_around(rows)
        return rows

    def _read(self, place: RowPlace) -> Sequence[Run]:
        rows = self._ahead.pop(place, None)
        if rows is None:
            rows = self.known(place)
        return self._index.rows_around([place])[0] if rows is None else rows

    def known(self, place: RowPlace) -> Sequence[Run] | None:
        """What the tail says of the place; None: that needs a read."""
        return None if self._window is None else self._window.around(place)

    def read_ahead(self, place: RowPlace, rows: Sequence[Run]) -> None:
        """Take what was read for a place that is going to be asked for."""
        self._ahead[place] = rows

    def _has_around_source(self, source: SourceOffset) -> bool:
        """Whether the rows on both sides of the offset are there."""
        return any(first.source_start <= source < last.source_start for first, last in self._around)

    def _add_around(self, rows: Sequence[Run]) -> None:
        if rows and all(row.previous_source_end <= before.source_end for before, row in pairwise(rows)):
            self._around.append((rows[0], rows[-1]))
        self._add(rows)

    def _add(self, rows: Sequence[Run]) -> None:
        newest = self.view.newest
        if newest is not None and rows and rows[-1].target_start > newest.row.target_end:
            # Of a write that is under way a later row may be there before an earlier one: only up to the newest row, which
            # is written last, does it follow from what was read that nothing lies between.
            rows = [row for row in rows if row.target_start <= newest.row.target_end]
        if not self._rows.issuperset(rows):
            self._rows.update(rows)
            self._history = None


def read_together(index: MappingIndexReader, wanted: Iterable[tuple[LineageRows, RowPlace | None]]) -> None:
    """Read side by side what lineages are going to ask for one after the other."""
    missing: list[tuple[LineageRows, RowPlace]] = []
    for rows, place in wanted:
        if place is not None and (known := rows.known(place)) is not None:
            rows.read_ahead(place, known)
        elif place is not None:
            missing.append((rows, place))
    if len(missing) > 1:
        rows_around = index.rows_around([place for _, place in missing])
        for (rows, place), around in zip(missing, rows_around, strict=True):
            rows.read_ahead(place, around)


def rows_of(
    index: MappingIndexReader, view: LineageView, tails: Mapping[tuple[RoutePartition, Lineage], Tail]
) -> LineageRows:
    """A lineage's rows, with its tail if there is one."""
    return LineageRows(index, view, tails.get((view.partition, view.lineage)))


def _place(row: Run) -> tuple[int, int, int]:
    return (row.source_start, row.target_start, row.count)


def fetch_common_epochs(
    consumed: SourcePosition, origin: Sequence[LineageRows], destination: LineageRows
) -> bool:
    """Fetch the rows that show up to which leader epoch both sides hold the same log.

    Where the destination's row at the position has the position's own epoch, nothing more is needed. Otherwise
    the newest epoch that both sides know is looked for, from one side to the other, downwards.

    Returns:
        Whether rows of the origin were fetched, so that ``consumed`` should be computed anew.
    """
    # What was read behind a lost range counts where both logs are the same up to it.
    for start in consumed.starts:
        destination.at_source(start)
        destination.row_before(start)
    epoch, bound = consumed.leader_epoch, consumed.source_next
    here = destination.row_before(bound)
    if epoch == UNKNOWN_EPOCH or here is None or here.source_leader_epoch in {epoch, UNKNOWN_EPOCH}:
        return False
    known = dict(consumed.epoch_ends)
    fetched = False
    for _ in range(_EPOCH_LOOKUPS):
        there = destination.last_of_epoch(epoch, bound)
        if there is None or there.source_leader_epoch in {*known, consumed.leader_epoch, UNKNOWN_EPOCH}:
            break
        fetched = True
        older_rows = [rows.last_of_epoch(there.source_leader_epoch, bound) for rows in origin]
        epochs = [row.source_leader_epoch for row in older_rows if row is not None]
        epochs += [older for older in known if older <= there.source_leader_epoch]
        epoch = max(epochs, default=UNKNOWN_EPOCH)
        if epoch in {there.source_leader_epoch, UNKNOWN_EPOCH}:
            break
    return fetched
