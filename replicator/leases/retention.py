"""How long sources may keep away until their retention takes what was not copied: a part of the replicator's status.

Leases tell up to which moment all is copied (`replicator.copying.copied_until`), sources how long they keep records
(`replicator.kafka.retention`). What a source that is away said last still holds: that is when it is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric

from parallax.adapters.spark.status_part import SidePart
from parallax.config.config import Config
from parallax.domain.ids import ClusterName, Route, TopicName, TopicPartition
from parallax.runtime.deadline import wall_clock_ms
from replicator.lease import LeaseProgress, PartitionStatus

PREFIX = "parallax_replicator_source_retention_"
NEAR = 0.5
"""A route is told once so much of a topic's retention has gone by since all was copied."""
_LABELS = ("source", "target")


@dataclass(frozen=True, slots=True)
class RetentionLeft:
    """The partition of a route that is nearest to losing records.

    Attributes:
        partition: as its copy is called.
        age_ms: what was written to it before that is copied.
        kept_ms: so long the source keeps it.
    """

    partition: TopicPartition
    age_ms: int
    kept_ms: int

    @property
    def left_ms(self) -> int:
        """Nothing is taken before so many milliseconds have passed; below 0: something may have been."""
        return self.kept_ms - self.age_ms

    @property
    def used(self) -> float:
        """The share of the retention that has gone by since all was copied."""
        return self.age_ms / max(1, self.kept_ms)


@dataclass(slots=True)
class _Copied:
    source_next: int
    until_ms: int | None


class RetentionBoard(SidePart):
    """What leases and sources have told. Safe to use from several threads.

    Args:
        config: names and sources of routes.
        routes: those that are copied here.
        now_ms: milliseconds since 1970.
    """

    name = "source_retention"

    def __init__(
        self, config: Config, routes: Sequence[Route], now_ms: Callable[[], int] = wall_clock_ms
    ) -> None:
        self._names = {route: config.route_topics(route) for route in routes}
        self._sources = {route: config.source_cluster(route) for route in routes}
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._copied: dict[Route, dict[TopicPartition, _Copied]] = {route: {} for route in routes}
        self._retention_ms: dict[ClusterName, dict[TopicName, int]] = {}

    @property
    def sources(self) -> Sequence[ClusterName]:
        """The clusters whose settings matter here."""
        return list(dict.fromkeys(self._sources.values()))

    def heard(self, progress: LeaseProgress) -> None:
        """Take in a lease's report."""
        copied = self._copied.get(progress.lease.route)
        if copied is None:
            return
        with self._lock:
            for item in progress.partitions:
                partition = TopicPartition(TopicName(item.topic), item.partition)
                if item.status is PartitionStatus.ABSENT:
                    copied.pop(partition, None)
                    continue
                known = copied.setdefault(partition, _Copied(item.source_next, None))
                if item.status is PartitionStatus.COPYING:
                    if item.source_next < known.source_next:  # it is copied again from there
                        known.until_ms = None
                    known.source_next = item.source_next
                if item.copied_until_ms is not None:
                    known.until_ms = max(known.until_ms or 0, item.copied_until_ms)

    def topics(self, cluster: ClusterName) -> set[TopicName]:
        """The topics of a source that leases have told of, by their names there."""
        with self._lock:
            return {
                name
                for route, copied in self._copied.items()
                if self._sources[route] == cluster
                for copy in {partition.topic for partition in copied}
                if (name := self._names[route].source_of(copy)) is not None
            }

    def learn(self, cluster: ClusterName, retention_ms: Mapping[TopicName, int | None]) -> None:
        """Take in how long a source keeps records of topics; None: for ever, as far as time goes."""
        with self._lock:
            known = self._retention_ms.setdefault(cluster, {})
            for topic, kept_ms in retention_ms.items():
                if kept_ms is None:
                    known.pop(topic, None)
                else:
                    known[topic] = kept_ms

    def of(self, route: Route) -> RetentionLeft | None:
        """The route's partition of whose retention most has gone by; None: none is known to lose anything by time."""
        names, now_ms = self._names[route], self._now_ms()
        with self._lock:
            kept = self._retention_ms.get(self._sources[route], {})
            found = [
                RetentionLeft(partition, max(0, now_ms - copied.until_ms), kept_ms)
                for partition, copied in self._copied[route].items()
                if copied.until_ms is not None
                and (kept_ms := kept.get(names.source_of(partition.topic) or partition.topic)) is not None
            ]
        return max(found, key=lambda left: left.used, default=None)

    def troubles(self) -> Sequence[str]:
        """The routes that are near to losing records."""
        found = {route: self.of(route) for route in sorted(self._names)}
        return [
            f"{route}: {left.partition}: what was written at the source in the last {_hours(left.age_ms)} may not be copied, "
            f"and its retention takes it {f'in {_hours(left.left_ms)}' if left.left_ms > 0 else 'now'}"
            for route, left in found.items()
            if left is not None and left.used > NEAR
        ]

    def state(self) -> dict[str, Any]:
        """Every route's nearest partition as JSON types."""
        found = {route: self.of(route) for route in sorted(self._names)}
        return {
            self.name: {
                str(route): {
                    "topic": left.partition.topic,
                    "partition": left.partition.partition,
                    "left_ms": left.left_ms,
                    "used": round(left.used, 4),
                }
                for route, left in found.items()
                if left is not None
            }
        }

    def collect(self) -> Iterator[Metric]:
        """Every metric with its samples."""
        left = GaugeMetricFamily(
            f"{PREFIX}left_seconds",
            "Before so long no record that was not copied is taken by its topic's retention.ms at the source.",
            labels=_LABELS,
        )
        used = GaugeMetricFamily(
            f"{PREFIX}used_ratio",
            "Of a topic's retention.ms at the source, the share that has gone by since all was copied.",
            labels=_LABELS,
        )
        for route in sorted(self._names):
            found, named = self.of(route), (route.source, route.target)
            if found is not None:
                left.add_metric(named, found.left_ms / 1_000)
                used.add_metric(named, found.used)
        yield from (left, used)


def _hours(duration_ms: int) -> str:
    return f"{duration_ms / 3_600_000:,.1f} h"
