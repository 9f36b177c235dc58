"""Topics on an aggregate cluster: created like their source, grown with it, never changed otherwise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.librdkafka import AdminLink, client_settings, translated
from parallax.config.config import Cluster, Config
from parallax.domain.ids import ClusterName, Route, TopicName, TopicPartition, aggregate_cluster
from parallax.domain.outcome import Outcome
from parallax.domain.place import LogRange
from parallax.errors import (
    ClusterUnavailableError,
    ParallaxError,
    PartitionStoppedError,
    UnknownTopicError,
)
from parallax.ports.clusters import TopicInfo
from parallax.runtime.deadline import Deadline
from parallax.runtime.retry import RetryPolicy, retry

log = structlog.get_logger(__name__)

T = TypeVar("T")

TopicConfig = Mapping[str, str]
"""A topic's effective settings, in Kafka's own names."""

ANY_TIME_MS = 2**63 - 1
"""Kafka's way to say that a record may be of any age."""

COPIED_SETTINGS = ("cleanup.policy", "max.message.bytes", "retention.ms")
"""What a target topic takes over from its source.

``max.message.bytes``: a batch that the source accepted must fit. ``retention.ms``: a consumer that moves finds as
much history as before. ``cleanup.policy``: who relies on compaction, or on its absence, relies on it everywhere.
"""

FIXED_SETTINGS = {
    # A batch passes as it is: neither decompressed nor compressed again.
    "compression.type": "producer",
    # Broker time would rewrite every batch and lose the time at which the record was made.
    "message.timestamp.type": "CreateTime",
    # A record that is copied late must still be accepted.
    "message.timestamp.before.max.ms": str(ANY_TIME_MS),
    "message.timestamp.after.max.ms": str(ANY_TIME_MS),
}
"""What every target topic has, whatever its source says."""

_BROKER_DEFAULT = -1
_PREFLIGHT_ID = "parallax.preflight"
_TRANSACTION_TIMEOUT_S = 15.0
"""A cluster that never saw a transaction creates its transaction log first."""
_CALL_TIMEOUT_MS = 10_000
_VISIBLE_WITHIN_MS = 10_000
"""A topic that the controller has created may be unknown to other brokers for a moment."""


