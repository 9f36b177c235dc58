"""The offset service's client: typed errors, one deadline, retries over several targets.

It needs the base install only. A client is safe to share between threads; make it after a fork, not before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import grpc
from google.protobuf.message import Message

from offsetsvc.pb import offsets_pb2 as pb
from offsetsvc.skip_watch import SkipWatch
from offsetsvc.status import code_of, to_domain
from parallax.domain.errors import (
    DeadlineError,
    InvalidNameError,
    LimitError,
    ParallaxError,
    ServiceUnavailableError,
)
from parallax.runtime.deadline import Deadline
from parallax.runtime.retry import RetryPolicy, retry

SERVICE = "parallax.v1.OffsetService"

DEFAULT_TIMEOUT_MS = 10_000
"""A call with its retries; the servers' own default (`service.deadline_ms`) is the same."""

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Largest answer taken: a group of 10,000 partitions with a few hundred skip ranges each."""

MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""Largest question taken: positions of 10,000 partitions take less than 1 MiB, progress with epochs a few."""

_SHORTEST_ATTEMPT_MS = 250.0
"""Less than this and a healthy but distant target would be given up."""

_CHANNEL_OPTIONS: Sequence[tuple[str, Any]] = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A service that comes back is found within a second, not after gRPC's two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)

_TRY_ELSEWHERE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}

Answer = TypeVar("Answer", bound=Message)


def at_region(name: str) -> pb.Place:
    """The aggregate cluster of a region, as an origin or destination."""
    return pb.Place(region=name)


def at_cluster(name: str) -> pb.Place:
    """An aggregate cluster by its own name (``aggregate-b``)."""
    return pb.Place(cluster=name)


