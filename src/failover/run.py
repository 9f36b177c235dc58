"""Opens everything that a move touches: a composition root for the command line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from failover.outside import Outside
from offsetsvc.client import OffsetClient
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.domain.errors import ConfigError
from parallax.domain.ids import RegionName
from parallax.runtime.config import Config
from syncjob.run import client_credentials


def service_targets(config: Config, *, first: RegionName | None, last: RegionName | None) -> list[str]:
    """The services' addresses, that of the region which stays in front, that of the one which is left at the end.

    Raises:
        ConfigError: no region has an offset service.
    """
    found = {
        RegionName(name): region.offsetsvc.grpc
        for name, region in config.regions.items()
        if region.offsetsvc is not None
    }
    if not found:
        raise ConfigError("no region has an 'offsetsvc' section: there is nobody to ask")
    order = sorted(found, key=lambda name: (name != first, name == last, name))
    return [found[name] for name in order]


@contextmanager
def open_outside(
    config: Config, *, target: RegionName | None = None, origin: RegionName | None = None
) -> Iterator[Outside]:
    """Services, clusters and store by the configuration; each is asked only when it is needed.

    Args:
        config: everything.
        target: the region whose service is asked first: after a disaster the one that lives.
        origin: the region whose service is asked last.

    Raises:
        ConfigError: no service is configured, or a certificate can't be read.
    """
    targets = service_targets(config, first=target, last=origin)
    client = OffsetClient(
        targets, timeout_ms=config.service.deadline_ms, credentials=client_credentials(config.service.tls)
    )
    writers = {
        name: KafkaCluster(name, cluster, timeout_ms=config.service.cluster_timeout_ms)
        for name, cluster in config.clusters()
        if name.startswith("aggregate-")
    }
    with CassandraStores(config.cassandra, config.index) as stores, client:
        yield Outside(client, writers, stores.groups, stores.operations)
