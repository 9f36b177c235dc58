"""The mapping index as answers read it, with what is remembered of it.

A row never changes once it is written, and a row that is missing makes an answer earlier, never wrong. So whatever is
remembered may be used; its age bounds only how much earlier an answer can be. The rules:

- Lineages, newest rows, turns: for ``max_age_ms``. Many calls about one topic at once share these reads. Lost ranges are
  read with the rows, after them and each time: a range that is missing would make an answer later.
- Which lineages of a topic count: as long as the reads that it follows from say the same. The rows of a lineage, with
  its lost ranges and all that was looked up in them, as long as that is so and nothing new was told of it: what was lost since
  then lies behind those rows.
- One caller reads a thing at a time (`offsetsvc.index.flights`). Meanwhile the others go on with what is at most `OVERDUE` times
  too old; those who can't share what it finds, and its failure: a slow store fails all of them together, not one after the other.
- Each memory is bounded; one that is full forgets what was not asked for longest. Blocks are remembered where they are read
  (`parallax.index.directory`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TypeVar, cast

from offsetsvc.index.flights import Flights
from parallax.domain.block_history import BlockHistory
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    Route,
    RoutePartition,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import LineageRecord, RouteTopic, RowPage, StampedRow
from parallax.domain.lineage_history import MissingBlock
from parallax.domain.lineages import LineageView, TopicLineages, lineages_that_count
from parallax.domain.progress import SourceHistory
from parallax.domain.runs import LostRange
from parallax.ports.index import MappingIndexReader
from parallax.runtime.newest import Newest

T = TypeVar("T")

MAX_AGE_MS = 100.0
"""Half of the default interval at which rows are written: an answer is no older than it could be anyway."""

_MOST_ENTRIES = 10_000
_MOST_TOPICS = 1_000
_MOST_LINEAGES = 20_000
"""As many as `parallax.index.directory` knows the keys of."""

_Key = tuple[RoutePartition, Lineage]


@dataclass(frozen=True, slots=True)
class LineageRows:
    """A lineage and its rows, without those that are void. No block of them is read before it is asked for."""

    view: LineageView
    source_history: SourceHistory

    def history(self) -> SourceHistory:
        """Its rows, with every lost range."""
        return self.source_history


class IndexMemory:
    """An index reader that remembers, by the rules above. Safe to use from several threads.

    Args:
        index: what is read.
        max_age_ms: as the rules say; 0: nothing is remembered.
        behind: where what is a little too old is read anew (`Flights`).
        clock: seconds, never going back.
    """

    def __init__(
        self,
        index: MappingIndexReader,
        *,
        max_age_ms: float = MAX_AGE_MS,
        behind: Executor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index = index
        self._max_age_s = max_age_ms / 1_000
        self._clock = clock
        self._flights = Flights(behind)
        self._known: Newest[Hashable, tuple[float, object]] = Newest(_MOST_ENTRIES)
        self._rows: Newest[_Key, tuple[LineageView, object, LineageRows]] = Newest(_MOST_LINEAGES)
        self._counting: Newest[
            tuple[ClusterName, TopicName], tuple[Mapping[Route, RouteTopic], TopicId | None, TopicLineages]
        ] = Newest(_MOST_TOPICS)

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
        return self._fresh(("newest", route, topic), lambda: self._index.newest(route, topic))

    def route_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """What the index holds of the topic on each of the routes; what has told nothing new, is the very same."""
        key = _key_of(routes, topic)

        def read() -> Mapping[Route, RouteTopic]:
            known = self._known.get(key)
            before = {} if known is None else cast("Mapping[Route, RouteTopic]", known[1])
            found = {
                route: before[route] if before.get(route) == item else item
                for route, item in self._index.route_topics(routes, topic).items()
            }
            return before if found == before else found

        return self._fresh(key, read)

    def remembered_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """What `route_topics` found last for these routes, however long ago that was; empty: nothing that is remembered."""
        known = self._known.get(_key_of(routes, topic))
        return {} if known is None else cast("Mapping[Route, RouteTopic]", known[1])

    def lost_ranges(
        self, wanted: Collection[tuple[RoutePartition, Lineage]]
    ) -> Mapping[tuple[RoutePartition, Lineage], Sequence[LostRange]]:
        """Every lost range of each of these lineages, never from memory: see above."""
        return self._index.lost_ranges(wanted)

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
        self._counting.put((cluster, topic), (indexed, topic_id, lineages))
        return lineages

    def _fresh(self, key: Hashable, read: Callable[[], T]) -> T:
        def known(max_age_s: float) -> tuple[float, object] | None:
            entry = self._known.get(key)
            return entry if entry is not None and self._clock() - entry[0] < max_age_s else None

        def read_now() -> tuple[float, object]:
            entry = (self._clock(), read())
            self._known.put(key, entry)
            return entry

        if not self._max_age_s:
            return read()
        return cast("T", self._flights.fresh(key, known, read_now, max_age_s=self._max_age_s)[1])

    # --- rows --------------------------------------------------------------------------------------------------

    def told(self, views: Sequence[LineageView]) -> Sequence[object]:
        """Of each lineage what is another one whenever something new was told of it."""
        return self._index.told([(view.partition, view.lineage) for view in views])

    def rows_of(self, views: Sequence[LineageView]) -> list[LineageRows]:
        """The rows of lineages.

        Raises:
            StoreUnavailableError: the index did not answer in time.
        """
        keys = [(view.partition, view.lineage) for view in views]
        told = self.told(views)
        found: dict[_Key, LineageRows] = {}
        missing: dict[_Key, tuple[LineageView, object]] = {}
        for key, view, mark in zip(keys, views, told, strict=True):
            known = self._rows.get(key)
            if known is not None and known[1] == mark and (known[0] is view or known[0] == view):
                found[key] = known[2]
            else:
                missing[key] = view, mark
        if missing:
            histories = self._index.histories({key: view.newest for key, (view, _) in missing.items()})
            # Read after the rows: rows behind a lost range that is not known yet would tell that its records were consumed.
            lost = self.lost_ranges(missing)
            for key, (view, mark) in missing.items():
                rows = LineageRows(view, _of_source(view, histories[key].with_lost(lost[key])))
                self._rows.put(key, (view, mark, rows))
                found[key] = rows
        return [found[key] for key in keys]

    def read_blocks(self, missing: Collection[MissingBlock]) -> object:
        """As `parallax.ports.index.MappingIndexReader.read_blocks`."""
        return self._index.read_blocks(missing)

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


def _key_of(routes: Collection[Route], topic: TopicName) -> Hashable:
    """What is read of a topic on routes, in whatever order they are named: a move there asks for the same as one back."""
    return ("routes", topic, *sorted(routes))


def _of_source(view: LineageView, history: BlockHistory) -> SourceHistory:
    if view.cut is not None:
        history = history.cut_at(view.cut)
    return SourceHistory(view.source, history, view.record.closed_at)


def _same(ours: Mapping[Route, RouteTopic], theirs: Mapping[Route, RouteTopic]) -> bool:
    """Whether both say the same: what does is the same object (`IndexMemory.route_topics`)."""
    return ours.keys() == theirs.keys() and all(ours[route] is item for route, item in theirs.items())
