"""The narrow doors to the outside: clusters here, what is remembered of groups and the mapping index beside it.

Services take ports as arguments; composition roots (the commands, the start of a query) hand them the adapters of
`parallax.adapters`, tests those in memory. Every method may raise `UnavailableError`'s subclasses; what else it raises
is said beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from parallax.domain.commits import Commits
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.place import KeptEpoch, LogRange
from parallax.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """One incarnation of a topic on one cluster."""

    topic: TopicName
    topic_id: TopicId
    partitions: int


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group as its coordinator sees it.

    Attributes:
        members: 0 for groups that use ``assign()``.
        assigned: the topics of which a member has partitions, whether anything was committed on them or not.
        own_instances: ids of the members that are FailoverConsumers with an id of their own making.
        refused: why this client may not see the group; everything else is then what the cluster's list tells: 1
            for any number of members, no topics.
    """

    group: GroupName
    state: str
    members: int
    assigned: frozenset[TopicName] = frozenset()
    own_instances: frozenset[str] = frozenset()
    refused: str = ""


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

    def log_ranges(
        self, partitions: Collection[TopicPartition], *, fresh: bool = False
    ) -> Mapping[TopicPartition, LogRange]:
        """Log start and **high watermark** (isolation level 0, never the last stable offset).

        Partitions that don't exist, or have no leader now, are left out. ``fresh``: nothing is answered from memory.
        """

    def kept_epochs(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, KeptEpoch]:
        """What the log that is there now has of a leader epoch in which somebody has read it.

        Partitions that don't exist, that have no leader now, or whose leader does not know the epoch are left out.
        """

    def time_at(self, partition: TopicPartition, position: TargetOffset) -> PositionTime | None:
        """When the position is; None: it lies outside of the log, or no record there bears a timestamp."""

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> TargetOffset | None:
        """The first offset whose record is of that time or later, in the order of offsets; control records count.

        The high watermark, as it was before the search, where there is none; None: there is no such partition.
        """

    def groups(
        self, chosen: Callable[[GroupName], bool] | None = None, *, resting: Collection[GroupName] = ()
    ) -> Sequence[GroupState]:
        """Every consumer group, or those that are chosen; one that may not be seen says so itself.

        Of ``resting`` ones no more is told than that they are there.
        """

    def committed(self, group: GroupName) -> Commits:
        """Every committed offset of the group; empty for a group that never committed."""

    def unsettled(self, group: GroupName) -> frozenset[TopicPartition]:
        """Partitions whose committed offset an open transaction may replace.

        Asked for before `committed`, it tells whether what that finds may change without members.
        """


class ClusterWriter(ClusterReader, Protocol):
    """A cluster that group offsets may be published to."""

    def committed_each(self, groups: Collection[GroupName]) -> Mapping[GroupName, Commits | ConfigError]:
        """`committed` of many groups; in the place of one that this client may not see, or a topic of it, stands why."""

    def dismiss(self, group: GroupName, instances: Collection[str]) -> None:
        """Take members out of a group by their instance ids; one that is at work joins again.

        Raises:
            ClusterUnavailableError: the cluster did not answer in time.
        """

    def commit_for(self, group: GroupName, commits: Commits) -> None:
        """Set committed offsets of a group without members.

        Raises:
            FencedError: the group has members; nothing was written.
        """
