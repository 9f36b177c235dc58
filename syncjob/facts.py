"""What one cycle knows of a group, as plain values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from parallax.domain.commits import GroupCommit, ObservedCommit
from parallax.domain.formats import UnreadableRow
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.ownership import Offers
from parallax.domain.primary import Assignment
from parallax.domain.progress import Progress

T = TypeVar("T")

Place = tuple[ClusterName, TopicPartition]
"""Where a group commits."""


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
        seen: what was remembered of the group's commits there before this cycle, members' reports included.
        read_at_ms: when the reading of its commits began; 0: it is away.
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
    seen: Mapping[TopicPartition, ObservedCommit] = field(default_factory=dict)
    read_at_ms: int = 0

    def without(self, items: Collection[TopicPartition]) -> GroupSide:
        """The side as if there were no such partitions."""
        return replace(
            self,
            commits=_but(self.commits, items),
            own=self.own.difference(items),
            published=_but(self.published, items),
            offers=_but(self.offers, items),
            seen=_but(self.seen, items),
        )

    def offset(self, item: TopicPartition) -> TargetOffset | None:
        """What the group has committed there; None: nothing."""
        seen = self.commits.get(item)
        return None if seen is None else seen.commit.next_offset


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group on all aggregate clusters, what its last moves left, and where it is recorded as primary.

    Attributes:
        unreadable: partitions of which something is stored that this release can't read, and what; nothing else tells
            of them.
    """

    group: GroupName
    sides: Mapping[ClusterName, GroupSide]
    progress: Mapping[TopicPartition, Progress]
    assignment: Assignment | None
    unreadable: Mapping[TopicPartition, str] = field(default_factory=dict)

    def without(self, rows: Iterable[UnreadableRow]) -> GroupFacts:
        """The facts of all other partitions, and why these are left out."""
        problems: dict[TopicPartition, list[str]] = {}
        for row in rows:
            problems.setdefault(row.topic_partition, []).append(row.problem)
        return replace(
            self,
            sides={name: side.without(problems) for name, side in self.sides.items()},
            progress=_but(self.progress, problems),
            unreadable={item: "; ".join(found) for item, found in problems.items()},
        )

    @property
    def primary(self) -> ClusterName | None:
        """The cluster recorded as the one on which the group's commits are the truth; None: no single one."""
        return None if self.assignment is None else self.assignment.consumed_cluster

    def counts(self, side: GroupSide) -> bool:
        """Whether what the group commits there is the truth: it is recorded there, or nowhere."""
        return side.reachable and (self.assignment is None or self.primary == side.cluster)

    def is_at_work_beside(self, cluster: ClusterName, item: TopicPartition) -> bool:
        """Whether the group has members on another cluster, or commits there of its own that go on."""
        return any(
            side.has_members or (item in side.own and side.reachable and not side.commits[item].steady)
            for name, side in self.sides.items()
            if name != cluster
        )

    def partitions(self) -> list[TopicPartition]:
        """Every partition with a commit anywhere, in order."""
        return sorted({item for side in self.sides.values() for item in side.commits})


def _but(values: Mapping[TopicPartition, T], items: Collection[TopicPartition]) -> dict[TopicPartition, T]:
    return {item: value for item, value in values.items() if item not in items}
