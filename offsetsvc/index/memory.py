"""The mapping index as answers read it, with all that is remembered of it.

A row never changes once it is written, and a row that is missing makes an answer earlier, never wrong. So whatever is
remembered may be used; its age bounds only how much earlier an answer can be. The rules:

- Lineages, newest rows, lost ranges: for ``max_age_ms``. Many calls about one topic at once share these reads.
- Tails, the last rows of a lineage: for ``max_age_ms`` too, and only while they reach the newest row that is known. A
  tail read after its newest row lacks nothing; as long as that row stays the newest, the tail is read once more after
  `_TAIL_SETTLES_S`, for rows of a replay that were on their way, and then left alone for `_TAIL_FOR_S`.
- Windows, rows from the middle of a log: for `FORGET_AFTER_S`, and only of rows older than `SETTLED_AFTER_S`: the
  replicator writes several at a time, so that of younger ones a later row may be there before an earlier one. A window
  is read only once rows near to it were asked for again and again, for it costs as much as many look-ups.
- Which lineages of a topic count: as long as the reads that it follows from are the same.
- One caller reads a thing at a time. Meanwhile the others go on with what is at most `OVERDUE` times too old, or share the
  failure of that one: a slow store fails all of them together, not one after the other.
- Each memory is bounded; one that is full is emptied (of windows: the one that was used longest ago goes). How far a
  lineage had come is kept for each that was ever read.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from offsetsvc.index.window import RowWindow, Tail, tail_of
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import LineageRecord, LineageTail, RouteTopic, RowPage, RowPlace, StampedRow
from parallax.domain.lineages import LineageView, TopicLineages, lineages_that_count
from parallax.domain.runs import LostRange, Run
from parallax.errors import StoreUnavailableError, UnavailableError
from parallax.ports.index import MappingIndexReader

T = TypeVar("T")

MAX_AGE_MS = 100.0
"""Half of the default interval at which rows are written: an answer is no older than it could be anyway."""

OVERDUE = 3

SETTLED_AFTER_S = 5.0
"""Many times as long as the replicator's writes overtake each other."""

FORGET_AFTER_S = 60.0

_TAIL_SETTLES_S = 1.0
"""Many times as long as two writes of one task can overtake each other."""

_TAIL_FOR_S = 30.0

_WINDOW_ROWS = 500
"""Reading a window must not make the answer that learns it a slow one."""

_ASKED_BEFORE = 2
"""Two look-ups may be near to each other by chance."""

_NEAR = 8
"""Two look-ups are near to each other if so many times as far apart as the rows reach that one of them gave."""

_MOST_ENTRIES = 10_000
_MOST_TOPICS = 1_000
_MOST_WINDOWS = 500

_LOCKS = 64
"""Things read at one time: more than the index is asked side by side."""

_LONGEST_WAIT_S = 5.0
"""For a read of another caller; so long a request to the store may take."""

_Key = tuple[RoutePartition, Lineage]


