"""gRPC: every handler as a call, with deadlines in, errors out, every request counted; and the server that has them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar, cast

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.parallel import BusyError, Turns
from offsetsvc.service import STORE, UseCases
from offsetsvc.transport.handlers import Handlers
from parallax.client.status import CODE_KEY, status_of
from parallax.client.targets import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES, PRIMARY_SERVICE, SERVICE
from parallax.errors import ConfigError, ParallaxError
from parallax.runtime.deadline import Deadline
from parallax.v1 import offsets_pb2, offsets_pb2_grpc, primaries_pb2, primaries_pb2_grpc

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)

_WATCH_MS = 15_000
"""A watch ends after this time and its client asks again: a lost client costs a thread no longer."""

_LONGEST_DETAILS = 2_000
"""Errors travel in HTTP/2 headers, of which many proxies take 8 KiB in all."""

_HEALTH_EVERY_S = 1.0
_HEALTH_THREADS = 4

_log = structlog.get_logger(__name__)


class GrpcServer:
    """A server for one `UseCases`.

    Args:
        service: the use cases.
        metrics: counts requests.
        address: ``host:port``; port 0 takes a free one.
        credentials: TLS; None: plain text.
    """

    def __init__(
        self,
        service: UseCases,
        metrics: ServiceMetrics,
        *,
        address: str,
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        calls = service.config.service.max_concurrent_calls
        self._stopping = threading.Event()
        # Watches hold a thread each, so each kind has as many of its own as calls have; so have calls that wait.
        threads = 4 * calls + _HEALTH_THREADS
        self._executor = ThreadPoolExecutor(threads, "offsetsvc-grpc")
        self._server = grpc.server(
            self._executor,
            maximum_concurrent_rpcs=threads,
            options=[
                ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                ("grpc.so_reuseport", 0),
            ],
        )
        handlers = Handlers(service, metrics)
        shell = GrpcCalls(metrics, service.config.service.deadline_ms, self._stopping, most=calls)
        offsets_pb2_grpc.add_OffsetServiceServicer_to_server(  # type: ignore[no-untyped-call] # generated
            shell.servicer(offsets_pb2.DESCRIPTOR.services_by_name["OffsetService"], handlers), self._server
        )
        primaries_pb2_grpc.add_PrimaryServiceServicer_to_server(  # type: ignore[no-untyped-call] # generated
            shell.servicer(primaries_pb2.DESCRIPTOR.services_by_name["PrimaryService"], handlers),
            self._server,
        )
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (SERVICE, PRIMARY_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        self._monitor = threading.Thread(
            target=_watch_health,
            args=(service, self._health, self._stopping),
            name="offsetsvc-health",
            daemon=True,
        )
        self.port = self._bind(address, credentials)

    def _bind(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        try:
            if credentials is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ConfigError(f"gRPC can't listen on {address}: {error}") from error

    def start(self) -> None:
        """Begin to serve."""
        self._server.start()
        self._monitor.start()

    def stop(self, grace_s: float) -> None:
        """Take no further calls, let those under way end for ``grace_s`` seconds, end the rest."""
        self._stopping.set()
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait()
        if self._monitor.is_alive():
            self._monitor.join()
        self._executor.shutdown(wait=True)


class GrpcCalls:
    """Handlers as gRPC calls.

    Args:
        metrics: counts requests.
        default_ms: the deadline of a call that has none.
        stopping: set when the server stops: watches end too.
        most: how many calls are answered at a time, and how many watches of each kind go on; each holds a thread.
    """

    def __init__(
        self, metrics: ServiceMetrics, default_ms: float, stopping: threading.Event, *, most: int
    ) -> None:
        self._metrics = metrics
        self._default_ms = default_ms
        self._stopping = stopping
        self._most = most
        self._turns = Turns(most, waiting=most)

    def servicer(self, service: ServiceDescriptor, handlers: Handlers) -> SimpleNamespace:
        """What the generated code takes for a service: a call for each of its methods."""
        return SimpleNamespace(
            **{
                method.name: (self.watch if method.server_streaming else self.unary)(
                    getattr(handlers, method.name)
                )
                for method in service.methods
            }
        )

    def unary(
        self, handler: Callable[[Request, Deadline], Answer]
    ) -> Callable[[Request, grpc.ServicerContext], Answer]:
        """A call with one answer."""
        name = handler.__name__

        def call(request: Request, context: grpc.ServicerContext) -> Answer:
            deadline = self._deadline(context)
            with (
                self._turn(context, deadline),
                _statuses(name, context),
                self._metrics.request("grpc", name),
            ):
                return handler(request, deadline)

        return call

    @contextmanager
    def _turn(self, context: grpc.ServicerContext, deadline: Deadline) -> Iterator[None]:
        """A call's turn; one that is refused carries none of our codes: the server is busy."""
        with ExitStack() as taken:
            try:
                taken.enter_context(self._turns.one(deadline))
            except BusyError as error:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
            yield

    def watch(
        self, handler: Callable[[Request, Deadline, Callable[[float], bool]], Iterator[Answer]]
    ) -> Callable[[Request, grpc.ServicerContext], Iterator[Answer]]:
        """A call with a stream of answers."""
        name, watches = handler.__name__, _Watches(self._most, self._stopping)

        def call(request: Request, context: grpc.ServicerContext) -> Iterator[Answer]:
            with watches.one(context) as wait, _statuses(name, context), self._metrics.stream("grpc", name):
                yield from handler(request, self._deadline(context).at_most_ms(_WATCH_MS), wait)

        return call

    def _deadline(self, context: grpc.ServicerContext) -> Deadline:
        remaining_s = cast("float | None", context.time_remaining())  # None: the call has no deadline
        return Deadline.after_ms(self._default_ms if remaining_s is None else remaining_s * 1_000)


