"""Where groups are: what they report, and what all sources together tell of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from offsetsvc.answers import Basis, ReportedMove, ReportedPosition, lag_of
from offsetsvc.clusters import Clusters, ClusterView
from offsetsvc.names import Places
from parallax.config.config import Config
from parallax.domain.commits import ObservedCommit
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    region_of,
)
from parallax.domain.outcome import Outcome
from parallax.domain.place import LogRange
from parallax.domain.progress import holds_for_topic
from parallax.errors import UnknownGroupError, UnknownPartitionError, UnknownTopicError
from parallax.ports.groups import GroupStore
from parallax.ports.index import MappingIndexReader, topic_lineages


@dataclass(frozen=True, slots=True)
class PositionView:
    """A group on one partition of one cluster.

    Attributes:
        basis: committed, or observed where the cluster could not be asked; None without a position.
        published_offset: what was last published there for the group.
    """

    topic_partition: TopicPartition
    next_offset: TargetOffset | None
    basis: Basis | None
    observed_at_ms: int | None
    log: LogRange | None
    published_offset: TargetOffset | None = None
    published_outcome: Outcome | None = None
    published_at_ms: int | None = None

    @property
    def lag_offsets(self) -> int | None:
        """High watermark less next offset, never negative; None when either is unknown."""
        return lag_of(self.log, self.next_offset)


@dataclass(frozen=True, slots=True)
class ClusterPositions:
    """A group on one cluster; ``failure`` says why the cluster could not be asked."""

    cluster: ClusterName
    failure: str | None
    positions: tuple[PositionView, ...]


class GroupPositions:
    """Takes reports and shows positions."""

    def __init__(
        self,
        config: Config,
        index: MappingIndexReader,
        groups: GroupStore,
        clusters: Clusters,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._index = index
        self._groups = groups
        self._clusters = clusters
        self._now_ms = now_ms

    def report(
        self,
        group: GroupName,
        cluster: ClusterName,
        positions: Sequence[ReportedPosition],
        moves: Sequence[ReportedMove],
    ) -> None:
        """Remember what a group has delivered at the cluster, and the moves to it that it has made.

        Raises:
            UnknownTopicError: the cluster lacks the topic (a move may come before it does), or has created it anew
                since the move.
            UnknownPartitionError: the topic has no such partition.
            StoreUnavailableError: nothing or not all was remembered; telling it again does no harm.
        """
        view = self._clusters.view(cluster)
        now_ms = self._now_ms()
        told = {item.topic_partition for item in positions} | {item.topic_partition for item in moves}
        required = {item.topic_partition.topic for item in positions} | {
            move.topic_partition.topic for move in moves if move.topic_id
        }
        ids = {
            topic: self._topic_id(view, topic, required=topic in required)
            for topic in {partition.topic for partition in told}
        }
        for partition in told:
            _require_partition(view, partition)
        for move in moves:
            present = ids[move.topic_partition.topic]
            if not holds_for_topic(move.topic_id, move.progress.resume_offset, present):
                raise UnknownTopicError(
                    f"the move of {move.topic_partition} was to topic id {move.topic_id!r}, but {cluster} has "
                    f"{present!r}: the topic was created anew and the move is void"
                )
        if positions:
            self._groups.save_observed(
                [
                    ObservedCommit(
                        group,
                        cluster,
                        item.topic_partition,
                        ids[item.topic_partition.topic],
                        item.next_offset,
                        item.leader_epoch,
                        now_ms,
                        reported=True,
                    )
                    for item in positions
                ]
            )
        for topic in sorted({move.topic_partition.topic for move in moves}):
            progress = {
                move.topic_partition.partition: replace(move.progress, topic_id=ids[topic])
                for move in moves
                if move.topic_partition.topic == topic
            }
            self._groups.save_progress(group, topic, progress, moved_at_ms=now_ms)

    def show(self, group: GroupName) -> list[ClusterPositions]:
        """The group's positions on every aggregate cluster.

        Raises:
            UnknownGroupError: no cluster and no table knows the group, and every cluster was asked.
        """
        shown = [self._on(group, cluster) for cluster in Places(self._config).aggregate_clusters()]
        known = any(item.positions for item in shown) or group in set(self._groups.groups())
        if not known and all(item.failure is None for item in shown):
            raise UnknownGroupError(f"group {group!r} has never committed, and no table knows it")
        return shown

    def _on(self, group: GroupName, cluster: ClusterName) -> ClusterPositions:
        view = self._clusters.view(cluster)
        committed = view.committed(group)
        observed = {item.topic_partition: item for item in self._groups.observed(group, cluster)}
        published = {item.topic_partition: item for item in self._groups.published(group, cluster)}
        partitions = sorted({*committed, *published, *observed})
        logs = view.log_ranges(partitions)
        views = []
        for partition in partitions:
            position: tuple[TargetOffset | None, Basis | None, int | None] = (None, None, None)
            if partition in committed:
                position = (committed[partition].next_offset, Basis.COMMITTED, None)
            elif partition in observed:
                seen = observed[partition]
                position = (seen.next_offset, Basis.OBSERVED, seen.observed_at_ms)
            told = published.get(partition)
            views.append(
                PositionView(
                    partition,
                    *position,
                    logs.get(partition),
                    None if told is None else told.progress.resume_offset,
                    None if told is None else told.outcome,
                    None if told is None else told.published_at_ms,
                )
            )
        return ClusterPositions(cluster, view.failure, tuple(views))

    def _topic_id(self, view: ClusterView, topic: TopicName, *, required: bool) -> TopicId:
        """The topic's id there; empty if it is not there and not required to be."""
        found = view.topic_id(topic)
        if found is None:
            routes = self._config.routes_into(region_of(view.cluster))
            found = topic_lineages(self._index, routes, topic, None).topic_id
        if not found and not required:
            return TopicId("")
        if not found:
            known: Mapping[TopicName, object] = view.topics()
            raise UnknownTopicError(
                f"{view.cluster} has no topic {topic!r}; topics: {', '.join(sorted(known)) or 'none'}"
            )
        return found


def _require_partition(view: ClusterView, partition: TopicPartition) -> None:
    info = view.topics().get(partition.topic)
    if info is not None and partition.partition >= info.partitions:
        raise UnknownPartitionError(
            f"topic {partition.topic!r} has no partition {partition.partition} in {view.cluster}; "
            f"it has {info.partitions}"
        )