@dataclass(frozen=True, slots=True)
class Replication:
    """On how many disks a cluster's topics lie.

    Attributes:
        brokers: of the cluster, as far as they are up.
        replicas: by topic, of its partition that has fewest.
    """

    brokers: int
    replicas: Mapping[TopicName, int]


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic as it shall be created.

    Attributes:
        replicas: of each partition; None: as the cluster's section says (`Cluster.replication_factor`).
    """

    topic: TopicName
    partitions: int
    settings: TopicConfig
    replicas: int | None = None


def target_topic_plan(
    topic: TopicName, partitions: int, source_config: TopicConfig, replicas: int | None = None
) -> TopicPlan:
    """The target topic that fits a source topic with that many partitions and those settings."""
    copied = {key: source_config[key] for key in COPIED_SETTINGS if key in source_config}
    return TopicPlan(topic, partitions, copied | FIXED_SETTINGS, replicas)


RUN_LOG_SETTINGS = {
    "cleanup.policy": "delete",
    # By time alone: a busy route must not push out what an idle hour needs.
    "retention.bytes": "-1",
    # A replica that lacks the newest entries never leads: they would be copied twice.
    "unclean.leader.election.enable": "false",
    # The broker's own time: retention goes by it, and a copier's clock that is weeks behind would let its entries be deleted
    # as soon as they are written, one that is ahead keep them for ever.
    "message.timestamp.type": "LogAppendTime",
    "max.message.bytes": str(4 * 1024 * 1024),
}
"""What every run log has, beside its retention by time."""


def run_log_plan(topic: TopicName, shards: int, retention_ms: int, replicas: int | None) -> TopicPlan:
    """A route's run log: one partition per shard, kept at least as long as the longest replicated topic.

    Args:
        topic: its name.
        shards: of the route.
        retention_ms: how long entries are kept.
        replicas: of each partition; None: the broker's default.
    """
    settings = RUN_LOG_SETTINGS | {"retention.ms": str(retention_ms)} | in_sync_settings(replicas)
    return TopicPlan(topic, shards, settings)


def compacted_plan(topic: TopicName, replicas: int | None) -> TopicPlan:
    """A topic of which only the newest record of each key counts, in one partition."""
    settings = {"cleanup.policy": "compact", "unclean.leader.election.enable": "false"}
    return TopicPlan(topic, 1, settings | in_sync_settings(replicas))


def in_sync_settings(replicas: int | None) -> dict[str, str]:
    """How many replicas must have a record before it counts: two where one of three or more may be away meanwhile."""
    return {} if replicas is None else {"min.insync.replicas": "2" if replicas > 2 else "1"}  # noqa: PLR2004 - see above


class TopicAdmin(KafkaCluster):
    """A cluster's topics with their settings, and the two changes that Parallax makes to them.

    Args:
        cluster: the cluster's name.
        settings: its address and security.
        timeout_ms: bound of each call.
    """

    def __init__(self, cluster: ClusterName, settings: Cluster, *, timeout_ms: int) -> None:
        super().__init__(cluster, settings, timeout_ms=timeout_ms)
        self._link = AdminLink(
            client_settings(settings, client_id=f"parallax-{cluster}"), timeout_s=timeout_ms / 1_000
        )
        self._replication_factor = settings.replication_factor
        self._settings = settings

    def _translated(self, error: Exception, doing: str) -> ParallaxError:
        """Librdkafka only says that it had no answer, where brokers refuse us, or we them: our own connections say why."""
        problem = translated(error, self.cluster, doing)
        refused = self._links.refusal() if isinstance(problem, ClusterUnavailableError) else None
        return refused or problem

    def configs(self, topics: Collection[TopicName]) -> Mapping[TopicName, TopicConfig]:
        """The topics' effective settings; a topic that does not exist is left out."""
        if not topics:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        answers = self._link.client.describe_configs(resources, request_timeout=self._link.timeout_s())
        configs: dict[TopicName, TopicConfig] = {}
        for resource, future in answers.items():
            try:
                entries = future.result(timeout=self._link.longest_s + 1)
            except (KafkaException, TimeoutError) as error:
                problem = self._translated(error, f"reading the settings of {resource.name!r}")
                if not isinstance(problem, UnknownTopicError):
                    raise problem from error
                continue
            values = {name: entry.value for name, entry in entries.items() if entry.value is not None}
            configs[TopicName(resource.name)] = values
        return configs

    def replication(self) -> Replication:
        """How many brokers there are, and of each topic on how many of them it lies.

        Raises:
            ClusterUnavailableError: no answer in time.
        """
        try:
            known = self._link.client.list_topics(timeout=self._link.timeout_s())
        except KafkaException as error:
            raise self._translated(error, "listing brokers") from error
        return Replication(
            len(known.brokers),
            {
                TopicName(name): min(len(part.replicas) for part in topic.partitions.values())
                for name, topic in known.topics.items()
                if topic.partitions
            },
        )

    def racks(self) -> Collection[str]:
        """The racks that brokers say they stand in.

        Raises:
            ClusterUnavailableError: no answer in time.
        """
        try:
            told = self._link.client.describe_cluster(request_timeout=self._link.timeout_s())
            nodes = told.result(timeout=self._link.longest_s + 1).nodes
        except (KafkaException, TimeoutError) as error:
            raise self._translated(error, "asking where brokers stand") from error
        return {node.rack for node in nodes if node.rack}

    def create(self, plan: TopicPlan, deadline: Deadline) -> TopicInfo:
        """Create a topic unless it is there, perhaps with other settings; several callers at once may do so.

        Returns:
            The topic once the cluster shows it.

        Raises:
            ClusterUnavailableError: it did not by the deadline.
        """

        def attempt() -> None:
            new = NewTopic(
                plan.topic,
                num_partitions=plan.partitions,
                replication_factor=plan.replicas or self._replication_factor or _BROKER_DEFAULT,
                config=dict(plan.settings),
            )
            future = self._link.client.create_topics([new], request_timeout=self._link.timeout_s())[
                plan.topic
            ]
            self._change(future, f"creating topic {plan.topic!r}", KafkaError.TOPIC_ALREADY_EXISTS)

        _until(deadline, attempt)
        return self._shown(plan.topic, 1, deadline)

    def grow(self, topic: TopicName, partitions: int, deadline: Deadline) -> TopicInfo:
        """Give a topic more partitions unless it has as many; ``partitions`` is how many it has in all afterwards.

        Returns:
            The topic once the cluster shows them.

        Raises:
            ClusterUnavailableError: it did not by the deadline.
        """

        def attempt() -> None:
            request = [NewPartitions(topic, partitions)]
            future = self._link.client.create_partitions(request, request_timeout=self._link.timeout_s())[
                topic
            ]
            self._change(future, f"growing topic {topic!r}", KafkaError.INVALID_PARTITIONS)

        _until(deadline, attempt)
        return self._shown(topic, partitions, deadline)

    def _shown(self, topic: TopicName, partitions: int, deadline: Deadline) -> TopicInfo:
        def look() -> TopicInfo:
            info = self.topics().get(topic)
            if info is None or info.partitions < partitions:
                raise ClusterUnavailableError(
                    f"{self.cluster}: topic {topic!r} does not show its {partitions} partitions yet"
                )
            return info

        return _until(deadline, look)

    def check_transactions(self) -> None:
        """Prove that transactions are possible here, as far as one transactional id can.

        Raises:
            ConfigError: the cluster refuses them.
            ClusterUnavailableError: it did not answer in time.
        """
        settings = client_settings(self._settings, client_id="parallax-preflight")
        producer = Producer(settings | {"transactional.id": _PREFLIGHT_ID})
        try:
            producer.init_transactions(_TRANSACTION_TIMEOUT_S)
        except KafkaException as error:
            raise self._translated(error, "initialising a transactional id") from error

    def _change(self, future: Future[None], doing: str, already: int) -> None:
        try:
            future.result(timeout=self._link.longest_s + 1)
        except (KafkaException, TimeoutError) as error:
            if not (isinstance(error, KafkaException) and error.args[0].code() == already):
                raise self._translated(error, doing) from error


