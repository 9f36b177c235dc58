"""Where groups are: what they report, and what all sources together tell of one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from offsetsvc.answers import Basis, ReportedMove, ReportedPosition
from offsetsvc.claims import beyond_the_rows, known_end, proven_by_rows
from offsetsvc.clusters import Clusters, ClusterView
from offsetsvc.index.memory import IndexMemory
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
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.lineages import latest_source_id
from parallax.domain.place import LogRange
from parallax.domain.progress import Progress, SourcePosition, holds_for_topic
from parallax.domain.rights import ANYBODY, Principal
from parallax.errors import (
    InvalidOffsetError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
)
from parallax.ports.groups import GroupStore
from parallax.ports.index import topic_lineages
from parallax.v1 import offsets_pb2 as pb

_ROWS_MAY_LAG_S = (0.2, 0.4, 0.8)
"""Waits for rows that the store has shown to another service; all moves of a call share them."""

_REPORT = "ReportPositions"


class GroupPositions:
    """Takes reports and shows positions."""

    def __init__(
        self,
        config: Config,
        index: IndexMemory,
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

        Moves are audited where they change what is recorded; positions are not. What a move says of records that were produced at a
        cluster that is away is remembered as far as anything else tells of them.

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
        moves = self._proven(group, moves)
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
            self._moves.tell_unaudited(_REPORT)
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
        seen = [item for item in seen if view.topic_id(item.topic_partition.topic) in {None, item.topic_id}]
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

    def _proven(self, group: GroupName, moves: Sequence[ReportedMove]) -> list[ReportedMove]:
        """The moves as they may be remembered.

        Raises:
            InvalidOffsetError: progress beyond the rows. Another reader of the store may have seen newer ones: they are waited for.
        """
        held = [self._held_against_own_logs(group, move) for move in moves]
        waits_s = iter(_ROWS_MAY_LAG_S)
        for topic in sorted({move.topic_partition.topic for move in moves}):
            of_topic = [left for _, left in held if left.topic_partition.topic == topic]
            routes = self._config.all_routes()
            if proven_by_rows(of_topic, self._index.remembered_topics(routes, topic)):
                continue  # as for the moves of other groups of the topic
            while problems := beyond_the_rows(of_topic, self._index.route_topics(routes, topic)):
                wait_s = next(waits_s, None)
                if wait_s is None:
                    raise InvalidOffsetError("; ".join(problems))
                self._sleep(wait_s)
        return [kept for kept, _ in held]

    def _held_against_own_logs(
        self, group: GroupName, move: ReportedMove
    ) -> tuple[ReportedMove, ReportedMove]:
        """The move as it may be remembered, and what of it rows have to tell.

        A group may read records where they are produced before any row tells of them: those are held against the log itself.
        """
        item = move.topic_partition
        kept: dict[SourceId, SourcePosition] = {}
        left: dict[SourceId, SourcePosition] = {}
        for source, position in move.progress.positions.items():
            kept[source] = position
            cluster = self._own_cluster(source.region)
            if cluster is None:
                left[source] = position
                continue
            view = self._clusters.view(cluster)
            log = view.log_ranges([item]).get(item)
            if log is None and not view.reachable:
                known = self._known_end(group, cluster, source, item)
                kept[source] = position if known is None else position.up_to(known)
            elif log is None or position.furthest > log.high_watermark:
                left[source] = position
        of = move.progress
        return replace(move, progress=replace(of, positions=kept)), replace(
            move, progress=replace(of, positions=left)
        )

    def _own_cluster(self, region: RegionName) -> ClusterName | None:
        """The region's cluster that groups read and routes copy from; None: there is none."""
        cluster = aggregate_cluster(region)
        is_one = cluster in self._config.aggregate_clusters() and self._config.is_copied_from(cluster)
        return cluster if is_one else None

    def _known_end(
        self, group: GroupName, cluster: ClusterName, source: SourceId, item: TopicPartition
    ) -> SourceOffset | None:
        """How far anything but the report tells of own records of a cluster that is away; None: nothing knows this incarnation.

        Rows of routes that read it, where the group was seen there, and what is remembered of its last move.
        """
        rows = known_end(
            source, item.partition, self._index.route_topics(self._config.all_routes(), item.topic)
        )
        seen, _ = apart(self._groups.observed(group, cluster))
        moved = self._groups.progress(group, item.topic).get(item.partition)
        ends = [] if rows is None else [rows]
        ends += [
            SourceOffset(it.next_offset)
            for it in seen
            if it.topic_partition == item and it.topic_id == source.topic_id
        ]
        if isinstance(moved, Progress) and source in moved.positions:
            ends.append(moved.positions[source].furthest)
        return max(ends, default=None)

    def _topic_id(self, view: ClusterView, topic: TopicName, *, required: bool) -> TopicId:
        """The topic's id there; empty if it is not there and not required to be."""
        topic_id = view.topic_id(topic)
        if topic_id is None:
            topic_id = self._latest_id(view.cluster, topic)
        if not topic_id and not required:
            return TopicId("")
        if not topic_id:
            known: Mapping[TopicName, object] = view.topics()
            there = f"topics: {', '.join(sorted(known)) or 'none'}"
            if view.failure is not None:
                there = f"it can't be asked, and no route has copied it: {view.failure}"
            raise UnknownTopicError(f"{view.cluster} has no topic {topic!r}; {there}")
        return topic_id

    def _latest_id(self, cluster: ClusterName, topic: TopicName) -> TopicId | None:
        """The id of a topic of a cluster that can't be asked: the one that was copied there last, or from there."""
        is_read = self._config.is_copied_from(cluster)
        into = routes_into(self._config, cluster, is_read=is_read)
        copied = topic_lineages(self._index, into, topic, None).topic_id
        if copied is not None:
            return copied
        others = map(partial(self._config.route_from_log, cluster), self._config.aggregate_clusters())
        out = [route for route in others if route is not None]
        return latest_source_id(self._index.route_topics(out, topic))


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
