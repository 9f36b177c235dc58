"""The mapping index over a store of blocks: what `parallax.ports.index.MappingIndexReader` asks, and histories."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from parallax.domain.block_history import BlockHistory
from parallax.domain.block_rows import lineage_number
from parallax.domain.blocks import Block, encode
from parallax.domain.ids import Lineage, Route, RoutePartition, SourceOffset, TargetOffset, TopicName
from parallax.domain.index_rows import (
    AFTER,
    BEFORE,
    RouteTopic,
    RowPage,
    StampedRow,
)
from parallax.domain.lineage_history import MissingBlock
from parallax.domain.runs import Run
from parallax.errors import UnreadableRowError
from parallax.index.directory import MEMORY_BYTES, Blocks, StoredTable, UnreadBlock
from parallax.index.tails import Tails, TurnRows
from parallax.ports.blocks import BlocksOf, TurnsWanted
from parallax.ports.index import MappingStore
from parallax.runtime.newest import Newest

_BEYOND_ALL = TargetOffset((1 << 63) - 1)

_MOST_TOPICS = 3_000
"""By route: remembered."""

_Key = tuple[RoutePartition, Lineage]


class BlockIndex:
    """Reads rows in blocks and turns. Safe to use from several threads.

    Args:
        store: where they are.
        max_age_ms: a look-up may do with turns that were read so long ago; what tells of whole topics always reads them anew.
        memory_bytes: for blocks that are remembered, and as much for their keys (`parallax.index.directory.Blocks`).
        clock: seconds, never going back.
    """

    def __init__(
        self,
        store: MappingStore,
        *,
        max_age_ms: float = 0,
        memory_bytes: int = MEMORY_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._max_age_s = max_age_ms / 1_000
        self._clock = clock
        self._tails = Tails(store, quiet_s=self._max_age_s, clock=clock)
        self._blocks = Blocks(store, memory_bytes=memory_bytes)
        self._lock = threading.Lock()
        self._read_at_s: dict[Route, float] = {}
        self._topics: Newest[tuple[Route, TopicName], tuple[RouteTopic, int, RouteTopic]] = Newest(
            _MOST_TOPICS
        )
        """What was told of a topic, at which number of `Tails.told`, and what it is with turns."""

    # --- whole topics --------------------------------------------------------------------------------------

    def newest(self, route: Route, topic: TopicName) -> Mapping[tuple[int, Lineage], StampedRow]:
        """The newest row (run or watermark) of each partition and lineage.

        Raises:
            UnreadableRowError: one of them can't be read by this release.
        """
        found = self.route_topics([route], topic)[route]
        if found.unreadable:
            raise UnreadableRowError("; ".join(found.unreadable.values()))
        return found.newest

    def route_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """What the index holds of the topic on each of the routes."""
        # In this order: blocks may take over what turns told, and then the newest row is told with them. Of the other order
        # neither would have it.
        self._refresh(routes)
        told = self._store.told_topics(routes, topic)
        return {route: self._route_topic(route, topic, item) for route, item in told.items()}

    def _route_topic(self, route: Route, topic: TopicName, told: RouteTopic) -> RouteTopic:
        """What was told of a topic, with turns; the very same as long as both say the same."""
        number, key = self._tails.told(route), (route, topic)
        known = self._topics.get(key)
        if known is not None and known[1] == number and known[0] == told:
            return known[2]
        found = RouteTopic(told.records, self._with_turns(route, told), told.unreadable)
        if known is not None and known[2] == found:
            found = known[2]
        self._topics.put(key, (told, number, found))
        return found

    def _with_turns(self, route: Route, told: RouteTopic) -> Mapping[tuple[int, Lineage], StampedRow]:
        newest = dict(told.newest)
        for record in told.records:
            _, pieces = self._tails.pieces(route, lineage_number(record.partition, record.lineage))
            if not pieces:
                continue
            key = (record.partition.topic_partition.partition, record.lineage)
            last, known = _last_of(pieces[-1]), newest.get(key)
            if known is None or _place(last) >= _place(known):
                newest[key] = last
        return newest

    def _refresh(self, routes: Collection[Route]) -> None:
        now_s = self._clock()
        self._tails.refresh(routes)
        with self._lock:
            self._read_at_s.update(dict.fromkeys(routes, now_s))

    def indexed_up_to(self, route: Route, layout: int, shard: int) -> int:
        """The run-log next offset below which everything of the shard is indexed; 0 if nothing is."""
        reached = self._store.blocks_to(route, layout, shard)
        return max(reached, self._store.told_up_to(TurnsWanted(route, layout, shard, reached)))

    def told(self, wanted: Sequence[_Key]) -> Sequence[object]:
        """Of each lineage what changes whenever something new was read of it."""
        return self._tails.told_of(
            [(partition.route, lineage_number(partition, lineage)) for partition, lineage in wanted]
        )

    # --- rows of one lineage -------------------------------------------------------------------------------

    def histories(self, wanted: Mapping[_Key, StampedRow | None]) -> dict[_Key, BlockHistory]:
        """The rows of lineages, without their lost ranges; no block is read before it is asked for.

        Args:
            wanted: lineages, with the newest row of each as far as it is known: it may outlive all blocks.
        """
        now_s = self._clock()
        routes = {partition.route for partition, _ in wanted}
        with self._lock:
            old = [route for route in routes if now_s - self._read_at_s.get(route, -1e9) >= self._max_age_s]
        if old:
            self._refresh(sorted(old))
        places = {key: _blocks_of(*key) for key in wanted}
        generations = {route: self._tails.generation(route) for route in routes}
        pieces = {key: self._tails.pieces(key[0].route, place.lineage) for key, place in places.items()}
        directories = self._blocks.directories(
            [(place, generations[key[0].route]) for key, place in places.items()]
        )
        tables = {
            key: StoredTable(self._blocks, place, directory, pieces[key])
            for (key, place), directory in zip(places.items(), directories, strict=True)
        }
        self._read_last(tables.values())
        for key, table in tables.items():
            newest = wanted[key]
            if newest is not None and not table.has_turns:
                _add_newest(table, newest)
        return {key: BlockHistory(key[1], table) for key, table in tables.items()}

    def _read_last(self, tables: Collection[StoredTable]) -> None:
        missing = [table.missing(table.last_stored) for table in tables]
        self._blocks.read([item for item in missing if item is not None])

    def read_blocks(self, missing: Collection[MissingBlock]) -> object:
        """Read together what look-ups would read one by one; as long as what this returns is kept, they find it, mostly."""
        return self._blocks.read([item for item in missing if isinstance(item, UnreadBlock)])

    def history(
        self, partition: RoutePartition, lineage: Lineage, newest: StampedRow | None = None
    ) -> BlockHistory:
        """The rows of one lineage; see `histories`."""
        return self.histories({(partition, lineage): newest})[partition, lineage]

    def rows_at_target(
        self, partition: RoutePartition, lineage: Lineage, target: TargetOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``target_start <= target``."""
        return self.history(partition, lineage).around_target(target, BEFORE, AFTER)

    def rows_at_source(
        self, partition: RoutePartition, lineage: Lineage, source: SourceOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``source_start <= source``."""
        return self.history(partition, lineage).around_source(source, BEFORE, AFTER)

    def rows_from_target(
        self,
        partition: RoutePartition,
        lineage: Lineage,
        start: TargetOffset,
        limit: int,
        end: TargetOffset | None = None,
    ) -> RowPage:
        """Up to about ``limit`` rows with ``target_end > start``, in order."""
        history = self.history(partition, lineage)
        bound = _BEYOND_ALL if end is None else end
        rows: list[Run] = []
        for row in history.between_targets(start, bound):
            if len(rows) >= limit and row.target_start > max(start, rows[-1].target_start):
                return RowPage(tuple(rows), row.target_start)
            if row.target_end > start:
                rows.append(row)
        newest = history.newest
        reached = newest.target_end if newest is not None else start
        if newest is not None and newest.target_start >= bound:
            reached = bound
        return RowPage(tuple(rows), max(reached, start))


def _add_newest(table: StoredTable, newest: StampedRow) -> None:
    """Let a table end with the newest row, if its blocks have expired."""
    row = newest.row
    if table.last >= table.low:
        last = table.get(table.last)
        place = len(last) - 1
        if (row.target_start, row.source_start) <= (last.target_start(place), last.source_start(place)):
            return
    table.append(Block(encode([row], newest.committed_at_ms)), newest.committed_at_ms)


def _blocks_of(partition: RoutePartition, lineage: Lineage) -> BlocksOf:
    return BlocksOf(partition.route.target, partition.topic_partition, lineage_number(partition, lineage))


def _last_of(piece: TurnRows) -> StampedRow:
    return StampedRow(piece.block.run(len(piece.block) - 1), piece.committed_at_ms)


def _place(stamped: StampedRow) -> tuple[int, int, int]:
    row = stamped.row
    return row.target_start, row.source_start, row.count
