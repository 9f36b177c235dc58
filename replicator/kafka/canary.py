"""Writes canaries: a record for each shard of the routes that read a cluster, again and again (`replicator.leases.canary`)."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaException, Producer

from parallax.adapters.kafka.librdkafka import client_settings, translated
from parallax.config.config import Config
from parallax.domain.ids import ClusterName, Route, TopicName
from parallax.errors import ClusterUnavailableError, RefusedError
from parallax.runtime.deadline import Deadline
from replicator.kafka.topics import TopicAdmin, TopicPlan

_TIMEOUT_MS = 10_000
_RETENTION_MS = 86_400_000


def clusters_to_write_to(config: Config, routes: Sequence[Route]) -> dict[ClusterName, list[Route]]:
    """The sources of routes, each with those that read it; not those to which routes alone write: there they come along."""
    if not config.canary.enabled:
        return {}
    found: dict[ClusterName, list[Route]] = {}
    for route in routes:
        cluster = config.source_cluster(route)
        if config.is_produced_at(cluster):
            found.setdefault(cluster, []).append(route)
    return found


class CanaryWriter:
    """Canaries of one cluster; for one thread.

    Args:
        config: all configuration.
        cluster: where they are written.
        routes: that read it.
        mark: what is in the records: who wrote them.
    """

    def __init__(self, config: Config, cluster: ClusterName, routes: Sequence[Route], mark: str) -> None:
        self._config = config
        self._cluster = cluster
        self._mark = mark
        self._topic = TopicName(config.canary.topic)
        self._left_out = [
            route for route in routes if config.route_topics(route).copy_of(self._topic) is None
        ]
        settings = config.cluster(cluster)
        self._admin = TopicAdmin(cluster, settings, timeout_ms=_TIMEOUT_MS)
        self._producer = Producer(
            client_settings(settings, client_id=f"parallax-canary-{cluster}")
            # Not idempotent: one that may not write would end for good, and a canary may well come twice.
            | {"acks": "all", "linger.ms": 0, "delivery.timeout.ms": _TIMEOUT_MS}
        )

    def round(self) -> None:
        """Write one for each shard.

        Raises:
            ConfigError: the cluster does not allow it.
            ClusterUnavailableError: it did not take all of them in time.
            RefusedError: they are written, but routes don't copy them.
        """
        partitions = self._partitions()
        problems: list[KafkaException] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                problems.append(KafkaException(error))

        doing = f"writing canaries to {self._topic!r}"
        try:
            for partition in range(partitions):
                self._producer.produce(
                    self._topic, value=self._mark, partition=partition, on_delivery=delivered
                )
            left = self._producer.flush(_TIMEOUT_MS / 1_000 + 1)
        except (KafkaException, BufferError) as error:
            raise translated(error, self._cluster, doing) from error
        if problems:
            raise translated(problems[0], self._cluster, doing)
        if left:
            raise ClusterUnavailableError(f"{self._cluster}: {doing}: {left} were not taken in time")
        if self._left_out:
            raise RefusedError(
                f"{', '.join(map(str, self._left_out))}: topics.include does not choose {self._topic!r}, so that no canary comes"
            )

    def _partitions(self) -> int:
        """As many as a route has shards, at least: neighbouring partitions lie in neighbouring shards (`replicator.lease.shard_of`)."""
        shards = self._config.replicator.shards_per_route
        found = self._admin.topics().get(self._topic)
        deadline = Deadline.after_ms(_TIMEOUT_MS)
        if found is None:
            settings = {"cleanup.policy": "delete", "retention.ms": str(_RETENTION_MS)}
            found = self._admin.create(TopicPlan(self._topic, shards, settings), deadline)
        if found.partitions < shards:
            found = self._admin.grow(self._topic, shards, deadline)
        return found.partitions
