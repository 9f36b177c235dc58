"""Opens the doors of the copy loop (`replicator.copying.ports`) onto real clusters."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from confluent_kafka.admin import AdminClient

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.librdkafka import client_settings
from parallax.config.config import Config
from parallax.domain.ids import TopicName, aggregate_cluster, regional_cluster
from parallax.ports.clusters import TopicInfo
from replicator.copying.ports import Clock, RunLogReader, SourceReader, Surveyor, TargetWriter
from replicator.kafka.layout import PATHS, LayoutRecord, fence, read_layout
from replicator.kafka.record.source import KafkaSource
from replicator.kafka.record.target import KafkaTarget, batch_limit
from replicator.kafka.run_log import KafkaRunLog, SystemClock, run_log_topic
from replicator.kafka.strangers import StrangerWatch
from replicator.kafka.survey import EnsureTargetTopic, KafkaSurveyor, chosen
from replicator.kafka.topics import TopicAdmin
from replicator.kafka.topics import ensure_target_topic as create_or_grow
from replicator.kafka.transactions.settling import settle
from replicator.lease import Lease, transactional_id

_TOPIC_TIMEOUT_MS = 10_000


class Connector(Protocol):
    """Opens the doors that a session needs; `KafkaConnector` on real clusters, the simulation in memory."""

    @property
    def clock(self) -> Clock:
        """Time."""

    def settle(self, lease: Lease) -> None:
        """End what earlier owners' transactions were left hanging; older owners are fenced from now on."""

    def target(self, lease: Lease) -> TargetWriter:
        """The target, initialised: older owners are fenced from now on."""

    def source(self, lease: Lease) -> SourceReader:
        """The source."""

    def surveyor(self, lease: Lease, replicated: Collection[TopicName]) -> Surveyor:
        """The survey of both; told which topics have been replicated before."""

    def run_log(self, lease: Lease) -> RunLogReader:
        """The shard's partition of the run log."""

    def layout(self, lease: Lease) -> LayoutRecord | None:
        """The route's layout, as the target has it now."""

    def strangers(self, lease: Lease) -> StrangerWatch | None:
        """Looks for records that no route wrote; None where nobody looks."""


class KafkaConnector:
    """`Connector` on confluent-kafka."""

    def __init__(self, config: Config, ensure_target_topic: EnsureTargetTopic) -> None:
        self._config = config
        self._ensure = ensure_target_topic
        self._clock = SystemClock()

    @property
    def clock(self) -> Clock:
        """This machine's time."""
        return self._clock

    def settle(self, lease: Lease) -> None:
        """Ask the partitions' leaders."""
        settle(self._config, lease, PATHS)

    def target(self, lease: Lease) -> TargetWriter:
        """A transactional producer, initialised; so are the ids of the other copy paths, before it."""
        cluster = aggregate_cluster(lease.route.target)
        for path in PATHS:
            if path != KafkaTarget.path:
                fence(self._config, lease, path)
        admin = KafkaCluster(cluster, self._config.cluster(cluster), timeout_ms=_TOPIC_TIMEOUT_MS)
        topics = chosen(self._config.topics, admin.topics())
        settings = client_settings(self._config.cluster(cluster), client_id=f"parallax-{lease.route.source}")
        return KafkaTarget(
            settings,
            cluster,
            largest_batch_bytes=batch_limit(
                AdminClient(settings), topics, timeout_s=_TOPIC_TIMEOUT_MS / 1_000
            ),
            run_log_topic=run_log_topic(self._config, lease.route.source),
            shard=lease.shard,
            transactional_id=transactional_id(lease.route, lease.layout, lease.shard),
            transaction_timeout_ms=self._config.replicator.transaction_timeout_ms,
        )

    def source(self, lease: Lease) -> SourceReader:
        """A consumer without a group."""
        cluster = regional_cluster(lease.route.source)
        settings = client_settings(self._config.cluster(cluster), client_id=f"parallax-{lease.route.target}")
        return KafkaSource(settings, cluster)

    def surveyor(self, lease: Lease, replicated: Collection[TopicName]) -> Surveyor:
        """A thread with two admin clients."""
        return KafkaSurveyor(self._config, lease, self._ensure, replicated=replicated)

    def run_log(self, lease: Lease) -> RunLogReader:
        """The shard's partition of the run log."""
        return KafkaRunLog(self._config, lease.route, lease.shard)

    def layout(self, lease: Lease) -> LayoutRecord | None:
        """The layout record."""
        return read_layout(self._config, lease.route)

    def strangers(self, lease: Lease) -> StrangerWatch | None:
        """A thread that looks now and then."""
        return StrangerWatch(self._config, lease)


def target_topic_creator(config: Config, lease: Lease) -> EnsureTargetTopic:
    """Creates target topics as their source topics are, and lets those grow that have been replicated before."""
    source, target = regional_cluster(lease.route.source), aggregate_cluster(lease.route.target)
    admins: list[TopicAdmin] = []

    def ensure(info: TopicInfo, may_grow: bool) -> None:  # noqa: FBT001 - the callback's second word
        if not admins:
            admins.append(TopicAdmin(source, config.cluster(source), timeout_ms=_TOPIC_TIMEOUT_MS))
            admins.append(TopicAdmin(target, config.cluster(target), timeout_ms=_TOPIC_TIMEOUT_MS))
        settings = admins[0].configs([info.topic]).get(info.topic, {})
        create_or_grow(admins[1], info.topic, info.partitions, settings, may_grow=may_grow)

    return ensure
