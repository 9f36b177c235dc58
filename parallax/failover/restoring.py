"""What a cluster still lacks of what others hold for it: told, and waited for. Copying is the replicator's (docs/decisions/0024)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from parallax.config.config import Config
from parallax.domain.ids import (
    ClusterName,
    RegionName,
    Route,
    SourceOffset,
    TopicId,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.index_rows import LineageRecord, RouteTopic
from parallax.errors import ClusterUnavailableError, DeadlineError, RefusedError
from parallax.failover.timekeeper import Timekeeper
from parallax.ports.clusters import ClusterReader, TopicInfo
from parallax.ports.index import MappingIndexReader

_POLL_S = 1.0
_MOST_NAMES = 5


@dataclass(frozen=True, slots=True)
class Coming:
    """One partition of a route into the cluster.

    Attributes:
        topic_partition: by its name at the source.
        topic_id: of the topic there.
        start: of the source's log when its end was looked at.
        position: all below it was copied, or is a copy itself, which is not copied back; the log start where nothing was yet.
        end: of the source's log when it was first looked at; None: it has no leader that could tell.
    """

    route: Route
    topic_partition: TopicPartition
    topic_id: TopicId
    start: SourceOffset
    position: SourceOffset
    end: SourceOffset | None

    @property
    def offsets(self) -> int | None:
        """How many are left to look at: own records, copies and markers. None: that is not known."""
        return None if self.end is None else max(0, self.end - self.position)


def offsets_left(items: Iterable[Coming]) -> int:
    """How many offsets of all these are left, as far as that is known."""
    return sum(item.offsets or 0 for item in items)


def without_end(items: Iterable[Coming]) -> list[Coming]:
    """Those of which it is not known what is left."""
    return [item for item in items if item.end is None]


def names_of(items: Sequence[Coming]) -> str:
    """The first few of their partitions, for people."""
    names = [f"{item.topic_partition} of {item.route.source}" for item in items[:_MOST_NAMES]]
    return ", ".join(names) + (f" and {len(items) - len(names)} more" if len(items) > len(names) else "")


def all_is_there(items: Iterable[Coming]) -> bool:
    """Whether it is known of all of these that nothing is left."""
    return all(item.offsets == 0 for item in items)


@dataclass(frozen=True, slots=True)
class Restoring:
    """Tells what a region's cluster lacks, and waits for it.

    Attributes:
        config: the routes.
        reader: asks a source cluster, or the one that came back.
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
            ClusterUnavailableError: a source does not answer, or the cluster that came back.
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
        while not all_is_there(items):
            self.time.pause(_POLL_S)
            before, problem = items, ""
            try:
                items = self._looked_at(items)
            except ClusterUnavailableError as error:  # it may come back while there is patience
                problem = f": [{error.code}] {error}"
            tell(items)
            if _still_to_do(items) < _still_to_do(before):
                deadline = self.time.deadline(patience_ms)
            elif deadline.passed:
                raise DeadlineError(_nothing_came(items, patience_ms) + problem)
        return list(items)

    def _left_of(self, route: Route) -> Iterable[Coming]:
        reader, names = self.reader(self.config.source_cluster(route)), self.config.route_topics(route)
        infos = {name: info for name, info in reader.topics().items() if names.copy_of(name) is not None}
        partitions = sorted(
            TopicPartition(name, number) for name, info in infos.items() for number in range(info.partitions)
        )
        start = SourceOffset(0)
        return self._looked_at(
            [Coming(route, item, infos[item.topic].topic_id, start, start, None) for item in partitions]
        )

    def _looked_at(self, items: Sequence[Coming]) -> list[Coming]:
        """The same, as far as the routes are now, with the ends that were not known yet."""
        found: list[Coming] = []
        for route in dict.fromkeys(item.route for item in items):
            ours = self._with_ends(route, [item for item in items if item.route == route])
            there = self.reader(aggregate_cluster(route.target)).topics()
            known: dict[tuple[TopicPartition, TopicId], SourceOffset] = {}
            for topic in {item.topic_partition.topic for item in ours}:
                copy = self.config.route_topics(route).copy_of(topic) or topic
                told = self.index.route_topics([route], copy)[route]
                for number, source_id, position in _positions(told, there.get(copy)):
                    known[TopicPartition(topic, number), source_id] = position
            for item in ours:
                position = known.get((item.topic_partition, item.topic_id), item.start)
                found.append(replace(item, position=max(item.start, position)))
        return found

    def _with_ends(self, route: Route, items: Sequence[Coming]) -> list[Coming]:
        asked = [item.topic_partition for item in without_end(items)]
        logs = self.reader(self.config.source_cluster(route)).log_ranges(asked) if asked else {}
        return [
            replace(item, start=SourceOffset(log.low_watermark), end=SourceOffset(log.high_watermark))
            if (log := logs.get(item.topic_partition)) is not None
            else item
            for item in items
        ]


def _positions(told: RouteTopic, there: TopicInfo | None) -> Iterator[tuple[int, TopicId, SourceOffset]]:
    """Partition, source's topic id and position of the latest lineage of each partition of the topic as it is at the target now.

    What earlier lineages have copied is there only below where the latest one began: the target has lost the rest, or all.
    """
    latest: dict[int, LineageRecord] = {}
    for record in sorted(told.records, key=lambda item: item.sequence):
        latest[record.partition.topic_partition.partition] = record
    for number, record in latest.items():
        lineage, newest = record.lineage, told.newest.get((number, record.lineage))
        if there is not None and lineage.target_topic_id == there.topic_id:
            end = record.source_first if newest is None else newest.row.source_end
            yield number, lineage.source_topic_id, max(record.source_first, end)


def _still_to_do(items: Sequence[Coming]) -> tuple[int, int]:
    return len(without_end(items)), offsets_left(items)


def _nothing_came(items: Sequence[Coming], patience_ms: float) -> str:
    open_items = [item for item in items if item.offsets != 0]
    routes = ", ".join(sorted({str(item.route) for item in open_items}))
    text = f"nothing came by {routes} for {patience_ms / 1_000:g} s, and {offsets_left(items)} offsets are left: "
    if unknown := without_end(items):
        text += f"{names_of(unknown)} has no leader that tells how much it holds (start its brokers); "
    return text + (
        f"does the replicator of {items[0].route.target} run (parallax replication), and is a partition stopped "
        "(parallax partitions --stopped)? Run this again then"
    )
