"""The client's side of WatchSkips: an iterator that outlives its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from parallax.client.watches import ClientWatch, ended_as
from parallax.runtime.retry import RetryPolicy
from parallax.v1 import offsets_pb2 as pb

STREAM_MS = 15_000.0
"""A connection is made anew after this time: a server that died without a word is noticed by then."""

OpenStream = Callable[[pb.WatchSkipsRequest, int, float], Any]


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
