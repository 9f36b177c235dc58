"""What one cycle knows of a group, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parallax.domain.commits import GroupCommit
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.ownership import Offers
from parallax.domain.primary import Assignment
from parallax.domain.progress import Progress


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
class GroupSide:
    """A group on one aggregate cluster.

    Attributes:
        reachable: whether the cluster was asked in this cycle; if not, commits are those last seen.
        topic_ids: the topics that exist there (of a cluster that is away: those of the commits last seen).
        own: the partitions on which the commit is the group's own, not one that was put there for it.
        published: what was published there last.
        offers: what of that still holds.
        has_members: whether the group has members there now.
        assigned: topics of which they have partitions, with commits or without.
        reported_ahead: a member has just reported more than the group has committed.
    """

    cluster: ClusterName
    reachable: bool
    topic_ids: Mapping[TopicName, TopicId]
    commits: Mapping[TopicPartition, Seen]
    own: frozenset[TopicPartition]
    published: Offers
    offers: Offers
    has_members: bool
    assigned: frozenset[TopicName]
    reported_ahead: bool

    def offset(self, item: TopicPartition) -> TargetOffset | None:
        """What the group has committed there; None: nothing."""
        seen = self.commits.get(item)
        return None if seen is None else seen.commit.next_offset


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group on all aggregate clusters, what its last moves left, and where it is recorded as primary."""

    group: GroupName
    sides: Mapping[ClusterName, GroupSide]
    progress: Mapping[TopicPartition, Progress]
    assignment: Assignment | None

    @property
    def primary(self) -> ClusterName | None:
        """The cluster recorded as the one on which the group's commits are the truth; None: no single one."""
        return None if self.assignment is None else self.assignment.consumed_cluster

    def partitions(self) -> list[TopicPartition]:
        """Every partition with a commit anywhere, in order."""
        return sorted({item for side in self.sides.values() for item in side.commits})
