"""The mapping index as it is read: coarse rows show the way, fine rows give the answer."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice, pairwise
from operator import itemgetter

from cassandra.query import PreparedStatement

from parallax.adapters.cassandra.coarse import HIGHEST, HOUR_MS, Order, Way
from parallax.adapters.cassandra.coarse_memory import WayMemory
from parallax.adapters.cassandra.coarse_reader import CoarseReader
from parallax.adapters.cassandra.codec import (
    FIELDS_BY_TARGET,
    KEY,
    STARTS,
    TARGET_START,
    LineageKey,
    RowFields,
    fields_of,
    lineage_key,
    lineage_record,
    run_of,
    stamped,
    unpack,
    unpack_fields,
)
from parallax.adapters.cassandra.connection import CassandraConnection, Request, Row
from parallax.domain.ids import (
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import (
    AFTER,
    BEFORE,
    LineageRecord,
    LineageTail,
    RouteTopic,
    RowPage,
    RowPlace,
    StampedRow,
    ordered,
)
from parallax.domain.runs import LostRange, Run

_FIELD_OF: Mapping[Order, Callable[[RowFields], int]] = {
    order: itemgetter(place) for order, place in STARTS.items()
}
_NEIGHBOURS = 2
_OVERLAPPING = 4
"""So many groups of rows may begin below an offset before none of them reaches it: replays group anew."""

_MORE_NEIGHBOURS = 128
_LEAST_COARSE_ROWS = 16
_LEAST_BATCHES = 6
_MOST_BATCHES = 512
TAIL_BATCHES = 64
"""Writes of a lineage that a tail goes back: ten seconds of a busy one, twice the default interval of automatic commits."""

_ENOUGH_ROWS, _ENOUGH_MS = 256, 13_000
"""It need not go back further than both: a write may hold many rows, after a replay a minute of them."""

_YOUNG_HOUR_MS = 60_000
"""An hour that began less than this ago may hold less than a tail."""

_unpack_again = lru_cache(maxsize=8_192)(unpack)
"""Of two tails read one after the other, nearly all writes are the same."""


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


class IndexReader:
    """Reads rows. Every look-up is a few reads by primary key or of a bounded slice.

    Args:
        connection: to the store.
        keyspace: where the tables are.
        ways: remembers which coarse rows surround an offset; None: they are always read anew.
    """

    def __init__(self, connection: CassandraConnection, keyspace: str, ways: WayMemory | None = None) -> None:
        self._connection = connection
        self._coarse_rows = CoarseReader(connection, keyspace, ways)
        self._topics_cql = f"SELECT topic FROM {keyspace}.route_topics WHERE route = ?"
        self._stops_cql = (
            f"SELECT topic, partition, reason FROM {keyspace}.stopped_partitions WHERE route = ?"
        )
        self._lineages_cql = (
            f"SELECT partition, lineage, body FROM {keyspace}.lineages WHERE route = ? AND topic = ?"
        )
        self._newest_cql = (
            f"SELECT partition, lineage, packed FROM {keyspace}.newest_rows WHERE route = ? AND topic = ?"
        )
        self._lost_cql = f"SELECT source_start, source_end, target_at FROM {keyspace}.lost_ranges WHERE {KEY}"
        fine = f"SELECT packed, target_start, source_start FROM {keyspace}.fine_rows WHERE {KEY} AND hour = ?"
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
        self._fine_page_cql = f"{fine} AND target_start >= ? AND target_start < ? LIMIT ?"
        self._fine_tail_cql = f"{fine} {backwards}"

    # --- whole topics --------------------------------------------------------------------------------------

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""
        return sorted(TopicName(row[0]) for row in self._connection.run(self._topics_cql, str(route)))

    def stops(self, route: Route) -> Mapping[TopicPartition, str]:
        """The partitions of the route that can't be copied, each with the reason that was said last."""
        rows = self._connection.run(self._stops_cql, str(route))
        return {TopicPartition(TopicName(topic), partition): reason for topic, partition, reason in rows}

    def lineages(self, route: Route, topic: TopicName) -> Sequence[LineageRecord]:
        """The lineages of every partition of the topic, by partition and sequence."""
        return _records(route, topic, self._connection.run(self._lineages_cql, str(route), topic))

    def newest(self, route: Route, topic: TopicName) -> Mapping[tuple[int, Lineage], StampedRow]:
        """The newest row (run or watermark) of each partition and lineage."""
        return _newest(self._connection.run(self._newest_cql, str(route), topic))

    def route_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """What the index holds of the topic on each of the routes, all read side by side."""
        lineages, newest = map(self._connection.prepare, (self._lineages_cql, self._newest_cql))
        # In this order: a row that is found belongs to a lineage that is known.
        records = self._connection.run_all([(lineages, (str(route), topic)) for route in routes])
        rows = self._connection.run_all([(newest, (str(route), topic)) for route in routes])
        return {
            route: RouteTopic(_records(route, topic, ours), _newest(theirs))
            for route, ours, theirs in zip(routes, records, rows, strict=True)
        }

    def lost_ranges(self, partition: RoutePartition, lineage: Lineage) -> Sequence[LostRange]:
        """Every lost range of the partition and lineage, in source order."""
        return _lost_ranges(self._connection.run(self._lost_cql, *lineage_key(partition, lineage)))

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
            found[item] = tail(batches, _lost_ranges(gaps))
        return found

    # --- rows around an offset -----------------------------------------------------------------------------

    def rows_at_target(
        self, partition: RoutePartition, lineage: Lineage, target: TargetOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``target_start <= target``."""
        return self.rows_around([RowPlace(partition, lineage, target=target)])[0]

    def rows_at_source(
        self, partition: RoutePartition, lineage: Lineage, source: SourceOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``source_start <= source``."""
        return self.rows_around([RowPlace(partition, lineage, source=source)])[0]

    def rows_around(self, places: Sequence[RowPlace]) -> Sequence[Sequence[Run]]:
        """For each place what `rows_at_target` or `rows_at_source` answers."""
        asked = [self._look_up(place) for place in places]
        found = self._around(asked, _NEIGHBOURS)
        for number, look_up in enumerate(asked):
            if _may_lack_a_row(found[number], look_up.order, look_up.offset):
                found[number] = self._around([look_up], _MORE_NEIGHBOURS)[0]
        return found

    def _look_up(self, place: RowPlace) -> LookUp:
        key = lineage_key(place.partition, place.lineage)
        order: Order = "source" if place.target is None else "target"
        offset = int(place.source or 0) if place.target is None else int(place.target)
        return LookUp(key, order, offset, self._coarse_rows.way(key, order, offset))

    def _around(self, asked: Sequence[LookUp], limit: int) -> list[list[Run]]:
        """For each the last row that starts at or below the offset, and a few rows before and after it."""
        groups = self._groups(
            [look_up.floor_requests(self._floor(look_up.order), limit) for look_up in asked]
        )
        open_ones = [
            number
            for number, look_up in enumerate(asked)
            if not any(_surround(group, look_up.field, look_up.offset) for group in groups[number])
        ]
        further = self._groups(
            [
                asked[number].successor_requests(self._successor(asked[number].order), limit)
                for number in open_ones
            ]
        )
        for number, more in zip(open_ones, further, strict=True):
            groups[number] += more
        return [
            look_up.neighbours([*map(fields_of, look_up.way.rows), *chain.from_iterable(found)])
            for look_up, found in zip(asked, groups, strict=True)
        ]

    def _floor(self, order: Order) -> PreparedStatement:
        return self._connection.prepare(self._fine_floor_cql[order])

    def _successor(self, order: Order) -> PreparedStatement:
        return self._connection.prepare(self._fine_successor_cql[order])

    def _groups(self, requests: Sequence[Sequence[Request]]) -> list[list[list[RowFields]]]:
        """For each caller's requests the rows that were written together, for each fine row that is found."""
        answers = iter(self._connection.run_all(chain.from_iterable(requests)))
        return [
            [unpack_fields(item[0])[1] for answer in islice(answers, len(own)) for item in answer]
            for own in requests
        ]

    # --- pages ---------------------------------------------------------------------------------------------

    def rows_from_target(
        self,
        partition: RoutePartition,
        lineage: Lineage,
        start: TargetOffset,
        limit: int,
        end: TargetOffset | None = None,
    ) -> RowPage:
        """Up to about ``limit`` rows with ``target_end > start``, in order.

        The page ends where the reading ended: `RowPage.complete_to` is always above ``start`` unless the index holds
        nothing above it.
        """
        key = lineage_key(partition, lineage)
        way = self._coarse_rows.way(key, "target", start)
        bound = HIGHEST if end is None else end
        coarse, coarse_to = self._coarse_rows.rows_from(key, way, start, max(limit // 4, _LEAST_COARSE_ROWS))
        # Of the coarse rows at or above the end, the first one tells of an hour that holds fine rows below it.
        wanted = bisect_left(coarse, bound, key=lambda item: item[1][TARGET_START]) + 1
        hours = {*way.hours, *(at_ms // HOUR_MS for at_ms, _ in coarse[:wanted])}
        reaches_end = wanted <= len(coarse)
        if coarse_to is None and not reaches_end:
            newest = way.newest or self._coarse_rows.newest_row(key)
            hours |= set() if newest is None else {newest.committed_at_ms // HOUR_MS}
        fine, fine_to = self._fine_from(key, sorted(hours), way, (start, bound), limit)
        beyond = {
            row
            for row in (*map(fields_of, way.rows), *(row for _, row in coarse), *fine)
            if _end(row) > start
        }
        ends = [item for item in (coarse_to, fine_to, bound if reaches_end else None) if item is not None]
        if ends:
            complete_to = min(ends)
            beyond = {row for row in beyond if row[TARGET_START] < complete_to}
        else:
            complete_to = max(map(_end, beyond), default=int(start))
        rows = tuple(map(run_of, sorted(beyond, key=FIELDS_BY_TARGET)))
        return RowPage(rows, TargetOffset(max(complete_to, start)))

    def _fine_from(
        self, key: LineageKey, hours: Sequence[int], way: Way, span: tuple[int, int], limit: int
    ) -> tuple[list[RowFields], int | None]:
        """Fine rows of the span, and the target offset below which they are all there (None: in all of it)."""
        start, end = span
        if not hours:
            return [], None
        floor = self._connection.prepare(self._fine_floor_cql["target"])
        select = self._connection.prepare(self._fine_page_cql)
        batches = min(max(limit // 16, _LEAST_BATCHES), _MOST_BATCHES)
        *below, rows = self._connection.run_all(
            [
                # No fine row is missed that holds the start, though it begins below.
                *((floor, (*key, hour, start, _OVERLAPPING)) for hour in way.hours),
                (select, (*key, hours[0], start + 1, end, batches)),
            ]
        )
        found = [row for answer in below for item in answer for row in unpack_fields(item[0])[1]]
        beyond = sum(_end(row) > start for row in found)
        for hour in hours:
            cursor = start + 1
            if hour != hours[0]:
                rows = self._connection.run_all([(select, (*key, hour, cursor, end, batches))])[0]
            while rows:
                here = [row for item in rows for row in unpack_fields(item[0])[1]]
                found += here
                beyond += sum(_end(row) > start for row in here)
                last = int(rows[-1][1])
                ended = len(rows) < batches
                if beyond >= limit and not (ended and hour == hours[-1]):
                    return found, last
                if ended:
                    break
                if last == cursor:
                    batches *= 2  # more rows than one read holds begin at the same offset
                else:
                    left = (limit - beyond) * len(rows) // len(here) + 2  # by how many rows a batch held
                    batches = min(max(left, _LEAST_BATCHES), _MOST_BATCHES)
                cursor = last
                rows = self._connection.run_all([(select, (*key, hour, cursor, end, batches))])[0]
        return found, None


def _may_lack_a_row(rows: Sequence[Run], order: Order, offset: int) -> bool:
    """Whether a run is known to lie between the floor of ``offset`` and the row after it, but was not read.

    It happens where a replay packed the same runs into other groups: the group that begins nearest to the offset
    may be shorter than one that begins before it.
    """

    def start(row: Run) -> int:
        return row.target_start if order == "target" else row.source_start

    below = [row for row in rows if start(row) <= offset]
    above = [row for row in rows if start(row) > offset]
    if not below or not above:
        return False
    end = below[-1].target_end if order == "target" else below[-1].source_end
    return offset >= end and above[0].previous_source_end > below[-1].source_end


def _surround(group: Sequence[RowFields], field: Callable[[RowFields], int], offset: int) -> bool:
    """Whether one of the rows, which were written together, begins at or below the offset and the next one above it.

    Then nothing lies between them: what a replay grouped otherwise says the same.
    """
    return bool(group) and field(group[0]) <= offset < field(group[-1])


def tail(hours: Sequence[Sequence[Row]], lost: Sequence[LostRange]) -> LineageTail:
    """The last rows, from what the last writes of each hour held, the latest hour first."""
    found: list[Run] = []
    starts: list[int] = []
    newest_ms = 0
    for packed, start, *_ in chain.from_iterable(hours):
        group = _unpack_again(packed)
        newest_ms = max(newest_ms, group.committed_at_ms)
        old = group.committed_at_ms < newest_ms - _ENOUGH_MS
        if len(starts) == TAIL_BATCHES or (old and len(found) >= _ENOUGH_ROWS):
            break
        found += group.rows
        starts.append(int(start))
    rows = ordered(found)
    complete_from = min(starts, default=-1) + 1
    for before, after in pairwise(rows):
        if after.previous_source_end > before.source_end:
            # A run between them was not read: a replay grouped it with earlier ones, or it is being written.
            complete_from = max(complete_from, int(after.target_start))
    return LineageTail(tuple(rows), TargetOffset(complete_from), tuple(lost))


def _lost_ranges(rows: Sequence[Row]) -> list[LostRange]:
    """Lost ranges, in the order in which they were read."""
    return [LostRange(SourceOffset(row[0]), SourceOffset(row[1]), TargetOffset(row[2])) for row in rows]


def _records(route: Route, topic: TopicName, rows: Sequence[Row]) -> list[LineageRecord]:
    found = [
        lineage_record(RoutePartition(route, TopicPartition(topic, row[0])), row[1], row[2]) for row in rows
    ]
    return sorted(found, key=lambda item: (item.partition.topic_partition.partition, item.sequence))


def _newest(rows: Sequence[Row]) -> dict[tuple[int, Lineage], StampedRow]:
    return {(row[0], Lineage.parse(row[1])): stamped(row[2]) for row in rows}


def _end(row: RowFields) -> int:
    """The target's next offset after the row."""
    return row[TARGET_START] + row[2]
