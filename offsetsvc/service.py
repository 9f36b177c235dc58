"""The offset service's use cases, without transport: gRPC and REST are thin layers over these methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from offsetsvc.answers import (
    FailoverAnswer,
    Origin,
    ReportedMove,
    ReportedPosition,
    RouteView,
    RunsPage,
    SkipPage,
    Translation,
)
from offsetsvc.clusters import Clusters
from offsetsvc.index.cache import MAX_AGE_MS, CachedIndex
from offsetsvc.index.row_memory import RowMemory
from offsetsvc.index.tails import Tails
from offsetsvc.lookups import MappingViews, WatermarkView, origin_of, source_to_target, target_to_source
from offsetsvc.names import Places
from offsetsvc.positions import ClusterPositions, GroupPositions
from offsetsvc.primaries import Primaries
from offsetsvc.regions import RegionView, describe_regions
from offsetsvc.resume.answering import Failover
from offsetsvc.resume.request import FailoverRequest
from offsetsvc.resume.skip_updates import Watching, WatchRequest
from parallax.config.config import Config
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    Route,
    SourceOffset,
    TargetOffset,
    TopicName,
    TopicPartition,
    aggregate_cluster,
    region_of,
)
from parallax.domain.lineages import TopicLineages
from parallax.domain.progress import Progress
from parallax.errors import InvalidNameError, ParallaxError, UnknownPartitionError, UnknownTopicError
from parallax.ports.clusters import ClusterReader
from parallax.ports.decisions import PrimaryStore
from parallax.ports.groups import GroupStore
from parallax.ports.index import MappingIndexReader, topic_lineages
from parallax.runtime.deadline import Deadline

_READERS = 64
"""Reads side by side over all calls: Cassandra's driver multiplexes them on one connection, Kafka's likewise."""

_PROBE_EVERY_MS = 500.0
"""How soon a cluster that came back is seen."""

STORE = "store"
"""The name of the store among the dependencies."""


def wall_clock_ms() -> int:
    """Milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