def _until(deadline: Deadline, call: Callable[[], T]) -> T:
    """Call again while the cluster is away: a change whose answer was lost is found made the next time."""
    return retry(
        call,
        policy=RetryPolicy(),
        deadline=deadline,
        retriable=lambda error: isinstance(error, ClusterUnavailableError),
    )


class TargetTopics:
    """Makes topics of a route's target fit those of its source; safe to use from several routes at once.

    A target has as many partitions as the source with most of them, whoever created it: partition numbers are kept, so a
    record of a partition that it lacks could not arrive.
    """

    def __init__(self, config: Config, route: Route) -> None:
        self._config = config
        self._route = route
        self._names = config.route_topics(route)

    @cached_property
    def _source(self) -> TopicAdmin:
        return self._admin(self._config.source_cluster(self._route))

    @cached_property
    def _target(self) -> TopicAdmin:
        return self._admin(aggregate_cluster(self._route.target))

    def _admin(self, cluster: ClusterName) -> TopicAdmin:
        return TopicAdmin(cluster, self._config.cluster(cluster), timeout_ms=_CALL_TIMEOUT_MS)

    def fit(self, source: TopicInfo) -> None:
        """Create the target of a source topic if it lacks, and give it the partitions that it lacks.

        Args:
            source: the topic at the source, by the name of its copy.

        Raises:
            PartitionStoppedError: the target has fewer partitions and does not grow (PARTITION_MISMATCH).
            ParallaxError: a cluster did not answer in time, or refused to show or create the topic.
        """
        topic, partitions = source.topic, source.partitions
        own = self._names.source_of(topic) or topic
        settings = self._source.configs([own]).get(own)
        deadline = Deadline.after_ms(_VISIBLE_WITHIN_MS)
        target = self._target.topics().get(topic)
        if target is None:
            if settings is None:  # its copy would be made as the broker makes topics, perhaps not compacted
                raise ClusterUnavailableError(
                    f"{self._source.cluster}: topic {own!r} is not known to every broker yet"
                )
            # Another route may have been faster, from a source with fewer partitions: look at what is there.
            plan = target_topic_plan(
                topic, partitions, settings, self._config.topics.config_sync.replication_factor
            )
            target = self._target.create(plan, deadline)
        if target.partitions >= partitions:
            return
        try:
            self._target.grow(topic, partitions, deadline)
        except ParallaxError as error:
            counts = partition_counts(topic, partitions, self._target.cluster, target.partitions)
            raise PartitionStoppedError(
                f"{Outcome.PARTITION_MISMATCH.name}: {counts}, and can't be given more: {error}; give it {partitions} "
                f"there (kafka-topics.sh --alter --topic {topic} --partitions {partitions}), let the replicator do it "
                "(Alter on the topic), or exclude the topic from replication"
            ) from error
        log.info("target_topic_grown", topic=topic, cluster=self._target.cluster, partitions=partitions)


def partition_counts(
    topic: TopicName, source_partitions: int, target: ClusterName, target_partitions: int
) -> str:
    """How many partitions a topic has on both sides."""
    return f"topic {topic!r} has {source_partitions} partitions at the source and {target_partitions} on {target}"


def ranges_of_all(
    cluster: TopicAdmin, places: Collection[TopicPartition]
) -> Mapping[TopicPartition, LogRange]:
    """Where the logs of partitions that there are begin and end.

    Raises:
        ClusterUnavailableError: one has no leader: it must not be taken for one that is not there.
    """
    found = cluster.log_ranges(sorted(places))
    if missing := sorted(set(places) - found.keys()):
        raise ClusterUnavailableError(f"{cluster.cluster}: {missing[0]} has no leader")
    return found
