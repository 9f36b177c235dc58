"""The clients that `replicator.kafka.layout` makes for itself, on clusters in memory.

Layouts are read and changed by the production code as it is: only its lowest doors are exchanged, for as long as a
world lives. A world's clusters are found by their bootstrap servers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, cast
from unittest import mock

from confluent_kafka import KafkaError, KafkaException

from parallax.config.config import Cluster as ClusterConfig
from parallax.config.config import Config
from parallax.domain.ids import ClusterName, Route, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.ids import aggregate_cluster as aggregate
from parallax.domain.place import LogRange
from parallax.errors import ClusterUnavailableError, FencedError
from parallax.ports.clusters import TopicInfo
from parallax.ports.index import MappingIndex
from replicator.copying.recovery import States
from replicator.kafka import layout as layout_module
from replicator.kafka import rebuild as rebuild_module
from replicator.kafka.kept_records import RecordOffsets
from replicator.kafka.rebuild import Rebuild
from replicator.kafka.run_log import run_log_topic
from replicator.kafka.spans import Span
from replicator.kafka.topics import TopicAdmin, TopicPlan
from replicator.lease import Lease
from tests.worlds.sim.kafka import ABORTED, COMMITTED, OPEN, Cluster, Log, Transaction
from tests.worlds.sim.run_logs import SimRunLog, Written
from tests.worlds.sim.schedule import Actor, Schedule
from tests.worlds.sim.settling import settle, settle_changes, unexplained

_UNDECIDED_MS = 500
"""So long a reader waits for a transaction's end, and a coordinator until it aborts one whose producer is gone."""

Places = Mapping[str, Cluster]
"""Clusters by their bootstrap servers."""


@contextmanager
def layouts_in(schedule: Schedule, places: Places) -> Iterator[None]:
    """Let the layout code find these clusters, and no other."""
    begun: dict[Transaction, Actor] = {}

    class Admin(SimAdmin):
        def __init__(self, cluster: ClusterName, settings: ClusterConfig, *, timeout_ms: int) -> None:
            del timeout_ms
            super().__init__(schedule, places[settings.bootstrap_servers])
            self.cluster = cluster

    class Producer(_Producer):
        def __init__(self, settings: Mapping[str, Any]) -> None:
            found = places[settings["bootstrap.servers"]]
            super().__init__(schedule, found, settings["transactional.id"], begun)

    def run_log(config: Config, route: Route, shard: int, **_: object) -> SimRunLog:
        found = places[config.cluster(aggregate(route.target)).bootstrap_servers]
        return SimRunLog(schedule, found, run_log_topic(config, route.source), shard)

    def read_partition(
        settings: Mapping[str, Any],
        cluster: ClusterName,
        topic: str,
        partition: int,
        span: tuple[int, int],
        **_: object,
    ) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        del cluster
        schedule.step()
        log = places[settings["bootstrap.servers"]].topics[topic].logs[partition]
        if log.stable_end < span[1]:
            _wait_for_an_end(schedule, log, begun)
        if log.stable_end < span[1]:
            raise ClusterUnavailableError(f"{topic}-{partition}: a transaction is still open")
        for slot in list(log.committed(*span)):
            assert isinstance(slot.value, Written)
            yield slot.offset, slot.value.key, slot.value.value

    def end_hanging(config: Config, lease: Lease, paths: Collection[str]) -> None:
        del paths
        schedule.step()
        found = places[config.cluster(aggregate(lease.route.target)).bootstrap_servers]
        settle(schedule, found, config, lease)

    end_hanging_changes = _end_hanging_changes(schedule, places)
    with ExitStack() as patches:
        for module, name, door in (
            (layout_module, "TopicAdmin", Admin),
            (layout_module, "Producer", Producer),
            (layout_module, "KafkaRunLog", run_log),
            (layout_module, "read_partition", read_partition),
            (layout_module, "settle", end_hanging),
            (layout_module, "settle_changes", end_hanging_changes),
            (layout_module, "unexplained_records", _unexplained(schedule, places)),
            (rebuild_module, "KafkaRunLog", run_log),
            (rebuild_module, "settle", end_hanging),
            (rebuild_module, "settle_changes", end_hanging_changes),
        ):
            patches.enter_context(mock.patch.object(module, name, door))
        yield


def _wait_for_an_end(schedule: Schedule, log: Log, begun: Mapping[Transaction, Actor]) -> None:
    """Of a transaction whose producer is gone: its coordinator aborts it after a while."""
    schedule.sleep(_UNDECIDED_MS)
    for transaction, actor in begun.items():
        if log in transaction.logs and transaction.outcome == OPEN and actor.over:
            transaction.decide(ABORTED)


