"""Where a group resumes: what all its partitions share is asked once, then each is answered by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from offsetsvc.answers import Basis, Commit, FailoverAnswer
from offsetsvc.clusters import Clusters, ClusterView
from offsetsvc.commits import Commits
from offsetsvc.concurrently import Concurrently
from offsetsvc.lineages import TopicLineages, topic_lineages
from offsetsvc.partition_answer import ClusterState, Question, answer_partition
from offsetsvc.skipping import Limits
from parallax.domain.errors import (
    ClusterUnavailableError,
    InvalidOffsetError,
    LimitError,
    UnknownPartitionError,
    UnknownTopicError,
)
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
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress
from parallax.domain.resume import LogRange
from parallax.ports import GroupStore, MappingIndexReader
from parallax.runtime.config import Config
from parallax.runtime.deadline import Deadline

_NAMED_TOPICS = 20
"""Topics named in an error: enough to find a typo."""


@dataclass(frozen=True, slots=True)
class FailoverRequest:
    """A group that moves.

    Attributes:
        positions: the caller's own next offsets at the origin.
        topics: only these; empty: all with a position.
        only: only this partition, which outweighs ``topics``.
    """

    group: GroupName
    origin: ClusterName
    destination: ClusterName
    positions: Mapping[TopicPartition, TargetOffset] = field(default_factory=dict)
    topics: tuple[TopicName, ...] = ()
    only: TopicPartition | None = None


class Failover:
    """Answers failover requests. Stateless but for what `Clusters` remembers of failures."""

    def __init__(
        self,
        config: Config,
        index: MappingIndexReader,
        groups: GroupStore,
        clusters: Clusters,
        executor: Executor,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._index = index
        self._groups = groups
        self._clusters = clusters
        self._executor = executor
        self._now_ms = now_ms

    def answers(self, request: FailoverRequest, deadline: Deadline) -> list[FailoverAnswer]:
        """Where each partition resumes, by topic and partition.

        Raises:
            UnknownTopicError: neither cluster nor the index knows a topic that was named.
            UnknownPartitionError: neither cluster nor the index knows the partition that was named.
            UnknownGroupError: nobody knows the group, and the caller brought no position.
            InvalidOffsetError: a position is negative.
            LimitError: more partitions than `service.max_partitions_per_call`.
            ClusterUnavailableError: the clusters are away and the index can't answer in their place.
            DeadlineError: the deadline passed first.
        """
        _check_positions(request.positions)
        asking = _Asking(self._config, self._index, self._groups, self._clusters, request)
        together = Concurrently(self._executor, deadline)
        origin_topics, destination_topics = together.map(
            lambda view: view.topics(),
            [asking.origin, asking.destination],
            "asking the clusters for their topics",
        )
        del origin_topics, destination_topics  # both views remember them
        wanted = asking.wanted()
        limit = self._config.service.max_partitions_per_call
        partitions = [item for items in wanted.values() for item in items]
        if len(partitions) > limit:
            raise LimitError(
                f"{len(partitions)} partitions in one call; the limit is {limit} "
                "(service.max_partitions_per_call): name topics to split the call"
            )
        ranges = together.map(
            lambda view: view.log_ranges(partitions),
            [asking.origin, asking.destination],
            "asking the clusters for log ranges",
        )
        questions = [
            question
            for topic, items in together.map(asking.topic, wanted, "reading the lineages")
            for question in asking.questions(topic, wanted[topic], items, ranges[0], ranges[1])
        ]
        now_ms = self._now_ms()
        return together.map(
            lambda question: answer_partition(self._index, question, now_ms), questions, "reading the index"
        )


@dataclass(frozen=True, slots=True)
class _TopicSides:
    origin: TopicLineages
    destination: TopicLineages
    progress: Mapping[int, Progress]


class _Asking:
    """One request while it is answered."""

    def __init__(
        self,
        config: Config,
        index: MappingIndexReader,
        groups: GroupStore,
        clusters: Clusters,
        request: FailoverRequest,
    ) -> None:
        self._config = config
        self._index = index
        self._groups = groups
        self._request = request
        self.origin = clusters.view(request.origin)
        self.destination = clusters.view(request.destination)
        self._routes_in = config.routes_into(region_of(request.origin))
        self._routes_out = config.routes_into(region_of(request.destination))
        self._commits = Commits(request.group, self.origin, request.destination, groups, request.positions)

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

    def topic(self, topic: TopicName) -> tuple[TopicName, _TopicSides]:
        """Lineages on both sides and the group's progress."""
        sides = _TopicSides(
            self._lineages(self.origin, self._routes_in, topic),
            self._lineages(self.destination, self._routes_out, topic),
            self._groups.progress(self._request.group, topic),
        )
        return topic, sides

    def questions(
        self,
        topic: TopicName,
        partitions: Collection[TopicPartition],
        sides: _TopicSides,
        origin_logs: Mapping[TopicPartition, LogRange],
        destination_logs: Mapping[TopicPartition, LogRange],
    ) -> list[Question]:
        """One question for each partition of a topic."""
        return [
            self._question(
                partition,
                self._state(self.origin, sides.origin, partition, origin_logs),
                self._state(self.destination, sides.destination, partition, destination_logs),
                sides.progress.get(partition.partition),
            )
            for partition in partitions
            if partition.topic == topic
        ]

    def _question(
        self,
        partition: TopicPartition,
        origin: ClusterState,
        destination: ClusterState,
        progress: Progress | None,
    ) -> Question:
        commit = self._commits.of(partition, origin.topic_id or None)
        if not destination.reachable and not destination.lineages.of(partition.partition):
            raise ClusterUnavailableError(
                f"{self.destination.failure}; and the index knows nothing of {partition} there, so that it "
                "can't answer in the cluster's place"
            )
        holds = (
            progress is not None
            and progress.cluster == origin.cluster
            and progress.topic_id == origin.topic_id
        )
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

    def _lineages(self, view: ClusterView, routes: Sequence[Route], topic: TopicName) -> TopicLineages:
        return topic_lineages(self._index, routes, topic, view.topic_id(topic))

    @staticmethod
    def _state(
        view: ClusterView,
        lineages: TopicLineages,
        partition: TopicPartition,
        logs: Mapping[TopicPartition, LogRange],
    ) -> ClusterState:
        info = view.topics().get(partition.topic)
        return ClusterState(
            cluster=view.cluster,
            lineages=lineages,
            reachable=view.reachable,
            topic_id=lineages.topic_id or TopicId(""),
            partitions=None if info is None else info.partitions,
            log=logs.get(partition),
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


def _check_positions(positions: Mapping[TopicPartition, TargetOffset]) -> None:
    for partition, offset in positions.items():
        if offset < 0:
            raise InvalidOffsetError(
                f"next offset {offset} of {partition} is negative; leave it out to use the group's commit"
            )
