"""How commands that ask the offset services find them."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from parallax.client.client import OffsetClient
from parallax.client.credentials import ServiceCredentials, credentials_of
from parallax.config.config import Config, ServiceAddresses, load
from parallax.errors import ConfigError
from parallax.wiring import client_credentials


def connect(
    config: Path | None, services: list[str] | None, authority: Path | None, timeout_ms: int
) -> OffsetClient:
    """A client for the services named, or for all that the configuration has.

    Raises:
        ConfigError: neither says where a service is, or a file can't be read.
    """
    settings = None if config is None else load(config)
    targets = services or ([] if settings is None else targets_of(settings))
    if not targets:
        raise ConfigError(
            "no offset service is known: name one with --service host:port, or a configuration with --config "
            "(or PARALLAX_CONFIG)"
        )
    credentials = credentials_of(os.environ, None if settings is None else client_credentials(settings))
    if authority is not None:
        credentials = replace(credentials or ServiceCredentials(), ca=authority)
    return OffsetClient(targets, timeout_ms=timeout_ms, credentials=credentials)


def targets_of(config: Config) -> list[str]:
    """The gRPC addresses of the configured services; the default address if no region names one."""
    services = list(config.offset_services().values()) or [ServiceAddresses()]
    return [service.grpc for service in services]
