"""What gRPC callers may cost: connections, streams, and calls that keep the server waiting.

A thread serves each call from its headers on, so a call whose message never comes holds one; so does a reflection stream
that stays open. gRPC bounds neither. Here each kind is counted apart, and a further call ends the one that has stayed
longest: who sends what it has to is never refused for those who don't.
"""

from __future__ import annotations

import math
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import grpc
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from parallax.client.targets import MAX_MESSAGE_BYTES, MAX_REQUEST_BYTES

MOST_HALF_SENT = 64
HALF_SENT_WITHIN_S = 5.0
MOST_REFLECTIONS = 8
REFLECTIONS_OF_ONE = 2
REFLECTION_WITHIN_S = 10.0
MOST_HEALTH_WATCHES = 2_000
HEALTH_WATCHES_OF_ONE = 16
MOST_CONNECTIONS = 5_000
STREAMS_OF_ONE = 128
METADATA_BYTES = 16_384
HANDSHAKE_WITHIN_MS = 10_000
CONNECTION_IDLE_MS = 15 * 60_000
CONNECTION_AGE_MS = 30 * 60_000
LONGEST_CALL_MS = 60_000.0
PING_EVERY_MS = 30_000
PING_WITHIN_MS = 10_000

_ENOUGH_PINGS_MS = 10_000


def connections_within(open_files: int) -> int:
    """How many connections leave enough of the files that a process may open for all else: the store, brokers, REST.

    Args:
        open_files: the process' limit, as `resource` tells it.
    """
    return (
        MOST_CONNECTIONS if open_files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, open_files // 2)
    )