class OffsetService:
    """All use cases. Stateless but for brief memories of reads and failures; safe to use from many threads.

    Args:
        config: the configuration.
        region: the region that it runs in; its aggregate cluster decides readiness.
        index: the mapping index.
        groups: what is remembered of groups.
        clusters: a reader for every aggregate cluster.
        primaries: decisions about primaries.
        now_ms: the wall clock.
        cache: whether the first reads about a topic may be `cached_index.MAX_AGE_MS` old.
    """

    def __init__(
        self,
        config: Config,
        region: RegionName,
        index: MappingIndexReader,
        groups: GroupStore,
        clusters: Mapping[ClusterName, ClusterReader],
        primaries: PrimaryStore,
        *,
        now_ms: Callable[[], int] = wall_clock_ms,
        cache: bool = True,
    ) -> None:
        config.region(region)
        self.config = config
        self.region = region
        self.places = Places(config)
        self._index: MappingIndexReader = CachedIndex(RowMemory(index)) if cache else index
        self._groups = groups
        self._clusters = Clusters(clusters, probe_every_ms=_PROBE_EVERY_MS)
        self._now_ms = now_ms
        self._executor = ThreadPoolExecutor(_READERS, "offsetsvc-read")
        tails = Tails(self._index, max_age_ms=MAX_AGE_MS if cache else 0)
        self._failover = Failover(config, self._index, tails, groups, self._clusters, self._executor, now_ms)
        self._watching = Watching(config, self._index, tails, self._clusters)
        self._views = MappingViews(config, self._index, self._executor, now_ms)
        self._positions = GroupPositions(config, self._index, groups, self._clusters, now_ms)
        self.primaries = Primaries(config, region, primaries, now_ms)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the reads under way end and start no more."""
        self._clusters.close()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def failover_offsets(
        self, request: FailoverRequest, deadline: Deadline, *, record_move: bool = False
    ) -> list[FailoverAnswer]:
        """Where each partition of a group resumes.

        Args:
            request: the group and its move.
            deadline: the answer must be there by then.
            record_move: remember each answer as the group's progress at the destination.

        Raises:
            ParallaxError: see `Failover.answers`.
        """
        self.places.require_distinct(request.origin, request.destination)
        answers = self._failover.answers(request, deadline)
        if record_move:
            self._record(request.group, answers)
        return answers

    def _record(self, group: GroupName, answers: Sequence[FailoverAnswer]) -> None:
        moved_at_ms = self._now_ms()
        by_topic: dict[TopicName, dict[int, Progress]] = {}
        for answer in answers:
            side = answer.destination
            progress = Progress(side.cluster, side.topic_id, answer.resume_offset, answer.progress)
            by_topic.setdefault(answer.topic_partition.topic, {})[answer.topic_partition.partition] = progress
        for topic, progress_of in by_topic.items():
            self._groups.save_progress(group, topic, progress_of, moved_at_ms=moved_at_ms)

    def watch_skips(
        self, request: WatchRequest, deadline: Deadline, wait: Callable[[float], bool]
    ) -> Iterator[SkipPage]:
        """Skip ranges as they become known; see `Watching.updates`."""
        return self._watching.updates(request, deadline, wait)

    def translate_offset(
        self,
        route: Route,
        partition: TopicPartition,
        *,
        source_next: SourceOffset | None = None,
        target_next: TargetOffset | None = None,
    ) -> Translation:
        """One next offset on the other side of a route.

        Raises:
            InvalidNameError: not exactly one of the offsets is given.
            InvalidOffsetError: it is negative.
            UnknownTopicError: the route has not copied the topic in its present incarnation.
            UnknownPartitionError: nor the partition.
        """
        if (source_next is None) == (target_next is None):
            raise InvalidNameError("name either source_next_offset or target_next_offset")
        cluster = aggregate_cluster(route.target)
        lineages = self._lineages(cluster, [route], partition).of(partition.partition)
        found = (
            source_to_target(self._index, lineages, source_next)
            if source_next is not None
            else target_to_source(self._index, lineages, TargetOffset(target_next or 0))
        )
        if found is None:
            raise UnknownPartitionError(
                f"route '{route}' has copied nothing of {partition} into the present topic of {cluster}"
            )
        return found

    def lookup_origin(self, cluster: ClusterName, partition: TopicPartition, record_offset: int) -> Origin:
        """Which source record lies at ``record_offset``?

        Raises:
            InvalidOffsetError: it is negative.
            UnknownTopicError: neither the cluster nor the index knows the topic.
        """
        routes = self.config.routes_into(region_of(cluster))
        lineages = self._lineages(cluster, routes, partition)
        return origin_of(self._index, routes, lineages, partition.partition, record_offset)

    def routes(self, deadline: Deadline) -> list[RouteView]:
        """Every configured route with the topics that it has copied."""
        return self._views.routes(deadline)

    def runs(self, route: Route, partition: TopicPartition, start: TargetOffset, limit: int) -> RunsPage:
        """Rows of a partition of a route; see `MappingViews.runs`."""
        return self._views.runs(route, partition, start, limit)

    def watermarks(self, route: Route, partition: TopicPartition) -> list[WatermarkView]:
        """The newest row of each lineage; see `MappingViews.watermarks`."""
        return self._views.watermarks(route, partition)

    def report(
        self,
        group: GroupName,
        cluster: ClusterName,
        positions: Sequence[ReportedPosition],
        moves: Sequence[ReportedMove],
    ) -> None:
        """Remember positions and moves; see `GroupPositions.report`."""
        self._positions.report(group, cluster, positions, moves)

    def group_positions(self, group: GroupName) -> list[ClusterPositions]:
        """The group's positions on every aggregate cluster."""
        return self._positions.show(group, self.places.aggregate_clusters())

    def describe_regions(self, deadline: Deadline) -> list[RegionView]:
        """Every region with its clusters and whether they answer; see `regions.describe_regions`."""
        return describe_regions(self.config, self._clusters, self._executor, deadline)

    def dependencies(self) -> list[str]:
        """What readiness looks at: the store, and the region's aggregate cluster if it has one."""
        own = self.config.region(self.region).aggregate is not None
        return [STORE, aggregate_cluster(self.region)] if own else [STORE]

    def missing(self) -> dict[str, str]:
        """Which of the dependencies do not answer, and why; empty when ready."""
        return {name: reason for name in self.dependencies() if (reason := self._ask(name)) is not None}

    def _ask(self, dependency: str) -> str | None:
        try:
            if dependency == STORE:
                for route in self.config.all_routes()[:1]:
                    self._index.topics(route)
            else:
                self._clusters.ask(ClusterName(dependency), lambda reader: reader.topics())
        except ParallaxError as error:  # a missing schema is as good as no store
            return str(error)
        return None

    def _lineages(
        self, cluster: ClusterName, routes: Sequence[Route], partition: TopicPartition
    ) -> TopicLineages:
        view = self._clusters.view(cluster)
        topic_id = view.topic_id(partition.topic)
        lineages = topic_lineages(self._index, routes, partition.topic, topic_id)
        info = view.topics().get(partition.topic)
        count = lineages.partitions if info is None else info.partitions
        if count == 0:
            known = ", ".join(sorted(view.topics())) or "none"
            raise UnknownTopicError(
                f"neither {cluster} nor the index knows topic {partition.topic!r}; topics there: {known}"
            )
        if partition.partition >= count:
            raise UnknownPartitionError(
                f"topic {partition.topic!r} has no partition {partition.partition}; it has {count}"
            )
        return lineages
