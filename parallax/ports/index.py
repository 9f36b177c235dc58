"""The doors to the mapping index: rows as they are written, and as answers read them.

The rules of `parallax.ports.clusters` hold here too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from parallax.domain.ids import Lineage, Route, RoutePartition, SourceOffset, TargetOffset, TopicName
from parallax.domain.runs import LostRange, Run


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of one partition and lineage that one run-log record (or several in a row) committed.

    Attributes:
        rows: runs in order, then at most one watermark.
        committed_at_ms: the last record's timestamp, milliseconds since the Unix epoch. It chooses the time bucket;
            all records of a batch lie in the same hour.
        version: grows from one owner to the next (`index_version`); the greater wins where two rows meet.
    """

    partition: RoutePartition
    lineage: Lineage
    rows: tuple[Run, ...]
    lost: tuple[LostRange, ...]
    committed_at_ms: int
    version: int


def index_version(*, layout: int, run_log_offset: int) -> int:
    """The version of rows from the run-log record at ``run_log_offset``: greater for later owners and records."""
    return (layout << 48) | run_log_offset


@dataclass(frozen=True, slots=True)
class LineageRecord:
    """One lineage of a partition, in the order in which they began.

    Attributes:
        sequence: 0 for the first lineage of the partition, then 1 more for each.
        source_first: the first source offset that the lineage covers.
        target_first: the target's end when it began; rows of earlier lineages at or above it are void.
        closed_at: the source's next offset when it ended; None while it goes on.
    """

    partition: RoutePartition
    lineage: Lineage
    sequence: int
    source_first: SourceOffset
    target_first: TargetOffset
    closed_at: SourceOffset | None
    version: int


@dataclass(frozen=True, slots=True)
class StampedRow:
    """A row and when it was committed, in milliseconds since the Unix epoch."""

    row: Run
    committed_at_ms: int


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows from some target offset on.

    Attributes:
        complete_to: the page holds every indexed row below this target offset.
    """

    rows: tuple[Run, ...]
    complete_to: TargetOffset


@dataclass(frozen=True, slots=True)
class LineageTail:
    """The last rows of a lineage, and what it lost.

    Attributes:
        rows: in order.
        complete_from: every row with ``target_start >= complete_from`` is among them.
        lost: every lost range of the lineage.
    """

    rows: tuple[Run, ...]
    complete_from: TargetOffset
    lost: tuple[LostRange, ...]


class MappingIndexWriter(Protocol):
    """The index as the replicator writes it: idempotent, in any order, greater version wins."""

    def write_lineages(self, records: Sequence[LineageRecord]) -> None:
        """Record lineages; a record with the same lineage and a greater version replaces the other."""

    def write_rows(self, batches: Sequence[RowBatch]) -> None:
        """Record runs, lost ranges and watermarks. Returns once all are acknowledged.

        What a lineage's newest row tells of is readable before that row is.
        """

    def indexed_up_to(self, route: Route, layout: int, shard: int) -> int:
        """The run-log next offset below which everything of the shard is indexed; 0 if nothing is."""

    def save_indexed_up_to(self, route: Route, layout: int, shard: int, run_log_next: int) -> None:
        """Remember it; a smaller value than the one stored is ignored."""

    def begin_anew(self, route: Route, layout: int, shard: int, run_log_next: int) -> None:
        """Remember this value in place of a greater one: the run log was made anew, its offsets begin again."""


@dataclass(frozen=True, slots=True)
class RouteTopic:
    """What the index holds of a topic on one route.

    Attributes:
        records: its lineages, by partition and sequence.
        newest: the newest row of each partition and lineage; read after the lineages.
    """

    records: Sequence[LineageRecord]
    newest: Mapping[tuple[int, Lineage], StampedRow]


@dataclass(frozen=True, slots=True)
class RowPlace:
    """An offset in a lineage around which rows are asked for: either of the target or of the source."""

    partition: RoutePartition
    lineage: Lineage
    target: TargetOffset | None = None
    source: SourceOffset | None = None


class MappingIndexReader(Protocol):
    """The index as answers read it. Rows missing from an answer make a resume offset earlier, never wrong."""

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""

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

    def rows_around(self, places: Sequence[RowPlace]) -> Sequence[Sequence[Run]]:
        """For each place, in order, what `rows_at_target` or `rows_at_source` answers, all read side by side."""

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

    def lost_ranges(self, partition: RoutePartition, lineage: Lineage) -> Sequence[LostRange]:
        """Every lost range of the partition and lineage."""

    def tails(
        self, newest: Mapping[tuple[RoutePartition, Lineage], StampedRow]
    ) -> Mapping[tuple[RoutePartition, Lineage], LineageTail]:
        """The rows that lineages ended with, each up to its newest row at least, all read at once.

        Args:
            newest: the lineages, with the newest row of each as it was read before.
        """


class MappingIndex(MappingIndexWriter, MappingIndexReader, Protocol):
    """Both sides of the index."""
