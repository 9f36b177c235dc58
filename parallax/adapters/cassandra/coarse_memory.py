"""What look-ups remember of coarse rows: they are asked for first, and mostly the same as a moment ago."""

from __future__ import annotations

import threading
import time
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from parallax.adapters.cassandra.coarse import Order, Way
from parallax.adapters.cassandra.codec import STARTS, TARGET_START, LineageKey, RowFields, last_fields, run_of
from parallax.domain.index_rows import StampedRow

MOST_ROWS = 4_000
"""A day of one coarse row a minute, and of the last runs before pauses, has fewer."""

_SETTLED_AFTER_MS = 5_000
"""Rows of different writers overtake each other for less."""

OPEN_FOR_S = 0.1
"""How long the way to the end of a log is remembered: half of the default interval at which rows are written."""

CLOSED_FOR_S = 10.0
"""Between two coarse rows no further one appears; the limit is for an index that is repaired by hand."""

DAY_FOR_S = 60.0
"""How long a day's coarse rows are remembered, and how soon a second way must be read there for them to be read."""

_MOST_WAYS = 10_000
_MOST_DAYS = 256
"""Of some 100 kB each."""

_DayKey = tuple[LineageKey, int]


class CoarseDay:
    """The coarse rows of one lineage and day, without those so young that one before them may still be missing.

    Args:
        blobs: as they are stored, in order.
    """

    def __init__(self, blobs: Sequence[bytes]) -> None:
        rows = [last_fields(blob) for blob in blobs]
        newest_ms = max((at_ms for at_ms, _ in rows), default=0)
        count = len(rows)
        while count and rows[count - 1][0] > newest_ms - _SETTLED_AFTER_MS:
            count -= 1
        # Plain numbers, not rows: some thousand rows of some hundred days are kept.
        self._committed_at_ms = array("q", (at_ms for at_ms, _ in rows[:count]))
        self._fields = [
            array("q", values) for values in zip(*(fields for _, fields in rows[:count]), strict=True)
        ]

    def __len__(self) -> int:
        return len(self._committed_at_ms)

    def way(self, order: Order, offset: int) -> Way | None:
        """The rows on both sides of the offset; None: not both are of this day."""
        if not self._fields:
            return None
        successor = bisect_right(self._fields[STARTS[order]], offset)
        if not 0 < successor < len(self):
            return None
        floor, successor_row = (
            StampedRow(run_of(fields), at_ms) for at_ms, fields in self._rows(successor - 1, successor + 1)
        )
        return Way(floor, successor_row, None)

    def rows_from(self, start: int, limit: int) -> list[tuple[int, RowFields]] | None:
        """So many rows from the last one on that starts at or below ``start``, each with its commit's time.

        None: not all of them are of this day.
        """
        floor = bisect_right(self._fields[TARGET_START], start) - 1 if self._fields else -1
        return None if floor < 0 or floor + limit > len(self) else self._rows(floor, floor + limit)

    def _rows(self, first: int, end: int) -> list[tuple[int, RowFields]]:
        fields = cast(
            "Iterator[RowFields]", zip(*(values[first:end] for values in self._fields), strict=True)
        )
        return list(zip(self._committed_at_ms[first:end], fields, strict=True))


class WayMemory:
    """The last way of each lineage and order, and whole days of coarse rows. Safe to use from several threads.

    An older way to the end of a log leads to fewer rows: an answer by them is earlier, never wrong.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[LineageKey, Order], tuple[float, Way]] = OrderedDict()
        self._days: dict[LineageKey, tuple[float, Sequence[int]]] = {}
        self._coarse: OrderedDict[_DayKey, tuple[float, CoarseDay]] = OrderedDict()
        self._missed: dict[_DayKey, float] = {}

    def find(self, key: LineageKey, order: Order, offset: int) -> Way | None:
        """The way to the offset, if it is remembered."""
        with self._lock:
            found = self._known.get((key, order))
            days = self._days.get(key)
        now_s = self._clock()
        if found is not None:
            read_at_s, way = found
            lasts_s = OPEN_FOR_S if way.successor is None else CLOSED_FOR_S
            if now_s - read_at_s < lasts_s and way.holds(order, offset):
                return way
        for day in () if days is None else days[1]:
            coarse = self.coarse_day(key, day)
            if coarse is not None and (known := coarse.way(order, offset)) is not None:
                return known
        return None

    def keep(self, key: LineageKey, order: Order, way: Way) -> None:
        """Remember a way that was just read."""
        with self._lock:
            self._known[key, order] = (self._clock(), way)
            self._known.move_to_end((key, order))
            while len(self._known) > _MOST_WAYS:
                self._known.popitem(last=False)

    def days(self, key: LineageKey) -> Sequence[int] | None:
        """The days of the lineage's coarse rows, if they are remembered.

        A day that has begun since leaves its rows out for as long: the way then leads to the newest row's hour.
        """
        with self._lock:
            found = self._days.get(key)
        return found[1] if found is not None and self._clock() - found[0] < CLOSED_FOR_S else None

    def keep_days(self, key: LineageKey, days: Sequence[int]) -> None:
        """Remember the days that were just read."""
        with self._lock:
            if len(self._days) >= _MOST_WAYS:
                self._days.clear()
            self._days[key] = (self._clock(), days)

    def coarse_day(self, key: LineageKey, day: int) -> CoarseDay | None:
        """The coarse rows of a day, if they are remembered."""
        with self._lock:
            found = self._coarse.get((key, day))
            if found is None:
                return None
            if self._clock() - found[0] >= DAY_FOR_S:
                del self._coarse[key, day]
                return None
            self._coarse.move_to_end((key, day))
            return found[1]

    def keep_coarse_day(self, key: LineageKey, day: int, coarse: CoarseDay) -> None:
        """Remember a day that was just read."""
        with self._lock:
            self._coarse[key, day] = (self._clock(), coarse)
            while len(self._coarse) > _MOST_DAYS:
                self._coarse.popitem(last=False)

    def is_asked_again(self, key: LineageKey, day: int) -> bool:
        """Whether ways of that day were read before: its coarse rows cost as much as some ten of them."""
        now_s = self._clock()
        with self._lock:
            if len(self._missed) >= _MOST_WAYS:
                self._missed.clear()
            before_s = self._missed.get((key, day))
            self._missed[key, day] = now_s
        return before_s is not None and now_s - before_s < DAY_FOR_S