class OffsetClient:
    """Asks the offset services, the last good one first.

    A call that finds a service away, busy or silent goes to the next target, and round again with growing
    waits, all inside one deadline. Every other error is final and raised at once.

    Args:
        targets: ``host:port`` of each service, the preferred first.
        timeout_ms: budget of a call with its retries, where the call names none.
        retry: waits between the rounds.
        credentials: TLS; None: plain text.

    Every method raises, besides what its own docstring names:

    Raises:
        ServiceUnavailableError: no target answered.
        DeadlineError: the budget was used up first.
        StoreUnavailableError: the services answered that their store is away.
        ParallaxError: the class that the server raised (`offsetsvc.status.CLASSES`).
    """

    def __init__(
        self,
        targets: Sequence[str],
        *,
        timeout_ms: float = DEFAULT_TIMEOUT_MS,
        retry: RetryPolicy | None = None,
        credentials: grpc.ChannelCredentials | None = None,
    ) -> None:
        if isinstance(targets, str) or not targets:
            raise InvalidNameError("an offset client needs a list of targets, each 'host:port'")
        self._targets = tuple(targets)
        self._timeout_ms = timeout_ms
        self._retry = retry if retry is not None else RetryPolicy()
        self._credentials = credentials
        self._channels: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._preferred = 0
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the channels; calls under way end, later ones fail."""
        with self._lock:
            self._closed = True
            channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()

    def get_failover_offset(
        self,
        group: str,
        topic: str,
        partition: int,
        *,
        to: pb.Place,
        origin: pb.Place | None = None,
        next_offset: int | None = None,
        leader_epoch: int | None = None,
        timeout_ms: float | None = None,
    ) -> pb.FailoverOffset:
        """Where one partition of a group resumes.

        Args:
            group: the consumer group.
            topic: the topic.
            partition: the partition.
            to: where the group goes.
            origin: where it comes from; None: the only other aggregate cluster.
            next_offset: the caller's own position there; None: the group's committed offset.
            leader_epoch: what goes with ``next_offset``, where known.
            timeout_ms: budget of the call with its retries.
        """
        request = pb.GetFailoverOffsetRequest(
            group=group,
            topic=topic,
            partition=partition,
            to=to,
            next_offset=next_offset,
            leader_epoch=leader_epoch,
            **_from(origin),
        )
        return self._call("GetFailoverOffset", request, pb.FailoverOffset, timeout_ms)

    def get_group_failover_offsets(
        self,
        group: str,
        *,
        to: pb.Place,
        origin: pb.Place | None = None,
        positions: Iterable[pb.PartitionPosition] = (),
        topics: Iterable[str] = (),
        record_move: bool = False,
        timeout_ms: float | None = None,
    ) -> pb.GetGroupFailoverOffsetsResponse:
        """Where every partition of a group resumes.

        Args:
            group: the consumer group.
            to: where the group goes.
            origin: where it comes from; None: the only other aggregate cluster.
            positions: the caller's own positions there; other partitions use the group's committed offsets.
            topics: only these; none: all that the group committed on or that ``positions`` name.
            record_move: remember the answers as the group's progress at ``to``: it moves now.
            timeout_ms: budget of the call with its retries.
        """
        request = pb.GetGroupFailoverOffsetsRequest(
            group=group,
            to=to,
            positions=positions,
            topics=topics,
            record_move=record_move,
            **_from(origin),
        )
        return self._call("GetGroupFailoverOffsets", request, pb.GetGroupFailoverOffsetsResponse, timeout_ms)

    def watch_skips(
        self,
        topic: str,
        partition: int,
        *,
        at: pb.Place,
        target_topic_id: str,
        progress: Iterable[pb.SourceProgress],
        start: int,
        origin: pb.Place | None = None,
    ) -> SkipWatch:
        """Skip ranges as they become known after a move; an iterator of `SkipUpdate`, to be closed.

        The updates adjoin: each tells of the target offsets from the previous update's ``complete_to`` (the
        first: from ``start``) to its own ``complete_to``. The last one has none: nothing is pending any more,
        and whatever lies beyond its ranges is new. The iterator connects again by itself, without a deadline.

        Args:
            topic: the topic.
            partition: the partition.
            at: where the group is now.
            target_topic_id: the topic's id there (``FailoverOffset.to.topic_id``).
            progress: the vector of the move (``FailoverOffset.progress``).
            start: skip ranges from here on (``complete_to``, or the resume offset).
            origin: where the group came from.
        """
        request = pb.WatchSkipsRequest(
            topic=topic,
            partition=partition,
            at=at,
            target_topic_id=target_topic_id,
            progress=progress,
            start=start,
            **_from(origin),
        )
        return SkipWatch(request, self._open_watch, self._retry)

    def translate_offset(
        self,
        route: str,
        topic: str,
        partition: int,
        *,
        source_next_offset: int | None = None,
        target_next_offset: int | None = None,
        timeout_ms: float | None = None,
    ) -> pb.TranslateOffsetResponse:
        """A next offset of one side of a route, on the other side.

        Args:
            route: ``a->b``.
            topic: the topic.
            partition: the partition.
            source_next_offset: a next offset of the regional cluster; or
            target_next_offset: a next offset of the aggregate cluster. Exactly one of the two.
            timeout_ms: budget of the call with its retries.
        """
        if (source_next_offset is None) == (target_next_offset is None):
            raise InvalidNameError("name either source_next_offset or target_next_offset")
        request = pb.TranslateOffsetRequest(
            route=route,
            topic=topic,
            partition=partition,
            source_next_offset=source_next_offset,
            target_next_offset=target_next_offset,
        )
        return self._call("TranslateOffset", request, pb.TranslateOffsetResponse, timeout_ms)

    def lookup_origin(
        self,
        topic: str,
        partition: int,
        record_offset: int,
        *,
        at: pb.Place,
        timeout_ms: float | None = None,
    ) -> pb.LookupOriginResponse:
        """Which source record is the record at ``record_offset`` of an aggregate partition?"""
        request = pb.LookupOriginRequest(at=at, topic=topic, partition=partition, record_offset=record_offset)
        return self._call("LookupOrigin", request, pb.LookupOriginResponse, timeout_ms)

    def list_routes(self, *, timeout_ms: float | None = None) -> pb.ListRoutesResponse:
        """Every configured route with the topics that it has copied."""
        return self._call("ListRoutes", pb.ListRoutesRequest(), pb.ListRoutesResponse, timeout_ms)

    def list_runs(
        self,
        route: str,
        topic: str,
        partition: int,
        *,
        start: int = 0,
        limit: int = 0,
        timeout_ms: float | None = None,
    ) -> pb.ListRunsResponse:
        """Runs and watermarks of a partition of a route, from the target offset ``start`` on.

        Args:
            route: ``a->b``.
            topic: the topic.
            partition: the partition.
            start: a target offset.
            limit: rows at most; 0: the server's choice.
            timeout_ms: budget of the call with its retries.
        """
        request = pb.ListRunsRequest(route=route, topic=topic, partition=partition, start=start, limit=limit)
        return self._call("ListRuns", request, pb.ListRunsResponse, timeout_ms)

    def report_positions(
        self,
        group: str,
        *,
        at: pb.Place,
        positions: Iterable[pb.PartitionPosition] = (),
        moves: Iterable[pb.PartitionMove] = (),
        timeout_ms: float | None = None,
    ) -> pb.ReportPositionsResponse:
        """Tell what the group did, for answers to come. Telling the same again changes nothing.

        Args:
            group: the consumer group.
            at: the cluster.
            positions: next offsets that the group has delivered at ``at``, for when it can't be asked.
            moves: moves to ``at`` that the group has made, as their answers told them.
            timeout_ms: budget of the call with its retries.
        """
        request = pb.ReportPositionsRequest(group=group, at=at, positions=positions, moves=moves)
        return self._call("ReportPositions", request, pb.ReportPositionsResponse, timeout_ms)

    def _call(self, method: str, request: Message, answer: type[Answer], timeout_ms: float | None) -> Answer:
        if request.ByteSize() > MAX_REQUEST_BYTES:
            raise LimitError(
                f"{method}: a request of {request.ByteSize()} bytes; the limit is {MAX_REQUEST_BYTES}"
            )
        deadline = Deadline.after_ms(self._timeout_ms if timeout_ms is None else timeout_ms)
        try:
            return retry(
                lambda: self._round(method, request, answer, deadline),
                policy=self._retry,
                deadline=deadline,
                retriable=lambda error: isinstance(error, _AllAwayError),
            )
        except _AllAwayError as away:
            raise away.final(method, deadline) from away.__cause__

    def _round(self, method: str, request: Message, answer: type[Answer], deadline: Deadline) -> Answer:
        """Ask each target once, the last good one first."""
        failures: dict[str, grpc.RpcError] = {}
        first = self._preferred
        for turn in range(len(self._targets)):
            index = (first + turn) % len(self._targets)
            target = self._targets[index]
            share_ms = deadline.remaining_ms / (len(self._targets) - turn)
            budget_ms = min(deadline.remaining_ms, max(share_ms, _SHORTEST_ATTEMPT_MS))
            call = self._channel(target).unary_unary(
                f"/{SERVICE}/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            try:
                found = cast("Answer", call(request, timeout=budget_ms / 1_000))
            except grpc.RpcError as error:
                if not _worth_another_try(error):
                    raise to_domain(error) from error
                failures[target] = error
            except ValueError as error:  # gRPC's word for a channel that was closed meanwhile
                raise ServiceUnavailableError(f"{method}: the offset client is closed") from error
            else:
                self._preferred = index
                return found
            if deadline.passed:
                break
        raise _AllAwayError(failures) from next(iter(failures.values()))

    def _open_watch(self, request: pb.WatchSkipsRequest, attempt: int, timeout_ms: float) -> Any:
        """A stream of skip updates from the preferred target, or from the next one at every later attempt."""
        target = self._targets[(self._preferred + attempt) % len(self._targets)]
        call = self._channel(target).unary_stream(
            f"/{SERVICE}/WatchSkips",
            request_serializer=pb.WatchSkipsRequest.SerializeToString,
            response_deserializer=pb.SkipUpdate.FromString,
        )
        return call(request, timeout=timeout_ms / 1_000)

    def _channel(self, target: str) -> grpc.Channel:
        with self._lock:
            if self._closed:
                raise ServiceUnavailableError("the offset client is closed")
            if target not in self._channels:
                self._channels[target] = (
                    grpc.insecure_channel(target, _CHANNEL_OPTIONS)
                    if self._credentials is None
                    else grpc.secure_channel(target, self._credentials, _CHANNEL_OPTIONS)
                )
            return self._channels[target]


class _AllAwayError(Exception):
    """One round found no target that answered."""

    def __init__(self, failures: Mapping[str, grpc.RpcError]) -> None:
        super().__init__("no target answered")
        self._failures = failures

    def final(self, method: str, deadline: Deadline) -> ParallaxError:
        """What the caller gets when no further round fits into the deadline."""
        told = [error for error in self._failures.values() if code_of(error) is not None]
        if told:
            return to_domain(told[0])
        statuses = {cast("grpc.Call", error).code() for error in self._failures.values()}
        if statuses == {grpc.StatusCode.RESOURCE_EXHAUSTED}:
            return LimitError(f"{method}: every offset service refused: too busy, or the answer too large")
        story = "; ".join(f"{target}: {to_domain(error)}" for target, error in self._failures.items())
        if deadline.passed:
            return DeadlineError(f"{method}: the deadline passed before an offset service answered ({story})")
        return ServiceUnavailableError(f"{method}: no offset service answered ({story})")


def _worth_another_try(error: grpc.RpcError) -> bool:
    """Whether another target, or the same one a little later, may answer."""
    status = cast("grpc.Call", error).code()
    busy = status is grpc.StatusCode.RESOURCE_EXHAUSTED and code_of(error) is None
    return status in _TRY_ELSEWHERE or busy


def _from(origin: pb.Place | None) -> dict[str, Any]:
    """The field ``from``, which Python can't name."""
    return {} if origin is None else {"from": origin}
