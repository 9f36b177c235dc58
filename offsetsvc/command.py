"""`parallax serve`: the offset service of one region."""

from __future__ import annotations

import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import structlog
import typer

from offsetsvc.building import GRACE_S, WorkerOrder, built
from offsetsvc.metrics import ServiceMetrics, count_in
from offsetsvc.transport.grpc_server import GrpcServer
from offsetsvc.transport.passing_on import Among
from offsetsvc.transport.rest import create_app
from offsetsvc.workers import Workers
from parallax.adapters.http.server import HttpServer
from parallax.cli.options import ConfigOption, JsonLogsOption
from parallax.cli.output import print_json
from parallax.config.config import Config, ServiceAddresses, load
from parallax.domain.ids import RegionName
from parallax.identity.identity import Identity, require_safe
from parallax.identity.tls import server_credentials
from parallax.runtime.process import (
    configure_logging,
    spare_present_objects,
    stop_on_signals,
    take_short_turns,
)

_log = structlog.get_logger(__name__)


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
        addresses = start(settings, RegionName(region), stack, json_logs=as_json)
        spare_present_objects()
        take_short_turns()
        if as_json:
            print_json(addresses, indent=None)
        else:
            sys.stdout.write(" ".join(f"{kind}={at}" for kind, at in addresses.items()) + "\n")
            sys.stdout.flush()
        _log.info("serving", region=region, processes=settings.service.processes, **addresses)
        stop.wait()
        _log.info("serving_ended", region=region)


def start(
    settings: Config, region: RegionName, stack: ExitStack, *, json_logs: bool = False
) -> dict[str, str]:
    """Build the service of a region and start its servers, those of further processes too; the stack stops them again.

    Returns:
        The addresses that are listened on, by kind (``grpc``, ``rest``).

    Raises:
        ConfigError: an address or a certificate can't be used, or a further process does not answer.
        UnknownRegionError: there is no such region.
    """
    listen = settings.region(region).offsetsvc or ServiceAddresses()
    tls = settings.service.tls
    require_safe(settings.service.auth, (listen.grpc, listen.rest), tls=tls is not None)
    among, counts = _shared(settings, stack)
    identity, metrics = Identity(settings.service.auth), ServiceMetrics(counts)
    service = built(settings, region, stack)
    gauges = metrics.watch(service, identity)
    gauges.start()
    stack.callback(gauges.stop)
    grpc_server = GrpcServer(
        service,
        metrics,
        address=listen.grpc,
        credentials=server_credentials(tls),
        identity=identity,
        among=among,
    )
    rest_server = HttpServer(create_app(service, metrics, identity=identity), address=listen.rest, tls=tls)
    rest_server.start()
    stack.callback(rest_server.stop)
    grpc_server.start()
    stack.callback(grpc_server.stop, GRACE_S)
    address = f"{_host(listen.grpc)}:{grpc_server.port}"
    order = None
    if among is not None and counts is not None:
        order = WorkerOrder(settings, region, address, among.socket, counts, json_logs)
    workers = Workers(order, settings.service.processes - 1)
    metrics.registry.register(workers)
    stack.callback(workers.stop)
    workers.start()
    return {
        "grpc": address,
        "rest": f"{'http' if tls is None else 'https'}://{_host(listen.rest)}:{rest_server.port}",
    }


def _shared(settings: Config, stack: ExitStack) -> tuple[Among | None, Path | None]:
    """What processes share that answer at one address: a folder for a socket and counts, which nobody else can open."""
    if settings.service.processes == 1:
        return None, None
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parallax-")))
    counts = folder / "counts"
    counts.mkdir()
    count_in(counts)
    return Among(folder / "first.sock", is_first=True), counts


def _host(address: str) -> str:
    return address.rpartition(":")[0]
