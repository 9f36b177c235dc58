"""Goes on where a MirrorMaker 2 has stopped: its positions become the first snapshots of a route (`replicator.copying.takeover`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from parallax.adapters.kafka.librdkafka import client_settings
from parallax.config.config import Config
from parallax.domain.ids import ClusterName, Route, SourceOffset, TopicName, TopicPartition, aggregate_cluster
from parallax.domain.mirror_maker_positions import (
    KeyedRecord,
    MirrorMakerWorkers,
    parts_at_work,
    recorded_positions,
)
from parallax.errors import RefusedError
from parallax.ports.clusters import TopicInfo
from replicator.copying.rebuild import PartitionSide
from replicator.copying.state import PartitionChange
from replicator.copying.takeover import Recorded, TakenOver, taken_over
from replicator.kafka.layout import begin_layout, read_layout
from replicator.kafka.run_log import read_partitions
from replicator.kafka.topics import TopicAdmin, ranges_of_all

log = structlog.get_logger(__name__)

_READ_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class TakeoverPlan:
    """What is taken over, or was.

    Attributes:
        at_work: what of MirrorMaker 2 still runs: its positions move on, and nothing can be taken over.
        partitions: how each goes on, by name.
        passed_over: topics of which it has recorded positions, and which the route does not copy.
    """

    route: Route
    at_work: Sequence[str]
    partitions: Sequence[TakenOver]
    passed_over: Sequence[str] = field(default_factory=tuple)

    def rows(self) -> list[dict[str, Any]]:
        """Each partition as JSON types."""
        return [
            {
                "route": str(self.route),
                "topic": item.topic_partition.topic,
                "partition": item.topic_partition.partition,
                "takeover": item.takeover.value,
                "source_next": item.source_next,
                "target_next": item.target_next,
                "source_offsets_left": item.left,
                "why": item.why,
            }
            for item in self.partitions
        ]


class MirrorMakerTakeover:
    """Takes over one flow.

    Args:
        config: all configuration.
        route: the flow, as a route.
        workers: where MirrorMaker 2 keeps what it knows of it.
        open_cluster: the clusters of its two ends.
    """

    def __init__(
        self,
        config: Config,
        route: Route,
        workers: MirrorMakerWorkers,
        open_cluster: Callable[[ClusterName], TopicAdmin],
    ) -> None:
        self._config = config
        self._route = route
        self._workers = workers
        self._source = open_cluster(config.source_cluster(route))
        self._target = open_cluster(aggregate_cluster(route.target))

    @property
    def route(self) -> Route:
        """The route."""
        return self._route

    def plan(self) -> TakeoverPlan:
        """What would be taken over now; nothing is changed.

        Raises:
            RefusedError: Parallax copies the route already, or nothing is recorded of it.
            ConfigError: a position can't be read.
            UnavailableError: a cluster does not answer, or a transaction is open in what is to be read.
        """
        if (layout := read_layout(self._config, self._route)) is not None:
            raise RefusedError(
                f"{self._target.cluster}: {self._route} is copied by Parallax already (layout {layout.layout}): what MirrorMaker 2 has "
                "recorded says nothing any more"
            )
        at_work = self._at_work()  # before the positions: who has stopped by now records no more
        topics = self._target.topics()
        found = recorded_positions(
            self._records(topics, self._workers.offsets_topic), self._workers.connector, self._workers.alias
        )
        if not found.positions:
            others = f"; it tells of {', '.join(sorted(found.others))}" if found.others else ""
            raise RefusedError(
                f"{self._target.cluster}: {self._workers.offsets_topic} has no position of {self._workers.connector} "
                f"({self._workers.alias}){others}: there is nothing to take over of {self._route}, and the replicator would begin "
                "as with any other"
            )
        partitions = [taken_over(item) for item in self._recorded(found.positions, topics)]
        names = self._config.route_topics(self._route)
        passed_over = {item.topic for item in found.positions if names.copy_of(item.topic) is None}
        return TakeoverPlan(self._route, at_work, partitions, sorted(passed_over))

    def execute(self) -> TakeoverPlan:
        """Write the positions as the route's first layout; replicators that start from then on go on there.

        In one transaction: an attempt that fails has changed nothing, and is to be repeated.

        Returns:
            What was done.

        Raises:
            RefusedError: MirrorMaker 2 still runs; or as `plan`.
            FencedError: another process is making the route's layout.
            RunLogError: the route has a run log that was written to.
            ConfigError, UnavailableError: as `plan`.
        """
        plans: list[TakeoverPlan] = []

        def changes() -> list[PartitionChange]:
            plan = self.plan()
            plans.append(plan)
            if at_work := [*plan.at_work, *self._at_work()]:  # again: somebody may have started it meanwhile
                raise RefusedError(
                    f"{self._route}: {at_work[0]}: stop MirrorMaker 2, and keep it from starting again"
                )
            return [change for item in plan.partitions for change in item.changes]

        layout = begin_layout(self._config, self._route, self._target, changes)
        (plan,) = plans
        taken = sum(1 for item in plan.partitions if item.changes)
        log.info("mirror_maker_taken_over", route=str(self._route), layout=layout.layout, partitions=taken)
        return plan

    def _at_work(self) -> list[str]:
        """What of it runs: its workers, unless they are kept for others and this connector is at rest."""
        group = self._workers.group
        members = sum(state.members for state in self._target.groups(lambda name: name == group))
        if not members:
            return []
        topics = self._target.topics()
        if self._workers.status_topic in topics:
            parts = parts_at_work(self._records(topics, self._workers.status_topic), self._workers.connector)
            return [f"{part} (workers: {members} in group {group})" for part in parts]
        return [f"{members} of its workers are in group {group}"]

    def _records(self, topics: Mapping[TopicName, TopicInfo], topic: TopicName) -> list[KeyedRecord]:
        """All that is committed in a topic.

        Raises:
            RefusedError: it is not there.
        """
        info = topics.get(topic)
        if info is None:
            raise RefusedError(
                f"{self._target.cluster} has no topic {topic}: MirrorMaker 2 keeps what it knows of {self._route} elsewhere, "
                "or never ran (--offsets-topic names another)"
            )
        places = [TopicPartition(topic, number) for number in range(info.partitions)]
        spans = {
            place: (int(span.low_watermark), int(span.high_watermark))
            for place, span in ranges_of_all(self._target, places).items()
        }
        settings = client_settings(self._config.cluster(self._target.cluster), client_id="parallax-takeover")
        records = read_partitions(settings, self._target.cluster, spans, timeout_ms=_READ_TIMEOUT_MS)
        return [(key, value) for _, _, key, value in records]

    def _recorded(
        self, positions: Mapping[TopicPartition, SourceOffset], targets: Mapping[TopicName, TopicInfo]
    ) -> list[Recorded]:
        """Every partition that the route copies or copied, by the name of its copy."""
        names, sources = self._config.route_topics(self._route), self._source.topics()
        there = {
            TopicPartition(topic, number)
            for topic, info in sources.items()
            for number in range(info.partitions)
        }
        items = {item for item in {*there, *positions} if names.copy_of(item.topic) is not None}
        copies = {
            item: TopicPartition(names.copy_of(item.topic) or item.topic, item.partition) for item in items
        }
        if hidden := self._source.hidden({item.topic for item in items - there}):
            raise RefusedError(
                f"{self._source.cluster}: {', '.join(sorted(hidden))}: the replicator may not see it: give it Describe and Read"
            )
        source_logs = ranges_of_all(self._source, items & there)
        target_logs = ranges_of_all(
            self._target,
            [
                copy
                for copy in copies.values()
                if copy.topic in targets and copy.partition < targets[copy.topic].partitions
            ],
        )
        return sorted(
            (
                Recorded(
                    copy,
                    positions.get(item),
                    PartitionSide(sources[item.topic].topic_id, source_logs[item])
                    if item in source_logs
                    else None,
                    PartitionSide(targets[copy.topic].topic_id, target_logs[copy])
                    if copy in target_logs
                    else None,
                )
                for item, copy in copies.items()
            ),
            key=lambda found: found.topic_partition,
        )
