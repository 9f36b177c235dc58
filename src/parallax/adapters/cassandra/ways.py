"""Which coarse rows surround an offset: asked first at every look-up, and mostly the same as a moment ago."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from parallax.adapters.cassandra.coarse import HOUR_MS
from parallax.adapters.cassandra.index_writer import LineageKey
from parallax.domain.run import Run
from parallax.ports import StampedRow

Order = Literal["target", "source"]

OPEN_FOR_S = 0.1
"""How long the way to the end of a log is remembered: half of the default interval at which rows are written."""

CLOSED_FOR_S = 10.0
"""Between two coarse rows no further one appears; the limit is for an index that is repaired by hand."""

_MOST_WAYS = 10_000
_HIGHEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Way:
    """The coarse rows on both sides of an offset, and the hours that hold the fine rows between them.

    Attributes:
        newest: the lineage's newest row, where no coarse row follows.
    """

    floor: StampedRow | None
    successor: StampedRow | None
    newest: StampedRow | None

    @property
    def rows(self) -> list[Run]:
        """These rows."""
        return [item.row for item in (self.floor, self.successor, self.newest) if item is not None]

    @property
    def hours(self) -> list[int]:
        """Hours since the epoch."""
        ends = (self.floor, self.successor if self.successor is not None else self.newest)
        return sorted({item.committed_at_ms // HOUR_MS for item in ends if item is not None})

    @property
    def lowest_target(self) -> int:
        """No fine row between them starts below it."""
        return self.floor.row.target_start if self.floor is not None else 0

    @property
    def highest_target(self) -> int:
        """No fine row between them starts above it."""
        return self.successor.row.target_start if self.successor is not None else _HIGHEST

    def holds(self, order: Order, offset: int) -> bool:
        """Whether it is the way to this offset, too."""
        floor, successor = self.floor, self.successor
        return (floor is None or start_of(floor, order) <= offset) and (
            successor is None or offset < start_of(successor, order)
        )


def start_of(item: StampedRow, order: Order) -> int:
    """Where the row starts, by target or by source."""
    return int(item.row.target_start if order == "target" else item.row.source_start)


class WayMemory:
    """The last way of each lineage and order. Safe to use from several threads.

    An older way to the end of a log leads to fewer rows: an answer by them is earlier, never wrong.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[LineageKey, Order], tuple[float, Way]] = OrderedDict()
        self._days: dict[LineageKey, tuple[float, Sequence[int]]] = {}

    def find(self, key: LineageKey, order: Order, offset: int) -> Way | None:
        """The way to the offset, if it is remembered."""
        with self._lock:
            found = self._known.get((key, order))
        if found is None:
            return None
        read_at_s, way = found
        lasts_s = OPEN_FOR_S if way.successor is None else CLOSED_FOR_S
        return way if self._clock() - read_at_s < lasts_s and way.holds(order, offset) else None

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

    def keep(self, key: LineageKey, order: Order, way: Way) -> None:
        """Remember a way that was just read."""
        with self._lock:
            self._known[key, order] = (self._clock(), way)
            self._known.move_to_end((key, order))
            while len(self._known) > _MOST_WAYS:
                self._known.popitem(last=False)
