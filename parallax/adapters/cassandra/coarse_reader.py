"""The coarse rows of the index as they are read: they show the way to the fine ones."""

from __future__ import annotations

from collections.abc import Sequence

from parallax.adapters.cassandra.coarse import DAY_MS, Order, Way
from parallax.adapters.cassandra.coarse_memory import MOST_ROWS, CoarseDay, WayMemory
from parallax.adapters.cassandra.codec import KEY, TARGET_START, LineageKey, RowFields, last_fields, stamped
from parallax.adapters.cassandra.connection import CassandraConnection
from parallax.domain.index_rows import StampedRow
from parallax.errors import StoreUnavailableError

_DESCENDING = {
    "target": "target_start DESC, source_start DESC",
    "source": "source_start DESC, target_start DESC",
}


class CoarseReader:
    """Reads coarse rows, and remembers them if it has a memory.

    Args:
        connection: to the store.
        keyspace: where the tables are.
        ways: remembers which coarse rows surround an offset; None: they are always read anew.
    """

    def __init__(self, connection: CassandraConnection, keyspace: str, ways: WayMemory | None) -> None:
        self._connection = connection
        self._ways = ways
        self._newest_row_cql = f"SELECT packed FROM {keyspace}.newest_rows WHERE {KEY}"
        self._days_cql = f"SELECT day FROM {keyspace}.coarse_days WHERE {KEY}"
        self._coarse_floor_cql = {
            order: f"SELECT packed FROM {keyspace}.coarse_rows_by_{order} WHERE {KEY} AND day = ? "
            f"AND {order}_start <= ? ORDER BY {descending} LIMIT 1"
            for order, descending in _DESCENDING.items()
        }
        self._coarse_successor_cql = {
            order: f"SELECT packed FROM {keyspace}.coarse_rows_by_{order} WHERE {KEY} AND day = ? "
            f"AND {order}_start > ? LIMIT 1"
            for order in _DESCENDING
        }
        self._coarse_page_cql = (
            f"SELECT packed FROM {keyspace}.coarse_rows_by_target WHERE {KEY} AND day = ? "
            "AND target_start >= ? LIMIT ?"
        )

    def way(self, key: LineageKey, order: Order, offset: int) -> Way:
        """The coarse rows on both sides of the offset."""
        if self._ways is None:
            return self._read_way(key, order, offset)
        way = self._ways.find(key, order, offset)
        if way is None:
            way = self._read_way(key, order, offset)
            self._ways.keep(key, order, way)
            if way.day is not None and self._ways.coarse_day(key, way.day) is None:
                self._may_read_day(self._ways, key, way.day)
        return way

    def _may_read_day(self, ways: WayMemory, key: LineageKey, day: int) -> None:
        """Read a whole day's coarse rows once it is asked for again, so that further ways of it need no read."""
        if not ways.is_asked_again(key, day):
            return
        try:
            select = self._connection.prepare(self._coarse_page_cql)
            rows = self._connection.run_all([(select, (*key, day, 0, MOST_ROWS))])[0]
        except StoreUnavailableError:
            return  # it would have spared later reads; this one has what it needs
        # A day of more rows is remembered as one that shows no way.
        ways.keep_coarse_day(key, day, CoarseDay([row[0] for row in rows] if len(rows) < MOST_ROWS else []))

    def _days(self, key: LineageKey) -> Sequence[int]:
        """The days that hold coarse rows, ascending."""
        known = None if self._ways is None else self._ways.days(key)
        if known is not None:
            return known
        days = sorted(row[0] for row in self._connection.run(self._days_cql, *key))
        if self._ways is not None:
            self._ways.keep_days(key, days)
        return days

    def newest_row(self, key: LineageKey) -> StampedRow | None:
        """The lineage's newest row."""
        rows = self._connection.run(self._newest_row_cql, *key)
        return stamped(rows[0][0]) if rows else None

    def _read_way(self, key: LineageKey, order: Order, offset: int) -> Way:
        floor: StampedRow | None = None
        successor: StampedRow | None = None
        floor_select = self._connection.prepare(self._coarse_floor_cql[order])
        successor_select = self._connection.prepare(self._coarse_successor_cql[order])
        # Days ascend with offsets. Offsets asked for are mostly recent, so the first day tried mostly has both.
        for day in reversed(self._days(key)):
            place = (*key, day, offset)
            below, above = self._connection.run_all([(floor_select, place), (successor_select, place)])
            if above:
                successor = stamped(above[0][0])
            if below:
                floor = stamped(below[0][0])
                break
        # Between two coarse rows the newest one plays no part.
        return Way(floor, successor, self.newest_row(key) if successor is None else None)

    def rows_from(
        self, key: LineageKey, way: Way, start: int, limit: int
    ) -> tuple[list[tuple[int, RowFields]], int | None]:
        """Coarse rows from the one before ``start`` on, each with its commit's time.

        Args:
            key: the lineage.
            way: to ``start``.
            start: the first target offset of interest.
            limit: so many, or more where many begin at one place.

        Returns:
            The rows, and the target offset below which they are all there; None: they are, to the end.
        """
        if way.day is not None and self._ways is not None:
            coarse = self._ways.coarse_day(key, way.day)
            known = None if coarse is None else coarse.rows_from(start, limit)
            if known is not None and (last := known[-1][1][TARGET_START]) > start:
                return known, last
        select = self._connection.prepare(self._coarse_page_cql)
        first_day = way.floor.committed_at_ms // DAY_MS if way.floor is not None else 0
        days = [day for day in self._days(key) if day >= first_day]
        found: list[tuple[int, RowFields]] = []
        for day in days:
            while True:
                rows = self._connection.run_all([(select, (*key, day, way.lowest_target, limit))])[0]
                here = [last_fields(row[0]) for row in rows]
                last = here[-1][1][TARGET_START] if here else 0
                if len(rows) < limit or last > start:
                    break
                limit *= 2  # more rows than that begin at or below the start
            found += here
            if last > start and (len(rows) >= limit or (len(found) >= limit and day != days[-1])):
                return found, last
        return found, None
