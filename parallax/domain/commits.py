"""Commits of groups: seen at a cluster, published there, or to be written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress

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

    def standing_at(self, at_ms: int) -> ObservedCommit:
        """The same, seen at a later moment too; a report keeps the time of its own: nobody has looked what was said."""
        if self.reported or at_ms <= self.observed_at_ms:
            return self
        return replace(self, observed_at_ms=at_ms)

    def says_same(self, other: ObservedCommit | None) -> bool:
        """Whether the other tells the same of the same place, whenever that was."""
        return (
            other is not None
            and (self.next_offset, self.topic_id, self.leader_epoch, self.reported)
            == (other.next_offset, other.topic_id, other.leader_epoch, other.reported)
            and (self.topic_partition, self.cluster, self.group)
            == (other.topic_partition, other.cluster, other.group)
        )


def went_back(commit: TargetOffset | None, seen: ObservedCommit | None, progress: Progress) -> bool:
    """Whether a group's commit is not what it has been since its last move: it has vanished, or is lower.

    Then it is another life of the group, or it was set back: deleted, expired, reset, and perhaps begun anew under the same
    name. Nobody knows of such a group that it has consumed what that move tells of.

    Args:
        commit: where the move led to, as it stands; None: the cluster answers, and there is none.
        seen: what was last seen there, before.
        progress: what the move left.
    """
    if seen is None or seen.reported or seen.observed_at_ms < progress.moved_at_ms:
        return False  # a member is done with records before it commits them
    if progress.topic_id and seen.topic_id != progress.topic_id:
        return False  # of another incarnation of the topic
    return commit is None or commit < seen.next_offset


@dataclass(frozen=True, slots=True)
class PublishedOffset:
    """A resume offset as published for a group on the passive cluster.

    Attributes:
        progress: what the move leaves behind if the group goes on from here; its cluster is the passive one.
        origin_cluster: where the group is consuming.
        origin_next_offset: the commit there that the answer was computed from; None: the group had none.
    """

    group: GroupName
    topic_partition: TopicPartition
    progress: Progress
    origin_cluster: ClusterName
    origin_next_offset: TargetOffset | None
    outcome: Outcome
    published_at_ms: int


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """A group's committed offset on one partition (a next offset), with its metadata string."""

    next_offset: TargetOffset
    leader_epoch: int
    metadata: str

    def is_same(self, other: GroupCommit | None) -> bool:
        """Whether it says the same. Nobody writes the same metadata at the same offset; the leader epoch may be another."""
        return other is not None and (other.next_offset, other.metadata) == (self.next_offset, self.metadata)


Commits = Mapping[TopicPartition, GroupCommit]
"""Of a group on a cluster."""


def next_offset_of(commits: Commits, item: TopicPartition) -> TargetOffset | None:
    """Where the group stands on a partition; None: it has no commit there."""
    commit = commits.get(item)
    return None if commit is None else commit.next_offset


def last_seen(observed: Iterable[ObservedCommit]) -> tuple[Commits, Mapping[TopicName, TopicId]]:
    """A group's commits on a cluster that is away, and the topics that they were made on."""
    items = list(observed)
    commits = {item.topic_partition: GroupCommit(item.next_offset, item.leader_epoch, "") for item in items}
    return commits, {item.topic_partition.topic: item.topic_id for item in items}
