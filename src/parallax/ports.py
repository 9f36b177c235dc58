"""The narrow doors to the outside: one port per outside system, each with at least two implementations.

Services take ports as arguments; composition roots (``parallax.cli``, the query's start, ``devstack``) choose the
adapters. Every method may raise `UnavailableError`'s subclasses; what else it raises is said beside it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from parallax.domain.ids import (
    ClusterName,
    GroupName,
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.outcome import Outcome
from parallax.domain.resume import LogRange, Progress
from parallax.domain.run import LostRange, Run

# --- the mapping index -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of one partition and lineage that one run-log record (or several in a row) committed.

    Attributes:
        rows: runs in order, then at most one watermark.
        committed_at_ms: the run-log record's timestamp, milliseconds since the Unix epoch. It chooses the time
            bucket, so that a replay writes the same rows again.
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


class MappingIndexReader(Protocol):
    """The index as answers read it. Rows missing from an answer make a resume offset earlier, never wrong."""

    def topics(self, route: Route) -> Sequence[TopicName]:
        """Topics with at least one lineage on the route."""

    def lineages(self, route: Route, topic: TopicName) -> Sequence[LineageRecord]:
        """The lineages of every partition of the topic, by partition and sequence."""

    def newest(self, route: Route, topic: TopicName) -> Mapping[tuple[int, Lineage], StampedRow]:
        """The newest row (run or watermark) of each partition and lineage."""

    def rows_at_target(
        self, partition: RoutePartition, lineage: Lineage, target: TargetOffset
    ) -> Sequence[Run]:
        """Rows around the last one with ``target_start <= target``, that one among them if it exists."""

    def rows_at_source(
        self, partition: RoutePartition, lineage: Lineage, source: SourceOffset
    ) -> Sequence[Run]:
        """Rows around ``source``: the last with ``source_start <= source`` and the first at or above it."""

    def rows_from_target(
        self, partition: RoutePartition, lineage: Lineage, start: TargetOffset, limit: int
    ) -> RowPage:
        """Up to about ``limit`` rows with ``target_end > start``, in order."""

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


# --- groups ----------------------------------------------------------------------------------------------------


REPORT_COUNTS_MS = 10_000
"""Members report every second; one that is silent for so long has left, and what is committed counts again."""


@dataclass(frozen=True, slots=True)
class ObservedCommit:
    """A group's next offset as last seen on a cluster: what is left to go by when the cluster is gone.

    Attributes:
        reported: a member has said so itself; it commits later.
    """

    group: GroupName
    cluster: ClusterName
    topic_partition: TopicPartition
    topic_id: TopicId
    next_offset: TargetOffset
    leader_epoch: int
    observed_at_ms: int
    reported: bool = False

    def counts_at(self, at_ms: int) -> bool:
        """Whether this is a report that outweighs a lower commit seen at that moment."""
        return self.reported and at_ms - self.observed_at_ms <= REPORT_COUNTS_MS


@dataclass(frozen=True, slots=True)
class PublishedOffset:
    """A resume offset as published for a group on the passive cluster.

    Attributes:
        progress: what the move leaves behind if the group goes on from here; its cluster is the passive one.
        origin_cluster: where the group is consuming.
        origin_next_offset: the commit there that the answer was computed from.
    """

    group: GroupName
    topic_partition: TopicPartition
    progress: Progress
    origin_cluster: ClusterName
    origin_next_offset: TargetOffset
    outcome: Outcome
    published_at_ms: int


class GroupStore(Protocol):
    """What is remembered of consumer groups."""

    def groups(self) -> Sequence[GroupName]:
        """Every group that any table knows."""

    def progress(self, group: GroupName, topic: TopicName) -> Mapping[int, Progress]:
        """What the group's last move left, by partition."""

    def save_progress(
        self, group: GroupName, topic: TopicName, progress: Mapping[int, Progress], *, moved_at_ms: int
    ) -> None:
        """Replace it: once per move. An older ``moved_at_ms`` than the stored one is ignored."""

    def void_progress(self, group: GroupName, topic: TopicName, partitions: Collection[int]) -> None:
        """Forget it: the group was rewound."""

    def observed(self, group: GroupName, cluster: ClusterName) -> Sequence[ObservedCommit]:
        """The group's commits as last seen on the cluster."""

    def save_observed(self, commits: Sequence[ObservedCommit]) -> None:
        """Remember commits; an older ``observed_at_ms`` than the stored one is ignored."""

    def published(self, group: GroupName, cluster: ClusterName) -> Sequence[PublishedOffset]:
        """What was last published for the group on the cluster."""

    def save_published(self, offsets: Sequence[PublishedOffset]) -> None:
        """Remember what was published; an older ``published_at_ms`` than the stored one is ignored."""


# --- Kafka -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One incarnation of a topic on one cluster."""

    topic: TopicName
    topic_id: TopicId
    partitions: int


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """A group's committed offset on one partition (a next offset), with its metadata string."""

    next_offset: TargetOffset
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group as its coordinator sees it.

    Attributes:
        members: 0 for groups that use ``assign()``.
        assigned: the topics of which a member has partitions, whether anything was committed on them or not.
        own_instances: ids of the members that are FailoverConsumers with an id of their own making.
    """

    group: GroupName
    state: str
    members: int
    assigned: frozenset[TopicName] = frozenset()
    own_instances: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PositionTime:
    """The timestamp of a position: that of the record there, or of the first record of its batch.

    Attributes:
        timestamp_ms: milliseconds since the Unix epoch.
        below: no record lies at or above the position; the last one below it was taken.
    """

    timestamp_ms: int
    below: bool


class ClusterReader(Protocol):
    """What the services ask of one Kafka cluster; each call is bounded by the adapter's time-out."""

    @property
    def cluster(self) -> ClusterName:
        """The cluster's name."""

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        """Every topic but internal ones."""

    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """Log start and **high watermark** (isolation level 0, never the last stable offset)."""

    def time_at(self, partition: TopicPartition, position: TargetOffset) -> PositionTime | None:
        """When the position is; None: it lies outside of the log, or no record there bears a timestamp."""

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> TargetOffset | None:
        """The first offset whose record is of that time or later, in the order of offsets; control records count.

        The high watermark, as it was before the search, where there is none; None: there is no such partition.
        """

    def groups(self) -> Sequence[GroupState]:
        """Every consumer group."""

    def committed(self, group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
        """Every committed offset of the group; empty for a group that never committed."""


class ClusterWriter(ClusterReader, Protocol):
    """A cluster that group offsets may be published to."""

    def dismiss(self, group: GroupName, instances: Collection[str]) -> None:
        """Take members out of a group by their instance ids; one that is at work joins again.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """

    def commit_for(self, group: GroupName, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Set committed offsets of a group without members.

        Raises:
            FencedError: the group has members; nothing was written.
        """
