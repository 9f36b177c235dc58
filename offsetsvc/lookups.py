"""What the mapping holds, for people and tools: routes with their topics, rows of a partition, one offset translated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

import structlog

from offsetsvc.clusters import Clusters, ClusterView
from offsetsvc.index.memory import IndexMemory
from offsetsvc.messages import lost_to_pb, run_to_pb
from offsetsvc.parallel import Concurrently
from offsetsvc.resume.own import routes_into
from parallax.config.config import Config
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.index_rows import LineageRecord, StampedRow
from parallax.domain.lineages import LineageView, TopicLineages
from parallax.domain.place import Via, position_of
from parallax.domain.progress import records_below
from parallax.domain.runs import Run
from parallax.errors import (
    InvalidNameError,
    InvalidOffsetError,
    LimitError,
    UnknownPartitionError,
    UnknownTopicError,
    UnreadableRowError,
)
from parallax.ports.index import topic_lineages
from parallax.runtime.deadline import Deadline
from parallax.v1 import offsets_pb2 as pb

_log = structlog.get_logger(__name__)

DEFAULT_ROWS = 1_000
MOST_ROWS = 10_000


class MappingLookups:
    """Reads the index for people and tools."""

    def __init__(
        self,
        config: Config,
        index: IndexMemory,
        clusters: Clusters,
        executor: Executor,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._index = index
        self._clusters = clusters
        self._executor = executor
        self._now_ms = now_ms

    def routes(self, deadline: Deadline) -> pb.ListRoutesResponse:
        """Every configured route with the topics that it has copied, or can't copy.

        Of a topic of which the index holds what can't be read it is told where it is stopped, and nothing else.
        """
        together = Concurrently(self._executor, deadline)
        routes = self._config.all_routes()
        topics = together.map(self._index.topics, routes, "listing topics")
        stops = together.map(self._index.stops, routes, "listing stopped partitions")
        triples = [
            (route, topic, stopped)
            for route, names, stopped in zip(routes, topics, stops, strict=True)
            for topic in sorted({*names, *(item.topic for item in stopped)})
        ]
        topics_of = together.map(
            lambda triple: (triple[0], self._route_topic(*triple)), triples, "reading newest rows"
        )
        return pb.ListRoutesResponse(
            routes=[
                pb.RouteInfo(
                    route=str(route),
                    source_cluster=self._config.source_cluster(route),
                    target_cluster=aggregate_cluster(route.target),
                    topics=[topic for of_route, topic in topics_of if of_route == route],
                )
                for route in routes
            ]
        )

    def runs(
        self, route: Route, partition: TopicPartition, start: TargetOffset, limit: int
    ) -> pb.ListRunsResponse:
        """Rows of a partition of a route from a target offset on, every lineage by itself.

        Args:
            route: the route.
            partition: the partition.
            start: a target offset.
            limit: rows of each lineage at most, about; 0: `DEFAULT_ROWS`.

        Raises:
            UnknownTopicError: the route never copied the topic.
            UnknownPartitionError: nor the partition.
            LimitError: more than `MOST_ROWS`.
        """
        if not 0 <= limit <= MOST_ROWS:
            raise LimitError(f"limit {limit} is not between 0 and {MOST_ROWS}")
        records = self._records(route, partition)
        newest = self._index.newest(route, partition.topic)
        item = RoutePartition(route, partition)
        pages = [
            self._index.rows_from_target(item, record.lineage, start, limit or DEFAULT_ROWS)
            for record in records
        ]
        cut_off = [
            page.complete_to
            for record, page in zip(records, pages, strict=True)
            if (last := newest.get((partition.partition, record.lineage))) is not None
            and start < page.complete_to < last.row.target_end
        ]
        continue_at = min(cut_off, default=None)
        lost = self._index.lost_ranges([(item, record.lineage) for record in records])
        return pb.ListRunsResponse(
            lineages=[
                pb.ListRunsResponse.LineageRuns(
                    lineage=str(record.lineage),
                    runs=[
                        run_to_pb(row)
                        for row in page.rows
                        if continue_at is None or row.target_start < continue_at
                    ],
                    lost=[lost_to_pb(gap) for gap in lost[item, record.lineage]],
                    closed_at=record.closed_at,
                )
                for record, page in zip(records, pages, strict=True)
            ],
            continue_at=continue_at,
        )

    def watermarks(self, route: Route, partition: TopicPartition) -> pb.ListWatermarksResponse:
        """The newest row of each lineage of a partition, older lineages first.

        Raises:
            UnknownTopicError: the route never copied the topic.
            UnknownPartitionError: nor the partition.
        """
        newest = self._index.newest(route, partition.topic)
        now_ms = self._now_ms()
        return pb.ListWatermarksResponse(
            watermarks=[
                pb.ListWatermarksResponse.Watermark(
                    lineage=str(record.lineage),
                    source_next_offset=stamped.row.source_end,
                    target_end=stamped.row.target_end,
                    last_record_end=stamped.row.last_record_end,
                    source_leader_epoch=stamped.row.source_leader_epoch,
                    committed_at_ms=stamped.committed_at_ms,
                    age_ms=max(0, now_ms - stamped.committed_at_ms),
                    closed=record.closed_at is not None,
                )
                for record in self._records(route, partition)
                if (stamped := newest.get((partition.partition, record.lineage))) is not None
            ]
        )

    def translate(
        self,
        route: Route,
        partition: TopicPartition,
        *,
        source_next: SourceOffset | None = None,
        target_next: TargetOffset | None = None,
        of: TopicId | None = None,
    ) -> pb.TranslateOffsetResponse:
        """One next offset on the other side of a route.

        Args:
            route: the route.
            partition: the partition.
            source_next: of the source; or
            target_next: of the target.
            of: the id of the topic of which the offset is; None: of the present one.

        Raises:
            InvalidNameError: not exactly one of the offsets is given.
            InvalidOffsetError: it is negative.
            UnknownTopicError: the route has not copied the topic in its present incarnation.
            UnknownPartitionError: nor the partition.
        """
        if (source_next is None) == (target_next is None):
            raise InvalidNameError("name either source_next_offset or target_next_offset")
        cluster = aggregate_cluster(route.target)
        known = self._lineages(cluster, [route], partition)
        lineages: Sequence[LineageView] = known.of(partition.partition)
        if of is not None and source_next is not None:
            lineages = [view for view in lineages if view.source.topic_id == of]
        elif of is not None and known.topic_id != of:
            lineages = ()
        translation = (
            _source_to_target(self._index, lineages, source_next)
            if source_next is not None
            else _target_to_source(self._index, lineages, TargetOffset(target_next or 0))
        )
        if translation is None:
            raise UnknownPartitionError(
                f"route '{route}' has copied nothing of {partition} into the present topic of {cluster}"
            )
        return translation

    def origin(
        self,
        cluster: ClusterName,
        partition: TopicPartition,
        record_offset: int,
        *,
        of: TopicId | None = None,
    ) -> pb.LookupOriginResponse:
        """Which source record lies at ``record_offset``?

        Args:
            cluster: the target.
            partition: the partition there.
            record_offset: the offset there.
            of: the id of the topic of which the offset is; None: of the present one.

        Returns:
            Of a cluster that no route leads into, but producers write to, the record itself, without a route.

        Raises:
            InvalidOffsetError: it is negative.
            UnknownRouteError: nobody writes to the cluster, neither routes nor producers.
            UnknownTopicError: neither the cluster nor the index knows the topic.
        """
        produced = self._config.is_produced_at(cluster)
        routes = routes_into(self._config, cluster, is_read=produced)
        if not routes:
            return self._itself(cluster, partition, record_offset, of)
        lineages = self._lineages(cluster, routes, partition)
        if of is not None and lineages.topic_id != of:
            return pb.LookupOriginResponse(found=False, complete=False)
        return _origin(
            self._index, routes, lineages, partition.partition, record_offset, self._config.source_cluster
        )

    def _itself(
        self, cluster: ClusterName, partition: TopicPartition, record_offset: int, of: TopicId | None
    ) -> pb.LookupOriginResponse:
        """A record of a cluster that no route leads into: whatever lies there was produced there."""
        if record_offset < 0:
            raise InvalidOffsetError(f"record offset {record_offset} is negative")
        view = self._clusters.view(cluster)
        topic_id = view.topic_id(partition.topic)
        log = view.log_ranges([partition]).get(partition)
        if not view.reachable or (of is not None and of != topic_id):
            return pb.LookupOriginResponse(found=False, complete=False)
        self._require_there(view, partition, 0)
        if log is None or record_offset >= log.high_watermark:
            return pb.LookupOriginResponse(found=False, complete=log is not None)
        return pb.LookupOriginResponse(
            found=True,
            source_cluster=self._config.one_kafka(cluster),
            source_topic_id=topic_id,
            source_record_offset=record_offset,
            complete=True,
        )

    def _records(self, route: Route, partition: TopicPartition) -> list[LineageRecord]:
        records = self._index.lineages(route, partition.topic)
        if not records:
            known = ", ".join(self._index.topics(route)) or "none"
            raise UnknownTopicError(
                f"route '{route}' never copied topic {partition.topic!r}; topics: {known}"
            )
        ours = [item for item in records if item.partition.topic_partition == partition]
        if not ours:
            count = max(item.partition.topic_partition.partition for item in records) + 1
            raise UnknownPartitionError(
                f"route '{route}' knows no partition {partition.partition} of topic {partition.topic!r}; "
                f"it has {count}"
            )
        return ours

    def _route_topic(
        self, route: Route, topic: TopicName, stops: Mapping[TopicPartition, str]
    ) -> pb.RouteTopic:
        records: Sequence[LineageRecord] = ()
        rows: Mapping[tuple[int, Lineage], StampedRow] = {}
        try:
            records, rows = self._index.lineages(route, topic), self._index.newest(route, topic)
        except UnreadableRowError as error:
            _log.warning("route_topic_unreadable", route=str(route), topic=topic, problem=str(error))
        newest: dict[int, StampedRow] = {}
        for (partition, _), row in rows.items():
            before = newest.get(partition)
            if before is None or before.committed_at_ms < row.committed_at_ms:
                newest[partition] = row
        partitions = {item.partition.topic_partition.partition for item in records}
        oldest_ms = min((row.committed_at_ms for row in newest.values()), default=None)
        known = oldest_ms is not None and not partitions - set(newest)
        return pb.RouteTopic(
            topic=topic,
            partitions=max(partitions, default=-1) + 1,
            freshness_ms=max(0, self._now_ms() - (oldest_ms or 0)) if known else None,
            stopped=[
                pb.StoppedPartition(partition=item.partition, reason=reason)
                for item, reason in sorted(stops.items())
                if item.topic == topic
            ],
        )

    def _lineages(
        self, cluster: ClusterName, routes: Sequence[Route], partition: TopicPartition
    ) -> TopicLineages:
        view = self._clusters.view(cluster)
        topic_id = view.topic_id(partition.topic)
        lineages = topic_lineages(self._index, routes, partition.topic, topic_id)
        self._require_there(view, partition, lineages.partitions)
        return lineages

    @staticmethod
    def _require_there(view: ClusterView, partition: TopicPartition, indexed: int) -> None:
        """Refuse a partition that neither the cluster has nor the index, which knows so many of the topic."""
        info = view.topics().get(partition.topic)
        count = indexed if info is None else info.partitions
        if count == 0:
            known = ", ".join(sorted(view.topics())) or "none"
            raise UnknownTopicError(
                f"neither {view.cluster} nor the index knows topic {partition.topic!r}; topics there: {known}"
            )
        if partition.partition >= count:
            raise UnknownPartitionError(
                f"topic {partition.topic!r} has no partition {partition.partition}; it has {count}"
            )


def _source_to_target(
    index: IndexMemory, lineages: Sequence[LineageView], source_next: SourceOffset
) -> pb.TranslateOffsetResponse | None:
    """Where the first record at or above ``source_next`` can lie on the target; None without lineages.

    The source's present incarnation counts, and of its lineages the one that covers the offset.
    """
    if source_next < 0:
        raise InvalidOffsetError(f"source next offset {source_next} is negative")
    if not lineages:
        return None
    present = [view for view in lineages if view.source == lineages[-1].source]
    covering = [view for view in present if view.record.source_first <= source_next]
    (rows,) = index.rows_of([(covering or present)[-1 if covering else 0]])
    place, via, row = position_of(source_next, rows.history().history)
    target = TargetOffset(0) if place is None else place
    return _translation(source_next, target, via, rows.view.lineage, () if row is None else (row,))


def _target_to_source(
    index: IndexMemory, lineages: Sequence[LineageView], target_next: TargetOffset
) -> pb.TranslateOffsetResponse | None:
    """How far a reader of the target with ``target_next`` has come in the source; None without lineages."""
    if target_next < 0:
        raise InvalidOffsetError(f"target next offset {target_next} is negative")
    if not lineages:
        return None
    covering = [view for view in lineages if view.record.target_first <= target_next]
    (rows,) = index.rows_of([covering[-1] if covering else lineages[0]])
    below = records_below(target_next, rows.history().history)
    if below is None:
        return _translation(SourceOffset(0), target_next, Via.LOG_START, rows.view.lineage, ())
    source_next, row = below
    inside = row.target_start < target_next <= row.target_end
    via = Via.EXACT if inside else Via.AFTER
    return _translation(source_next, target_next, via, rows.view.lineage, (row,))


def _translation(
    source_next: SourceOffset, target_next: TargetOffset, via: Via, lineage: Lineage, rows: Sequence[Run]
) -> pb.TranslateOffsetResponse:
    return pb.TranslateOffsetResponse(
        source_next_offset=source_next,
        target_next_offset=target_next,
        via=via.value,
        lineage=str(lineage),
        runs=[run_to_pb(row) for row in rows],
    )


def _origin(
    index: IndexMemory,
    routes: Sequence[Route],
    lineages: TopicLineages,
    partition: int,
    record_offset: int,
    source_cluster: Callable[[Route], ClusterName],
) -> pb.LookupOriginResponse:
    """The source record that lies at ``record_offset`` of the target partition, if some indexed run holds it."""
    if record_offset < 0:
        raise InvalidOffsetError(f"record offset {record_offset} is negative")
    views = lineages.of(partition)
    # An offset that was lost and given again is told of by the lineage that followed.
    covered = {
        view.partition.route
        for view in views
        if view.newest is not None
        and view.newest.row.target_end > record_offset
        and (view.cut is None or view.cut > record_offset)
    }
    complete = covered >= set(routes)
    for view, rows in zip(views, index.rows_of(views), strict=True):
        run = rows.history().history.floor_by_target(TargetOffset(record_offset))
        if run is not None and _holds(run, record_offset):
            source_offset = run.source_start + (record_offset - run.target_start)
            return pb.LookupOriginResponse(
                found=True,
                route=str(view.partition.route),
                source_cluster=source_cluster(view.partition.route),
                source_topic_id=view.source.topic_id,
                source_record_offset=source_offset,
                complete=True,
            )
    return pb.LookupOriginResponse(found=False, complete=complete)


def _holds(run: Run, record_offset: int) -> bool:
    return run.target_start <= record_offset < run.target_end
