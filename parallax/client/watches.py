"""The client's watches: iterated in one thread, closed from any, they outlive their connections."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, cast

import grpc
from google.protobuf.message import Message

from parallax.client.status import code_of, to_domain
from parallax.errors import UnavailableError
from parallax.runtime.retry import RetryPolicy
from parallax.v1 import offsets_pb2 as pb
from parallax.v1 import primaries_pb2

_CONNECT_AGAIN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
}
Update = TypeVar("Update")
_SKIPS_STREAM_MS = 15_000.0
"""A connection is made anew after this time: a server that died without a word is noticed by then."""

_PRIMARY_STREAM_MS = 20_000.0
"""The same; longer than a server keeps a watch."""

OpenStream = Callable[[Message, int, float], Any]
"""Opens a connection: the request, how many have failed before, how long it may last in milliseconds."""


class ClientWatch(ABC, Generic[Update]):
    """A stream of updates over one connection after the other."""

    def __init__(self, open_stream: OpenStream, policy: RetryPolicy, stream_ms: float) -> None:
        self._open_stream = open_stream
        self._policy = policy
        self._stream_ms = stream_ms
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

    def _stream(self, request: Message, attempt: int) -> Iterator[Update]:
        """The updates of one connection; none once the watch is closed."""
        with self._lock:
            if self._closed.is_set():
                return
            self._open_call = call = self._open_stream(request, attempt, self._stream_ms)
        try:
            yield from call
        finally:
            call.cancel()


class SkipWatch(ClientWatch[pb.SkipUpdate]):
    """Updates of one partition's skip ranges, in order; each begins where the one before was complete.

    The iteration ends once nothing is pending any more. Iterate in one thread; `close` may come from any other and
    ends it, too.
    """

    def __init__(self, request: pb.WatchSkipsRequest, open_stream: OpenStream, policy: RetryPolicy) -> None:
        super().__init__(open_stream, policy, _SKIPS_STREAM_MS)
        self._request = pb.WatchSkipsRequest()
        self._request.CopyFrom(request)

    def _iterate(self) -> Iterator[pb.SkipUpdate]:
        waits = self._policy.waits_ms()
        attempt = 0
        while not self._closed.is_set():
            got_one = False
            try:
                for update in self._stream(self._request, attempt):
                    got_one = True
                    yield update
                    if not update.HasField("complete_to"):
                        return
                    self._request.start = update.complete_to
            except grpc.RpcError as error:
                status, _ = _ended_as(error)
                attempt += status is not grpc.StatusCode.DEADLINE_EXCEEDED or not got_one
            if got_one:
                waits = self._policy.waits_ms()
            self._closed.wait(next(waits) / 1_000)


class PrimaryWatch(ClientWatch[primaries_pb2.Primary]):
    """Changes of one group's primary, the present state first; never back to a lower fencing number.

    A region that is cut off may still tell what held before: an answer with a lower number than one seen already
    is passed over. Iterate in one thread; `close` may come from any other and ends the iteration.
    """

    def __init__(
        self,
        group: str,
        open_stream: OpenStream,
        get: Callable[[str], primaries_pb2.Primary],
        policy: RetryPolicy,
    ) -> None:
        super().__init__(open_stream, policy, _PRIMARY_STREAM_MS)
        self._group = group
        self._get = get
        self._last: primaries_pb2.Primary | None = None

    def _iterate(self) -> Iterator[primaries_pb2.Primary]:
        request = primaries_pb2.WatchPrimaryRequest(group=self._group)
        waits = self._policy.waits_ms()
        attempt = 0
        while not self._closed.is_set():
            try:
                for found in self._stream(request, attempt):
                    waits = self._policy.waits_ms()
                    if self._is_news(found):
                        yield found
            except grpc.RpcError as error:
                _, busy = _ended_as(error)
                if busy:
                    yield from self._poll()
                attempt += 1
            self._closed.wait(next(waits) / 1_000)

    def _poll(self) -> Iterator[primaries_pb2.Primary]:
        """Every server has as many watches as it can hold: ask once instead."""
        try:
            found = self._get(self._group)
        except UnavailableError:
            return
        if self._is_news(found):
            yield found

    def _is_news(self, found: primaries_pb2.Primary) -> bool:
        last = self._last
        if last is not None and (
            found == last or found.decision.fencing_number < last.decision.fencing_number
        ):
            return False
        self._last = found
        return True


def _ended_as(error: grpc.RpcError) -> tuple[grpc.StatusCode, bool]:
    """How a connection ended, and whether because the server had as many watches as it can hold.

    Raises:
        ParallaxError: an error that connecting again does not heal.
    """
    status = cast("grpc.Call", error).code()
    busy = status is grpc.StatusCode.RESOURCE_EXHAUSTED and code_of(error) is None
    if not busy and status not in _CONNECT_AGAIN:
        raise to_domain(error) from error
    return status, busy
