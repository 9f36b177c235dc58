"""Writes rows into an index as an owner of a lease does, for tests that have rows and no run log."""

from __future__ import annotations

from collections.abc import Sequence

from parallax.domain.ids import Lineage, Route, RoutePartition, SourceOffset, TargetOffset
from parallax.domain.index_rows import LineageRecord, RowBatch, layout_of
from parallax.ports.index import MappingStore
from replicator.mapping.block_writer import BlockWriter

_Lease = tuple[Route, int, int]


class RowOwner:
    """Owner of as many leases as are needed: one of each route, layout and partition.

    Args:
        index: where to.
        most_runs: of a block.
    """

    def __init__(self, index: MappingStore, most_runs: int = 7) -> None:
        self._index = index
        self._most_runs = most_runs
        self._writers: dict[_Lease, BlockWriter] = {}
        self._next: dict[_Lease, int] = {}
        self._told: set[tuple[RoutePartition, Lineage]] = set()

    def write_rows(self, batches: Sequence[RowBatch], *, all_in_blocks: bool = False) -> None:
        """Write rows in one turn of each lease.

        Args:
            batches: in the order in which they were committed.
            all_in_blocks: write blocks of all that was given as well.
        """
        self._index.write_lost([batch for batch in batches if batch.lost])
        for batch in batches:
            partition, lineage = batch.partition, batch.lineage
            if (partition, lineage) not in self._told:
                self._told.add((partition, lineage))
                record = LineageRecord(
                    partition, lineage, lineage.generation, SourceOffset(0), TargetOffset(0), None, 0
                )
                self._index.write_lineages([record])
        by_lease: dict[_Lease, list[RowBatch]] = {}
        for batch in batches:
            partition = batch.partition.topic_partition.partition
            by_lease.setdefault((batch.partition.route, layout_of(batch.version), partition), []).append(
                batch
            )
        for lease, ours in by_lease.items():
            if lease not in self._writers:
                self._writers[lease] = BlockWriter(self._index, *lease, most_runs=self._most_runs)
                self._next[lease] = self._writers[lease].begins_at
            first = self._next[lease]
            self._next[lease] = first + 1
            self._writers[lease].write(ours, first, first + 1)
            if all_in_blocks:
                self._writers[lease].write_all()

    def take_over(self) -> None:
        """Let other owners follow, who begin where blocks reach."""
        self._writers.clear()
