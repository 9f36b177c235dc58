"""Whose commit it is: the group's own, or one that was published for it; and where a group is at work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parallax.domain.commits import GroupCommit, PublishedOffset
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.metadata import decode, is_ours
from parallax.domain.primary import Assignment
from parallax.domain.progress import Progress, made_for
from parallax.errors import MetadataError


@dataclass(frozen=True, slots=True)
class Seen:
    """A commit as read now, and what it was a cycle before (or what was published in its place since).

    Attributes:
        before: None where nothing was read before.
    """

    commit: GroupCommit
    before: GroupCommit | None

    @property
    def steady(self) -> bool:
        """Whether two consecutive reads agree."""
        return self.commit == self.before


@dataclass(frozen=True, slots=True)
class Side:
    """A group on one aggregate cluster.

    Attributes:
        reachable: whether the cluster was asked in this cycle; if not, commits are those last seen.
        topic_ids: the topics that exist there (of a cluster that is away: those of the commits last seen).
        has_members: whether the group has members there now.
        assigned: topics of which they have partitions, with commits or without.
        reported_ahead: a member has just reported more than the group has committed.
    """

    cluster: ClusterName
    reachable: bool
    topic_ids: Mapping[TopicName, TopicId]
    commits: Mapping[TopicPartition, Seen]
    published: Mapping[TopicPartition, PublishedOffset] = field(default_factory=dict)
    has_members: bool = False
    assigned: frozenset[TopicName] = frozenset()
    reported_ahead: bool = False


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group on all aggregate clusters, what its last moves left, and where it is recorded as primary."""

    group: GroupName
    sides: Mapping[ClusterName, Side]
    progress: Mapping[TopicPartition, Progress]
    assignment: Assignment | None = None

    @property
    def primary(self) -> ClusterName | None:
        """The cluster recorded as the one on which the group's commits are the truth; None: no single one."""
        return None if self.assignment is None else self.assignment.consumed_cluster

    def partitions(self) -> list[TopicPartition]:
        """Every partition with a commit anywhere, in order."""
        return sorted({item for side in self.sides.values() for item in side.commits})


def is_own(facts: GroupFacts, cluster: ClusterName, item: TopicPartition) -> bool:
    """Whether the group has a commit there that is not simply what was published for it.

    Ours is a commit that equals the published offset, or whose metadata says that it was written as the resume
    offset of a move. A published offset no longer counts once the group has been seen active there since: what
    was published elsewhere later, computed from there, shows it.
    """
    side = facts.sides[cluster]
    seen = side.commits.get(item)
    if seen is None:
        return False
    commit, topic_id = seen.commit, side.topic_ids.get(item.topic)
    told = standing_offer(facts, cluster, item)
    if told is not None and told.progress.resume_offset == commit.next_offset:
        return False
    if not is_ours(commit.metadata):
        return True
    try:
        metadata = decode(commit.metadata)
    except MetadataError:
        return True
    as_left = metadata.resume_offset == commit.next_offset
    return not (as_left and made_for(metadata.target_topic_id, metadata.resume_offset, topic_id))


def has_begun(facts: GroupFacts, cluster: ClusterName, item: TopicPartition) -> bool:
    """Whether the group's commit there says how far it is: its own, or where a recorded move left it."""
    if is_own(facts, cluster, item):
        return True
    side, progress = facts.sides[cluster], facts.progress.get(item)
    return (
        item in side.commits
        and progress is not None
        and progress.holds_in(cluster, side.topic_ids.get(item.topic))
    )


def standing_offer(facts: GroupFacts, cluster: ClusterName, item: TopicPartition) -> PublishedOffset | None:
    """What was published there last, if it still holds: same topic, and the group not active there since."""
    side = facts.sides[cluster]
    told = side.published.get(item)
    if told is None or told.progress.topic_id != side.topic_ids.get(item.topic):
        return None
    elsewhere = (other.published.get(item) for other in facts.sides.values() if other is not side)
    outdated = any(
        later is not None and later.origin_cluster == cluster and later.published_at_ms > told.published_at_ms
        for later in elsewhere
    )
    return None if outdated else told