class Flights:
    """Sees to it that each thing is read by one caller at a time.

    Two things may share a lock by chance; that costs time, nothing else.
    """

    def __init__(self, longest_wait_s: float = _LONGEST_WAIT_S) -> None:
        self._longest_wait_s = longest_wait_s
        self._locks = [threading.Lock() for _ in range(_LOCKS)]
        self._failures: list[tuple[Hashable, float, UnavailableError] | None] = [None] * _LOCKS
        """By lock: the last failure, of which thing, and when (monotonic seconds)."""

    def fresh(
        self, key: Hashable, known: Callable[[float], T | None], read: Callable[[], T], *, max_age_s: float
    ) -> T:
        """What is known, if it is young enough; else what is read now, by this caller or by another one.

        Args:
            key: what is read.
            known: what is known of it and at most so many seconds old, or None.
            read: reads it and makes it known.
            max_age_s: older than this, it is read again; `OVERDUE` times as old, nobody uses it any more.

        Raises:
            UnavailableError: it could not be read, by this caller or by the one that it waited for.
        """
        value = known(max_age_s)
        if value is not None:
            return value
        called_at_s, slot = time.monotonic(), hash(key) % _LOCKS
        lock = self._locks[slot]
        if not lock.acquire(blocking=False):
            value = known(OVERDUE * max_age_s)
            if value is not None:
                return value
            if not lock.acquire(timeout=self._longest_wait_s):
                raise StoreUnavailableError(
                    "store: another caller has been waiting too long for the same read"
                )
        try:
            value = known(max_age_s)
            return self._read(key, slot, called_at_s, read) if value is None else value
        finally:
            lock.release()

    def _read(self, key: Hashable, slot: int, called_at_s: float, read: Callable[[], T]) -> T:
        """Read, or fail as another one has since this call began."""
        failure = self._failures[slot]
        if failure is not None and failure[0] == key and failure[1] > called_at_s:
            raise type(failure[2])(str(failure[2]))
        try:
            return read()
        except UnavailableError as error:
            self._failures[slot] = key, time.monotonic(), error
            raise


@dataclass(slots=True)
class _Mark:
    """How far a lineage was indexed some time ago (``settled``), and when ``newest`` was seen."""

    settled: int
    newest: int
    seen_at_s: float


@dataclass(frozen=True, slots=True)
class _KnownTail:
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

    def holds(self, newest: Run, now_s: float, max_age_s: float) -> bool:
        """Whether it need not be read again, ``newest`` being the newest row that is known by now."""
        if self.reached is None or self.reached < newest.target_end:
            return False
        if self.newest == newest and max_age_s:
            settled = self.read_at_s - self.since_s >= _TAIL_SETTLES_S
            max_age_s = max(max_age_s, _TAIL_FOR_S if settled else _TAIL_SETTLES_S)
        return now_s - self.read_at_s < max_age_s


