"""An offset service of a `World` by several processes: `python -m tests.worlds.served_processes COUNT` prints its addresses.

The world is in each one's own memory, the same in all. It ends when its standard input does.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from offsetsvc.metrics import ServiceMetrics, count_in
from offsetsvc.transport.grpc_server import GrpcServer
from offsetsvc.transport.passing_on import Among
from offsetsvc.transport.rest import create_app
from offsetsvc.workers import READY, Workers
from parallax.adapters.http.server import HttpServer
from parallax.runtime.retry import RetryPolicy
from tests.worlds.failover_bench import two_sources
from tests.worlds.offset_world import World

COMMITTED = 15
_AT_ONCE = RetryPolicy(first_wait_ms=50, longest_wait_ms=100)


@dataclass(frozen=True)
class Order:
    """What a further process is told."""

    address: str
    folder: Path


def world() -> World:
    """On a: a0..9 b0..9. On b: b0..9 a0..9. The group has read fifteen of those at a."""
    made = World()
    two_sources(made)
    made.commit("a", COMMITTED)
    return made


def first(count: int) -> None:
    """Serve with further processes until the standard input ends."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parallax-")))
        count_in(folder)
        service, metrics = stack.enter_context(world().service()), ServiceMetrics(folder)
        metrics.watch(service)
        rest = HttpServer(create_app(service, metrics), address="127.0.0.1:0")
        rest.start()
        stack.callback(rest.stop)
        among = Among(folder / "first.sock", is_first=True)
        server = GrpcServer(service, metrics, address="127.0.0.1:0", among=among)
        server.start()
        stack.callback(server.stop, 1.0)
        address = f"127.0.0.1:{server.port}"
        command = (sys.executable, "-m", __spec__.name, "further")
        workers = Workers(Order(address, folder), count - 1, command=command, again=_AT_ONCE)
        metrics.registry.register(workers)
        stack.callback(workers.stop)
        workers.start()
        sys.stdout.write(f"{address} http://127.0.0.1:{rest.port}\n")
        sys.stdout.flush()
        sys.stdin.buffer.read()


def further() -> None:
    """Answer beside the first one until it ends."""
    order: Order = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the first one
    count_in(order.folder)
    with world().service() as service:
        metrics = ServiceMetrics(order.folder)
        metrics.hear(service)
        among = Among(order.folder / "first.sock", is_first=False)
        server = GrpcServer(service, metrics, address=order.address, among=among)
        server.start()
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()
        sys.stdin.buffer.read()
        server.stop(1.0)


if __name__ == "__main__":
    if sys.argv[1] == "further":
        further()
    else:
        first(int(sys.argv[1]))
