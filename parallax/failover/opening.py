"""Opens everything that a move touches: a composition root for the command line."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.cluster import KafkaCluster, aggregate_clusters
from parallax.config.config import Config
from parallax.domain.ids import ClusterName, RegionName, region_of
from parallax.domain.rights import Principal
from parallax.failover.clusters import AggregateClusters
from parallax.failover.facts import Move, MoveKind
from parallax.failover.journal import MoveJournal
from parallax.failover.outside import Outside
from parallax.failover.restoring import Restoring
from parallax.failover.services import OffsetServices
from parallax.failover.timekeeper import Timekeeper
from parallax.failover.verify.verifier import Verifier
from parallax.ports.audit import Auditor, operator_of
from parallax.runtime.process import process_name
from parallax.v1 import offsets_pb2 as pb
from parallax.wiring import open_client


def lost_regions(moves: Iterable[Move]) -> frozenset[RegionName]:
    """The regions that disasters take away; not those of which only a cluster is down."""
    return frozenset(
        region
        for move in moves
        if move.kind is MoveKind.DISASTER and (region := region_of(move.origin)) != move.region
    )


@contextmanager
def open_outside(
    config: Config,
    *,
    target: RegionName | None = None,
    origin: RegionName | None = None,
    lost: Collection[RegionName] = (),
    by_timestamp: pb.TimestampPolicy | None = None,
    operator: Principal | None = None,
) -> Iterator[Outside]:
    """Services, clusters and store by the configuration; each is asked only when it is needed.

    Args:
        config: everything.
        target: the region whose service is asked first: after a disaster the one that lives.
        origin: the region whose service is asked last.
        lost: regions whose services are not asked.
        by_timestamp: the operator's choice where no row proves anything; None: the log start.
        operator: whose command it is; None: that of the account that it runs under.

    Raises:
        ConfigError: no service is configured, or a certificate can't be read.
    """
    whose = operator or operator_of(None)
    client = open_client(config, first=target, last=origin, lost=lost)
    with CassandraStores(config.cassandra, config.index, audit=config.audit) as stores, client:
        time = Timekeeper(stores.clock.now_ms)
        yield Outside(
            OffsetServices(client, by_timestamp, whose.name),
            AggregateClusters(aggregate_clusters(config)),
            stores.groups,
            MoveJournal(stores.operations, time),
            time,
            Auditor(stores.audit, stores.clock.now_ms, process=process_name("parallax")),
            whose,
        )


@contextmanager
def open_verifier(config: Config) -> Iterator[Verifier]:
    """Clusters and store for proofs after the fact; no service is asked.

    Raises:
        ConfigError: the store's settings can't be used.
    """
    with CassandraStores(config.cassandra, config.index) as stores:
        time = Timekeeper(stores.clock.now_ms)
        yield Verifier(
            AggregateClusters(aggregate_clusters(config)),
            stores.groups,
            MoveJournal(stores.operations, time),
            time,
            stores.index,
            config,
            stores.primaries,
        )


@contextmanager
def open_restoring(config: Config, stop: threading.Event) -> Iterator[Restoring]:
    """Clusters and store, for what a cluster lacks; no service is asked.

    Args:
        config: all configuration.
        stop: set to end waits.

    Raises:
        ConfigError: the store's settings can't be used.
    """
    timeout_ms = config.service.cluster_timeout_ms

    @cache
    def reader(cluster: ClusterName) -> KafkaCluster:
        return KafkaCluster(cluster, config.cluster(cluster), timeout_ms=timeout_ms)

    with CassandraStores(config.cassandra, config.index) as stores:
        yield Restoring(
            config, reader, stores.index, Timekeeper(stores.clock.now_ms, wait=stop.wait, stop=stop)
        )


@contextmanager
def without(
    config: Config, outside: Outside, lost: Collection[RegionName], *, first: RegionName | None = None
) -> Iterator[Outside]:
    """The same, with a client that does not ask the services of lost regions."""
    if not lost:
        yield outside
        return
    with open_client(config, first=first, lost=lost) as client:
        yield replace(outside, services=replace(outside.services, client=client))