OPTIONS: Sequence[tuple[str, int]] = (
    (
        "grpc.max_receive_message_length",
        MAX_REQUEST_BYTES,
    ),  # of a compressed one, too, once it is decompressed
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Those that have said nothing yet count, too. A further one is closed: without a bound the last file would be taken by a stranger.
    (
        "grpc.max_allowed_incoming_connections",
        connections_within(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ),
    ("grpc.max_concurrent_streams", STREAMS_OF_ONE),
    ("grpc.max_metadata_size", METADATA_BYTES),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_WITHIN_MS),
    ("grpc.max_connection_idle_ms", CONNECTION_IDLE_MS),
    # A certificate is looked at when a connection begins: none lives for ever.
    ("grpc.max_connection_age_ms", CONNECTION_AGE_MS),
    ("grpc.max_connection_age_grace_ms", int(LONGEST_CALL_MS)),
    # A client that has gone without a word is found out; one that pings all the time is told to calm down, and cut off.
    ("grpc.keepalive_time_ms", PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", PING_WITHIN_MS),
    ("grpc.http2.min_ping_interval_without_data_ms", _ENOUGH_PINGS_MS),
    ("grpc.http2.max_ping_strikes", 2),
)
"""Of the server."""

_REFLECTION = f"/{reflection.SERVICE_NAME}/"
_HEALTH_WATCH = f"/{health.SERVICE_NAME}/Watch"


class Held:
    """Calls that hold something of the server.

    Args:
        most: at a time; a further one ends the one that has stayed longest.
        of_one: of one connection; a further one is refused.
        within_s: how long one may stay.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        most: int,
        *,
        of_one: int | None = None,
        within_s: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._of_one = of_one
        self._within_s = within_s
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: dict[grpc.ServicerContext, tuple[float, str]] = {}
        """Until when each may stay, and of which connection it is where that is counted."""
        self._of_connection: Counter[str] = Counter()

    def take(self, context: grpc.ServicerContext) -> None:
        """Let a call stay; it is told nothing of the one that it ends."""
        longest = None
        peer = "" if self._of_one is None else context.peer()
        with self._lock:
            refused = self._of_one is not None and self._of_connection[peer] >= self._of_one
            if not refused:
                if len(self._calls) >= self._most:
                    longest = next(iter(self._calls))
                    self._forget(longest)
                self._calls[context] = self._clock() + self._within_s, peer
                self._of_connection[peer] += 1
        if longest is not None:
            _end(longest)
        if refused:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many of these streams on one connection")

    def leave(self, context: grpc.ServicerContext) -> None:
        """It is done."""
        with self._lock:
            self._forget(context)

    def end_overdue(self) -> None:
        """End those that have stayed too long."""
        now_s = self._clock()
        with self._lock:
            overdue = [call for call, (ends_at_s, _) in self._calls.items() if ends_at_s <= now_s]
            for call in overdue:
                self._forget(call)
        for call in overdue:
            _end(call)

    def _forget(self, context: grpc.ServicerContext) -> None:
        held = self._calls.pop(context, None)
        if held is not None:
            _, peer = held
            self._of_connection[peer] -= 1
            if not self._of_connection[peer]:
                del self._of_connection[peer]


class CallLimits(grpc.ServerInterceptor):  # type: ignore[type-arg] # it has none at run time
    """Holds every call of a server to what it may cost; `end_overdue` has to be called now and then."""

    def __init__(self) -> None:
        self._half_sent = Held(MOST_HALF_SENT, within_s=HALF_SENT_WITHIN_S)
        self._reflections = Held(MOST_REFLECTIONS, of_one=REFLECTIONS_OF_ONE, within_s=REFLECTION_WITHIN_S)
        self._health_watches = Held(MOST_HEALTH_WATCHES, of_one=HEALTH_WATCHES_OF_ONE)
        self._handlers: dict[str, Any] = {}
        """Those that were made, by path."""

    def end_overdue(self) -> None:
        """End the calls that have kept the server waiting too long."""
        for held in (self._half_sent, self._reflections, self._health_watches):
            held.end_overdue()

    def intercept_service(self, continuation: Callable[[Any], Any], handler_call_details: Any) -> Any:
        """The handler of a call, within its limits.

        To gRPC each one takes a stream of messages. So it is called once the headers are there, and may be ended before
        the message is; with a single message it would be called no sooner, and hold its thread until then all the same.
        """
        method = handler_call_details.method
        known = self._handlers.get(method)
        if known is None:
            handler = continuation(handler_call_details)
            if handler is None:
                return None
            known = self._handlers[method] = self._limited(handler, method)
        return known

    def _limited(self, handler: Any, method: str) -> Any:
        coders = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary is not None:
            return grpc.stream_unary_rpc_method_handler(partial(self._unary, handler.unary_unary), *coders)
        if method == _HEALTH_WATCH:
            return grpc.stream_stream_rpc_method_handler(self._watch(handler.unary_stream), *coders)
        if handler.unary_stream is not None:
            return grpc.stream_stream_rpc_method_handler(partial(self._stream, handler.unary_stream), *coders)
        if method.startswith(_REFLECTION):
            behaviour = partial(self._reflection, handler.stream_stream)
            return grpc.stream_stream_rpc_method_handler(behaviour, *coders)
        return handler

    def _unary(self, behaviour: Any, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        return behaviour(self._message(requests, context), context)

    def _stream(self, behaviour: Any, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        yield from behaviour(self._message(requests, context), context)

    def _reflection(self, behaviour: Any, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        self._reflections.take(context)
        try:
            yield from behaviour(requests, context)
        finally:
            self._reflections.leave(context)

    def _watch(self, behaviour: Any) -> Any:
        """Health's watches hold no thread once they have begun."""

        def watch(requests: Iterator[Any], context: grpc.ServicerContext, *answers: Any) -> Any:
            request = self._message(requests, context)
            self._health_watches.take(context)
            if not context.add_callback(partial(self._health_watches.leave, context)):
                self._health_watches.leave(context)  # it has ended already
            return behaviour(request, context, *answers)

        watch.experimental_non_blocking = True  # type: ignore[attr-defined] # what gRPC looks for
        return watch

    def _message(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        """The call's message, which is waited for."""
        self._half_sent.take(context)
        try:
            request = next(requests, None)
        finally:
            self._half_sent.leave(context)
        if request is None:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call ended without its message")
        return request


def _end(context: grpc.ServicerContext) -> None:
    context.cancel()  # type: ignore[no-untyped-call] # gRPC's own
