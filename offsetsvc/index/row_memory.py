"""Rows of the index kept for a while, so that answers about the same stretch of a log share their reads.

A row never changes once it is written. Only near the end of the log may one still be missing although a later one
is there, because the replicator writes several at a time: what is younger than `SETTLED_AFTER_S` is always read
anew. A row that settled without being seen makes answers earlier, never wrong, and only until its stretch is
forgotten.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

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
    around_source,
    around_target,
)
from parallax.domain.runs import LostRange, Run
from parallax.ports.index import MappingIndexReader

SETTLED_AFTER_S = 5.0
"""Many times as long as the replicator's writes overtake each other."""

FORGET_AFTER_S = 60.0
_PAGE_ROWS = 500
"""A stretch's length: reading it must not make the answer that learns it a slow one."""

_MOST_STRETCHES = 500
_ASKED_BEFORE = 2
"""Two look-ups may be near to each other by chance."""

_NEAR = 8
"""Two look-ups are near to each other if so many times as far apart as the rows reach that one of them gave."""

_Key = tuple[RoutePartition, Lineage]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Every indexed row of a lineage with ``low <= target_start < high``, in order.

    Attributes:
        low: 0 also where the lineage's first row is among them.
        high: None: the lineage's last row is among them.
    """

    rows: Sequence[Run]
    low: int
    high: int | None

    def around_target(self, target: TargetOffset) -> Sequence[Run] | None:
        """What `MappingIndexReader.rows_at_target` answers; None: that needs rows outside."""
        if target < self.low or (self.high is not None and target >= self.high):
            return None
        successor = bisect_right(self.rows, target, key=lambda row: row.target_start)
        return around_target(self.rows, target) if self._surrounds(successor) else None

    def around_source(self, source: SourceOffset) -> Sequence[Run] | None:
        """What `MappingIndexReader.rows_at_source` answers; None: that needs rows outside."""
        successor = bisect_right(self.rows, source, key=lambda row: row.source_start)
        return around_source(self.rows, source) if self._surrounds(successor) else None

    def around(self, place: RowPlace) -> Sequence[Run] | None:
        """As `around_target` or `around_source`, whichever offset the place names."""
        if place.target is not None:
            return self.around_target(place.target)
        return None if place.source is None else self.around_source(place.source)

    def page(self, start: TargetOffset, limit: int) -> RowPage | None:
        """What `MappingIndexReader.rows_from_target` answers; None: that needs rows outside."""
        if start < self.low or (self.high is not None and start >= self.high):
            return None
        floor = bisect_right(self.rows, start, key=lambda row: row.target_start)
        # Of the rows that start below, only the last ones can reach beyond.
        first = floor - BEFORE - 1
        if first < 0 and self.low > 0:
            return None
        last = floor + limit
        rows = self.rows[max(first, 0) : last]
        if last < len(self.rows):
            end = int(self.rows[last].target_start)
        elif self.high is not None:
            end = self.high
        else:
            end = max((int(row.target_end) for row in rows), default=int(start))
            return RowPage(_beyond(rows, start), TargetOffset(max(end, start)))
        if end <= start:
            return None
        return RowPage(_beyond([row for row in rows if row.target_start < end], start), TargetOffset(end))

    def _surrounds(self, successor: int) -> bool:
        """Whether all neighbours of a place in ``rows`` are here."""
        begins = self.low == 0 or successor > BEFORE
        ends = self.high is None or successor <= len(self.rows) - AFTER
        return begins and ends and len(self.rows) > 0


def _beyond(rows: Sequence[Run], start: TargetOffset) -> tuple[Run, ...]:
    return tuple(row for row in rows if row.target_end > start)


@dataclass(slots=True)
class _Mark:
    """How far a lineage was indexed some time ago (``settled``), and when ``newest`` was seen."""

    settled: int
    newest: int
    seen_at_s: float


class RowMemory:
    """An index reader that remembers settled rows. Safe to use from several threads.

    Args:
        index: what is read.
        clock: seconds, never going back.
    """

    def __init__(self, index: MappingIndexReader, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._index = index
        self._clock = clock
        self._lock = threading.Lock()
        self._stretches: OrderedDict[_Key, tuple[float, Stretch]] = OrderedDict()
        self._marks: dict[_Key, _Mark] = {}
        self._missed: dict[_Key, tuple[TargetOffset, int]] = {}

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""
        return self._index.topics(route)

    def lineages(self, route: Route, topic: TopicName) -> Sequence[LineageRecord]:
        """The lineages of every partition of the topic."""
        return self._index.lineages(route, topic)

    def lost_ranges(self, partition: RoutePartition, lineage: Lineage) -> Sequence[LostRange]:
        """Every lost range of the partition and lineage."""
        return self._index.lost_ranges(partition, lineage)

    def newest(self, route: Route, topic: TopicName) -> Mapping[tuple[int, Lineage], StampedRow]:
        """The newest row of each partition and lineage."""
        now_s = self._clock()
        found = self._index.newest(route, topic)
        self._mark(route, topic, found, now_s)
        return found

    def route_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """What the index holds of the topic on each of the routes."""
        now_s = self._clock()
        found = self._index.route_topics(routes, topic)
        for route, item in found.items():
            self._mark(route, topic, item.newest, now_s)
        return found

    def _mark(
        self, route: Route, topic: TopicName, found: Mapping[tuple[int, Lineage], StampedRow], now_s: float
    ) -> None:
        with self._lock:
            for (number, lineage), stamped in found.items():
                key = (RoutePartition(route, TopicPartition(topic, number)), lineage)
                start = int(stamped.row.target_start)
                mark = self._marks.setdefault(key, _Mark(0, start, now_s))
                if now_s - mark.seen_at_s >= SETTLED_AFTER_S:
                    mark.settled, mark.newest, mark.seen_at_s = mark.newest, start, now_s

    def tails(
        self, newest: Mapping[tuple[RoutePartition, Lineage], StampedRow]
    ) -> Mapping[tuple[RoutePartition, Lineage], LineageTail]:
        """The last rows of lineages."""
        return self._index.tails(newest)

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
        found = {place: rows for place in places if (rows := self._known(place)) is not None}
        missing = [place for place in places if place not in found]
        for place, rows in zip(missing, self._index.rows_around(missing) if missing else (), strict=True):
            self._learn((place.partition, place.lineage), rows)
            found[place] = rows
        return [found[place] for place in places]

    def _known(self, place: RowPlace) -> Sequence[Run] | None:
        stretch = self._remembered((place.partition, place.lineage))
        return None if stretch is None else stretch.around(place)

    def rows_from_target(
        self,
        partition: RoutePartition,
        lineage: Lineage,
        start: TargetOffset,
        limit: int,
        end: TargetOffset | None = None,
    ) -> RowPage:
        """Up to about ``limit`` rows with ``target_end > start``, in order."""
        stretch = self._remembered((partition, lineage))
        if stretch is not None and (known := stretch.page(start, limit)) is not None:
            return known
        return self._index.rows_from_target(partition, lineage, start, limit, end)

    def _remembered(self, key: _Key) -> Stretch | None:
        with self._lock:
            found = self._stretches.get(key)
            if found is None:
                return None
            read_at_s, stretch = found
            if self._clock() - read_at_s > FORGET_AFTER_S:
                del self._stretches[key]
                return None
            self._stretches.move_to_end(key)
            return stretch

    def _learn(self, key: _Key, rows: Sequence[Run]) -> None:
        """Read the stretch that begins with some rows that were asked for, if it is settled and not known.

        Only once rows near to them were asked for again and again: a stretch costs as much as many look-ups.
        """
        if not rows:
            return
        before, now_s = rows[0].target_start, self._clock()
        with self._lock:
            mark, known = self._marks.get(key), self._stretches.get(key)
            settled = 0 if mark is None else mark.settled
            if settled <= rows[-1].target_start or (known is not None and _covers(known[1], before, settled)):
                return
            missed, times = self._missed.get(key, (before, 0))
            if abs(before - missed) > _NEAR * (rows[-1].target_end - before):
                times = 0
            self._missed[key] = (before, times + 1)
            if times < _ASKED_BEFORE:
                return
        # A few rows further back, so that the same look-up finds its neighbours there.
        before = self._index.rows_at_target(*key, before)[0].target_start
        page = self._index.rows_from_target(*key, before, _PAGE_ROWS)
        # A page lacks watermarks that stand where it begins; beyond that place it lacks nothing.
        low, high = before + 1, min(int(page.complete_to), settled)
        kept = tuple(row for row in page.rows if low <= row.target_start < high)
        if not kept:
            return
        with self._lock:
            self._stretches[key] = (now_s, Stretch(kept, low, high))
            self._stretches.move_to_end(key)
            while len(self._stretches) > _MOST_STRETCHES:
                self._stretches.popitem(last=False)


def _covers(stretch: Stretch, before: int, settled: int) -> bool:
    return stretch.low <= before + 1 and (stretch.high is None or stretch.high >= settled)
