"""Regions in memory: what a test does to them, and what it sees of them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaException, Message

from parallax.consumer.consumer import FailoverConsumer
from parallax.consumer.ports import Key
from parallax.errors import UnknownRegionError, UnknownTopicError
from parallax.testing.cluster import MemoryCluster, MemoryConsumer, RecordContent, SourceRecord
from parallax.testing.service import MemoryService
from parallax.v1 import primaries_pb2


class MemoryRegions:
    """Regions, each with a regional and an aggregate cluster, and an offset service that knows all of them.

    Nothing happens by itself: records are where the test has put them with `produce` and `replicate`.

    Args:
        regions: their names; default: ``a`` and ``b``.

    Attributes:
        clusters: the aggregate clusters by region.
        service: the offset service; ``service.away = True`` silences it.
    """

    def __init__(self, *regions: str) -> None:
        names = regions or ("a", "b")
        self.clusters = {name: MemoryCluster(name, self._content) for name in names}
        self.service = MemoryService(self.clusters)
        self._produced: dict[str, dict[Key, list[RecordContent]]] = {name: {} for name in names}
        self._copied: dict[tuple[str, str, Key], int] = defaultdict(int)
        self._fencing_number = 0

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic in every cluster."""
        for region, cluster in self.clusters.items():
            for partition in range(partitions):
                self._produced[region].setdefault((topic, partition), [])
                cluster.logs.setdefault((topic, partition), [])

    def produce(
        self,
        topic: str,
        value: str | bytes | None = None,
        key: str | bytes | None = None,
        partition: int = 0,
        *,
        region: str,
        headers: list[tuple[str, Any]] | None = None,
        timestamp_ms: int | None = None,
    ) -> int:
        """Append a record to a region's regional cluster.

        Returns:
            Its offset there.

        Raises:
            UnknownRegionError: there is no such region.
            UnknownTopicError: the topic was not created, or has no such partition.
        """
        self._cluster(region)
        log = self._produced[region].get((topic, partition))
        if log is None:
            raise UnknownTopicError(f"no partition {partition} of a topic {topic!r}: create_topic makes it")
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        log.append(RecordContent(_bytes(value), _bytes(key), headers, timestamp_ms))
        return len(log) - 1

    def replicate(
        self, to: str | None = None, sources: Sequence[str] | None = None, limit: int | None = None
    ) -> int:
        """Copy records that are not there yet; from and to a lost region none.

        Args:
            to: into this region's aggregate cluster; default: into all.
            sources: from these regions, one after the other; default: from the region itself, then from the others,
                so that every aggregate cluster has an order of its own.
            limit: so many records of each source and partition at most.

        Returns:
            How many were copied.
        """
        targets = list(self.clusters.values()) if to is None else [self._cluster(to)]
        copied = 0
        for target in targets:
            order = [target.name, *(name for name in self.clusters if name != target.name)]
            for source in order if sources is None else sources:
                if not target.dead and not self._cluster(source).dead:
                    copied += self._copy(source, target, limit)
        return copied

    def _copy(self, source: str, target: MemoryCluster, limit: int | None) -> int:
        copied = 0
        for key, produced in self._produced[source].items():
            begin = self._copied[target.name, source, key]
            end = len(produced) if limit is None else min(len(produced), begin + limit)
            if end > begin:
                # A replicator's transaction ends with a marker, which takes an offset.
                target.logs[key] += [*((source, offset) for offset in range(begin, end)), None]
                self._copied[target.name, source, key] = end
                copied += end - begin
        return copied

    def consumer(
        self, group: str, *, region: str, config: Mapping[str, Any] | None = None, **arguments: Any
    ) -> FailoverConsumer:
        """A `FailoverConsumer` of these clusters. A group has one at a time: it gets all partitions.

        Args:
            group: its ``group.id``.
            region: where it begins.
            config: further librdkafka settings.
            arguments: further arguments, as of `FailoverConsumer`. Reports go out every 20 ms unless told otherwise.
        """
        return FailoverConsumer(
            {"group.id": group, **(config or {})},
            **{"region": region, "report_interval_ms": 20, **self.connection(), **arguments},
        )

    def connection(self) -> dict[str, Any]:
        """The arguments that connect a `FailoverConsumer`, for an application that makes its own."""
        return {
            "clusters": {name: name for name in self.clusters},
            "services": self.service,
            "consumer_factory": self.make_consumer,
        }

    def make_consumer(self, config: dict[str, Any]) -> MemoryConsumer:
        """The consumer of the cluster that ``bootstrap.servers`` names."""
        return MemoryConsumer(self._cluster(config["bootstrap.servers"]), config)

    def committed(self, group: str, region: str) -> dict[Key, int]:
        """The group's committed offsets in a region, by topic and partition."""
        return {key: offset for key, (offset, _) in self._cluster(region).groups[group].items()}

    def decide(self, group: str, region: str, *, moving: bool = False, disaster: bool = False) -> None:
        """Record that a group is primary in a region: consumers with ``follow_primary=True`` go there.

        Args:
            group: the group.
            region: where it is primary.
            moving: the move there has only begun: consumers leave their cluster, and wait for the next decision.
            disaster: the region that it leaves is lost.
        """
        before = self.service.get_primary(group)
        self._fencing_number += 1
        decision = primaries_pb2.PrimaryDecision(
            fencing_number=self._fencing_number,
            mode=primaries_pb2.ACTIVE_PASSIVE,
            region=self._cluster(region).name,
            cluster=f"aggregate-{region}",
            stage=primaries_pb2.MOVING if moving else primaries_pb2.SETTLED,
            moving_from=before.decision.cluster if moving and before.HasField("decision") else None,
            decided_in=region,
            disaster=disaster,
            supersedes=[before.decision.fencing_number] if before.HasField("decision") else [],
        )
        self.service.record_primary(primaries_pb2.Primary(group=group, decision=decision))

    def lose(self, region: str) -> None:
        """Both clusters of the region answer nobody; what was not copied from there is missing elsewhere."""
        self._cluster(region).dead = True

    def restore(self, region: str) -> None:
        """The region is back, with what it had."""
        self._cluster(region).dead = False

    def _cluster(self, region: str) -> MemoryCluster:
        if region not in self.clusters:
            raise UnknownRegionError(f"region {region!r} is none of {', '.join(self.clusters)}")
        return self.clusters[region]

    def _content(self, key: Key, record: SourceRecord) -> RecordContent:
        return self._produced[record[0]][key][record[1]]


def read(consumer: FailoverConsumer, count: int, within_s: float = 5.0) -> list[Message]:
    """Poll until so many records are there.

    Raises:
        KafkaException: an error came instead of a record.
        TimeoutError: they did not come in time; the message says how many did.
    """
    messages: list[Message] = []
    ends_at_s = time.monotonic() + within_s
    while len(messages) < count:
        left_s = ends_at_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"{len(messages)} of {count} records within {within_s} s")
        message = consumer.poll(left_s)
        if message is not None:
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            messages.append(message)
    return messages


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
