"""The client's methods for primaries and regions, and a watch that outlives its connections."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from parallax.client.primary_messages import change_to_pb
from parallax.client.watches import ClientWatch, ended_as
from parallax.domain.primary import Change
from parallax.errors import UnavailableError
from parallax.runtime.retry import RetryPolicy
from parallax.v1 import primaries_pb2 as pb

STREAM_MS = 20_000.0
"""Longer than a server keeps a watch: a server that died without a word is noticed by then."""

Answer = TypeVar("Answer", bound=Message)
OpenWatch = Callable[[pb.WatchPrimaryRequest, int, float], Any]


class PrimaryCalls:
    """Methods of `parallax.client.client.OffsetClient`; errors and retries are said there."""

    @abstractmethod
    def _call(self, method: str, request: Message, answer: type[Answer], timeout_ms: float | None) -> Answer:
        """Ask, with retries over the targets."""

    @abstractmethod
    def _open_primary_watch(self, request: pb.WatchPrimaryRequest, attempt: int, timeout_ms: float) -> Any:
        """A stream from one target."""

    def get_primary(self, group: str, *, timeout_ms: float | None = None) -> pb.Primary:
        """Where a group is primary; without ``decision`` if nothing was ever decided."""
        return self._call("GetPrimary", pb.GetPrimaryRequest(group=group), pb.Primary, timeout_ms)

    def set_primary(
        self, change: Change, *, dry_run: bool = False, timeout_ms: float | None = None
    ) -> pb.Primary:
        """Decide where a group is primary. The same again changes nothing, so that it may be asked twice.

        Args:
            change: what shall hold.
            dry_run: say what would be decided, and decide nothing.
            timeout_ms: budget of the call with its retries.

        Raises:
            FencedError: the group's fencing number is not ``change.expected_number``.
            RefusedError: the change contradicts itself or a move under way.
            UnknownRegionError: the region or cluster is not configured.
            StoreUnavailableError: too few regions answer; a disaster decision needs the deciding region alone.
        """
        return self._call("SetPrimary", change_to_pb(change, dry_run=dry_run), pb.Primary, timeout_ms)

    def list_primaries(self, *, timeout_ms: float | None = None) -> pb.ListPrimariesResponse:
        """Every group with a decision."""
        return self._call("ListPrimaries", pb.ListPrimariesRequest(), pb.ListPrimariesResponse, timeout_ms)

    def describe_regions(self, *, timeout_ms: float | None = None) -> pb.DescribeRegionsResponse:
        """The regions with their clusters and services, without secrets."""
        return self._call(
            "DescribeRegions", pb.DescribeRegionsRequest(), pb.DescribeRegionsResponse, timeout_ms
        )

    def watch_primary(self, group: str) -> PrimaryWatch:
        """What holds for a group, and every change from then on; to be closed by the caller."""
        return PrimaryWatch(group, self._open_primary_watch, self.get_primary, RetryPolicy())


class PrimaryWatch(ClientWatch[pb.Primary]):
    """Changes of one group's primary, the present state first; never back to a lower fencing number.

    A region that is cut off may still tell what held before: an answer with a lower number than one seen already
    is passed over. Iterate in one thread; `close` may come from any other and ends the iteration.
    """

    def __init__(
        self,
        group: str,
        open_watch: OpenWatch,
        get: Callable[[str], pb.Primary],
        policy: RetryPolicy,
    ) -> None:
        super().__init__()
        self._group = group
        self._open_watch = open_watch
        self._get = get
        self._policy = policy
        self._last: pb.Primary | None = None

    def _iterate(self) -> Iterator[pb.Primary]:
        waits = self._policy.waits_ms()
        attempt = 0
        while not self._closed.is_set():
            try:
                for found in self._connected(attempt):
                    waits = self._policy.waits_ms()
                    if self._is_news(found):
                        yield found
            except grpc.RpcError as error:
                _, busy = ended_as(error)
                if busy:
                    yield from self._poll()
                attempt += 1
            self._closed.wait(next(waits) / 1_000)

    def _connected(self, attempt: int) -> Iterator[pb.Primary]:
        request = pb.WatchPrimaryRequest(group=self._group)
        return self._stream(lambda: self._open_watch(request, attempt, STREAM_MS))

    def _poll(self) -> Iterator[pb.Primary]:
        """Every server has as many watches as it can hold: ask once instead."""
        try:
            found = self._get(self._group)
        except UnavailableError:
            return
        if self._is_news(found):
            yield found

    def _is_news(self, found: pb.Primary) -> bool:
        last = self._last
        if last is not None and (
            found == last or found.decision.fencing_number < last.decision.fencing_number
        ):
            return False
        self._last = found
        return True
