"""gRPC: every handler as a call, with deadlines in, errors out, every request counted; and the server that has them."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar, cast

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.parallel import BusyError, Turns, named_pool
from offsetsvc.service import STORE, UseCases
from offsetsvc.transport.access import Access, Caller
from offsetsvc.transport.grpc_limits import (
    LONGEST_CALL_MS,
    MOST_HALF_SENT,
    MOST_REFLECTIONS,
    OPTIONS,
    CallLimits,
)
from offsetsvc.transport.handlers import Call, Handlers
from offsetsvc.transport.passing_on import Among, PassingOn, is_passed_on, whose
from parallax.client.status import CODE_KEY, status_of
from parallax.client.targets import AUDIT_SERVICE, MOVE_SERVICE, OVERVIEW_SERVICE, PRIMARY_SERVICE, SERVICE
from parallax.errors import ConfigError, ParallaxError
from parallax.identity.identity import NOTHING_SHOWN, Identity, Shown
from parallax.runtime.deadline import Deadline
from parallax.runtime.tracing import received
from parallax.v1 import (
    audit_pb2,
    audit_pb2_grpc,
    moves_pb2,
    moves_pb2_grpc,
    offsets_pb2,
    offsets_pb2_grpc,
    overview_pb2,
    overview_pb2_grpc,
    primaries_pb2,
    primaries_pb2_grpc,
)

Request = TypeVar("Request", bound=Message)
Answer = TypeVar("Answer", bound=Message)

_WATCH_MS = 15_000
"""A watch ends after this time and its client asks again: a lost client costs a thread no longer."""

_LONGEST_DETAILS = 2_000
"""Errors travel in HTTP/2 headers, of which many proxies take 8 KiB in all."""

_SERVICES = (SERVICE, PRIMARY_SERVICE, AUDIT_SERVICE, OVERVIEW_SERVICE, MOVE_SERVICE)
_OWN = {f"/{name}" for name in _SERVICES}

_HEALTH_EVERY_S = 1.0
_OVERDUE_EVERY_S = 0.5
_BRIEF_THREADS = 8
"""For calls that wait for nothing: health, and those that are refused or about to end."""

_MOST_QUEUED = 128
"""Calls that wait for a thread, which they get at once."""

CALL_POOL = "offsetsvc-grpc"
"""What threads of calls are called."""

_UNCOUNTED = nullcontext()

_log = structlog.get_logger(__name__)


def call_threads(calls: int) -> int:
    """So many threads serve calls at most, with so many ``max_concurrent_calls``.

    Watches hold a thread each, so each kind has as many of its own as calls have; so have calls that wait.
    """
    return 4 * calls + MOST_HALF_SENT + MOST_REFLECTIONS + _BRIEF_THREADS


class GrpcServer:
    """A server for one `UseCases`.

    Args:
        service: the use cases.
        metrics: counts requests.
        address: ``host:port``; port 0 takes a free one.
        credentials: TLS; None: plain text.
        identity: tells who calls, and whether it may; None: as the configuration says.
        among: the processes that listen on the same address; None: this one listens there alone.
    """

    def __init__(
        self,
        service: UseCases,
        metrics: ServiceMetrics,
        *,
        address: str,
        credentials: grpc.ServerCredentials | None = None,
        identity: Identity | None = None,
        among: Among | None = None,
    ) -> None:
        access = Access(identity or Identity(service.config.service.auth))
        calls = service.config.service.max_concurrent_calls
        self._stopping = threading.Event()
        threads = call_threads(calls)
        self._executor = named_pool(threads, CALL_POOL)
        self._limits = CallLimits()
        self._server = grpc.server(
            self._executor,
            maximum_concurrent_rpcs=threads + _MOST_QUEUED,
            interceptors=[self._limits, _ForeignCalls(access)],
            options=(*OPTIONS, ("grpc.so_reuseport", int(among is not None))),
        )
        own = Handlers(service, metrics)
        self._handlers = handlers = own if among is None or among.is_first else PassingOn(own, among)
        shell = GrpcCalls(
            metrics,
            access,
            service.config.service.deadline_ms,
            self._stopping,
            most=calls,
            takes_passed_on=among is not None and among.is_first,
        )
        offsets_pb2_grpc.add_OffsetServiceServicer_to_server(  # type: ignore[no-untyped-call] # generated
            shell.servicer(offsets_pb2.DESCRIPTOR.services_by_name["OffsetService"], handlers), self._server
        )
        primaries_pb2_grpc.add_PrimaryServiceServicer_to_server(  # type: ignore[no-untyped-call] # generated
            shell.servicer(primaries_pb2.DESCRIPTOR.services_by_name["PrimaryService"], handlers),
            self._server,
        )
        audit_pb2_grpc.add_AuditServiceServicer_to_server(  # type: ignore[no-untyped-call] # generated
            shell.servicer(audit_pb2.DESCRIPTOR.services_by_name["AuditService"], handlers), self._server
        )
        overview_pb2_grpc.add_OverviewServiceServicer_to_server(  # type: ignore[no-untyped-call] # generated
            shell.servicer(overview_pb2.DESCRIPTOR.services_by_name["OverviewService"], handlers),
            self._server,
        )
        moves_pb2_grpc.add_MoveServiceServicer_to_server(  # type: ignore[no-untyped-call] # generated
            shell.servicer(moves_pb2.DESCRIPTOR.services_by_name["MoveService"], handlers), self._server
        )
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection(
            (*_SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
        )
        self._monitor = threading.Thread(
            target=_watch_health,
            args=(service, self._health, self._stopping),
            name="offsetsvc-health",
            daemon=True,
        )
        self._patience = threading.Thread(target=self._end_overdue, name="offsetsvc-patience", daemon=True)
        self.port = self._bind(address, credentials)
        if among is not None and among.is_first:
            self._bind(among.address, None)

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
        self._patience.start()

    def stop(self, grace_s: float) -> None:
        """Take no further calls, let those under way end for ``grace_s`` seconds, end the rest."""
        self._stopping.set()
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait()
        for thread in (self._monitor, self._patience):
            if thread.is_alive():
                thread.join()
        self._executor.shutdown(wait=True)
        if isinstance(self._handlers, PassingOn):
            self._handlers.close()

    def _end_overdue(self) -> None:
        while not self._stopping.wait(_OVERDUE_EVERY_S):
            try:
                self._limits.end_overdue()
            except Exception as error:  # noqa: BLE001 - without this thread nothing would end any more that overstays
                _log.error("limits_not_held", exc_info=error)


class GrpcCalls:
    """Handlers as gRPC calls.

    Args:
        metrics: counts requests.
        access: lets calls in.
        default_ms: the deadline of a call that has none.
        stopping: set when the server stops: watches end too.
        most: how many calls are answered at a time, and how many watches of each kind go on; each holds a thread.
        takes_passed_on: whether other processes pass calls on, which they have counted and let in.
    """

    def __init__(
        self,
        metrics: ServiceMetrics,
        access: Access,
        default_ms: float,
        stopping: threading.Event,
        *,
        most: int,
        takes_passed_on: bool = False,
    ) -> None:
        self._takes_passed_on = takes_passed_on
        self._metrics = metrics
        self._access = access
        self._default_ms = default_ms
        self._stopping = stopping
        self._most = most
        self._turns = Turns(most, waiting=most)

    def servicer(self, service: ServiceDescriptor, handlers: Handlers | PassingOn) -> SimpleNamespace:
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
        self, handler: Callable[[Request, Call], Answer]
    ) -> Callable[[Request, grpc.ServicerContext], Answer]:
        """A call with one answer."""
        name = handler.__name__

        def call(request: Request, context: grpc.ServicerContext) -> Answer:
            with _statuses(name, context):
                passed_on = self._takes_passed_on and is_passed_on(context)
                caller = (
                    self._access.vouched_for(whose(context))
                    if passed_on
                    else self._caller(name, request, context)
                )
                deadline = self._deadline(context)
                self._turns.take(deadline)
                try:
                    with (
                        _UNCOUNTED if passed_on else self._metrics.request("grpc", name),
                        received(_headers(context), f"parallax.{name}", rpc__system="grpc", rpc__method=name),
                    ):
                        return handler(request, Call(deadline, caller))
                finally:
                    self._turns.give_back()

        return call

    def _caller(self, name: str, request: Request, context: grpc.ServicerContext) -> Caller:
        """Who calls, if it may; others take nobody's turn."""
        with self._metrics.refusals("grpc", name):
            return self._access.caller("grpc", name, request, lambda: shown_in(context))

    def watch(
        self, handler: Callable[[Request, Call, Callable[[float], bool]], Iterator[Answer]]
    ) -> Callable[[Request, grpc.ServicerContext], Iterator[Answer]]:
        """A call with a stream of answers."""
        name, watches = handler.__name__, _Watches(self._most, self._stopping)

        def call(request: Request, context: grpc.ServicerContext) -> Iterator[Answer]:
            with _statuses(name, context):
                caller = self._caller(name, request, context)
            with watches.one(context) as wait, _statuses(name, context), self._metrics.stream("grpc", name):
                deadline = self._deadline(context).at_most_ms(_WATCH_MS)
                yield from handler(request, Call(deadline, caller), wait)

        return call

    def _deadline(self, context: grpc.ServicerContext) -> Deadline:
        remaining_s = cast("float | None", context.time_remaining())  # None: the call has no deadline
        budget_ms = self._default_ms if remaining_s is None else remaining_s * 1_000
        return Deadline.after_ms(min(budget_ms, max(self._default_ms, LONGEST_CALL_MS)))


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


