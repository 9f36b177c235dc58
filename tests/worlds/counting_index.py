"""An index in memory that counts the reads of rows."""

from __future__ import annotations

from collections.abc import Sequence

from parallax.domain.ids import Lineage, RoutePartition, SourceOffset, TargetOffset
from parallax.domain.index_rows import RowPage
from parallax.domain.runs import Run
from tests.memory.index import MemoryMappingIndex


class CountingIndex(MemoryMappingIndex):
    """Counts the reads of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def rows_at_target(
        self, partition: RoutePartition, lineage: Lineage, target: TargetOffset
    ) -> Sequence[Run]:
        self.reads += 1
        return super().rows_at_target(partition, lineage, target)

    def rows_at_source(
        self, partition: RoutePartition, lineage: Lineage, source: SourceOffset
    ) -> Sequence[Run]:
        self.reads += 1
        return super().rows_at_source(partition, lineage, source)

    def rows_from_target(
        self,
        partition: RoutePartition,
        lineage: Lineage,
        start: TargetOffset,
        limit: int,
        end: TargetOffset | None = None,
    ) -> RowPage:
        self.reads += 1
        return super().rows_from_target(partition, lineage, start, limit, end)
