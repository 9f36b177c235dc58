"""What every answer about a topic reads first, remembered for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TypeVar, cast

from offsetsvc.index.single_flight import Flights
from parallax.domain.ids import Lineage, Route, RoutePartition, SourceOffset, TargetOffset, TopicName
from parallax.domain.index_rows import LineageRecord, LineageTail, RouteTopic, RowPage, RowPlace, StampedRow
from parallax.domain.runs import LostRange, Run
from parallax.ports.index import MappingIndexReader

T = TypeVar("T")

MAX_AGE_MS = 100.0
"""Half of the default interval at which rows are written: an answer is no older than it could be anyway."""

OVERDUE = 3
"""While one caller reads anew, the others go on with what is at most this many times as old."""

_MOST_ENTRIES = 10_000


class CachedIndex:
    """An index reader that asks for lineages, newest rows and lost ranges at most every ``max_age_ms``.

    Many calls about one topic at once (a group's partitions, watchers) then share these reads. An older answer
    of the index gives an earlier resume offset, never a wrong one.
    """

    def __init__(
        self,
        index: MappingIndexReader,
        *,
        max_age_ms: float = MAX_AGE_MS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index = index
        self._max_age_s = max_age_ms / 1_000
        self._clock = clock
        self._known: dict[Hashable, tuple[float, object]] = {}
        self._flights = Flights()

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""
        return self._index.topics(route)

    def lineages(self, route: Route, topic: TopicName) -> Sequence[LineageRecord]:
        """The lineages of every partition of the topic."""
        return self._fresh(("lineages", route, topic), lambda: self._index.lineages(route, topic))

    def newest(self, route: Route, topic: TopicName) -> Mapping[tuple[int, Lineage], StampedRow]:
        """The newest row of each partition and lineage."""
        return self._fresh(("newest", route, topic), lambda: self._index.newest(route, topic))

    def route_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """What the index holds of the topic on each of the routes."""
        return self._fresh(("routes", topic, *routes), lambda: self._index.route_topics(routes, topic))

    def lost_ranges(self, partition: RoutePartition, lineage: Lineage) -> Sequence[LostRange]:
        """Every lost range of the partition and lineage."""
        return self._fresh(("lost", partition, lineage), lambda: self._index.lost_ranges(partition, lineage))

    def tails(
        self, newest: Mapping[tuple[RoutePartition, Lineage], StampedRow]
    ) -> Mapping[tuple[RoutePartition, Lineage], LineageTail]:
        """The last rows of lineages."""
        return self._index.tails(newest)

    def rows_at_target(
        self, partition: RoutePartition, lineage: Lineage, target: TargetOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``target_start <= target``."""
        return self._index.rows_at_target(partition, lineage, target)

    def rows_at_source(
        self, partition: RoutePartition, lineage: Lineage, source: SourceOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``source_start <= source``."""
        return self._index.rows_at_source(partition, lineage, source)

    def rows_around(self, places: Sequence[RowPlace]) -> Sequence[Sequence[Run]]:
        """For each place what `rows_at_target` or `rows_at_source` answers."""
        return self._index.rows_around(places)

    def rows_from_target(
        self,
        partition: RoutePartition,
        lineage: Lineage,
        start: TargetOffset,
        limit: int,
        end: TargetOffset | None = None,
    ) -> RowPage:
        """Up to about ``limit`` rows with ``target_end > start``, in order."""
        return self._index.rows_from_target(partition, lineage, start, limit, end)

    def _fresh(self, key: Hashable, read: Callable[[], T]) -> T:
        def known(max_age_s: float) -> tuple[float, object] | None:
            found = self._known.get(key)
            return found if found is not None and self._clock() - found[0] < max_age_s else None

        def read_now() -> tuple[float, object]:
            asked_at_s = self._clock()
            found = (asked_at_s, read())
            if len(self._known) >= _MOST_ENTRIES:
                self._known = {}
            self._known[key] = found
            return found

        found = self._flights.fresh(
            key, known, read_now, max_age_s=self._max_age_s, overdue_age_s=OVERDUE * self._max_age_s
        )
        return cast("T", found[1])
