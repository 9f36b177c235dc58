"""The client's side of WatchSkips: an iterator that outlives its connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Self, cast

import grpc

from offsetsvc.pb import offsets_pb2 as pb
from offsetsvc.status import code_of, to_domain
from parallax.runtime.retry import RetryPolicy

STREAM_MS = 15_000.0
"""A connection is made anew after this time: a server that died without a word is noticed by then."""

_CONNECT_AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}

OpenStream = Callable[[pb.WatchSkipsRequest, int, float], Any]


class SkipWatch:
    """Updates of one partition's skip ranges, in order; each begins where the one before was complete.

    Iterate in one thread; `close` may come from any other and ends the iteration.
    """

    def __init__(self, request: pb.WatchSkipsRequest, open_stream: OpenStream, policy: RetryPolicy) -> None:
        self._request = pb.WatchSkipsRequest()
        self._request.CopyFrom(request)
        self._open_stream = open_stream
        self._policy = policy
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._call: Any = None
        self._updates = self._iterate()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pb.SkipUpdate:
        """The next update.

        Raises:
            StopIteration: nothing is pending any more, or the watch was closed.
            ParallaxError: an error that connecting again does not heal.
        """
        return next(self._updates)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the iteration; an update being waited for is given up."""
        self._closed.set()
        with self._lock:
            if self._call is not None:
                self._call.cancel()

    def _iterate(self) -> Iterator[pb.SkipUpdate]:
        waits = self._policy.waits_ms()
        attempt = 0
        while not self._closed.is_set():
            got_one = False
            try:
                for update in self._stream(attempt):
                    got_one = True
                    yield update
                    if not update.HasField("complete_to"):
                        return
                    self._request.start = update.complete_to
            except grpc.RpcError as error:
                status = cast("grpc.Call", error).code()
                busy = status is grpc.StatusCode.RESOURCE_EXHAUSTED and code_of(error) is None
                if not busy and status not in _CONNECT_AGAIN:
                    raise to_domain(error) from error
                attempt += status is not grpc.StatusCode.DEADLINE_EXCEEDED or not got_one
            if got_one:
                waits = self._policy.waits_ms()
            self._closed.wait(next(waits) / 1_000)

    def _stream(self, attempt: int) -> Iterator[pb.SkipUpdate]:
        with self._lock:
            if self._closed.is_set():
                return
            self._call = self._open_stream(self._request, attempt, STREAM_MS)
            call = self._call
        try:
            yield from call
        finally:
            call.cancel()
