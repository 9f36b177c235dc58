"""One offset that is looked up among fine rows. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from cassandra.query import PreparedStatement

from parallax.adapters.cassandra.codec import RowFields, run_of
from parallax.adapters.cassandra.connection import Request
from parallax.adapters.cassandra.index_rows import FIELDS_BY_TARGET, STARTS
from parallax.adapters.cassandra.index_writer import LineageKey
from parallax.adapters.cassandra.ways import Order, Way
from parallax.domain.row_order import AFTER, BEFORE
from parallax.domain.runs import Run

_FIELD_OF: Mapping[Order, Callable[[RowFields], int]] = {
    order: itemgetter(place) for order, place in STARTS.items()
}


@dataclass(frozen=True, slots=True)
class LookUp:
    """One place that is looked up, and the way to it."""

    key: LineageKey
    order: Order
    offset: int
    way: Way

    @property
    def field(self) -> Callable[[RowFields], int]:
        """Where a row starts, by the order asked for."""
        return _FIELD_OF[self.order]

    def floor_requests(self, select: PreparedStatement, limit: int) -> list[Request]:
        """The last fine rows that start at or below the offset."""
        # By source, the coarse rows bound the slice by target; by target, the offset itself does.
        bounds = (self.way.highest_target,) if self.order == "source" else ()
        return [(select, (*self.key, hour, *bounds, self.offset, limit)) for hour in self.way.hours]

    def successor_requests(self, select: PreparedStatement, limit: int) -> list[Request]:
        """The first fine rows that start above it."""
        way = self.way
        bounds = (way.lowest_target, way.highest_target) if self.order == "source" else ()
        return [(select, (*self.key, hour, *bounds, self.offset, limit)) for hour in way.hours]

    def neighbours(self, found: Iterable[RowFields]) -> list[Run]:
        """Of the rows found the last one that starts at or below the offset, and a few before and after it."""
        rows = sorted(set(found), key=FIELDS_BY_TARGET)
        after = bisect_right(rows, self.offset, key=self.field)
        return list(map(run_of, rows[max(after - 1 - BEFORE, 0) : after + AFTER]))
