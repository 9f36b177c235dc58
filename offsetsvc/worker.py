"""A further server process of an offset service: it answers gRPC beside the first one, which starts it (`offsetsvc.workers`)."""

from __future__ import annotations

import pickle
import signal
import sys
import threading
from contextlib import ExitStack

import structlog

from offsetsvc.building import GRACE_S, WorkerOrder, built
from offsetsvc.metrics import ServiceMetrics, count_in
from offsetsvc.transport.grpc_server import GrpcServer
from offsetsvc.transport.passing_on import Among
from offsetsvc.workers import READY
from parallax.identity.identity import Identity
from parallax.identity.tls import server_credentials
from parallax.runtime.process import (
    configure_logging,
    spare_present_objects,
    stop_on_signals,
    take_short_turns,
)

_log = structlog.get_logger(__name__)


def main() -> None:
    """Answer until whoever started this closes the pipe, or ends."""
    # What is told comes from the process that has started this one, and from nobody else.
    order: WorkerOrder = pickle.load(sys.stdin.buffer)  # noqa: S301
    configure_logging(json=order.json_logs)
    stop = threading.Event()
    stop_on_signals(stop)
    # A terminal's goes to the first process, too, which ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_stop_with, args=(stop,), name="worker-pipe", daemon=True).start()
    count_in(order.counts)
    with ExitStack() as stack:
        identity, metrics = Identity(order.config.service.auth), ServiceMetrics(order.counts)
        service = built(order.config, order.region, stack)
        metrics.hear(service)
        server = GrpcServer(
            service,
            metrics,
            address=order.address,
            credentials=server_credentials(order.config.service.tls),
            identity=identity,
            among=Among(order.socket, is_first=False),
        )
        server.start()
        stack.callback(server.stop, GRACE_S)
        spare_present_objects()
        take_short_turns()
        sys.stdout.buffer.write(READY)
        sys.stdout.buffer.flush()
        _log.info("worker_answers", worker=sys.argv[1], region=order.region)
        stop.wait()
    _log.info("worker_ended_in_order", worker=sys.argv[1])


def _stop_with(stop: threading.Event) -> None:
    sys.stdin.buffer.read()
    stop.set()


if __name__ == "__main__":
    main()