class _Watches:
    """Room for so many watches at once; a watch that is refused carries none of our codes: the server is busy.

    Args:
        most: watches at once.
        stopping: set when the server stops.
    """

    def __init__(self, most: int, stopping: threading.Event) -> None:
        self._room = threading.BoundedSemaphore(most)
        self._stopping = stopping

    @contextmanager
    def one(self, context: grpc.ServicerContext) -> Iterator[Callable[[float], bool]]:
        """Take room for a watch. What is handed out waits for seconds, and says whether the watch shall end."""
        if not self._room.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many watches on this server")
        ended = threading.Event()
        context.add_callback(ended.set)
        try:
            yield lambda seconds: ended.wait(seconds) or self._stopping.is_set()
        finally:
            self._room.release()


@contextmanager
def _statuses(method: str, context: grpc.ServicerContext) -> Iterator[None]:
    """Turn errors into statuses: ours by the table, all else into INTERNAL with the story in the log."""
    try:
        yield
    except ParallaxError as error:
        _abort(context, status_of(error).grpc, error.code, str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets a status
        _log.error("internal_error", method=method, exc_info=error)
        text = "internal error; the server's log has it"
        _abort(context, grpc.StatusCode.INTERNAL, ParallaxError.code, text)


def _abort(context: grpc.ServicerContext, status: grpc.StatusCode, code: str, details: str) -> NoReturn:
    context.set_trailing_metadata(((CODE_KEY, code),))
    context.abort(status, details[:_LONGEST_DETAILS])


def _watch_health(service: UseCases, servicer: Any, stopping: threading.Event) -> None:
    """Keep the health of each dependency current. Without its aggregate cluster the service still answers."""
    serving, not_serving = (
        health_pb2.HealthCheckResponse.SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    )
    while True:
        missing = service.missing()
        for name in service.dependencies():
            servicer.set(name, not_serving if name in missing else serving)
        for name in ("", SERVICE, PRIMARY_SERVICE):
            servicer.set(name, not_serving if STORE in missing else serving)
        if stopping.wait(_HEALTH_EVERY_S):
            return
