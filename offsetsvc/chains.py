"""Offsets over several routes, one behind the other: each hop answered by its own rows, and what they say put together.

A hop gives a floor: no record at or above the offset lies below the place. Floors compose, so the place after the last hop
holds for all; it is as good as the weakest of them, and nothing is made up for a hop that can't be answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from offsetsvc.lookups import MappingLookups
from parallax.config.config import Config
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    Route,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.place import Via
from parallax.domain.route_graph import Edge
from parallax.errors import InvalidNameError, NotFoundError, UnknownRouteError
from parallax.v1 import offsets_pb2 as pb

_FORCE = list(Via)


@dataclass(frozen=True, slots=True)
class _Leg:
    """One route of a path, and what the topic is called at its target; None: the route does not copy it."""

    route: Route
    topic: TopicName | None


class Chains:
    """Answers over paths of routes.

    Args:
        config: the graph.
        mapping: answers for one route.
    """

    def __init__(self, config: Config, mapping: MappingLookups) -> None:
        self._config = config
        self._mapping = mapping

    def translate(
        self,
        path: Sequence[Route],
        partition: TopicPartition,
        *,
        source_next: SourceOffset | None = None,
        target_next: TargetOffset | None = None,
    ) -> pb.TranslateOffsetResponse:
        """One next offset at the other end of a path.

        Args:
            path: the routes, from the source on.
            partition: its topic as it is called at the first route's target, as for one route.
            source_next: of the first route's source; or
            target_next: of the last route's target.

        Raises:
            InvalidNameError: not exactly one of the offsets is given.
            InvalidOffsetError: it is negative.
            UnknownRouteError: no record takes this path.
        """
        if (source_next is None) == (target_next is None):
            raise InvalidNameError("name either source_next_offset or target_next_offset")
        self._require(path)
        legs = self._legs(path, partition.topic)
        forward = source_next is not None
        offset = int((source_next if forward else target_next) or 0)
        hops: list[pb.TranslationHop] = []
        before = ""
        for leg in legs if forward else reversed(legs):
            hop = self._hop(leg, partition.partition, offset, before, forward=forward)
            hops.append(hop)
            offset = hop.target_next_offset if forward else hop.source_next_offset
            lineage = Lineage.parse(hop.lineage) if hop.lineage else None
            # Without rows nobody knows of which topic the offset is: what follows can't be held to it.
            ids = ("", "") if lineage is None else (lineage.target_topic_id, lineage.source_topic_id)
            before = ids[0] if forward else ids[1]
        if not forward:
            hops.reverse()
        weakest = max((Via(hop.via) for hop in hops), key=_FORCE.index)
        return pb.TranslateOffsetResponse(
            source_next_offset=hops[0].source_next_offset,
            target_next_offset=hops[-1].target_next_offset,
            via=weakest.value,
            lineage=hops[0].lineage if len(hops) == 1 else "",
            hops=hops,
            outcome=pb.EARLIEST_FALLBACK if weakest is Via.LOG_START else pb.OK,
        )

    def origin(
        self, cluster: ClusterName, partition: TopicPartition, record_offset: int
    ) -> pb.LookupOriginResponse:
        """Which record lies at ``record_offset``, traced back route by route to where it was produced.

        Raises:
            InvalidOffsetError: it is negative.
            UnknownRouteError: nobody writes to the cluster, neither routes nor producers.
            UnknownTopicError: neither the cluster nor the index knows the topic.
        """
        found = self._mapping.origin(cluster, partition, record_offset)
        hops: list[pb.OriginHop] = []
        last, topic = found, partition.topic
        while last.found and last.route:
            route = Route.parse(last.route)
            topic = self._config.route_topics(route).source_of(topic) or topic
            hops.append(
                pb.OriginHop(
                    route=last.route,
                    source_cluster=last.source_cluster,
                    source_topic=topic,
                    source_topic_id=last.source_topic_id,
                    source_record_offset=last.source_record_offset,
                )
            )
            into = self._led_into(ClusterName(last.source_cluster))
            if into is None or len(hops) > len(self._config.all_routes()):
                break
            item = TopicPartition(topic, partition.partition)
            try:
                last = self._mapping.origin(
                    into, item, last.source_record_offset, of=TopicId(last.source_topic_id)
                )
            except NotFoundError:
                last = pb.LookupOriginResponse(found=False, complete=False)
        result = pb.LookupOriginResponse()
        result.CopyFrom(found)
        result.hops.extend(hops)
        result.complete = found.complete and last.complete
        return result

    def _led_into(self, cluster: ClusterName) -> ClusterName | None:
        """The cluster as the target of routes; None: none leads there."""
        for route in self._config.all_routes():
            target = aggregate_cluster(route.target)
            if self._config.one_kafka(target) == self._config.one_kafka(cluster):
                return target
        return None

    def _require(self, path: Sequence[Route]) -> None:
        """Refuse a path that no record takes.

        Raises:
            UnknownRouteError: its routes don't follow each other, or a later one leaves what an earlier one brings.
        """
        edges: dict[Route, Edge] = {edge.route: edge for edge in self._config.edges()}
        shown = ", ".join(map(str, path)) or "nothing"
        if not path or (unknown := [route for route in path if route not in edges]):
            which = f"; unknown: {unknown[0]}" if path else ""
            raise UnknownRouteError(f"path {shown} is not one of the configured routes{which}")
        first = edges[path[0]]
        for earlier, later in pairwise(path):
            if edges[earlier].target != edges[later].source:
                raise UnknownRouteError(f"path {shown}: {later} does not begin where {earlier} leads to")
            if not edges[later].copies.take(first.source, edges[later].source):
                raise UnknownRouteError(f"path {shown}: {later} does not copy what comes from {first.source}")

    def _legs(self, path: Sequence[Route], topic: TopicName) -> list[_Leg]:
        legs = [_Leg(path[0], topic)]
        for route in path[1:]:
            name = legs[-1].topic
            legs.append(_Leg(route, None if name is None else self._config.route_topics(route).copy_of(name)))
        return legs

    def _hop(
        self, leg: _Leg, partition: int, offset: int, before: str, *, forward: bool
    ) -> pb.TranslationHop:
        """One route's part; ``before``: the id of the topic of which the offset is, where it is known."""
        hop = pb.TranslationHop(
            route=str(leg.route),
            topic=leg.topic or "",
            via=Via.LOG_START.value,
            source_next_offset=0,
            target_next_offset=0,
        )
        if forward:
            hop.source_next_offset = offset
        else:
            hop.target_next_offset = offset
        if leg.topic is None:
            return hop
        try:
            found = self._mapping.translate(
                leg.route,
                TopicPartition(leg.topic, partition),
                source_next=SourceOffset(offset) if forward else None,
                target_next=None if forward else TargetOffset(offset),
                of=TopicId(before) if before else None,
            )
        except NotFoundError:
            return hop
        return pb.TranslationHop(
            route=str(leg.route),
            topic=leg.topic,
            source_next_offset=found.source_next_offset,
            target_next_offset=found.target_next_offset,
            via=found.via,
            lineage=found.lineage,
        )
