"""What one partition's answer depends on, beside the rows of the index."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from offsetsvc.answers import Commit
from offsetsvc.index.lineage_memory import LineageView, TopicLineages
from offsetsvc.resume.skips import Limits
from parallax.domain.ids import ClusterName, GroupName, RegionName, TopicId, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress
from parallax.domain.resume import LogRange


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What is known of one cluster's side of a partition.

    Attributes:
        reachable: whether the cluster could be asked about the partition: it answers, and a leader is there.
        log: None: the cluster could not be asked, or has no such partition.
        partitions: partition count of the topic; None: the cluster could not be asked or lacks the topic.
    """

    cluster: ClusterName
    lineages: TopicLineages
    reachable: bool
    topic_id: TopicId
    partitions: int | None
    log: LogRange | None


@dataclass(frozen=True, slots=True)
class Question:
    """All that one partition's answer depends on, beside the rows.

    Attributes:
        regions: the source regions of the routes into the destination.
        progress: what the group's last move left at the origin; its cluster and topic id were checked.
        starts_at_end: policy for partitions without a commit: the end (``latest``), not the log start.
        notes: what was found out before.
    """

    group: GroupName
    topic_partition: TopicPartition
    origin: ClusterState
    destination: ClusterState
    regions: Collection[RegionName]
    commit: Commit
    progress: Progress | None
    starts_at_end: bool
    stale_after_ms: int
    limits: Limits
    notes: frozenset[Outcome] = frozenset()

    @property
    def views(self) -> list[LineageView]:
        """The lineages that it is about, of both sides."""
        partition = self.topic_partition.partition
        return [view for side in (self.origin, self.destination) for view in side.lineages.of(partition)]
