"""How our own commands and jobs prove to the offset services who they are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import grpc

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.client.client import OffsetClient
from parallax.config.config import Config, Tls
from parallax.domain.ids import ClusterName, RegionName
from parallax.errors import ConfigError


def client_credentials(tls: Tls | None) -> grpc.ChannelCredentials | None:
    """The services' own certificate is what their clients here trust, and show where they are asked for one.

    Raises:
        ConfigError: a file can't be read.
    """
    if tls is None:
        return None
    try:
        chain = Path(tls.certificate_chain).read_bytes()
        key = Path(tls.private_key).read_bytes() if tls.client_ca is not None else None
    except OSError as error:
        raise ConfigError(f"service.tls: {error.filename}: cannot be read: {error.strerror}") from error
    return grpc.ssl_channel_credentials(chain, key, chain if key is not None else None)


def service_targets(
    config: Config,
    *,
    first: RegionName | None,
    last: RegionName | None = None,
    lost: Collection[RegionName] = (),
) -> list[str]:
    """The services' addresses, that of the region which stays in front, that of the one which is left at the end.

    Args:
        config: names them.
        first: the region that stays.
        last: the region that is left.
        lost: regions whose services are not asked, unless there is no other: what a region says that others believe to
            be gone is old, and what is decided there is decided out of sight.

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
    living = [name for name in order if name not in lost]
    return [found[name] for name in living or order]


def _writers(config: Config) -> dict[ClusterName, KafkaCluster]:
    return {
        name: KafkaCluster(name, cluster, timeout_ms=config.service.cluster_timeout_ms)
        for name, cluster in config.aggregate_clusters().items()
    }


def open_client(config: Config, *, first: RegionName | None = None) -> OffsetClient:
    """A client of every service, that of a region first; whoever opens it closes it.

    Raises:
        ConfigError: no service is configured, or a certificate can't be read.
    """
    return _client(config, service_targets(config, first=first))


def _client(config: Config, targets: Sequence[str]) -> OffsetClient:
    return OffsetClient(
        targets, timeout_ms=config.service.deadline_ms, credentials=client_credentials(config.service.tls)
    )
