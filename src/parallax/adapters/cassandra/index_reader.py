"""The mapping index as it is read: coarse rows show the way, fine rows give the answer."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter

from parallax.adapters.cassandra.coarse import DAY_MS, HOUR_MS
from parallax.adapters.cassandra.codec import RowFields, fields_of, run_of, unpack_fields
from parallax.adapters.cassandra.connection import CassandraConnection, Request
from parallax.adapters.cassandra.index_rows import (
    FIELDS_BY_TARGET,
    TAIL_BATCHES,
    last_fields,
    lineage_record,
    lost_ranges,
    may_lack_a_row,
    stamped,
    tail,
)
from parallax.adapters.cassandra.index_writer import LineageKey, lineage_key
from parallax.adapters.cassandra.ways import Order, Way, WayMemory
from parallax.adapters.row_order import AFTER, BEFORE
from parallax.domain.ids import (
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicName,
    TopicPartition,
)
from parallax.domain.run import LostRange, Run
from parallax.ports import LineageRecord, LineageTail, RowPage, StampedRow

_NEIGHBOURS = 2
_OVERLAPPING = 4
"""So many groups of rows may begin below an offset before none of them reaches it: replays group anew."""
_MORE_NEIGHBOURS = 128
_LEAST_COARSE_ROWS = 16
_LEAST_BATCHES = 6
_MOST_BATCHES = 512

_YOUNG_HOUR_MS = 60_000
"""An hour that began less than this ago may hold less than a tail."""
_FIELD_OF: Mapping[Order, Callable[[RowFields], int]] = {"source": itemgetter(0), "target": itemgetter(1)}
_TARGET_START = 1

_KEY = "route = ? AND topic = ? AND partition = ? AND lineage = ?"
_DESCENDING = {
    "target": "target_start DESC, source_start DESC",
    "source": "source_start DESC, target_start DESC",
}


class IndexReader:
    """Reads rows. Every look-up is a few reads by primary key or of a bounded slice.

    Args:
        connection: to the store.
        keyspace: where the tables are.
        ways: remembers which coarse rows surround an offset; None: they are always read anew.
    """

    def __init__(self, connection: CassandraConnection, keyspace: str, ways: WayMemory | None = None) -> None:
        self._connection = connection
        self._ways = ways
        self._topics_cql = f"SELECT topic FROM {keyspace}.route_topics WHERE route = ?"
        self._lineages_cql = (
            f"SELECT partition, lineage, body FROM {keyspace}.lineages WHERE route = ? AND topic = ?"
        )
        self._newest_cql = (
            f"SELECT partition, lineage, packed FROM {keyspace}.newest_rows WHERE route = ? AND topic = ?"
        )
        self._newest_row_cql = f"SELECT packed FROM {keyspace}.newest_rows WHERE {_KEY}"
        self._lost_cql = (
            f"SELECT source_start, source_end, target_at FROM {keyspace}.lost_ranges WHERE {_KEY}"
        )
        self._days_cql = f"SELECT day FROM {keyspace}.coarse_days WHERE {_KEY}"
        self._coarse_floor_cql = {
            order: f"SELECT packed FROM {keyspace}.coarse_rows_by_{order} WHERE {_KEY} AND day = ? "
            f"AND {order}_start <= ? ORDER BY {descending} LIMIT 1"
            for order, descending in _DESCENDING.items()
        }
        self._coarse_successor_cql = {
            order: f"SELECT packed FROM {keyspace}.coarse_rows_by_{order} WHERE {_KEY} AND day = ? "
            f"AND {order}_start > ? LIMIT 1"
            for order in _DESCENDING
        }
        self._coarse_page_cql = (
            f"SELECT packed FROM {keyspace}.coarse_rows_by_target WHERE {_KEY} AND day = ? "
            "AND target_start >= ? LIMIT ?"
        )
        fine = (
            f"SELECT packed, target_start, source_start FROM {keyspace}.fine_rows WHERE {_KEY} AND hour = ?"
        )
        backwards = "ORDER BY target_start DESC, source_start DESC, version DESC LIMIT ?"
        self._fine_floor_cql = {
            "target": f"{fine} AND target_start <= ? {backwards}",
            # Filtered is what lies between the offset and the next coarse row: one coarse interval at most.
            "source": f"{fine} AND target_start <= ? AND source_start <= ? {backwards} ALLOW FILTERING",
        }
        self._fine_successor_cql = {
            "target": f"{fine} AND target_start > ? LIMIT ?",
            "source": f"{fine} AND target_start >= ? AND target_start <= ? AND source_start > ? "
            "LIMIT ? ALLOW FILTERING",
        }
        self._fine_page_cql = f"{fine} AND target_start >= ? LIMIT ?"
        self._fine_tail_cql = f"{fine} {backwards}"

    # --- whole topics --------------------------------------------------------------------------------------

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""
        return sorted(TopicName(row[0]) for row in self._connection.run(self._topics_cql, str(route)))

    def lineages(self, route: Route, topic: TopicName) -> Sequence[LineageRecord]:
        """The lineages of every partition of the topic, by partition and sequence."""
        rows = self._connection.run(self._lineages_cql, str(route), topic)
        records = [
            lineage_record(RoutePartition(route, TopicPartition(topic, row[0])), row[1], row[2])
            for row in rows
        ]
        return sorted(records, key=lambda item: (item.partition.topic_partition.partition, item.sequence))

    def newest(self, route: Route, topic: TopicName) -> Mapping[tuple[int, Lineage], StampedRow]:
        """The newest row (run or watermark) of each partition and lineage."""
        rows = self._connection.run(self._newest_cql, str(route), topic)
        return {(row[0], Lineage.parse(row[1])): stamped(row[2]) for row in rows}

    def lost_ranges(self, partition: RoutePartition, lineage: Lineage) -> Sequence[LostRange]:
        """Every lost range of the partition and lineage, in source order."""
        return lost_ranges(self._connection.run(self._lost_cql, *lineage_key(partition, lineage)))

    def tails(
        self, newest: Mapping[tuple[RoutePartition, Lineage], StampedRow]
    ) -> Mapping[tuple[RoutePartition, Lineage], LineageTail]:
        """What the last `TAIL_BATCHES` writes to each lineage held."""
        fine, lost = self._connection.prepare(self._fine_tail_cql), self._connection.prepare(self._lost_cql)
        asked: list[tuple[tuple[RoutePartition, Lineage], list[Request]]] = []
        for item, last in newest.items():
            key = lineage_key(*item)
            hour, into_hour_ms = divmod(last.committed_at_ms, HOUR_MS)
            hours = [hour, hour - 1] if into_hour_ms < _YOUNG_HOUR_MS else [hour]
            asked.append((item, [(lost, key), *((fine, (*key, each, TAIL_BATCHES)) for each in hours)]))
        answers = iter(self._connection.run_all([request for _, requests in asked for request in requests]))
        found = {}
        for item, requests in asked:
            gaps, *batches = [next(answers) for _ in requests]
            found[item] = tail(batches, lost_ranges(gaps))
        return found

    # --- rows around an offset -----------------------------------------------------------------------------

    def rows_at_target(
        self, partition: RoutePartition, lineage: Lineage, target: TargetOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``target_start <= target``."""
        key = lineage_key(partition, lineage)
        way = self._way(key, "target", target)
        rows = self._around(key, "target", target, way, _NEIGHBOURS)
        if may_lack_a_row(rows, lambda row: (row.target_start, row.target_end), target):
            rows = self._around(key, "target", target, way, _MORE_NEIGHBOURS)
        return rows

    def rows_at_source(
        self, partition: RoutePartition, lineage: Lineage, source: SourceOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``source_start <= source``."""
        key = lineage_key(partition, lineage)
        way = self._way(key, "source", source)
        rows = self._around(key, "source", source, way, _NEIGHBOURS)
        if may_lack_a_row(rows, lambda row: (row.source_start, row.source_end), source):
            rows = self._around(key, "source", source, way, _MORE_NEIGHBOURS)
        return rows

    def _way(self, key: LineageKey, order: Order, offset: int) -> Way:
        if self._ways is None:
            return self._read_way(key, order, offset)
        way = self._ways.find(key, order, offset)
        if way is None:
            way = self._read_way(key, order, offset)
            self._ways.keep(key, order, way)
        return way

    def _days(self, key: LineageKey) -> Sequence[int]:
        """The days that hold coarse rows, ascending."""
        known = None if self._ways is None else self._ways.days(key)
        if known is not None:
            return known
        days = sorted(row[0] for row in self._connection.run(self._days_cql, *key))
        if self._ways is not None:
            self._ways.keep_days(key, days)
        return days

    def _newest_row(self, key: LineageKey) -> StampedRow | None:
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
        return Way(floor, successor, self._newest_row(key) if successor is None else None)

    def _around(self, key: LineageKey, order: Order, offset: int, way: Way, limit: int) -> list[Run]:
        """The last row that starts at or below the offset, and a few rows before and after it."""
        floor = self._connection.prepare(self._fine_floor_cql[order])
        successor = self._connection.prepare(self._fine_successor_cql[order])
        requests: list[Request] = []
        for hour in way.hours:
            # By source, the coarse rows bound the slice by target; by target, the offset itself does.
            below = (way.highest_target,) if order == "source" else ()
            above = (way.lowest_target, way.highest_target) if order == "source" else ()
            requests.append((floor, (*key, hour, *below, offset, limit)))
            requests.append((successor, (*key, hour, *above, offset, limit)))
        answers = self._connection.run_all(requests)
        found: set[RowFields] = set(map(fields_of, way.rows))
        for answer in answers:
            for item in answer:
                found.update(unpack_fields(item[0])[1])
        rows = sorted(found, key=FIELDS_BY_TARGET)
        after = bisect_right(rows, offset, key=_FIELD_OF[order])
        return list(map(run_of, rows[max(after - 1 - BEFORE, 0) : after + AFTER]))

    # --- pages ---------------------------------------------------------------------------------------------

    def rows_from_target(
        self, partition: RoutePartition, lineage: Lineage, start: TargetOffset, limit: int
    ) -> RowPage:
        """Up to about ``limit`` rows with ``target_end > start``, in order.

        The page ends where the reading ended: `RowPage.complete_to` is always above ``start`` unless the index holds
        nothing above it.
        """
        key = lineage_key(partition, lineage)
        way = self._way(key, "target", start)
        coarse, coarse_to = self._coarse_from(key, way, start, max(limit // 4, _LEAST_COARSE_ROWS))
        hours = {*way.hours, *(at_ms // HOUR_MS for at_ms, _ in coarse)}
        if coarse_to is None and (newest := way.newest or self._newest_row(key)) is not None:
            hours.add(newest.committed_at_ms // HOUR_MS)
        fine, fine_to = self._fine_from(key, sorted(hours), way, start, limit)
        beyond = {
            row
            for row in (*map(fields_of, way.rows), *(row for _, row in coarse), *fine)
            if _end(row) > start
        }
        ends = [end for end in (coarse_to, fine_to) if end is not None]
        if ends:
            complete_to = min(ends)
            beyond = {row for row in beyond if row[_TARGET_START] < complete_to}
        else:
            complete_to = max(map(_end, beyond), default=int(start))
        rows = tuple(map(run_of, sorted(beyond, key=FIELDS_BY_TARGET)))
        return RowPage(rows, TargetOffset(max(complete_to, start)))

    def _coarse_from(
        self, key: LineageKey, way: Way, start: int, limit: int
    ) -> tuple[list[tuple[int, RowFields]], int | None]:
        """Coarse rows from the floor on, each with its commit's time, and the offset below which they are all there (None: at the end)."""
        select = self._connection.prepare(self._coarse_page_cql)
        first_day = way.floor.committed_at_ms // DAY_MS if way.floor is not None else 0
        days = [day for day in self._days(key) if day >= first_day]
        found: list[tuple[int, RowFields]] = []
        for day in days:
            while True:
                rows = self._connection.run_all([(select, (*key, day, way.lowest_target, limit))])[0]
                here = [last_fields(row[0]) for row in rows]
                last = here[-1][1][_TARGET_START] if here else 0
                if len(rows) < limit or last > start:
                    break
                limit *= 2  # more rows than that begin at or below the start
            found += here
            if last > start and (len(rows) >= limit or (len(found) >= limit and day != days[-1])):
                return found, last
        return found, None

    def _fine_from(
        self, key: LineageKey, hours: Sequence[int], way: Way, start: int, limit: int
    ) -> tuple[list[RowFields], int | None]:
        """Fine rows from the floor on, and the offset below which they are all there (None: at the end)."""
        first = self._first_batch_for(key, way, start)
        select = self._connection.prepare(self._fine_page_cql)
        found: list[RowFields] = []
        beyond = 0
        for hour in hours:
            cursor, batches = first, min(max(limit // 16, _LEAST_BATCHES), _MOST_BATCHES)
            while True:
                rows = self._connection.run_all([(select, (*key, hour, cursor, batches))])[0]
                here = [row for item in rows for row in unpack_fields(item[0])[1]]
                found += here
                beyond += sum(_end(row) > start for row in here)
                last = int(rows[-1][1]) if rows else cursor
                ended = len(rows) < batches
                if beyond >= limit and last > start and not (ended and hour == hours[-1]):
                    return found, last
                if ended:
                    break
                if last == cursor:
                    batches *= 2  # more rows than one read holds begin at the same offset
                else:
                    left = (limit - beyond) * len(rows) // len(here) + 2  # by how many rows a batch held
                    batches = min(max(left, _LEAST_BATCHES), _MOST_BATCHES)
                cursor = last
        return found, None

    def _first_batch_for(self, key: LineageKey, way: Way, start: int) -> int:
        """Where to begin so that no fine row is missed that holds ``start``."""
        select = self._connection.prepare(self._fine_floor_cql["target"])
        answers = self._connection.run_all(
            [(select, (*key, hour, start, _OVERLAPPING)) for hour in way.hours]
        )
        starts = sorted((int(item[1]) for answer in answers for item in answer), reverse=True)
        return starts[:_OVERLAPPING][-1] if starts else way.lowest_target


def _end(row: RowFields) -> int:
    """The target's next offset after the row."""
    return row[_TARGET_START] + row[2]