class IndexMemory:
    """An index reader that remembers, by the rules above. Safe to use from several threads.

    Args:
        index: what is read.
        max_age_ms: as the rules say; 0: nothing is remembered.
        clock: seconds, never going back.
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
        self._flights = Flights()
        self._known: dict[Hashable, tuple[float, object]] = {}
        self._tails: dict[_Key, _KnownTail] = {}
        self._counting: dict[
            tuple[ClusterName, TopicName], tuple[Mapping[Route, RouteTopic], TopicId | None, TopicLineages]
        ] = {}
        self._lock = threading.Lock()
        """Guards what is known of windows."""
        self._windows: OrderedDict[_Key, tuple[float, RowWindow]] = OrderedDict()
        self._marks: dict[_Key, _Mark] = {}
        self._missed: dict[_Key, tuple[TargetOffset, int]] = {}

    # --- what every answer about a topic reads first -----------------------------------------------------------

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""
        return self._index.topics(route)

    def stops(self, route: Route) -> Mapping[TopicPartition, str]:
        """The partitions of the route that can't be copied, each with its reason."""
        return self._index.stops(route)

    def lineages(self, route: Route, topic: TopicName) -> Sequence[LineageRecord]:
        """The lineages of every partition of the topic."""
        return self._fresh(("lineages", route, topic), lambda: self._index.lineages(route, topic))

    def newest(self, route: Route, topic: TopicName) -> Mapping[tuple[int, Lineage], StampedRow]:
        """The newest row of each partition and lineage."""

        def read() -> Mapping[tuple[int, Lineage], StampedRow]:
            now_s = self._clock()
            newest = self._index.newest(route, topic)
            self._mark(route, topic, newest, now_s)
            return newest

        return self._fresh(("newest", route, topic), read)

    def route_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """What the index holds of the topic on each of the routes."""

        def read() -> Mapping[Route, RouteTopic]:
            now_s = self._clock()
            topics = self._index.route_topics(routes, topic)
            for route, item in topics.items():
                self._mark(route, topic, item.newest, now_s)
            return topics

        return self._fresh(("routes", topic, *routes), read)

    def lost_ranges(self, partition: RoutePartition, lineage: Lineage) -> Sequence[LostRange]:
        """Every lost range of the partition and lineage."""
        return self._fresh(("lost", partition, lineage), lambda: self._index.lost_ranges(partition, lineage))

    def counting_lineages(
        self,
        cluster: ClusterName,
        topic: TopicName,
        indexed: Mapping[Route, RouteTopic],
        topic_id: TopicId | None,
    ) -> TopicLineages:
        """As `lineages_that_count`, on a cluster."""
        known = self._counting.get((cluster, topic))
        if known is not None and known[1] == topic_id and _same(known[0], indexed):
            return known[2]
        lineages = lineages_that_count(indexed, topic_id)
        _keep(self._counting, (cluster, topic), (indexed, topic_id, lineages), _MOST_TOPICS)
        return lineages

    def _fresh(self, key: Hashable, read: Callable[[], T]) -> T:
        def known(max_age_s: float) -> tuple[float, object] | None:
            entry = self._known.get(key)
            return entry if entry is not None and self._clock() - entry[0] < max_age_s else None

        def read_now() -> tuple[float, object]:
            entry = (self._clock(), read())
            _keep(self._known, key, entry, _MOST_ENTRIES)
            return entry

        if not self._max_age_s:
            return read()
        return cast("T", self._flights.fresh(key, known, read_now, max_age_s=self._max_age_s)[1])

    # --- tails -------------------------------------------------------------------------------------------------

    def tails(
        self, newest: Mapping[tuple[RoutePartition, Lineage], StampedRow]
    ) -> Mapping[tuple[RoutePartition, Lineage], LineageTail]:
        """The last rows of lineages, as the index gives them."""
        return self._index.tails(newest)

    def tails_of(self, views: Iterable[LineageView]) -> dict[_Key, Tail]:
        """The tails of those lineages that have a row, read at once.

        Raises:
            StoreUnavailableError: the index did not answer in time.
        """
        wanted = {(view.partition, view.lineage): view for view in views if view.newest is not None}
        if not wanted:
            return {}

        def known(max_age_s: float) -> dict[_Key, Tail] | None:
            tails = self._known_tails(wanted, max_age_s)
            return tails if len(tails) == len(wanted) else None

        return self._flights.fresh(
            min(wanted), known, lambda: self._read_tails(wanted), max_age_s=self._max_age_s
        )

    def _known_tails(self, wanted: Mapping[_Key, LineageView], max_age_s: float) -> dict[_Key, Tail]:
        now_s = self._clock()
        return {
            key: known.tail
            for key, view in wanted.items()
            if (known := self._tails.get(key)) is not None
            and view.newest is not None
            and known.holds(view.newest.row, now_s, max_age_s)
        }

    def _read_tails(self, wanted: Mapping[_Key, LineageView]) -> dict[_Key, Tail]:
        now_s = self._clock()
        tails = self._known_tails(wanted, self._max_age_s)
        missing = {
            key: view.newest for key, view in wanted.items() if view.newest is not None and key not in tails
        }
        for key, tail in self._index.tails(missing).items():
            tails[key] = tail_of(wanted[key], tail)
            newest, before = missing[key].row, self._tails.get(key)
            since_s = before.since_s if before is not None and before.newest == newest else now_s
            reached = tail.rows[-1].target_end if tail.rows else None
            _keep(self._tails, key, _KnownTail(tails[key], now_s, newest, since_s, reached), _MOST_ENTRIES)
        return tails

    # --- rows and windows --------------------------------------------------------------------------------------

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
        rows_at: dict[RowPlace, Sequence[Run]] = {}
        for place in places:
            window = self._window((place.partition, place.lineage))
            if window is not None and (rows := window.around(place)) is not None:
                rows_at[place] = rows
        missing = [place for place in places if place not in rows_at]
        for place, rows in zip(missing, self._index.rows_around(missing) if missing else (), strict=True):
            self._learn((place.partition, place.lineage), rows)
            rows_at[place] = rows
        return [rows_at[place] for place in places]

    def rows_from_target(
        self,
        partition: RoutePartition,
        lineage: Lineage,
        start: TargetOffset,
        limit: int,
        end: TargetOffset | None = None,
    ) -> RowPage:
        """Up to about ``limit`` rows with ``target_end > start``, in order."""
        window = self._window((partition, lineage))
        if window is not None and (known := window.page(start, limit)) is not None:
            return known
        return self._index.rows_from_target(partition, lineage, start, limit, end)

    def _window(self, key: _Key) -> RowWindow | None:
        with self._lock:
            entry = self._windows.get(key)
            if entry is None:
                return None
            read_at_s, window = entry
            if self._clock() - read_at_s > FORGET_AFTER_S:
                del self._windows[key]
                return None
            self._windows.move_to_end(key)
            return window

    def _mark(
        self, route: Route, topic: TopicName, newest: Mapping[tuple[int, Lineage], StampedRow], now_s: float
    ) -> None:
        """Note how far lineages are indexed: what was so a while ago is settled by now."""
        if not self._max_age_s:
            return
        with self._lock:
            for (number, lineage), stamped in newest.items():
                key = (RoutePartition(route, TopicPartition(topic, number)), lineage)
                start = int(stamped.row.target_start)
                mark = self._marks.setdefault(key, _Mark(0, start, now_s))
                if now_s - mark.seen_at_s >= SETTLED_AFTER_S:
                    mark.settled, mark.newest, mark.seen_at_s = mark.newest, start, now_s

    def _learn(self, key: _Key, rows: Sequence[Run]) -> None:
        """Read the window that begins with some rows that were asked for, if it is settled and worth it."""
        if not rows:
            return
        before, now_s = rows[0].target_start, self._clock()
        with self._lock:
            mark, known = self._marks.get(key), self._windows.get(key)
            settled = 0 if mark is None else mark.settled
            if settled <= rows[-1].target_start or (known is not None and _covers(known[1], before, settled)):
                return
            missed, times = self._missed.get(key, (before, 0))
            if abs(before - missed) > _NEAR * (rows[-1].target_end - before):
                times = 0
            _keep(self._missed, key, (before, times + 1), _MOST_ENTRIES)
            if times < _ASKED_BEFORE:
                return
        # A few rows further back, so that the same look-up finds its neighbours there.
        before = self._index.rows_at_target(*key, before)[0].target_start
        page = self._index.rows_from_target(*key, before, _WINDOW_ROWS)
        # A page lacks watermarks that stand where it begins; beyond that place it lacks nothing.
        low, high = before + 1, min(int(page.complete_to), settled)
        kept = tuple(row for row in page.rows if low <= row.target_start < high)
        if not kept:
            return
        with self._lock:
            self._windows[key] = (now_s, RowWindow(kept, low, high))
            self._windows.move_to_end(key)
            while len(self._windows) > _MOST_WINDOWS:
                self._windows.popitem(last=False)


K = TypeVar("K")


def _keep(memory: dict[K, T], key: K, value: T, most: int) -> None:
    if len(memory) >= most:
        memory.clear()
    memory[key] = value


def _covers(window: RowWindow, before: int, settled: int) -> bool:
    return window.low <= before + 1 and (window.high is None or window.high >= settled)


def _same(ours: Mapping[Route, RouteTopic], theirs: Mapping[Route, RouteTopic]) -> bool:
    """Whether both came from the same reads, which are remembered for a moment."""
    return ours.keys() == theirs.keys() and all(ours[route] is item for route, item in theirs.items())
