"""One request while it is answered: what its partitions share is read first, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import structlog

from offsetsvc.answers import Basis, Commit, TimestampPolicy
from offsetsvc.clusters import Clusters, ClusterView
from offsetsvc.index.memory import IndexMemory
from offsetsvc.resume.commits import Commits
from offsetsvc.resume.own import OwnRoutes, of_topic, own_source, routes_between, routes_into
from offsetsvc.resume.partition import ClusterState, Question
from offsetsvc.resume.skips import Limits
from offsetsvc.shared_reads import SharedReads
from parallax.config.config import Config
from parallax.domain.formats import UnreadableRow, readable
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    GroupName,
    RegionName,
    Route,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import RouteTopic
from parallax.domain.lineages import TopicLineages
from parallax.domain.outcome import Outcome
from parallax.domain.place import KeptEpoch, LogRange
from parallax.domain.progress import Progress
from parallax.errors import (
    ClusterUnavailableError,
    UnknownPartitionError,
    UnknownTopicError,
)
from parallax.ports.groups import GroupStore
from parallax.runtime.newest import Newest

_log = structlog.get_logger(__name__)

_NAMED_TOPICS = 20
"""Topics named in an error: enough to find a typo."""


@dataclass(frozen=True, slots=True)
class FailoverRequest:
    """A group that moves.

    Attributes:
        positions: the caller's own next offsets at the origin.
        read_epochs: leader epochs that go with these, see `Commit.read_epoch`.
        topics: only these; empty: all with a position.
        only: only this partition, which outweighs ``topics``.
        by_timestamp: None: never.
        nearest_checkpoint: tell for comparison where the nearest-checkpoint rule would resume.
    """

    group: GroupName
    origin: ClusterName
    destination: ClusterName
    positions: Mapping[TopicPartition, TargetOffset] = field(default_factory=dict)
    topics: tuple[TopicName, ...] = ()
    only: TopicPartition | None = None
    by_timestamp: TimestampPolicy | None = None
    nearest_checkpoint: bool = False
    read_epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Way:
    """Between two clusters: how they copy each other's own records, and the routes into either."""

    own: OwnRoutes
    routes_in: Sequence[Route]
    routes_out: Sequence[Route]
    routes: Sequence[Route]


def way_between(config: Config, origin: ClusterName, destination: ClusterName) -> Way:
    """The way from one cluster to another."""
    own = routes_between(config, origin, destination)
    routes_in = routes_into(config, origin, is_read=own.out is not None)
    routes_out = routes_into(config, destination, is_read=own.back is not None)
    return Way(own, routes_in, routes_out, tuple(dict.fromkeys([*routes_in, *routes_out])))


class _Topic(NamedTuple):
    """A topic between two clusters, as long as what was read of it is the same.

    Attributes:
        indexed: what was read of the index.
        topic_ids: at the origin and at the destination.
        at_origin: its lineages there.
        at_destination: likewise.
        own: how the clusters copy each other's own records of it.
        regions: whose records of it come to the destination, came there once, or are produced there.
    """

    indexed: Mapping[Route, RouteTopic]
    topic_ids: tuple[TopicId | None, TopicId | None]
    at_origin: TopicLineages
    at_destination: TopicLineages
    own: OwnRoutes
    regions: Sequence[RegionName]


Topics = Newest[tuple[ClusterName, ClusterName, TopicName], _Topic]


@dataclass(frozen=True, slots=True)
class Shared:
    """What the partitions of a call share: log ranges by cluster, and by topic the index and the last move."""

    logs: Mapping[ClusterName, Mapping[TopicPartition, LogRange]]
    indexed: Mapping[TopicName, Mapping[Route, RouteTopic]]
    progress: Mapping[TopicName, Mapping[int, Progress | UnreadableRow]]


