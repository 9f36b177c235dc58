"""`parallax serve`: the offset service of one region."""

from __future__ import annotations

import json
import signal
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import grpc
import structlog
import typer

from parallax.config.config import Config, OffsetService, Tls, load
from parallax.domain.ids import ClusterName, RegionName
from parallax.errors import ConfigError
from parallax.ports.clusters import ClusterReader
from parallax.runtime.garbage import spare_present_objects
from parallax.runtime.logs import configure_logging

_log = structlog.get_logger(__name__)

_GRACE_S = 5.0
_CLUSTER_CACHE_MS = 200
"""Topics and log ends may be this old: an older end makes an answer earlier, never wrong."""


def serve(
    config: Annotated[
        Path, typer.Option("--config", "-c", envvar="PARALLAX_CONFIG", help="The configuration file.")
    ],
    region: Annotated[str, typer.Option("--region", help="The region to serve.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="Log JSON, and print the addresses as JSON.")
    ] = False,
) -> None:
    """Answer where groups resume, over gRPC and REST, until stopped.

    The addresses stand under regions.<region>.offsetsvc; port 0 takes a free one, and the line that is printed
    once both listen says which.
    """
    configure_logging(json=as_json or None)
    settings = load(config)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as stack:
        addresses = start(settings, RegionName(region), stack)
        spare_present_objects()
        line = (
            json.dumps(addresses) if as_json else " ".join(f"{kind}={at}" for kind, at in addresses.items())
        )
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        _log.info("offsetsvc.serving", region=region, **addresses)
        stop.wait()
        _log.info("offsetsvc.stopping", region=region)


def start(settings: Config, region: RegionName, stack: ExitStack) -> dict[str, str]:
    """Build the service of a region and start its servers; the stack stops them again.

    Returns:
        The addresses that are listened on, by kind (``grpc``, ``rest``).

    Raises:
        ConfigError: an address or a certificate can't be used.
        UnknownRegionError: there is no such region.
    """
    # The server's dependencies are not part of every install: only this command needs them.
    from offsetsvc.metrics import ServiceMetrics  # noqa: PLC0415
    from offsetsvc.service import OffsetService as UseCases  # noqa: PLC0415
    from offsetsvc.transport.grpc_server import GrpcServer  # noqa: PLC0415
    from offsetsvc.transport.rest import create_app  # noqa: PLC0415
    from offsetsvc.transport.rest_server import RestServer  # noqa: PLC0415
    from parallax.adapters.cassandra.coarse_memory import WayMemory  # noqa: PLC0415
    from parallax.adapters.cassandra.stores import CassandraStores  # noqa: PLC0415

    listen = settings.region(region).offsetsvc or OffsetService()
    tls = settings.service.tls
    stores = stack.enter_context(CassandraStores(settings.cassandra, settings.index, WayMemory()))
    service = stack.enter_context(
        UseCases(settings, region, stores.index, stores.groups, _readers(settings), stores.primaries)
    )
    metrics = ServiceMetrics()
    metrics.watch(service)
    grpc_server = GrpcServer(
        service, metrics, address=listen.grpc, credentials=None if tls is None else server_credentials(tls)
    )
    rest_server = RestServer(create_app(service, metrics), address=listen.rest, tls=tls)
    rest_server.start()
    stack.callback(rest_server.stop)
    grpc_server.start()
    stack.callback(grpc_server.stop, _GRACE_S)
    return {
        "grpc": f"{_host(listen.grpc)}:{grpc_server.port}",
        "rest": f"{'http' if tls is None else 'https'}://{_host(listen.rest)}:{rest_server.port}",
    }


def _readers(settings: Config) -> dict[ClusterName, ClusterReader]:
    from parallax.adapters.kafka.cluster import KafkaCluster  # noqa: PLC0415 - as above

    return {
        name: KafkaCluster(
            name, cluster, timeout_ms=settings.service.cluster_timeout_ms, cache_ms=_CLUSTER_CACHE_MS
        )
        for name, cluster in settings.aggregate_clusters().items()
    }


def server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """The certificates of the configuration.

    Raises:
        ConfigError: a file can't be read.
    """
    pair = (_read(tls.private_key), _read(tls.certificate_chain))
    authority = None if tls.client_ca is None else _read(tls.client_ca)
    return grpc.ssl_server_credentials(
        [pair], root_certificates=authority, require_client_auth=authority is not None
    )


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"service.tls: {path}: cannot be read: {error.strerror}") from error


def _host(address: str) -> str:
    return address.rpartition(":")[0]
