"""`parallax serve`: the offset service of one region."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack
from typing import Annotated

import structlog
import typer

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.service import UseCases
from offsetsvc.transport.grpc_server import GrpcServer
from offsetsvc.transport.rest import create_app
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.http.server import HttpServer
from parallax.cli.options import ConfigOption, JsonLogsOption
from parallax.cli.output import print_json
from parallax.config.config import Config, ServiceAddresses, load
from parallax.domain.ids import RegionName
from parallax.identity.identity import Identity, require_safe
from parallax.identity.tls import server_credentials
from parallax.runtime.process import configure_logging, process_name, spare_present_objects, stop_on_signals
from parallax.wiring import aggregate_clusters

_log = structlog.get_logger(__name__)

_GRACE_S = 5.0
_CLUSTER_CACHE_MS = 200
"""Topics and log ends may be this old: an older end makes an answer earlier, never wrong."""
_TURNS_MAX_AGE_MS = 500
"""Of a look-up; what an answer reads first always reads turns anew, or what was read within `MAX_AGE_MS`."""


def serve(
    config: ConfigOption,
    region: Annotated[str, typer.Option("--region", help="The region to serve.")],
    as_json: JsonLogsOption = False,
) -> None:
    """Answer where groups resume, over gRPC and REST, until stopped.

    The addresses stand under regions.<region>.offsetsvc; port 0 takes a free one, and the line that is printed
    once both listen says which.
    """
    configure_logging(json=as_json)
    settings = load(config)
    stop = threading.Event()
    stop_on_signals(stop)
    with ExitStack() as stack:
        addresses = start(settings, RegionName(region), stack)
        spare_present_objects()
        if as_json:
            print_json(addresses, indent=None)
        else:
            sys.stdout.write(" ".join(f"{kind}={at}" for kind, at in addresses.items()) + "\n")
            sys.stdout.flush()
        _log.info("serving", region=region, **addresses)
        stop.wait()
        _log.info("serving_ended", region=region)


def start(settings: Config, region: RegionName, stack: ExitStack) -> dict[str, str]:
    """Build the service of a region and start its servers; the stack stops them again.

    Returns:
        The addresses that are listened on, by kind (``grpc``, ``rest``).

    Raises:
        ConfigError: an address or a certificate can't be used.
        UnknownRegionError: there is no such region.
    """
    listen = settings.region(region).offsetsvc or ServiceAddresses()
    tls = settings.service.tls
    require_safe(settings.service.auth, (listen.grpc, listen.rest), tls=tls is not None)
    identity = Identity(settings.service.auth)
    stores = stack.enter_context(
        CassandraStores(
            settings.cassandra, settings.index, max_age_ms=_TURNS_MAX_AGE_MS, audit=settings.audit
        )
    )
    clusters = aggregate_clusters(settings, cache_ms=_CLUSTER_CACHE_MS)
    service = stack.enter_context(
        UseCases(
            settings,
            region,
            stores.index,
            stores.groups,
            clusters,
            stores.primaries,
            stores.operations,
            stores.status,
            now_ms=stores.clock.now_ms,
            audit=stores.audit,
            process=process_name("offsetsvc"),
            writers=aggregate_clusters(settings),
        )
    )
    metrics = ServiceMetrics()
    gauges = metrics.watch(service, identity)
    gauges.start()
    stack.callback(gauges.stop)
    grpc_server = GrpcServer(
        service, metrics, address=listen.grpc, credentials=server_credentials(tls), identity=identity
    )
    rest_server = HttpServer(create_app(service, metrics, identity=identity), address=listen.rest, tls=tls)
    rest_server.start()
    stack.callback(rest_server.stop)
    grpc_server.start()
    stack.callback(grpc_server.stop, _GRACE_S)
    return {
        "grpc": f"{_host(listen.grpc)}:{grpc_server.port}",
        "rest": f"{'http' if tls is None else 'https'}://{_host(listen.rest)}:{rest_server.port}",
    }


def _host(address: str) -> str:
    return address.rpartition(":")[0]
