"""`MappingIndex` in memory."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

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
    LineageRecord,
    LineageTail,
    RouteTopic,
    RowBatch,
    RowPage,
    RowPlace,
    StampedRow,
    around_source,
    around_target,
    by_target,
)
from parallax.domain.runs import LostRange, Run

_Key = tuple[RoutePartition, Lineage]
_RowKey = tuple[int, int]

_target_start: Callable[[Run], TargetOffset] = attrgetter("target_start")


@dataclass(slots=True)
class _Rows:
    """The rows of one partition and lineage; ``ordered`` holds what ``versions`` holds, by target."""

    versions: dict[_RowKey, tuple[int, Run]] = field(default_factory=dict)
    ordered: list[Run] = field(default_factory=list)
    lost: set[LostRange] = field(default_factory=set)
    newest: tuple[int, StampedRow] | None = None

    def put(self, row: Run, version: int) -> None:
        key = (row.target_start, row.source_start)
        stored = self.versions.get(key)
        if stored is not None:
            # A run says more than the watermark before which it began.
            if (stored[1].count > 0, stored[0]) > (row.count > 0, version):
                return
            self.ordered.remove(stored[1])
        self.versions[key] = (version, row)
        if not self.ordered or by_target(self.ordered[-1]) <= by_target(row):
            self.ordered.append(row)
        else:
            insort(self.ordered, row, key=by_target)


class MemoryMappingIndex:
    """The mapping index of one process. Nothing expires. Safe to use from several threads.

    Args:
        tail_rows: how many rows a tail holds.
    """

    def __init__(self, tail_rows: int = 100) -> None:
        self._tail_rows = tail_rows
        self._lock = threading.RLock()
        self._rows: dict[_Key, _Rows] = defaultdict(_Rows)
        self._lineages: dict[_Key, LineageRecord] = {}
        self._indexed: dict[tuple[Route, int, int], int] = {}
        self._stops: dict[tuple[Route, TopicPartition], str] = {}

    # --- writing -------------------------------------------------------------------------------------------

    def write_lineages(self, records: Sequence[LineageRecord]) -> None:
        """Record lineages; the greater version of one lineage stays."""
        with self._lock:
            for record in records:
                key = (record.partition, record.lineage)
                stored = self._lineages.get(key)
                if stored is None or stored.version <= record.version:
                    self._lineages[key] = record

    def write_rows(self, batches: Sequence[RowBatch]) -> None:
        """Record runs, watermarks and lost ranges."""
        with self._lock:
            for batch in batches:
                rows = self._rows[batch.partition, batch.lineage]
                for row in batch.rows:
                    rows.put(row, batch.version)
                rows.lost.update(batch.lost)
                if batch.rows and (rows.newest is None or rows.newest[0] <= batch.version):
                    rows.newest = (batch.version, StampedRow(batch.rows[-1], batch.committed_at_ms))

    def indexed_up_to(self, route: Route, layout: int, shard: int) -> int:
        """The run-log next offset below which everything of the shard is indexed; 0 if nothing is."""
        with self._lock:
            return self._indexed.get((route, layout, shard), 0)

    def save_indexed_up_to(self, route: Route, layout: int, shard: int, run_log_next: int) -> None:
        """Remember it; a smaller value than the one stored is ignored."""
        with self._lock:
            key = (route, layout, shard)
            self._indexed[key] = max(run_log_next, self._indexed.get(key, 0))

    def write_stops(
        self, route: Route, stops: Mapping[TopicPartition, str], gone: Collection[TopicPartition]
    ) -> None:
        """Say why partitions can't be copied; those that are gone are stopped no more."""
        with self._lock:
            self._stops.update({(route, item): reason for item, reason in stops.items()})
            for item in gone:
                self._stops.pop((route, item), None)

    def stops(self, route: Route) -> Mapping[TopicPartition, str]:
        """The partitions of the route that can't be copied, each with its reason."""
        with self._lock:
            return {item: reason for (of, item), reason in self._stops.items() if of == route}

    # --- reading -------------------------------------------------------------------------------------------

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""
        with self._lock:
            return sorted({item.topic_partition.topic for item, _ in self._lineages if item.route == route})

    def lineages(self, route: Route, topic: TopicName) -> Sequence[LineageRecord]:
        """The lineages of every partition of the topic, by partition and sequence."""
        with self._lock:
            records = [
                record
                for (partition, _), record in self._lineages.items()
                if partition.route == route and partition.topic_partition.topic == topic
            ]
        return sorted(records, key=lambda item: (item.partition.topic_partition.partition, item.sequence))

    def newest(self, route: Route, topic: TopicName) -> Mapping[tuple[int, Lineage], StampedRow]:
        """The newest row (run or watermark) of each partition and lineage."""
        with self._lock:
            return {
                (partition.topic_partition.partition, lineage): rows.newest[1]
                for (partition, lineage), rows in self._rows.items()
                if rows.newest is not None
                and partition.route == route
                and partition.topic_partition.topic == topic
            }

    def route_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """What the index holds of the topic on each of the routes."""
        return {route: RouteTopic(self.lineages(route, topic), self.newest(route, topic)) for route in routes}

    def rows_at_target(
        self, partition: RoutePartition, lineage: Lineage, target: TargetOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``target_start <= target``."""
        with self._lock:
            return around_target(self._ordered(partition, lineage), target)

    def rows_at_source(
        self, partition: RoutePartition, lineage: Lineage, source: SourceOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``source_start <= source``."""
        with self._lock:
            return around_source(self._ordered(partition, lineage), source)

    def rows_around(self, places: Sequence[RowPlace]) -> Sequence[Sequence[Run]]:
        """For each place what `rows_at_target` or `rows_at_source` answers."""
        return [
            self.rows_at_target(place.partition, place.lineage, place.target)
            if place.target is not None
            else self.rows_at_source(place.partition, place.lineage, place.source or SourceOffset(0))
            for place in places
        ]

    def rows_from_target(
        self,
        partition: RoutePartition,
        lineage: Lineage,
        start: TargetOffset,
        limit: int,
        end: TargetOffset | None = None,
    ) -> RowPage:
        """Up to about ``limit`` rows with ``target_end > start``, in order."""
        with self._lock:
            rows = self._ordered(partition, lineage)
            first = max(bisect_right(rows, start, key=_target_start) - 1, 0)
            last = first + limit + 1
            if end is not None:
                last = min(last, bisect_left(rows, end, key=_target_start))
            beyond = [row for row in rows[first:last] if row.target_end > start]
            if last >= len(rows):
                reached = max((row.target_end for row in rows), default=start)
                return RowPage(tuple(beyond), max(reached, start))
            # The first row left out; whatever begins at or above it is not promised.
            following = rows[last].target_start
            if end is not None and following >= end:
                return RowPage(tuple(beyond), max(end, start))
            if following <= start:
                return self.rows_from_target(partition, lineage, start, 2 * limit, end)
            return RowPage(tuple(beyond), following)

    def lost_ranges(self, partition: RoutePartition, lineage: Lineage) -> Sequence[LostRange]:
        """Every lost range of the partition and lineage, in source order."""
        with self._lock:
            stored = self._rows.get((partition, lineage))
            lost = stored.lost if stored is not None else set()
            return sorted(lost, key=lambda gap: (gap.source_start, gap.source_end))

    def tails(
        self, newest: Mapping[tuple[RoutePartition, Lineage], StampedRow]
    ) -> Mapping[tuple[RoutePartition, Lineage], LineageTail]:
        """The last ``tail_rows`` rows of lineages."""
        with self._lock:
            found = {}
            for partition, lineage in newest:
                rows = self._ordered(partition, lineage)
                tail = tuple(rows[-self._tail_rows :])
                below = tail[0].target_start + 1 if len(rows) > len(tail) else TargetOffset(0)
                lost = tuple(self.lost_ranges(partition, lineage))
                found[partition, lineage] = LineageTail(tail, TargetOffset(below), lost)
            return found

    def _ordered(self, partition: RoutePartition, lineage: Lineage) -> Sequence[Run]:
        stored = self._rows.get((partition, lineage))
        return stored.ordered if stored is not None else ()
