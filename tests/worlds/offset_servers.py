"""Offset services of a `World` on real sockets of this machine."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil

from offsetsvc.gauges import StoreGauges
from offsetsvc.metrics import ServiceMetrics
from offsetsvc.service import UseCases
from offsetsvc.transport.grpc_server import GrpcServer
from offsetsvc.transport.rest import create_app
from parallax.adapters.http.server import HttpServer
from parallax.client.client import OffsetClient
from parallax.identity.identity import Identity
from parallax.identity.tls import server_credentials
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import offsets_pb2_grpc
from tests.worlds.authority import Pair
from tests.worlds.offset_world import World
from tests.worlds.processes import family

_PATIENCE_S = 60.0
"""A busy machine is no error; what has to be quick, a test measures itself."""


@dataclass
class Served:
    """A service with its servers."""

    world: World
    service: UseCases
    metrics: ServiceMetrics
    gauges: StoreGauges
    """Nobody but the test reads the store for them."""
    grpc: GrpcServer
    rest: HttpServer

    @property
    def target(self) -> str:
        """host:port of gRPC."""
        return f"127.0.0.1:{self.grpc.port}"

    @contextmanager
    def client(self, **options: Any) -> Iterator[OffsetClient]:
        """A client of this service alone."""
        with OffsetClient([self.target], **options) as client:
            yield client

    @contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        """A bare channel."""
        with grpc.insecure_channel(self.target) as channel:
            yield channel

    @contextmanager
    def http(self) -> Iterator[httpx.Client]:
        """An HTTP client of the REST server."""
        with httpx.Client(base_url=f"http://127.0.0.1:{self.rest.port}", timeout=_PATIENCE_S) as client:
            yield client

    @contextmanager
    def https(self, authority: Path, pair: Pair) -> Iterator[httpx.Client]:
        """The same over TLS, with a certificate."""
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(pair.certificate, pair.key)
        base_url = f"https://127.0.0.1:{self.rest.port}"
        with httpx.Client(base_url=base_url, verify=context, timeout=_PATIENCE_S) as client:
            yield client


@contextmanager
def serving(world: World, **options: Any) -> Iterator[Served]:
    """Serve a world over gRPC and REST on free ports."""
    with ExitStack() as stack:
        service = stack.enter_context(world.service(**options))
        metrics, tls = ServiceMetrics(), world.config.service.tls
        identity = Identity(world.config.service.auth)
        gauges = metrics.watch(service, identity)
        app = create_app(service, metrics, identity=identity)
        rest = HttpServer(app, address="127.0.0.1:0", tls=tls)
        rest.start()
        stack.callback(rest.stop)
        server = GrpcServer(
            service, metrics, address="127.0.0.1:0", credentials=server_credentials(tls), identity=identity
        )
        server.start()
        stack.callback(server.stop, 0.0)
        yield Served(world, service, metrics, gauges, server, rest)


def asked_by_many(
    address: str, request: pb.GetFailoverOffsetRequest, channels: int, first_pid: int
) -> tuple[list[bytes], set[int]]:
    """Answers over so many connections, and which processes have taken those: the first one, or one that it has started."""
    port = int(address.rpartition(":")[2])
    with ExitStack() as stack:
        answers = []
        for _ in range(channels):
            # Channels to one address share a connection otherwise.
            options = [("grpc.use_local_subchannel_pool", 1)]
            channel = stack.enter_context(grpc.insecure_channel(address, options))
            stub = offsets_pb2_grpc.OffsetServiceStub(channel)  # type: ignore[no-untyped-call] # generated
            answers.append(stub.GetFailoverOffset(request, timeout=_PATIENCE_S).SerializeToString())
        taken = {
            process.pid
            for process in family(first_pid)
            for found in process.net_connections("tcp")
            if found.status == psutil.CONN_ESTABLISHED and found.laddr and found.laddr.port == port
        }
    return answers, taken
