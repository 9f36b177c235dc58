"""One failover request while it is answered: what its partitions share, read side by side, and their questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from offsetsvc.answers import Basis, Commit, TimestampPolicy
from offsetsvc.clusters import Clusters, ClusterView
from offsetsvc.index.lineage_memory import LineageMemory
from offsetsvc.resume.commits import Commits
from offsetsvc.resume.partition import ClusterState, Question
from offsetsvc.resume.skips import Limits
from parallax.config.config import Config
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    Route,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    region_of,
)
from parallax.domain.index_rows import RouteTopic
from parallax.domain.lineages import TopicLineages
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress
from parallax.domain.resume import LogRange
from parallax.errors import ClusterUnavailableError, UnknownPartitionError, UnknownTopicError
from parallax.ports.groups import GroupStore
from parallax.ports.index import MappingIndexReader

_NAMED_TOPICS = 20
"""Topics named in an error: enough to find a typo."""


@dataclass(frozen=True, slots=True)
class FailoverRequest:
    """A group that moves.

    Attributes:
        positions: the caller's own next offsets at the origin.
        topics: only these; empty: all with a position.
        only: only this partition, which outweighs ``topics``.
        by_timestamp: None: never.
    """

    group: GroupName
    origin: ClusterName
    destination: ClusterName
    positions: Mapping[TopicPartition, TargetOffset] = field(default_factory=dict)
    topics: tuple[TopicName, ...] = ()
    only: TopicPartition | None = None
    by_timestamp: TimestampPolicy | None = None


class Asking:
    """One request while it is answered: `of_clusters`, `wanted`, `of_topics`, `questions`, in this order."""

    def __init__(
        self,
        config: Config,
        index: MappingIndexReader,
        groups: GroupStore,
        clusters: Clusters,
        request: FailoverRequest,
        lineage_memory: LineageMemory,
    ) -> None:
        self._config = config
        self._index = index
        self._groups = groups
        self._request = request
        self._lineage_memory = lineage_memory
        self.origin = clusters.view(request.origin)
        self.destination = clusters.view(request.destination)
        self._routes_in = config.routes_into(region_of(request.origin))
        self._routes_out = config.routes_into(region_of(request.destination))
        self._commits = Commits(request.group, self.origin, request.destination, groups, request.positions)
        self._indexed: dict[TopicName, Mapping[Route, RouteTopic]] = {}
        self._progress: dict[TopicName, Mapping[int, Progress]] = {}
        self._logs: dict[ClusterName, Mapping[TopicPartition, LogRange]] = {}

    def of_clusters(self) -> list[Callable[[], object]]:
        """Reads that depend on nothing else; the views and `Commits` remember them."""
        reads: list[Callable[[], object]] = [self.origin.topics, self.destination.topics]
        only = self._request.only
        if only is None or only not in self._request.positions:
            reads.append(self._commits.read)
        return reads

    def wanted(self) -> dict[TopicName, list[TopicPartition]]:
        """The partitions to answer: the one named, or all of every topic concerned."""
        only = self._request.only
        if only is not None:
            self._commits.require_position(only)
            self._require_partition(only)
            return {only.topic: [only]}
        topics = list(self._request.topics)
        if topics:
            self._commits.partitions()
        else:
            topics = sorted({item.topic for item in self._commits.partitions()})
        wanted = {}
        for topic in topics:
            named = [item.partition + 1 for item in self._request.positions if item.topic == topic]
            count = max([self._partition_count(topic), *named])
            for item in self._request.positions:
                if item.topic == topic:
                    self._require_partition(item)
            wanted[topic] = [TopicPartition(topic, partition) for partition in range(count)]
        return wanted

    def of_topics(self, wanted: Mapping[TopicName, Sequence[TopicPartition]]) -> list[Callable[[], object]]:
        """Reads about the partitions that are wanted."""
        partitions = [item for items in wanted.values() for item in items]
        reads: list[Callable[[], object]] = []
        for view in (self.origin, self.destination):

            def read_logs(view: ClusterView = view) -> None:
                self._logs[view.cluster] = view.log_ranges(partitions)

            reads.append(read_logs)
        routes = tuple(dict.fromkeys([*self._routes_in, *self._routes_out]))
        for topic in wanted:

            def read_index(topic: TopicName = topic) -> None:
                self._indexed[topic] = self._index.route_topics(routes, topic)

            def read_progress(topic: TopicName = topic) -> None:
                self._progress[topic] = self._groups.progress(self._request.group, topic)

            reads += [read_index, read_progress]
        return reads

    def questions(self, wanted: Mapping[TopicName, Sequence[TopicPartition]]) -> list[Question]:
        """One question for each partition."""
        questions = []
        for topic, partitions in wanted.items():
            sides = [
                (view, self._lineages(view, routes, topic))
                for view, routes in (
                    (self.origin, self._routes_in),
                    (self.destination, self._routes_out),
                )
            ]
            for partition in partitions:
                origin, destination = (self._state(view, lineages, partition) for view, lineages in sides)
                progress = self._progress[topic].get(partition.partition)
                questions.append(self._question(partition, origin, destination, progress))
        return questions

    def _lineages(self, view: ClusterView, routes: Sequence[Route], topic: TopicName) -> TopicLineages:
        found = {route: self._indexed[topic][route] for route in routes}
        return self._lineage_memory.that_count(view.cluster, topic, found, view.topic_id(topic))

    def _question(
        self,
        partition: TopicPartition,
        origin: ClusterState,
        destination: ClusterState,
        progress: Progress | None,
    ) -> Question:
        commit = self._commits.of(partition, origin.topic_id or None)
        if not destination.reachable and not destination.lineages.of(partition.partition):
            failure = self.destination.failure or f"{destination.cluster}: no leader for {partition}"
            raise ClusterUnavailableError(
                f"{failure}; and the index knows nothing of {partition} there, so that it "
                "can't answer in the cluster's place"
            )
        holds = progress is not None and progress.holds_in(origin.cluster, origin.topic_id)
        return Question(
            group=self._request.group,
            topic_partition=partition,
            origin=origin,
            destination=destination,
            regions=[route.source for route in self._routes_out],
            commit=commit,
            progress=progress if holds else None,
            starts_at_end=self._config.sync.no_commit == "latest",
            stale_after_ms=self._config.service.stale_after_ms,
            limits=Limits(self._config.service.max_skip_ranges, self._config.service.max_rows),
            notes=frozenset(self._notes(partition, origin, destination, commit)),
        )

    def _notes(
        self, partition: TopicPartition, origin: ClusterState, destination: ClusterState, commit: Commit
    ) -> Iterable[Outcome]:
        if not origin.reachable or not destination.reachable:
            yield Outcome.UNREACHABLE
        counts = {state.partitions for state in (origin, destination)} - {None}
        if len(counts) > 1:
            yield Outcome.PARTITION_MISMATCH
        if any(partition.partition in state.lineages.void_partitions for state in (origin, destination)):
            yield Outcome.LINEAGE_CHANGED
        if commit.basis is Basis.POLICY:
            yield Outcome.NO_COMMIT

    def _state(self, view: ClusterView, lineages: TopicLineages, partition: TopicPartition) -> ClusterState:
        info = view.topics().get(partition.topic)
        log = self._logs[view.cluster].get(partition)
        # A partition without a leader is away, though its cluster is not: its log is not to be taken for empty.
        leaderless = log is None and info is not None and partition.partition < info.partitions
        return ClusterState(
            cluster=view.cluster,
            lineages=lineages,
            reachable=view.reachable and not leaderless,
            topic_id=lineages.topic_id or TopicId(""),
            partitions=None if info is None else info.partitions,
            log=log,
        )

    def _require_partition(self, partition: TopicPartition) -> None:
        count = self._partition_count(partition.topic)
        if not 0 <= partition.partition < count:
            raise UnknownPartitionError(
                f"topic {partition.topic!r} has no partition {partition.partition}; it has {count}"
            )

    def _partition_count(self, topic: TopicName) -> int:
        """The larger count of both clusters; that of the index where neither can be asked."""
        infos = [view.topics().get(topic) for view in (self.origin, self.destination)]
        counts = [info.partitions for info in infos if info is not None]
        if self.origin.reachable and self.destination.reachable and counts:
            return max(counts)
        routes = {*self._routes_in, *self._routes_out}
        indexed = [
            record.partition.topic_partition.partition + 1
            for route in sorted(routes)
            for record in self._index.lineages(route, topic)
        ]
        if not counts and not indexed:
            raise UnknownTopicError(self._unknown_topic(topic))
        return max([*counts, *indexed])

    def _unknown_topic(self, topic: TopicName) -> str:
        known = sorted({*self.origin.topics(), *self.destination.topics()})
        away = [view.failure for view in (self.origin, self.destination) if view.failure is not None]
        listed = ", ".join(known[:_NAMED_TOPICS]) or "none"
        more = ", ..." if len(known) > _NAMED_TOPICS else ""
        unknown = (
            f"topic {topic!r} is known neither to {self.origin.cluster} nor to {self.destination.cluster} "
            f"nor to the index; topics there: {listed}{more}"
        )
        return "; ".join([unknown, *away])
