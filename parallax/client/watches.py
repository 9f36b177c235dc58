"""What the client's watches share: they are iterated in one thread, closed from any, and outlive their connections."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import grpc

from parallax.client.status import code_of, to_domain
from parallax.runtime.retry import RetryPolicy
from parallax.v1 import offsets_pb2 as pb

_CONNECT_AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}
Update = TypeVar("Update")
STREAM_MS = 15_000.0
"""A connection is made anew after this time: a server that died without a word is noticed by then."""

OpenStream = Callable[[pb.WatchSkipsRequest, int, float], Any]


class ClientWatch(ABC, Generic[Update]):
    """A stream of updates over one connection after the other."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._open_call: Any = None
        self._updates = self._iterate()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Update:
        """The next update.

        Raises:
            StopIteration: nothing more is to come, or the watch was closed.
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
            if self._open_call is not None:
                self._open_call.cancel()

    @abstractmethod
    def _iterate(self) -> Iterator[Update]:
        """The updates, connecting again and again."""

    def _stream(self, connect: Callable[[], Any]) -> Iterator[Update]:
        """The updates of one connection; none once the watch is closed."""
        with self._lock:
            if self._closed.is_set():
                return
            self._open_call = call = connect()
        try:
            yield from call
        finally:
            call.cancel()


def ended_as(error: grpc.RpcError) -> tuple[grpc.StatusCode, bool]:
    """How a connection ended, and whether because the server had as many watches as it can hold.

    Raises:
        ParallaxError: an error that connecting again does not heal.
    """
    status = cast("grpc.Call", error).code()
    busy = status is grpc.StatusCode.RESOURCE_EXHAUSTED and code_of(error) is None
    if not busy and status not in _CONNECT_AGAIN:
        raise to_domain(error) from error
    return status, busy


class SkipWatch(ClientWatch[pb.SkipUpdate]):
    """Updates of one partition's skip ranges, in order; each begins where the one before was complete.

    The iteration ends once nothing is pending any more. Iterate in one thread; `close` may come from any other and
    ends it, too.
    """

    def __init__(self, request: pb.WatchSkipsRequest, open_stream: OpenStream, policy: RetryPolicy) -> None:
        super().__init__()
        self._request = pb.WatchSkipsRequest()
        self._request.CopyFrom(request)
        self._open_stream = open_stream
        self._policy = policy

    def _iterate(self) -> Iterator[pb.SkipUpdate]:
        waits = self._policy.waits_ms()
        attempt = 0
        while not self._closed.is_set():
            got_one = False
            try:
                for update in self._connected(attempt):
                    got_one = True
                    yield update
                    if not update.HasField("complete_to"):
                        return
                    self._request.start = update.complete_to
            except grpc.RpcError as error:
                status, _ = ended_as(error)
                attempt += status is not grpc.StatusCode.DEADLINE_EXCEEDED or not got_one
            if got_one:
                waits = self._policy.waits_ms()
            self._closed.wait(next(waits) / 1_000)

    def _connected(self, attempt: int) -> Iterator[pb.SkipUpdate]:
        return self._stream(lambda: self._open_stream(self._request, attempt, STREAM_MS))
