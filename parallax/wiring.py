"""Clients of the offset services, and what they show, as a configuration names them: what composition roots open.

Stores and clusters open themselves: `parallax.adapters.cassandra.stores`, `parallax.adapters.kafka.cluster`. Whoever asks offset
services alone loads no client of theirs.
"""

from __future__ import annotations

from collections.abc import Collection

from parallax.client.client import OffsetClient
from parallax.client.credentials import ServiceCredentials
from parallax.config.config import Config
from parallax.domain.ids import RegionName
from parallax.errors import ConfigError


def open_client(
    config: Config,
    *,
    first: RegionName | None = None,
    last: RegionName | None = None,
    lost: Collection[RegionName] = (),
) -> OffsetClient:
    """A client of the offset services; whoever opens it closes it.

    Raises:
        ConfigError: no region has an offset service, or a certificate can't be read.
    """
    return OffsetClient(
        service_targets(config, first=first, last=last, lost=lost),
        timeout_ms=config.service.deadline_ms,
        credentials=client_credentials(config),
    )


def service_targets(
    config: Config,
    *,
    first: RegionName | None = None,
    last: RegionName | None = None,
    lost: Collection[RegionName] = (),
) -> list[str]:
    """The services' addresses, in the order of the configuration but for two regions.

    Args:
        config: names them.
        first: the region that stays.
        last: the region that is left.
        lost: regions whose services are not asked, unless there is no other: what a region says that others believe to
            be gone is old, and what is decided there is decided out of sight.

    Raises:
        ConfigError: no region has an offset service.
    """
    services = config.offset_services()
    if not services:
        raise ConfigError("no region has an 'offsetsvc' section: there is nobody to ask")
    order = sorted(services, key=lambda name: (name != first, name == last))
    living = [name for name in order if name not in lost]
    return [services[name].grpc for name in living or order]


def client_credentials(config: Config) -> ServiceCredentials | None:
    """What our own processes show to offset services, and whom they trust; None: plain text, and nothing.

    Raises:
        ConfigError: the settings contradict each other.
    """
    own, tls = config.client, config.service.tls
    ca = own.ca or (None if tls is None else tls.certificate_chain)
    credentials = ServiceCredentials(
        ca=ca,
        certificate=own.certificate_chain,
        key=own.private_key,
        token=None if own.token is None else own.token.get_secret_value(),
        token_file=own.token_file,
        insecure=own.insecure,
    )
    return None if credentials == ServiceCredentials() else credentials
