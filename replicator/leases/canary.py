"""How long canaries take, and which routes' are late: a part of the replicator's status.

A canary is a record that a replicator writes to a topic of its own at a source (`replicator.kafka.canary`). The route copies it as
any record, so that its copy tells of the whole way, while nothing else is on it too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric

from parallax.adapters.spark.status_part import SidePart
from parallax.config.config import CanarySettings, Config
from parallax.domain.ids import Route, TopicName
from parallax.domain.latencies import LatencyCounter
from replicator.lease import LeaseProgress, PartitionStatus

PREFIX = "parallax_replicator_canary_"
_LABELS = ("source", "target")


@dataclass(frozen=True, slots=True)
class CanaryState:
    """A route's canaries.

    Attributes:
        age_s: since the last one was brought, in the shard where that is longest ago; since the process began where none was.
        latency_ms: of the last one, from its timestamp to the commit of its copy; None: none was brought.
        late: whether that is too long ago.
    """

    age_s: float
    latency_ms: float | None
    late: bool


def watched_topics(config: Config, routes: Sequence[Route]) -> dict[Route, TopicName]:
    """What the routes call the copies of canaries; one that does not copy them is left out."""
    if not config.canary.enabled:
        return {}
    copies = {route: config.route_topics(route).copy_of(TopicName(config.canary.topic)) for route in routes}
    return {route: copy for route, copy in copies.items() if copy is not None}


class CanaryBoard(SidePart):
    """What leases have told of canaries. Safe to use from several threads.

    Args:
        topics: of each route that is watched, what it calls the copies.
        settings: when they are late.
        clock: seconds, monotonic.
    """

    name = "canary"

    def __init__(
        self,
        topics: Mapping[Route, TopicName],
        settings: CanarySettings,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._topics = dict(topics)
        self._late_after_s = settings.late_after_s
        self._clock = clock
        self._lock = threading.Lock()
        self._began_s = clock()
        self._brought_at_s: dict[Route, dict[int, float]] = {route: {} for route in topics}
        """By partition: there is one in each shard."""
        self._latency_ms: dict[Route, float] = {}
        self._latencies = {route: LatencyCounter() for route in topics}

    def heard(self, progress: LeaseProgress) -> None:
        """Take in a lease's report."""
        route = progress.lease.route
        topic = self._topics.get(route)
        if topic is None:
            return
        with self._lock:
            for item in progress.partitions:
                if item.topic != topic or item.status is PartitionStatus.ABSENT:
                    continue
                brought = self._brought_at_s[route]
                brought.setdefault(item.partition, self._clock())
                if item.replication_latency_ms is not None:
                    brought[item.partition] = self._clock()
                    self._latency_ms[route] = item.replication_latency_ms
                    self._latencies[route].add(item.replication_latency_ms, 1)

    def of(self, route: Route) -> CanaryState | None:
        """How the route's canaries are; None: it has none."""
        if route not in self._topics:
            return None
        with self._lock:
            brought = self._brought_at_s[route].values()
            age_s = self._clock() - min(brought, default=self._began_s)
            return CanaryState(age_s, self._latency_ms.get(route), age_s > self._late_after_s)

    def troubles(self) -> Sequence[str]:
        """The routes whose canaries are late."""
        found = {route: self.of(route) for route in sorted(self._topics)}
        return [
            f"{route}: the canary is late: none was brought by every shard for {state.age_s:.0f} s"
            for route, state in found.items()
            if state is not None and state.late
        ]

    def state(self) -> dict[str, Any]:
        """The canaries of every route as JSON types."""
        found = {str(route): self.of(route) for route in sorted(self._topics)}
        return {
            self.name: {
                route: {
                    "age_ms": round(state.age_s * 1_000),
                    "latency_ms": None if state.latency_ms is None else round(state.latency_ms, 1),
                    "late": state.late,
                }
                for route, state in found.items()
                if state is not None
            }
        }

    def collect(self) -> Iterator[Metric]:
        """Every metric with its samples."""
        took = HistogramMetricFamily(
            f"{PREFIX}latency_seconds",
            "From a canary's timestamp to the commit of its copy.",
            labels=_LABELS,
        )
        age = GaugeMetricFamily(
            f"{PREFIX}age_seconds",
            "Since a canary was brought last, in the shard where that is longest ago.",
            labels=_LABELS,
        )
        late = GaugeMetricFamily(f"{PREFIX}late", "1 while that is too long ago.", labels=_LABELS)
        for route in sorted(self._topics):
            state, named = self.of(route), (route.source, route.target)
            if state is None:
                continue
            with self._lock:
                latencies = self._latencies[route].value()
            took.add_metric(named, latencies.buckets(), latencies.sum_s)
            age.add_metric(named, state.age_s)
            late.add_metric(named, int(state.late))
        yield from (took, age, late)