class _ForeignCalls(grpc.ServerInterceptor):  # type: ignore[type-arg] # it has none at run time
    """Health, reflection and whatever else is not ours: let in by path. Our own calls are let in where they are answered."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._handlers: dict[str, Any] = {}
        """Those that were made, by path."""

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """The handler of a call, behind the question whether it may be made."""
        path = str(handler_call_details.method)
        known = self._handlers.get(path)
        if known is None:
            found = continuation(handler_call_details)
            if found is None or path.rpartition("/")[0] in _OWN:
                return found
            known = self._handlers[path] = self._let_in_by(found, path)
        return known

    def _let_in_by(self, found: Any, path: str) -> Any:

        def let_in(request: Any, context: grpc.ServicerContext) -> None:
            with _statuses(path, context):
                self._access.foreign(path, request, lambda: shown_in(context))

        def once(request: Any, context: grpc.ServicerContext) -> Any:
            let_in(request, context)
            return (found.unary_unary or found.stream_unary)(request, context)

        def stream(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            let_in(request, context)
            yield from (found.unary_stream or found.stream_stream)(request, context)

        def watch(request: Any, context: grpc.ServicerContext, *answers: Any) -> Any:
            let_in(request, context)
            return found.unary_stream(request, context, *answers)

        if getattr(found.unary_stream, "experimental_non_blocking", False):  # health's, which holds no thread
            watch.experimental_non_blocking = True  # type: ignore[attr-defined] # what gRPC looks for
            return grpc.unary_stream_rpc_method_handler(
                watch, found.request_deserializer, found.response_serializer
            )
        kinds = {
            (False, False): (grpc.unary_unary_rpc_method_handler, once),
            (False, True): (grpc.unary_stream_rpc_method_handler, stream),
            (True, False): (grpc.stream_unary_rpc_method_handler, once),
            (True, True): (grpc.stream_stream_rpc_method_handler, stream),
        }
        make, behaviour = kinds[found.request_streaming, found.response_streaming]
        return make(behaviour, found.request_deserializer, found.response_serializer)


def _headers(context: grpc.ServicerContext) -> list[tuple[str, str | bytes]]:
    return [(str(key), value) for key, value in context.invocation_metadata() or ()]


def shown_in(context: grpc.ServicerContext) -> Shown:
    """What a caller has shown of itself."""
    certificates = context.auth_context().get("x509_pem_cert", ())
    headers = tuple(
        str(value) for key, value in context.invocation_metadata() or () if key == "authorization"
    )
    if not certificates and not headers:
        return NOTHING_SHOWN
    der = next((_der(bytes(pem)) for pem in certificates), None)
    return Shown(der, headers)


@lru_cache(maxsize=1_024)
def _der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


@contextmanager
def _statuses(method: str, context: grpc.ServicerContext) -> Iterator[None]:
    """Turn errors into statuses: ours by the table, all else into INTERNAL with the story in the log.

    A call that is refused because the server is busy carries none of our codes.
    """
    try:
        yield
    except BusyError as error:
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
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
        try:
            missing = service.missing()
            for name in service.dependencies():
                servicer.set(name, not_serving if name in missing else serving)
            for name in ("", *_SERVICES):
                servicer.set(name, not_serving if STORE in missing else serving)
        except Exception as error:  # noqa: BLE001 - what was told before would stand for ever without the next look
            _log.error("health_unknown", exc_info=error)
        if stopping.wait(_HEALTH_EVERY_S):
            return
