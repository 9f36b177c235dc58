"""Beats for MirrorMaker 2's clients: which clusters reach a target, over how many hops, and since when one does not any more.

A round writes a beat to each source's `heartbeats` and copies what has come to that topic since the last round, other
writers' beats too, to `<source>.heartbeats` of the target. Beats that were there before the first round are history, and stay.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.compacted import CompactedTable
from parallax.config.config import Config
from parallax.domain.ids import ClusterName, RegionName, TopicName, aggregate_cluster
from parallax.domain.mirror_maker import HEARTBEATS, Heartbeat, copied_heartbeats
from parallax.domain.route_graph import Edge
from parallax.errors import ParallaxError, RefusedError
from parallax.runtime.deadline import wall_clock_ms

_TIMEOUT_MS = 10_000


class HeartbeatKeeper:
    """One target's beats; for one thread.

    Args:
        config: all configuration.
        target: the target region.
        now_ms: the time of beats.
    """

    def __init__(
        self, config: Config, target: RegionName, *, now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self._config = config
        self._target = target
        self._now_ms = now_ms
        self.cluster = aggregate_cluster(target)
        self._edges = config.edges_into(target)
        self._copied_to: dict[tuple[ClusterName, TopicName], int] = {}
        self._table = cache(self._open_table)
        self._readers = {
            cluster: KafkaCluster(cluster, config.cluster(cluster), timeout_ms=_TIMEOUT_MS)
            for cluster in {config.source_cluster(edge.route) for edge in self._edges}
        }

    def round(self) -> None:
        """Write and copy the beats of every source; one that is away does not keep the others' from coming.

        Raises:
            RefusedError: some did not come; the message says which, and why.
        """
        problems = []
        for edge in self._edges:
            try:
                self._beat(edge)
            except ParallaxError as error:
                problems.append(f"{edge.route}: [{error.code}] {error}")
        if problems:
            raise RefusedError("; ".join(problems))

    def _beat(self, edge: Edge) -> None:
        alias_of = self._config.mm2_export.alias_of
        source, target = alias_of(edge.route.source), alias_of(self._target)
        cluster = self._config.source_cluster(edge.route)
        topics = copied_heartbeats({*self._readers[cluster].topics(), HEARTBEATS}, source, target)
        for topic in topics:  # before the beat, so that it is copied
            if (cluster, topic) not in self._copied_to:
                self._copied_to[cluster, topic] = self._table(cluster, topic).end()
        beat = Heartbeat(source, target, self._now_ms())
        self._table(cluster, HEARTBEATS).write_records({beat.key(): beat.value()})
        for topic, copy in topics.items():
            news, end = self._table(cluster, topic).read_since(self._copied_to[cluster, topic])
            beats = {key: value for key, value in news.items() if value is not None}
            self._table(self.cluster, copy).write_records(beats)
            self._copied_to[cluster, topic] = end

    def _open_table(self, cluster: ClusterName, topic: TopicName) -> CompactedTable:
        return CompactedTable(cluster, self._config.cluster(cluster), topic, timeout_ms=_TIMEOUT_MS)