class FailoverCall:
    """One request while it is answered."""

    def __init__(
        self,
        config: Config,
        index: IndexMemory,
        groups: GroupStore,
        clusters: Clusters,
        request: FailoverRequest,
        writes_to: Callable[[Route, TopicName], bool],
        way: Way,
        shared: SharedReads,
        topics: Topics,
    ) -> None:
        self._way = way
        self._topics = topics
        self._writes_to = writes_to
        self._shared = shared
        self._config = config
        self._index = index
        self._groups = groups
        self._request = request
        self.origin = clusters.view(request.origin)
        self.destination = clusters.view(request.destination)
        self._moves: Sequence[Progress] = ()
        self._commits = Commits(
            request.group, self.origin, request.destination, groups, request.positions, request.read_epochs
        )

    def first_reads(self) -> list[Callable[[], object]]:
        """What everything begins with, to be read side by side; the views and `Commits` remember it."""
        reads: list[Callable[[], object]] = [self.origin.topics, self.destination.topics]
        only = self._request.only
        if only is None or only not in self._request.positions:
            reads.append(self._commits.read)
        return reads

    def partitions(self) -> list[TopicPartition]:
        """The partitions to answer: the one named, or all of every topic concerned."""
        only = self._request.only
        if only is not None:
            self._commits.require_position(only)
            self.require_partition(only)
            return [only]
        held = self._commits.partitions()
        topics = self._request.topics or self._known_of(sorted({item.topic for item in held}))
        partitions = []
        for topic in dict.fromkeys(topics):
            own = [item for item in self._request.positions if item.topic == topic]
            count = max([self._partition_count(topic), *(item.partition + 1 for item in own)])
            for item in own:
                self.require_partition(item)
            partitions += [TopicPartition(topic, partition) for partition in range(count)]
        return partitions

    def _known_of(self, topics: Sequence[TopicName]) -> Sequence[TopicName]:
        """Topics on which the group has a position, but for those that lay at an origin alone that is away: they can't be gone on with."""
        if self.origin.reachable or not self.destination.reachable:
            return topics
        own = {item.topic for item in self._request.positions}
        known = [topic for topic in topics if topic in own or self._partitions_known(topic)]
        if not known:
            return topics  # what is asked about is unknown
        left_out = sorted({*topics} - {*known})
        if left_out:
            _log.warning(
                "topics_left_out", group=self._request.group, origin=self.origin.cluster, topics=left_out
            )
        return known

    def read_shared(
        self,
        partitions: Sequence[TopicPartition],
        run: Callable[[Iterable[Callable[[], object]], str], None],
        *,
        of_group: bool = True,
    ) -> Shared:
        """What the partitions share; ``run`` reads it, the group's last moves only if the request is ``of_group``."""
        logs: dict[ClusterName, Mapping[TopicPartition, LogRange]] = {}
        indexed: dict[TopicName, Mapping[Route, RouteTopic]] = {}
        progress: dict[TopicName, Mapping[int, Progress | UnreadableRow]] = {}

        def read_logs(view: ClusterView) -> None:
            logs[view.cluster] = view.log_ranges(partitions)

        def read_index(topic: TopicName) -> None:
            indexed[topic] = self._index.route_topics(self._way.routes, topic)

        def read_progress(topic: TopicName) -> None:
            group = self._request.group
            progress[topic] = self._shared.read((group, topic), lambda: self._groups.progress(group, topic))

        reads = [partial(read_logs, view) for view in (self.origin, self.destination)]
        for topic in dict.fromkeys(item.topic for item in partitions):
            reads.append(partial(read_index, topic))
            if of_group:
                reads.append(partial(read_progress, topic))
            else:
                progress[topic] = {}
        run(reads, "reading log ranges and lineages")
        self._moves = [
            item for found in progress.values() for item in found.values() if isinstance(item, Progress)
        ]
        return Shared(logs, indexed, progress)

    def with_kept(
        self,
        questions: Sequence[Question],
        run: Callable[[Iterable[Callable[[], object]], str], None],
    ) -> Sequence[Question]:
        """The questions with what the logs have of the leader epochs in which the group has read them; ``run`` asks."""
        if not questions or not self._way.own.at_all:
            return questions
        kept: dict[ClusterName, Mapping[TopicPartition, KeptEpoch]] = {}

        def ask(view: ClusterView, epochs: Mapping[TopicPartition, int]) -> None:
            kept[view.cluster] = view.kept_epochs(epochs)

        sides = zip(
            (self.origin, self.destination),
            zip(*(question.read_epochs for question in questions), strict=True),
            strict=True,
        )
        reads = [
            partial(ask, view, asked)
            for view, epochs in sides
            if (
                asked := {
                    question.topic_partition: epoch
                    for question, epoch in zip(questions, epochs, strict=True)
                    if epoch != UNKNOWN_EPOCH
                }
            )
        ]
        run(reads, "asking where leader epochs end")

        def told(state: ClusterState, partition: TopicPartition) -> ClusterState:
            return state._replace(kept=kept.get(state.cluster, {}).get(partition))

        return [
            question._replace(
                origin=told(question.origin, question.topic_partition),
                destination=told(question.destination, question.topic_partition),
            )
            for question in questions
        ]

    def moves_before(self) -> Sequence[Progress]:
        """What the group's last moves left, as read by `read_shared`."""
        return self._moves

    def questions(self, partitions: Sequence[TopicPartition], shared: Shared) -> list[Question]:
        """One question for each partition.

        Raises:
            UnreadableRowError: what an earlier move of one of them left can't be read, or rows that tell of a cluster that is
                away: an answer might be a wrong one.
        """
        readable(
            shared.progress[item.topic][item.partition]
            for item in partitions
            if item.partition in shared.progress[item.topic]
        )
        topics = {
            topic: self._topic(topic, shared.indexed[topic]) for topic in {item.topic for item in partitions}
        }
        logs = shared.logs[self.origin.cluster], shared.logs[self.destination.cluster]
        questions = []
        for partition in partitions:
            topic = topics[partition.topic]
            origin = _state(self.origin, topic.at_origin, partition, logs[0].get(partition))
            destination = _state(self.destination, topic.at_destination, partition, logs[1].get(partition))
            left = shared.progress[partition.topic].get(partition.partition)
            progress = left if isinstance(left, Progress) else None
            if not origin.topic_id:
                source = own_source(
                    origin.cluster,
                    origin.topic_id,
                    topic.own.out,
                    partition.partition,
                    destination.lineages,
                )
                origin = origin._replace(topic_id=source.topic_id)
            questions.append(
                self._question(partition, origin, destination, progress, topic.regions, topic.own)
            )
        return questions

    def _topic(self, topic: TopicName, indexed: Mapping[Route, RouteTopic]) -> _Topic:
        """The topic between the clusters."""
        key = (self.origin.cluster, self.destination.cluster, topic)
        topic_ids = self.origin.topic_id(topic), self.destination.topic_id(topic)
        known = self._topics.get(key)
        if known is not None and known.indexed is indexed and known.topic_ids == topic_ids:
            return known

        def copies(route: Route) -> bool:
            """Whether the route copies the topic, or has copied it once."""
            return bool(indexed[route].records) or self._writes_to(route, topic)

        own, routes_out = of_topic(self._way.own, copies), self._way.routes_out
        routes = [route for route in routes_out if copies(route)]
        found = _Topic(
            indexed,
            topic_ids,
            self._lineages(self.origin, self._way.routes_in, topic, indexed),
            self._lineages(self.destination, routes_out, topic, indexed),
            own,
            own.regions([route.source for route in routes or routes_out]),
        )
        self._topics.put(key, found)
        return found

    def _lineages(
        self,
        view: ClusterView,
        routes: Sequence[Route],
        topic: TopicName,
        indexed: Mapping[Route, RouteTopic],
    ) -> TopicLineages:
        of_routes = {route: indexed[route] for route in routes}
        return self._index.counting_lineages(view.cluster, topic, of_routes, view.topic_id(topic))

    def _question(
        self,
        partition: TopicPartition,
        origin: ClusterState,
        destination: ClusterState,
        progress: Progress | None,
        regions: Sequence[RegionName],
        own: OwnRoutes,
    ) -> Question:
        commit = self._commits.of(partition, origin.topic_id or None)
        if not destination.reachable and not destination.lineages.of(partition.partition):
            failure = self.destination.failure or f"{destination.cluster}: no leader for {partition}"
            raise ClusterUnavailableError(
                f"{failure}; and the index knows nothing of {partition} there, so that it "
                "can't answer in the cluster's place"
            )
        notes = set(_notes(partition, origin, destination, commit))
        if progress is None or not progress.holds_in(origin.cluster, origin.topic_id):
            progress = None
        elif self._commits.went_back(partition, progress):
            progress = None
            notes.add(Outcome.REWOUND)
        return Question(
            group=self._request.group,
            topic_partition=partition,
            origin=origin,
            destination=destination,
            regions=regions,
            commit=commit,
            progress=progress,
            starts_at_end=self._config.sync.no_commit == "latest",
            stale_after_ms=self._config.service.stale_after_ms,
            limits=Limits(self._config.service.max_skip_ranges, self._config.service.max_rows),
            nearest_checkpoint=self._request.nearest_checkpoint,
            notes=frozenset(notes),
            own=own,
        )

    def require_partition(self, partition: TopicPartition) -> None:
        """Refuse a partition that neither cluster nor the index knows."""
        count = self._partition_count(partition.topic)
        if not 0 <= partition.partition < count:
            raise UnknownPartitionError(
                f"topic {partition.topic!r} has no partition {partition.partition}; it has {count}"
            )

    def _partition_count(self, topic: TopicName) -> int:
        count = self._partitions_known(topic)
        if not count:
            raise UnknownTopicError(self._unknown_topic(topic))
        return count

    def _partitions_known(self, topic: TopicName) -> int:
        """The larger count of both clusters; that of the index where neither can be asked. 0: nobody knows the topic."""
        infos = [view.topics().get(topic) for view in (self.origin, self.destination)]
        counts = [info.partitions for info in infos if info is not None]
        if self.origin.reachable and self.destination.reachable and counts:
            return max(counts)
        indexed = [
            record.partition.topic_partition.partition + 1
            for route in sorted(self._way.routes)
            for record in self._index.lineages(route, topic)
        ]
        return max([*counts, *indexed], default=0)

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


def _notes(
    partition: TopicPartition, origin: ClusterState, destination: ClusterState, commit: Commit
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


def _state(
    view: ClusterView, lineages: TopicLineages, partition: TopicPartition, log: LogRange | None
) -> ClusterState:
    info = view.topics().get(partition.topic)
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
