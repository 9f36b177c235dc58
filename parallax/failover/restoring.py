"""What a cluster still lacks of what others hold for it: told, and waited for. Copying is the replicator's (docs/decisions/0024)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from parallax.config.config import Config
from parallax.domain.ids import (
    ClusterName,
    RegionName,
    Route,
    SourceOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.errors import DeadlineError, RefusedError
from parallax.failover.timekeeper import Timekeeper
from parallax.ports.clusters import ClusterReader
from parallax.ports.index import MappingIndexReader

_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class Coming:
    """One partition of a route into the cluster.

    Attributes:
        topic_partition: by its name at the source.
        topic_id: of the topic there.
        position: all below it was copied, or is a copy itself, which is not copied back; the log start where nothing was yet.
        end: of the source's log when it was first looked at.
    """

    route: Route
    topic_partition: TopicPartition
    topic_id: TopicId
    position: SourceOffset
    end: SourceOffset

    @property
    def offsets(self) -> int:
        """How many are left to look at: own records, copies and markers."""
        return max(0, self.end - self.position)


def offsets_left(items: Iterable[Coming]) -> int:
    """How many offsets of all these are left."""
    return sum(item.offsets for item in items)


@dataclass(frozen=True, slots=True)
class Restoring:
    """Tells what a region's cluster lacks, and waits for it.

    Attributes:
        config: the routes.
        reader: asks a source cluster.
        index: how far routes have come.
        time: waits.
    """

    config: Config
    reader: Callable[[ClusterName], ClusterReader]
    index: MappingIndexReader
    time: Timekeeper

    def routes(self, region: RegionName, origin: RegionName | None = None) -> list[Route]:
        """The routes that bring a region what others hold for it.

        Args:
            region: whose cluster has come back.
            origin: only from there; None: from every other region.

        Raises:
            UnknownRegionError: there is no such region.
            RefusedError: no such route is configured, so that nothing would ever come.
        """
        self.config.region(region)
        if origin is not None:
            self.config.region(origin)
        found = [
            route
            for route in self.config.all_routes()
            if route.target == region and route.source != region and origin in (None, route.source)
        ]
        if not found:
            source = "another region" if origin is None else origin
            example = Route(RegionName("REGION") if origin is None else origin, region)
            raise RefusedError(
                f"no route leads from {source} to {region}, so that nothing that is produced there comes to {aggregate_cluster(region)}. If "
                f"producers write there, add '{example}' to 'routes', make the region a 'cluster' if it is an 'aggregate' "
                "(docs/topologies.md), and start the replicator; if nobody does, nothing is missing"
            )
        return found

    def left(self, routes: Sequence[Route]) -> list[Coming]:
        """Every partition that the routes choose, with what is left of it.

        Raises:
            ClusterUnavailableError: a source does not answer.
            StoreUnavailableError: the store does not answer.
        """
        return [item for route in routes for item in self._left_of(route)]

    def wait(
        self, items: Sequence[Coming], tell: Callable[[Sequence[Coming]], None], *, patience_ms: float
    ) -> list[Coming]:
        """Wait until everything is there that the sources held when these were looked at.

        Args:
            items: of `left`.
            tell: called with what is left, after each look.
            patience_ms: so long nothing may come.

        Returns:
            The same partitions, each with the position that it has come to.

        Raises:
            DeadlineError: nothing came for so long.
            StoreUnavailableError: the store does not answer.
            StoppedError: the operator has ended it; it may be begun again.
        """
        deadline = self.time.deadline(patience_ms)
        while offsets_left(items):
            self.time.pause(_POLL_S)
            before, items = items, self._looked_at(items)
            tell(items)
            if offsets_left(items) < offsets_left(before):
                deadline = self.time.deadline(patience_ms)
            elif deadline.passed:
                routes = ", ".join(sorted({str(item.route) for item in items if item.offsets}))
                raise DeadlineError(
                    f"nothing came by {routes} for {patience_ms / 1_000:g} s, and {offsets_left(items)} offsets are left: "
                    f"does the replicator of {items[0].route.target} run (parallax replication), and is a partition stopped "
                    "(parallax partitions --stopped)? Run this again then"
                )
        return list(items)

    def _left_of(self, route: Route) -> Iterable[Coming]:
        reader, names = self.reader(self.config.source_cluster(route)), self.config.route_topics(route)
        infos = {name: info for name, info in reader.topics().items() if names.copy_of(name) is not None}
        partitions = [
            TopicPartition(name, number) for name, info in infos.items() for number in range(info.partitions)
        ]
        logs = sorted(reader.log_ranges(partitions).items())
        return self._looked_at(
            [
                Coming(
                    route,
                    item,
                    infos[item.topic].topic_id,
                    SourceOffset(log.low_watermark),
                    SourceOffset(log.high_watermark),
                )
                for item, log in logs
            ]
        )

    def _looked_at(self, items: Sequence[Coming]) -> list[Coming]:
        """The same, as far as the routes are now."""
        known: dict[tuple[Route, TopicName, int, TopicId], SourceOffset] = {}
        for route, topic in {(item.route, item.topic_partition.topic) for item in items}:
            copy = self.config.route_topics(route).copy_of(topic) or topic
            for (partition, lineage), stamped in self.index.newest(route, copy).items():
                key = (route, topic, partition, lineage.source_topic_id)
                known[key] = max(stamped.row.source_end, known.get(key, SourceOffset(0)))

        def position(item: Coming) -> SourceOffset:
            place = item.topic_partition
            return known.get((item.route, place.topic, place.partition, item.topic_id), SourceOffset(0))

        return [replace(item, position=max(item.position, position(item))) for item in items]
