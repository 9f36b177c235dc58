"""Several routes between the real clusters of a stack: leases of them, what is written to their sources, an offset service."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from multiprocessing.context import SpawnProcess
from typing import Any, Self

from confluent_kafka import Producer

from offsetsvc.service import UseCases
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.config.config import Config
from parallax.domain.ids import RegionName, Route, aggregate_cluster
from parallax.ports.index import MappingIndexWriter
from replicator.kafka.layout import ensure_layout
from replicator.lease import Lease
from replicator.shard import hold_lease
from tests.memory.audit import MemoryAuditLog
from tests.memory.cql import MemoryKeyspace, WrittenStores
from tests.memory.groups import MemoryGroupStore, MemoryOperationJournal, MemoryPrimaryStore
from tests.memory.index import MemoryMappingIndex
from tests.support import Stack
from tests.worlds.live import wait_until_begun
from tests.worlds.shard_harness import LEASE_S, PATIENCE_S, ends, hold_in_process, until

PARTITIONS = 2
"""Of topics that are written to."""

OFTEN_OPEN = {"commit_min_interval_ms": 200, "commit_max_interval_ms": 400}
"""Settings of a replicator that has a transaction open most of the time."""


def in_both_roles(
    infrastructure: Stack, kafkas: Mapping[str, str], routes: list[Any], topic: str, **more: Any
) -> Config:
    """Regions of one Kafka each, by region the broker of the stack that it is."""
    return Config.model_validate(
        {
            "regions": {
                region: {"cluster": {"bootstrap_servers": infrastructure.bootstrap(broker)}}
                for region, broker in kafkas.items()
            },
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": routes,
            "topics": {"include": [f"{topic}.*"]},
            "replicator": {"discovery_interval_ms": 1_000, "watermark_interval_ms": 300, **more},
        }
    )


def read_at(config: Config, region: str) -> str:
    """The address of the cluster where the region's groups read."""
    return config.cluster(aggregate_cluster(RegionName(region))).bootstrap_servers


def lease_of(config: Config, route: Route, *, available_now: bool = False) -> Lease:
    """A lease of the whole route."""
    deadline = int((time.time() + LEASE_S) * 1_000)
    return Lease(
        route, 0, 1, ensure_layout(config, route, 1).layout, 1, deadline, available_now=available_now
    )


def copy_now(config: Config, route: Route, index: MappingIndexWriter | None = None) -> int:
    """Copy the route to today's end; how many records."""
    lease = lease_of(config, route, available_now=True)
    return hold_lease(lease, config, index=index, report=lambda _progress: None).records


def in_process(config: Config, route: Route) -> SpawnProcess:
    """A replicator of the route that a test may kill."""
    owner = multiprocessing.get_context("spawn").Process(
        target=hold_in_process,
        args=(config.model_dump_json(by_alias=True), lease_of(config, route)),
        daemon=True,
    )
    owner.start()
    return owner


def kill_in_mid_transaction(config: Config, topic: str) -> None:
    """Let a replicator of each route copy until some have committed and one is in a transaction, and kill them all.

    Nobody else may have any.
    """
    targets = {read_at(config, route.target) for route in config.all_routes()}
    before = {target: sum(ends(target, topic, "read_committed")) for target in targets}

    def is_open(target: str) -> bool:
        stable = ends(target, topic, "read_committed")
        return sum(stable) > before[target] and ends(target, topic) != stable

    owners = [in_process(config, route) for route in config.all_routes()]
    try:
        until(lambda: any(map(is_open, targets)), "a transaction behind one that was committed")
    finally:
        for owner in owners:
            owner.kill()
            owner.join(PATIENCE_S)


class Writing:
    """Writes to each source, by its name, record by record, until it is left; nobody else knows the values."""

    def __init__(self, sources: Mapping[str, str], topic: str, *, every_s: float = 0.005) -> None:
        for address in sources.values():
            wait_until_begun({"bootstrap.servers": address}, topic, PARTITIONS)
        self._producers = {
            name: Producer({"bootstrap.servers": address, "linger.ms": 0, "enable.idempotence": True})
            for name, address in sources.items()
        }
        self._topic = topic
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.values: list[str] = []
        self.written: dict[tuple[str, int], list[str]] = defaultdict(list)
        """In order, by source and partition."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)

    def _write(self) -> None:
        while not self._over.wait(self._every_s):
            for name, producer in self._producers.items():
                value = f"{name}{len(self.values)}"
                partition = len(self.values) // len(self._producers) % PARTITIONS
                producer.produce(self._topic, value=value, partition=partition)
                producer.poll(0)
                self.values.append(value)
                self.written[name, partition].append(value)
        for producer in self._producers.values():
            assert producer.flush(PATIENCE_S) == 0


def write(address: str, topic: str, values: list[str]) -> None:
    """Write to the first partition."""
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value=value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


def service_over(config: Config, index: MemoryMappingIndex) -> UseCases:
    """An offset service of the first region over the index, and over the real clusters."""
    clusters = {
        name: KafkaCluster(name, cluster, timeout_ms=10_000)
        for name, cluster in config.aggregate_clusters().items()
    }
    return UseCases(
        config,
        RegionName(next(iter(config.regions))),
        index,
        MemoryGroupStore(),
        clusters,
        MemoryPrimaryStore(),
        MemoryOperationJournal(),
        WrittenStores(MemoryKeyspace()).status,
        now_ms=lambda: int(time.time() * 1_000),
        audit=MemoryAuditLog(),
    )
