"""Where groups are: what they report, and what all sources together tell of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from offsetsvc.answers import Basis, ReportedMove, ReportedPosition
from offsetsvc.claims import beyond_the_rows
from offsetsvc.clusters import Clusters, ClusterView
from offsetsvc.moves import RecordedMoves
from offsetsvc.resume.own import routes_into
from parallax.client.messages import outcome_to_pb
from parallax.config.config import Config
from parallax.domain.commits import GroupCommit, ObservedCommit, PublishedOffset
from parallax.domain.formats import apart
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.place import LogRange
from parallax.domain.progress import holds_for_topic
from parallax.domain.rights import ANYBODY, Principal
from parallax.errors import (
    InvalidOffsetError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
)
from parallax.ports.groups import GroupStore
from parallax.ports.index import TopicsByRoute, topic_lineages
from parallax.v1 import offsets_pb2 as pb

_ROWS_MAY_LAG_S = (0.2, 0.4, 0.8)
"""Waits for rows that the store has shown to another service; all moves of a call share them."""

_REPORT = "ReportPositions"

_ANY_OFFSET = 2**63
"""The end of a log that can't be asked for it."""


class GroupPositions:
    """Takes reports and shows positions."""

    def __init__(
        self,
        config: Config,
        index: TopicsByRoute,
        groups: GroupStore,
        clusters: Clusters,
        now_ms: Callable[[], int],
        moves: RecordedMoves,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sleep = sleep
        self._config = config
        self._index = index
        self._groups = groups
        self._clusters = clusters
        self._now_ms = now_ms
        self._moves = moves

    def report(
        self,
        group: GroupName,
        cluster: ClusterName,
        positions: Sequence[ReportedPosition],
        moves: Sequence[ReportedMove],
        *,
        by: Principal = ANYBODY,
    ) -> None:
        """Remember what a group has delivered at the cluster, and the moves to it that it has made.

        Moves are audited where they change what is recorded; positions are not.

        Raises:
            UnknownTopicError: the cluster lacks the topic (a move may come before it does), or has created it anew
                since the move.
            UnknownPartitionError: the topic has no such partition.
            InvalidOffsetError: a position lies beyond the log's end, where nobody can have been; or a move says that more of a
                source was consumed than rows tell of.
            StoreUnavailableError: nothing or not all was remembered; telling it again does no harm.
            UnreadableRowError: what a move of one of the partitions left can't be read and stands; all else was
                remembered.
        """
        view = self._clusters.view(cluster)
        now_ms = self._now_ms()
        partitions = {item.topic_partition for item in positions} | {item.topic_partition for item in moves}
        required = {item.topic_partition.topic for item in positions} | {
            move.topic_partition.topic for move in moves if move.topic_id
        }
        ids = {
            topic: self._topic_id(view, topic, required=topic in required)
            for topic in {partition.topic for partition in partitions}
        }
        for partition in partitions:
            _require_partition(view, partition)
        _require_within(
            view,
            [
                *((item.topic_partition, item.next_offset) for item in positions),
                *((move.topic_partition, move.progress.resume_offset) for move in moves),
            ],
        )
        self._require_proven(moves)
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
        if not moves:
            self._moves.note_unaudited(_REPORT)
            return
        self._moves.save(
            by,
            _REPORT,
            group,
            {
                move.topic_partition: replace(move.progress, topic_id=ids[move.topic_partition.topic])
                for move in moves
            },
            now_ms,
        )

    def show(self, group: GroupName) -> pb.GetGroupPositionsResponse:
        """The group's positions on every aggregate cluster.

        Raises:
            UnknownGroupError: no cluster and no table knows the group, and every cluster was asked.
        """
        clusters = [self._on(group, cluster) for cluster in self._config.aggregate_clusters()]
        known = any(item.positions for item in clusters) or self._groups.knows(group)
        if not known and not any(item.HasField("failure") for item in clusters):
            raise UnknownGroupError(f"group {group!r} has never committed, and no table knows it")
        return pb.GetGroupPositionsResponse(group=group, clusters=clusters)

    def _on(self, group: GroupName, cluster: ClusterName) -> pb.GetGroupPositionsResponse.ClusterPositions:
        view = self._clusters.view(cluster)
        committed = view.committed(group)
        seen, unreadable_seen = apart(self._groups.observed(group, cluster))
        told, unreadable_told = apart(self._groups.published(group, cluster))
        observed = {item.topic_partition: item for item in seen}
        published = {item.topic_partition: item for item in told}
        problems = {row.topic_partition: row.problem for row in (*unreadable_seen, *unreadable_told)}
        partitions = sorted({*committed, *published, *observed, *problems})
        logs = view.log_ranges(partitions)
        return pb.GetGroupPositionsResponse.ClusterPositions(
            cluster=cluster,
            failure=view.failure,
            positions=[
                _position(
                    partition,
                    committed.get(partition),
                    observed.get(partition),
                    published.get(partition),
                    logs.get(partition),
                    problems.get(partition),
                )
                for partition in partitions
            ],
        )

    def _require_proven(self, moves: Sequence[ReportedMove]) -> None:
        """Refuse progress beyond the rows. Another reader of the store may have seen newer ones: they are waited for."""
        waits_s = iter(_ROWS_MAY_LAG_S)
        for topic in sorted({move.topic_partition.topic for move in moves}):
            of_topic = [self._beyond_own(move) for move in moves if move.topic_partition.topic == topic]
            while problems := beyond_the_rows(
                of_topic, self._index.route_topics(self._config.all_routes(), topic)
            ):
                wait_s = next(waits_s, None)
                if wait_s is None:
                    raise InvalidOffsetError("; ".join(problems))
                self._sleep(wait_s)

    def _beyond_own(self, move: ReportedMove) -> ReportedMove:
        """The move without sources that a group may have read where they are produced, as far as they go there."""
        item = move.topic_partition
        left = {
            source: position
            for source, position in move.progress.positions.items()
            if max([position.source_next, *(end for _, end in position.epoch_ends)])
            > self._own_end(source.region, item)
        }
        return replace(move, progress=replace(move.progress, positions=left))

    def _own_end(self, region: RegionName, item: TopicPartition) -> int:
        """Where the log ends that groups read and routes copy from; -1: of the region there is none."""
        cluster = aggregate_cluster(region)
        if cluster not in self._config.aggregate_clusters() or not self._config.is_copied_from(cluster):
            return -1
        view = self._clusters.view(cluster)
        log = view.log_ranges([item]).get(item)
        if log is not None:
            return log.high_watermark
        return -1 if view.reachable else _ANY_OFFSET

    def _topic_id(self, view: ClusterView, topic: TopicName, *, required: bool) -> TopicId:
        """The topic's id there; empty if it is not there and not required to be."""
        topic_id = view.topic_id(topic)
        if topic_id is None:
            is_read = self._config.is_copied_from(view.cluster)
            routes = routes_into(self._config, view.cluster, is_read=is_read)
            topic_id = topic_lineages(self._index, routes, topic, None).topic_id
        if not topic_id and not required:
            return TopicId("")
        if not topic_id:
            known: Mapping[TopicName, object] = view.topics()
            raise UnknownTopicError(
                f"{view.cluster} has no topic {topic!r}; topics: {', '.join(sorted(known)) or 'none'}"
            )
        return topic_id


def _position(
    partition: TopicPartition,
    committed: GroupCommit | None,
    observed: ObservedCommit | None,
    published: PublishedOffset | None,
    log: LogRange | None,
    problem: str | None,
) -> pb.GroupPosition:
    position = pb.GroupPosition(topic=partition.topic, partition=partition.partition, problem=problem)
    if committed is not None:
        position.next_offset, position.basis = committed.next_offset, Basis.COMMITTED.value
    elif observed is not None:
        position.next_offset, position.basis = observed.next_offset, Basis.OBSERVED.value
        position.observed_at_ms = observed.observed_at_ms
    if log is not None:
        position.low_watermark, position.high_watermark = log.low_watermark, log.high_watermark
        if position.HasField("next_offset"):
            position.lag_offsets = max(0, log.high_watermark - position.next_offset)
    if published is not None:
        position.published_offset = published.progress.resume_offset
        position.published_outcome = outcome_to_pb(published.outcome)
        position.published_at_ms = published.published_at_ms
    return position


def _require_within(view: ClusterView, positions: Collection[tuple[TopicPartition, TargetOffset]]) -> None:
    """Refuse positions beyond the end of a log that can be asked for it."""
    logs = dict(view.log_ranges([item for item, _ in positions]))
    beyond = [
        item for item, at in positions if (log := logs.get(item)) is not None and at > log.high_watermark
    ]
    if beyond:
        # A member is told of records sooner than a remembered end is: what it says is held against the end of now. A
        # cluster that has died meanwhile confirms nothing, and refutes nothing either.
        again = view.log_ranges(list(dict.fromkeys(beyond)), fresh=True)
        for item in beyond:
            logs.pop(item, None)
        logs.update(again)
    for item, next_offset in positions:
        log = logs.get(item)
        if log is not None and next_offset > log.high_watermark:
            raise InvalidOffsetError(
                f"next offset {next_offset} of {item} lies beyond the end of its log in {view.cluster}, "
                f"{log.high_watermark}: nobody can have come so far"
            )


def _require_partition(view: ClusterView, partition: TopicPartition) -> None:
    info = view.topics().get(partition.topic)
    if info is not None and partition.partition >= info.partitions:
        raise UnknownPartitionError(
            f"topic {partition.topic!r} has no partition {partition.partition} in {view.cluster}; "
            f"it has {info.partitions}"
        )
