"""What one cycle knows of a group, as plain values: commits, published offsets, answers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from parallax.domain.ids import (
    ClusterName,
    GroupName,
    SourceId,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.metadata import decode, is_ours
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Assignment
from parallax.domain.progress import Progress, SourcePosition, made_for
from parallax.domain.skips import SkipRange
from parallax.errors import MetadataError
from parallax.ports.clusters import GroupCommit, PublishedOffset


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


_HARMLESS = frozenset({Outcome.OK, Outcome.STALE, Outcome.UNREACHABLE})


@dataclass(frozen=True, slots=True)
class Answer:
    """The offset service's word on one partition of a move.

    Attributes:
        origin_next_offset: the group's position that the answer was computed from; None: it has none.
        origin_indexed_to: the index tells of all records of the origin below; None: some source has no row.
        pending_records: consumed, and not at the target yet.
        target_topic_id: empty where the topic is unknown at the target.
        low_watermark, high_watermark: of the target's partition; None if it has no such partition.
        vector: how far each source is consumed.
        complete_to: below it the skip ranges are complete; None: everywhere.
    """

    topic_partition: TopicPartition
    origin_next_offset: TargetOffset | None
    resume_offset: TargetOffset
    target_topic_id: TopicId
    low_watermark: int | None
    high_watermark: int | None
    outcome: Outcome
    notes: frozenset[Outcome]
    vector: Mapping[SourceId, SourcePosition]
    skips: tuple[SkipRange, ...] = ()
    complete_to: TargetOffset | None = None
    origin_indexed_to: TargetOffset | None = None
    pending_records: int = 0

    @property
    def settled(self) -> bool:
        """Whether asking again later can't give a better answer: all that was consumed is indexed, and at the target."""
        position = self.origin_next_offset
        if position is None:
            return True
        indexed = self.origin_indexed_to is not None and self.origin_indexed_to >= position
        return indexed and self.pending_records == 0

    @property
    def final(self) -> bool:
        """Whether it also names every record to skip, and nothing is amiss: it holds while the group stands still.

        Rows of idle sources may be missing for long (STALE), and a cluster may be away (UNREACHABLE): neither changes
        what was consumed, and where it lies.
        """
        return self.settled and self.complete_to is None and self.notes <= _HARMLESS


Pair = tuple[ClusterName, ClusterName]
"""Origin and target."""

Answers = Mapping[Pair, Mapping[TopicPartition, Answer]]


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
