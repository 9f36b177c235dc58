"""The doors to the mapping index: rows as they are written, and as answers read them.

The rules of `parallax.ports.clusters` hold here too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from parallax.domain.block_history import BlockHistory
from parallax.domain.ids import (
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import (
    LineageRecord,
    RouteTopic,
    RowBatch,
    RowPage,
    StampedRow,
)
from parallax.domain.lineage_history import MissingBlock
from parallax.domain.lineages import TopicLineages, lineages_that_count
from parallax.domain.runs import LostRange, Run
from parallax.ports.blocks import BlockWriterStore

STOPS_KEPT_S = 180
"""A lease that is gone says nothing more of its stops."""


class MappingRecordsWriter(Protocol):
    """What is told of whole lineages: idempotent, in any order, greater version wins."""

    def write_lineages(self, records: Sequence[LineageRecord]) -> None:
        """Record lineages; a record with the same lineage and a greater version replaces the other."""

    def write_lost(self, batches: Sequence[RowBatch]) -> None:
        """Record the lost ranges of these batches."""

    def write_newest(self, batches: Sequence[RowBatch]) -> None:
        """Record the last row of each of these batches as the newest of its lineage, which may be older than what turns tell."""

    def write_stops(
        self, route: Route, stops: Mapping[TopicPartition, str], gone: Collection[TopicPartition]
    ) -> None:
        """Say why partitions can't be copied; it is forgotten after `STOPS_KEPT_S` unless it is said again.

        Args:
            route: the route.
            stops: the reasons.
            gone: partitions that are stopped no more.
        """


class MappingRecordsReader(Protocol):
    """What was told of whole lineages."""

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""

    def stops(self, route: Route) -> Mapping[TopicPartition, str]:
        """The partitions of the route that can't be copied, each with the reason that was said last."""

    def lineages(self, route: Route, topic: TopicName) -> Sequence[LineageRecord]:
        """The lineages of every partition of the topic, by partition and sequence."""

    def told_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """The lineages, and the newest row of each as it was recorded, of the topic on each of the routes."""

    def lost_ranges(
        self, wanted: Collection[tuple[RoutePartition, Lineage]]
    ) -> Mapping[tuple[RoutePartition, Lineage], Sequence[LostRange]]:
        """Every lost range of each of these lineages, in source order, all read side by side."""


class MappingStore(MappingRecordsWriter, MappingRecordsReader, BlockWriterStore, Protocol):
    """All that is kept of the mapping: what was told of whole lineages, and rows in turns and blocks."""


class MappingIndexWriter(MappingStore, Protocol):
    """The index as the replicator writes it."""

    def indexed_up_to(self, route: Route, layout: int, shard: int) -> int:
        """The run-log next offset below which everything of the shard is indexed; 0 if nothing is."""


class MappingIndexReader(Protocol):
    """The index as answers read it. Rows missing from an answer make a resume offset earlier, never wrong."""

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""

    def stops(self, route: Route) -> Mapping[TopicPartition, str]:
        """The partitions of the route that can't be copied, each with the reason that was said last."""

    def lineages(self, route: Route, topic: TopicName) -> Sequence[LineageRecord]:
        """The lineages of every partition of the topic, by partition and sequence."""

    def newest(self, route: Route, topic: TopicName) -> Mapping[tuple[int, Lineage], StampedRow]:
        """The newest row (run or watermark) of each partition and lineage."""

    def route_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """What the index holds of the topic on each of the routes, all read side by side."""

    def rows_at_target(
        self, partition: RoutePartition, lineage: Lineage, target: TargetOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``target_start <= target``, that one among them if it exists."""

    def rows_at_source(
        self, partition: RoutePartition, lineage: Lineage, source: SourceOffset
    ) -> Sequence[Run]:
        """Rows around ``source``: the last with ``source_start <= source`` and the first at or above it."""

    def rows_from_target(
        self,
        partition: RoutePartition,
        lineage: Lineage,
        start: TargetOffset,
        limit: int,
        end: TargetOffset | None = None,
    ) -> RowPage:
        """Up to about ``limit`` rows with ``target_end > start``, in order.

        Args:
            partition: of a route.
            lineage: whose rows are asked for.
            start: the first target offset of interest.
            limit: more rows than that are not wanted at once.
            end: rows that begin here or above may be left out; None: all are of interest.
        """

    def lost_ranges(
        self, wanted: Collection[tuple[RoutePartition, Lineage]]
    ) -> Mapping[tuple[RoutePartition, Lineage], Sequence[LostRange]]:
        """Every lost range of each of these lineages, in source order, all read side by side."""

    def told(self, wanted: Sequence[tuple[RoutePartition, Lineage]]) -> Sequence[object]:
        """Of each lineage what is another one whenever something new was read of it."""

    def histories(
        self, wanted: Mapping[tuple[RoutePartition, Lineage], StampedRow | None]
    ) -> Mapping[tuple[RoutePartition, Lineage], BlockHistory]:
        """The rows of lineages, without their lost ranges; no block is read before it is asked for.

        Args:
            wanted: lineages, with the newest row of each as far as it is known.
        """

    def read_blocks(self, missing: Collection[MissingBlock]) -> object:
        """Read together what look-ups in `histories` would read one by one (`LineageHistory.missing_at_target`).

        Returns:
            As long as it is kept, look-ups find these blocks, mostly: whatever they don't find they read themselves.
        """


class MappingIndex(MappingIndexWriter, MappingIndexReader, Protocol):
    """Both sides of the index."""


class TopicsByRoute(Protocol):
    """What tells which lineages there are."""

    def route_topics(self, routes: Collection[Route], topic: TopicName) -> Mapping[Route, RouteTopic]:
        """What the index holds of the topic on each of the routes, all read side by side."""


def topic_lineages(
    index: TopicsByRoute, routes: Sequence[Route], topic: TopicName, topic_id: TopicId | None
) -> TopicLineages:
    """The lineages of the topic on the cluster that the routes lead to.

    Args:
        index: the mapping index.
        routes: every route into the cluster.
        topic: the topic.
        topic_id: the topic's present id there; None: the cluster can't be asked, the id of the newest row counts.
    """
    return lineages_that_count(index.route_topics(routes, topic), topic_id)
