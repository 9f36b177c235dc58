"""Skip ranges after a move, as the rows of what was pending arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from offsetsvc.answers import SkipPage
from offsetsvc.clusters import Clusters
from offsetsvc.index.memory import IndexMemory, LineageRows
from offsetsvc.resume.own import OwnRoutes, of_regions, routes_between, routes_into
from offsetsvc.resume.skips import Limits, collect_skips
from parallax.config.config import Config
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    RegionName,
    Route,
    SourceId,
    TargetOffset,
    TopicId,
    TopicPartition,
    region_of,
)
from parallax.domain.place import KeptEpoch, LogRange
from parallax.domain.progress import (
    Progress,
    SourceHistory,
    SourcePosition,
    TargetTruncation,
    holds_for_topic,
)
from parallax.domain.resume import Resume, resume
from parallax.errors import InvalidOffsetError, UnknownTopicError
from parallax.ports.index import topic_lineages
from parallax.runtime.deadline import Deadline

POLL_MS = 200.0
"""How often the index is asked while something is pending: the default interval of its rows."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """A partition whose group has moved.

    Attributes:
        cluster: where the group is now.
        topic_id: the topic's incarnation there that ``progress`` and ``start`` speak of; empty: it was not there yet.
        origin: where it came from, for its leader epochs; None: unknown.
    """

    topic_partition: TopicPartition
    cluster: ClusterName
    topic_id: TopicId
    progress: Mapping[SourceId, SourcePosition]
    start: TargetOffset
    origin: ClusterName | None = None


class SkipWatches:
    """Answers `WatchSkips`."""

    def __init__(self, config: Config, index: IndexMemory, clusters: Clusters) -> None:
        self._config = config
        self._index = index
        self._clusters = clusters

    def updates(
        self, request: WatchRequest, deadline: Deadline, wait: Callable[[float], bool]
    ) -> Iterator[SkipPage]:
        """Pages that adjoin, the first at once, until one is final or the deadline passes.

        Args:
            request: the partition.
            deadline: the iteration ends by then; the caller may ask again from the last ``complete_to``.
            wait: waits that many seconds; returns True to end the iteration.

        Raises:
            UnknownTopicError: the topic was created anew: the caller's progress is void.
            InvalidOffsetError: ``start`` is negative.
            StoreUnavailableError: the index did not answer in time.
        """
        if request.start < 0:
            raise InvalidOffsetError(f"start {request.start} is negative")
        self._require_same_topic(request)
        start, first = request.start, True
        while True:
            if not request.topic_id:
                request = replace(request, topic_id=self._topic_id(request) or TopicId(""))
            page = self._page(request, start)
            if first or page.complete_to is None or page.complete_to > start:
                yield page
            if page.complete_to is None:
                return
            more = page.cut and page.complete_to > start
            start, first = page.complete_to, False
            # New rows come at their interval; what they told of this time is told.
            if deadline.passed or (not more and wait(POLL_MS / 1_000)):
                return

    def _require_same_topic(self, request: WatchRequest) -> None:
        present = self._topic_id(request)
        if present is not None and not holds_for_topic(request.topic_id, TargetOffset(0), present):
            raise UnknownTopicError(
                f"topic {request.topic_partition.topic!r} in {request.cluster} has id {present or 'none'}, not "
                f"{request.topic_id!r}: it was created anew, and skip ranges of the former one are void"
            )

    def _topic_id(self, request: WatchRequest) -> TopicId | None:
        """Empty if the cluster has no such topic now, None if it could not be asked."""
        return self._clusters.view(request.cluster).topic_id(request.topic_partition.topic)

    def _page(self, request: WatchRequest, start: TargetOffset) -> SkipPage:
        own = self._own_routes(request)
        routes = routes_into(self._config, request.cluster, is_read=own.back is not None)
        rows = self._rows(routes, request.topic_partition, request.topic_id)
        origin_rows = self._origin_rows(request, own)
        origin = [item.history() for item in origin_rows if item.view.source in request.progress]
        destination = [] if own.whole else [item.history() for item in rows]
        if own.there:
            there = SourceId(region_of(request.cluster), request.topic_id)
            moved = request.progress.get(there)
            destination += own.at_destination(there, origin_rows).consumed_before(
                moved, self._lost(routes, request), self._kept(request, moved)
            )
        topic = request.topic_partition.topic
        choosing = [route for route in routes if self._config.route_topics(route).make(topic)]
        regions = own.regions([route.source for route in choosing or routes])
        place = self._pending(request, regions, origin, destination)
        pending_records = sum(
            answer.pending[1] - answer.pending[0] for answer in place.sources if answer.pending is not None
        )
        service = self._config.service
        skips = collect_skips(
            positions=request.progress,
            origin=origin,
            destination=destination,
            start=start,
            limits=Limits(service.max_skip_ranges, service.max_rows),
        )
        ends = [end for end in (place.complete_to, skips.cut_at) if end is not None]
        complete_to = max(min(ends), start) if ends else None
        ranges = [item for item in skips.ranges if complete_to is None or item[0] < complete_to]
        if complete_to is not None and ranges and ranges[-1][1] > complete_to:
            ranges[-1] = (ranges[-1][0], complete_to)
        cut = skips.cut_at is not None and complete_to == skips.cut_at
        return SkipPage(ranges, complete_to, pending_records, cut)

    @staticmethod
    def _pending(
        request: WatchRequest,
        regions: Sequence[RegionName],
        origin: Sequence[SourceHistory],
        destination: Sequence[SourceHistory],
    ) -> Resume:
        """The resume rule from the progress alone: nothing was consumed at the origin but what it tells."""
        progress = Progress(request.cluster, request.topic_id, TargetOffset(0), request.progress)
        return resume(
            commit=TargetOffset(0),
            regions=regions,
            origin=origin,
            destination=destination,
            destination_log=LogRange(TargetOffset(0), TargetOffset(0)),
            progress=of_regions(progress, {*regions, *(item.source.region for item in destination)}),
        )

    def _own_routes(self, request: WatchRequest) -> OwnRoutes:
        if request.origin is None:
            produced = self._config.is_produced_at(request.cluster)
            return OwnRoutes(produced=region_of(request.cluster) if produced else None)
        return routes_between(self._config, request.origin, request.cluster)

    def _origin_rows(self, request: WatchRequest, own: OwnRoutes) -> list[LineageRows]:
        if request.origin is None:
            return []
        routes = routes_into(self._config, request.origin, is_read=own.out is not None)
        topic_id = self._clusters.view(request.origin).topic_id(request.topic_partition.topic)
        return self._rows(routes, request.topic_partition, topic_id)

    def _kept(self, request: WatchRequest, moved: SourcePosition | None) -> KeptEpoch | None:
        """What the cluster's log has of the leader epoch in which the group has read there before."""
        if moved is None or moved.leader_epoch == UNKNOWN_EPOCH:
            return None
        asked = {request.topic_partition: moved.leader_epoch}
        return self._clusters.view(request.cluster).kept_epochs(asked).get(request.topic_partition)

    def _lost(self, routes: Sequence[Route], request: WatchRequest) -> list[TargetTruncation]:
        lineages = topic_lineages(self._index, routes, request.topic_partition.topic, request.topic_id)
        return lineages.truncations(request.topic_partition.partition)

    def _rows(
        self, routes: Sequence[Route], partition: TopicPartition, topic_id: TopicId | None
    ) -> list[LineageRows]:
        lineages = topic_lineages(self._index, routes, partition.topic, topic_id)
        return self._index.rows_of(lineages.of(partition.partition))
