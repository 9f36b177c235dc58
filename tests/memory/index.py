"""The mapping index in memory: rows in blocks, as everywhere."""

from __future__ import annotations

import threading
from bisect import insort
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from parallax.domain.block_rows import BlockKey, StoredBlock, lineage_number
from parallax.domain.blocks import encode
from parallax.domain.history import History
from parallax.domain.ids import Lineage, Route, RoutePartition, TopicName, TopicPartition
from parallax.domain.index_rows import LineageRecord, RouteTopic, RowBatch, StampedRow, by_target
from parallax.domain.lineage_history import EpochRows, epochs_of
from parallax.domain.runs import LostRange, Run
from parallax.index.reader import BlockIndex
from parallax.ports.blocks import BlockName, Reached
from tests.memory.blocks import MemoryBlockStore

_Key = tuple[RoutePartition, Lineage]

NOBODY = -1
"""The shard of a lease that nobody holds: rows that a test writes by itself are written by it."""


@dataclass(slots=True)
class _Rows:
    """The rows of one lineage that a test wrote by itself; ``ordered`` holds what ``versions`` holds, by target."""

    versions: dict[tuple[int, int], tuple[int, Run]] = field(default_factory=dict)
    ordered: list[Run] = field(default_factory=list)
    names: list[BlockName] = field(default_factory=list)

    def put(self, row: Run, version: int) -> None:
        key = (row.target_start, row.source_start)
        stored = self.versions.get(key)
        if stored is not None:
            # A run says more than the watermark before which it began.
            if (stored[1].count > 0, stored[0]) > (row.count > 0, version):
                return
            self.ordered.remove(stored[1])
        self.versions[key] = (version, row)
        insort(self.ordered, row, key=by_target)


class MemoryMappingIndex(BlockIndex, MemoryBlockStore):
    """The mapping index of one process. Nothing expires. Safe to use from several threads.

    Args:
        rows_per_block: of what a test writes by itself (`write_rows`).
    """

    def __init__(self, rows_per_block: int = 7) -> None:
        MemoryBlockStore.__init__(self)
        BlockIndex.__init__(self, self)
        self._rows_per_block = rows_per_block
        self._written = 0
        self._unwritten: set[_Key] = set()
        self._guard = threading.RLock()
        self._given: dict[_Key, _Rows] = defaultdict(_Rows)
        self._newest: dict[_Key, tuple[int, StampedRow]] = {}
        self._lost: dict[_Key, set[LostRange]] = defaultdict(set)
        self._lineages: dict[_Key, LineageRecord] = {}
        self._stops: dict[tuple[Route, TopicPartition], str] = {}

    # --- writing -------------------------------------------------------------------------------------------

    def write_lineages(self, records: Sequence[LineageRecord]) -> None:
        """Record lineages; the greater version of one lineage stays."""
        with self._guard:
            for record in records:
                key = (record.partition, record.lineage)
                stored = self._lineages.get(key)
                if stored is None or stored.version <= record.version:
                    self._lineages[key] = record

    def write_lost(self, batches: Sequence[RowBatch]) -> None:
        """Record lost ranges."""
        with self._guard:
            for batch in batches:
                self._lost[batch.partition, batch.lineage].update(batch.lost)

    def write_newest(self, batches: Sequence[RowBatch]) -> None:
        """Record the newest rows."""
        with self._guard:
            for batch in batches:
                key = (batch.partition, batch.lineage)
                if batch.rows and (key not in self._newest or self._newest[key][0] <= batch.version):
                    self._newest[key] = batch.version, StampedRow(batch.rows[-1], batch.committed_at_ms)

    def write_rows(self, batches: Sequence[RowBatch]) -> None:
        """Record runs, watermarks and lost ranges, in any order, as if blocks had been written of them."""
        with self._guard:
            MemoryMappingIndex.write_lost(self, batches)
            for batch in batches:
                rows = self._given[batch.partition, batch.lineage]
                for row in batch.rows:
                    rows.put(row, batch.version)
            self._unwritten |= {(batch.partition, batch.lineage) for batch in batches}
            MemoryMappingIndex.write_newest(self, batches)
            self._written += 1
            for route in {batch.partition.route for batch in batches}:
                MemoryBlockStore.save_blocks_to(self, route, 0, NOBODY, 0, self._written)

    def reached(self, routes: Collection[Route]) -> Mapping[Route, Sequence[Reached]]:
        """How far blocks reach; those of what a test wrote by itself are made now."""
        with self._guard:
            while self._unwritten:
                self._write_given(*self._unwritten.pop())
            return super().reached(routes)

    def _write_given(self, partition: RoutePartition, lineage: Lineage) -> None:
        given = self._given[partition, lineage]
        for name in given.names:
            self.forget(name)
        given.names = []
        rows = History(lineage, given.ordered).rows
        before: dict[int, EpochRows] = {}
        step = self._rows_per_block - 1
        for start in range(0, max(len(rows) - 1, min(len(rows), 1)), step):
            some = rows[start : start + self._rows_per_block]
            key = BlockKey(lineage_number(partition, lineage), some[0].target_start, some[0].source_start, 0)
            body, alone = encode(some, 1, before), encode(some[:1], 1, before)
            MemoryBlockStore.write_blocks(self, [StoredBlock(partition, key, body, 0, alone)])
            given.names.append(BlockName(partition.route.target, partition.topic_partition, key))
            before |= epochs_of(some[:-1], before)

    def write_stops(
        self, route: Route, stops: Mapping[TopicPartition, str], gone: Collection[TopicPartition]
    ) -> None:
        """Say why partitions can't be copied; those that are gone are stopped no more."""
        with self._guard:
            self._stops.update({(route, item): reason for item, reason in stops.items()})
            for item in gone:
                self._stops.pop((route, item), None)

    # --- reading -------------------------------------------------------------------------------------------

    def stops(self, route: Route) -> Mapping[TopicPartition, str]:
        """The partitions of the route that can't be copied, each with its reason."""
        with self._guard:
            return {item: reason for (of, item), reason in self._stops.items() if of == route}

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""
        with self._guard:
            return sorted({item.topic_partition.topic for item, _ in self._lineages if item.route == route})

    def lineages(self, route: Route, topic: TopicName) -> Sequence[LineageRecord]:
        """The lineages of every partition of the topic, by partition and sequence."""
        with self._guard:
            records = [
                record
                for (partition, _), record in self._lineages.items()
                if partition.route == route and partition.topic_partition.topic == topic
            ]
        return sorted(records, key=lambda item: (item.partition.topic_partition.partition, item.sequence))

    def told_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """The lineages, and the newest row of each as it was recorded, of the topic on each of the routes."""
        return {route: RouteTopic(self.lineages(route, topic), self._told(route, topic)) for route in routes}

    def _told(self, route: Route, topic: TopicName) -> Mapping[tuple[int, Lineage], StampedRow]:
        with self._guard:
            return {
                (partition.topic_partition.partition, lineage): newest
                for (partition, lineage), (_, newest) in self._newest.items()
                if partition.route == route and partition.topic_partition.topic == topic
            }

    def lost_ranges(
        self, wanted: Collection[tuple[RoutePartition, Lineage]]
    ) -> Mapping[tuple[RoutePartition, Lineage], Sequence[LostRange]]:
        """Every lost range of each of these lineages, in source order."""
        with self._guard:
            return {
                key: sorted(self._lost.get(key, set()), key=lambda gap: (gap.source_start, gap.source_end))
                for key in wanted
            }
