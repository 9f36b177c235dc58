"""What lineages ended with, read at once for all partitions of a call and remembered for a moment.

Most questions are about records of the last seconds: they are answered from here without a further read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from offsetsvc.index.cache import OVERDUE
from offsetsvc.index.row_memory import Stretch
from offsetsvc.index.single_flight import Flights
from parallax.domain.ids import Lineage, RoutePartition, TargetOffset
from parallax.domain.index_rows import LineageTail
from parallax.domain.lineages import LineageView
from parallax.domain.runs import LostRange, Run
from parallax.ports.index import MappingIndexReader

_MOST_TAILS = 10_000

_SETTLES_S = 1.0
"""Many times as long as two writes of one task can overtake each other."""

_FORGET_AFTER_S = 30.0
"""A tail is read again at the latest then, whatever is known: rows of a replay may come later than they should."""

_Key = tuple[RoutePartition, Lineage]


@dataclass(frozen=True, slots=True)
class Tail:
    """The end of a lineage.

    Attributes:
        stretch: its rows from some place on; None: they are gone, the lineage ended long ago.
        lost: every lost range of the lineage.
    """

    stretch: Stretch | None
    lost: tuple[LostRange, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """A tail and when it was read.

    Attributes:
        newest: the newest row known then; stamping an idle partition's watermark anew does not change the row.
        since_s: when that row was first known to be the newest.
        reached: the tail's own end.
    """

    tail: Tail
    read_at_s: float
    newest: Run
    since_s: float
    reached: TargetOffset | None

    @property
    def settled(self) -> bool:
        """Whether it was read so late that all rows before the newest one were there."""
        return self.read_at_s - self.since_s >= _SETTLES_S


class Tails:
    """Reads tails, each at most every ``max_age_ms``. Safe to use from several threads.

    A tail that was read after the row which is still the newest one lacks nothing; it is read once more after
    `_SETTLES_S` all the same, for rows of a replay that were on their way, and then left alone for `_FORGET_AFTER_S`.

    Args:
        index: what is read.
        max_age_ms: a tail may be that old, as long as it reaches the newest row that the caller knows.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        index: MappingIndexReader,
        *,
        max_age_ms: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index = index
        self._max_age_s = max_age_ms / 1_000
        self._clock = clock
        self._flights = Flights()
        self._known: dict[_Key, _Known] = {}

    def read(self, views: Iterable[LineageView]) -> dict[_Key, Tail]:
        """The tails of those lineages that have a row.

        Raises:
            StoreUnavailableError: the index did not answer in time.
        """
        wanted = {(view.partition, view.lineage): view for view in views if view.newest is not None}
        if not wanted:
            return {}

        def known(max_age_s: float) -> dict[_Key, Tail] | None:
            now_s = self._clock()
            found = {
                key: item.tail
                for key, view in wanted.items()
                if (item := self._known.get(key)) is not None and _holds(item, view, now_s, max_age_s)
            }
            return found if len(found) == len(wanted) else None

        return self._flights.fresh(
            min(wanted),
            known,
            lambda: self._read(wanted),
            max_age_s=self._max_age_s,
            overdue_age_s=OVERDUE * self._max_age_s,
        )

    def _read(self, wanted: Mapping[_Key, LineageView]) -> dict[_Key, Tail]:
        now_s = self._clock()
        newest = {key: view.newest for key, view in wanted.items() if view.newest is not None}
        found = {
            key: item.tail
            for key in newest
            if (item := self._known.get(key)) is not None
            and _holds(item, wanted[key], now_s, self._max_age_s)
        }
        missing = {key: row for key, row in newest.items() if key not in found}
        for key, tail in self._index.tails(missing).items():
            found[key] = _tail(wanted[key], tail)
            newest_row, before = missing[key].row, self._known.get(key)
            since_s = before.since_s if before is not None and before.newest == newest_row else now_s
            self._keep(key, _Known(found[key], now_s, newest_row, since_s, _end(tail)))
        return found

    def _keep(self, key: _Key, known: _Known) -> None:
        if len(self._known) >= _MOST_TAILS:
            self._known = {}
        self._known[key] = known


def _holds(known: _Known, view: LineageView, now_s: float, max_age_s: float) -> bool:
    newest = view.newest
    if newest is None or known.reached is None or known.reached < newest.row.target_end:
        return False
    if known.newest == newest.row and max_age_s:
        max_age_s = max(max_age_s, _FORGET_AFTER_S if known.settled else _SETTLES_S)
    return now_s - known.read_at_s < max_age_s


def _end(tail: LineageTail) -> TargetOffset | None:
    return tail.rows[-1].target_end if tail.rows else None


def _reaches_newest(view: LineageView, tail: LineageTail) -> bool:
    return (
        view.newest is not None and bool(tail.rows) and tail.rows[-1].target_end >= view.newest.row.target_end
    )


def _tail(view: LineageView, tail: LineageTail) -> Tail:
    if not _reaches_newest(view, tail):
        return Tail(None, tail.lost)
    whole = tail.rows[0].previous_source_end <= view.record.source_first
    low = 0 if whole and tail.complete_from <= tail.rows[0].target_start + 1 else int(tail.complete_from)
    return Tail(Stretch([row for row in tail.rows if row.target_start >= low], low, None), tail.lost)