def rebuild_of(
    schedule: Schedule, places: Places, config: Config, route: Route, index: MappingIndex, *, anew: bool
) -> Rebuild:
    """`parallax runlog rebuild` of a route of these clusters."""

    def open_cluster(name: ClusterName) -> TopicAdmin:
        admin = SimAdmin(schedule, places[config.cluster(name).bootstrap_servers])
        admin.cluster = name
        return cast("TopicAdmin", admin)

    target = places[config.cluster(aggregate(route.target)).bootstrap_servers]

    return Rebuild(config, route, index, open_cluster, _record_offsets(schedule, target), anew=anew)


def _record_offsets(schedule: Schedule, cluster: Cluster) -> RecordOffsets:
    def offsets(item: TopicPartition, span: Span) -> list[int]:
        schedule.step()
        topic = cluster.topics.get(item.topic)
        if topic is None or topic.logs[item.partition].stable_end < span[1]:
            schedule.sleep(_UNDECIDED_MS)
            raise ClusterUnavailableError(f"{item}: gone, or a transaction is still open")
        # Another route's has no run log here.
        found = topic.logs[item.partition].committed(*span)
        return [slot.offset for slot in found if not isinstance(slot.value, tuple)]

    return offsets


def _end_hanging_changes(schedule: Schedule, places: Places) -> Callable[[Config, ClusterName], None]:
    def end(
        config: Config, cluster: ClusterName
    ) -> None:  # no step: whoever calls it reads that topic right afterwards
        settle_changes(schedule, places[config.cluster(cluster).bootstrap_servers])

    return end


def _unexplained(schedule: Schedule, places: Places) -> Callable[..., Mapping[TopicPartition, int]]:
    def records(config: Config, lease: Lease, states: States) -> Mapping[TopicPartition, int]:
        schedule.step()
        found = places[config.cluster(aggregate(lease.route.target)).bootstrap_servers]
        return unexplained(found, config, lease, states)

    return records


class SimAdmin:
    """`TopicAdmin`, as far as layouts need it."""

    cluster: ClusterName

    def __init__(self, schedule: Schedule, cluster: Cluster) -> None:
        self._schedule = schedule
        self._cluster = cluster

    def create(self, plan: TopicPlan, deadline: object) -> TopicInfo:
        del deadline
        self._schedule.step()
        if plan.topic not in self._cluster.topics:
            self._cluster.create(plan.topic, plan.partitions)
        return self.topics()[plan.topic]

    def grow(self, topic: TopicName, partitions: int, deadline: object) -> TopicInfo:
        del deadline
        self._schedule.step()
        logs = self._cluster.topics[topic].logs
        logs += [Log() for _ in range(partitions - len(logs))]
        return self.topics()[topic]

    def configs(self, topics: object) -> Mapping[TopicName, Mapping[str, str]]:
        del topics
        return {}

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        if not self._cluster.reachable:
            raise ClusterUnavailableError(f"{self._cluster.name} is away")
        return {
            TopicName(name): TopicInfo(TopicName(name), TopicId(topic.topic_id), len(topic.logs))
            for name, topic in self._cluster.topics.items()
        }

    def log_ranges(self, places: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        self._schedule.step()
        found = {}
        for item in places:
            if item.topic in self._cluster.topics:
                log = self._cluster.topics[item.topic].logs[item.partition]
                found[item] = LogRange(TargetOffset(log.start), TargetOffset(log.end))
        return found


class _Producer:
    """confluent-kafka's transactional producer, as far as layouts need it."""

    def __init__(
        self,
        schedule: Schedule,
        cluster: Cluster,
        transactional: str,
        begun: dict[Transaction, Actor],
    ) -> None:
        self._schedule = schedule
        self._begun = begun
        self._cluster = cluster
        self._id = transactional
        self._epoch = -1

    def init_transactions(self, timeout: float | None = None) -> None:
        del timeout
        self._schedule.step()
        self._epoch = self._cluster.initialise(self._id)

    def begin_transaction(self) -> None:
        pass

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = 0,
        **_: object,
    ) -> None:
        """Never tells that the producer is fenced: that is found out in the background."""
        with suppress(KafkaException):
            self._cluster.topics[topic].logs[partition].append(Written(key, value), self._mine())

    def flush(self, timeout: float | None = None) -> int:
        del timeout
        self._schedule.step()
        return 0

    poll = flush

    def commit_transaction(self, timeout: float | None = None) -> None:
        del timeout
        self._schedule.step()
        self._cluster.decide(self._mine(), COMMITTED)

    def abort_transaction(self, timeout: float | None = None) -> None:
        del timeout
        self._cluster.decide(self._mine(), ABORTED)

    def _mine(self) -> Any:
        try:
            transaction = self._cluster.transaction(self._id, self._epoch)
        except FencedError as error:
            raise KafkaException(KafkaError(KafkaError._FENCED)) from error
        if self._schedule.running is not None:
            self._begun[transaction] = self._schedule.running
        return transaction
