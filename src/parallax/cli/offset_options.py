"""How the commands that ask the offset services find them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import grpc
import typer

from offsetsvc.client import OffsetClient, at_cluster, at_region
from offsetsvc.pb import offsets_pb2 as pb
from parallax.domain.errors import ConfigError
from parallax.runtime.config import Config, OffsetService, load

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", envvar="PARALLAX_CONFIG", help="The configuration file: its services are asked."
    ),
]
ServiceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--service", "-s", help="host:port of an offset service; may be repeated. Outweighs --config."
    ),
]
AuthorityOption = Annotated[
    Path | None,
    typer.Option("--tls-ca", help="PEM file of the authority that signed the services' certificates."),
]
TimeoutOption = Annotated[
    int, typer.Option("--timeout-ms", min=1, help="For each question, with its retries.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def connect(
    config: Path | None, services: list[str] | None, authority: Path | None, timeout_ms: int
) -> OffsetClient:
    """A client for the services named, or for all that the configuration has.

    Raises:
        ConfigError: neither says where a service is, or a file can't be read.
    """
    targets = services or ([] if config is None else targets_of(load(config)))
    if not targets:
        raise ConfigError(
            "no offset service is known: name one with --service host:port, or a configuration with --config "
            "(or PARALLAX_CONFIG)"
        )
    return OffsetClient(targets, timeout_ms=timeout_ms, credentials=_credentials(authority))


def targets_of(config: Config) -> list[str]:
    """The gRPC addresses of the configured services; the default address if no region names one."""
    named = [region.offsetsvc.grpc for region in config.regions.values() if region.offsetsvc is not None]
    return named or [OffsetService().grpc]


def place(text: str | None) -> pb.Place | None:
    """A region's aggregate cluster, or a cluster by its own name."""
    if text is None:
        return None
    return at_cluster(text) if text.startswith(("aggregate-", "regional-")) else at_region(text)


def _credentials(authority: Path | None) -> grpc.ChannelCredentials | None:
    if authority is None:
        return None
    try:
        return grpc.ssl_channel_credentials(authority.read_bytes())
    except OSError as error:
        raise ConfigError(f"--tls-ca {authority}: cannot be read: {error.strerror}") from error
