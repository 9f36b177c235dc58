"""Calls over several targets: the last good one first, round again with growing waits, inside one deadline."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import grpc
from google.protobuf.message import Message

from parallax.client.credentials import OpenCredentials, ServiceCredentials, bearer
from parallax.client.status import code_of, to_domain
from parallax.errors import (
    DeadlineError,
    InvalidNameError,
    LimitError,
    ParallaxError,
    ServiceUnavailableError,
)
from parallax.runtime.deadline import Deadline
from parallax.runtime.retry import RetryPolicy, retry
from parallax.runtime.tracing import sent, span
from parallax.v1 import audit_pb2, moves_pb2, overview_pb2, primaries_pb2
from parallax.v1 import offsets_pb2 as pb

SERVICE = "parallax.v1.OffsetService"
PRIMARY_SERVICE = "parallax.v1.PrimaryService"
AUDIT_SERVICE = "parallax.v1.AuditService"
OVERVIEW_SERVICE = "parallax.v1.OverviewService"
MOVE_SERVICE = "parallax.v1.MoveService"

_PATHS = {
    method.name: f"/{service.full_name}/{method.name}"
    for file in (
        pb.DESCRIPTOR,
        primaries_pb2.DESCRIPTOR,
        audit_pb2.DESCRIPTOR,
        overview_pb2.DESCRIPTOR,
        moves_pb2.DESCRIPTOR,
    )
    for service in file.services_by_name.values()
    for method in service.methods
}
"""Of every method of all services; their names are distinct."""

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

_TRY_ELSEWHERE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    # No caller cancels a call here. A server does that took it for half-sent, a proxy that is about to end, and so does a channel
    # whose certificates have been replaced twice meanwhile.
    grpc.StatusCode.CANCELLED,
}

_BEGUN_ONCE = {"ExecuteMove", "RollBackMove", "RunDrill"}
"""Whoever did not answer in time may have begun: asked next, another one would begin beside it."""

Answer = TypeVar("Answer", bound=Message)


class Targets:
    """The offset services that a client knows. Safe to share between threads."""

    def __init__(
        self, targets: Sequence[str], policy: RetryPolicy, credentials: ServiceCredentials | None
    ) -> None:
        if isinstance(targets, str) or not targets:
            raise InvalidNameError("an offset client needs a list of targets, each 'host:port'")
        self._targets = tuple(targets)
        self._policy = policy
        self._credentials = OpenCredentials(credentials or ServiceCredentials())
        self._channels: dict[str, tuple[grpc.ChannelCredentials | None, grpc.Channel]] = {}
        self._replaced: dict[str, grpc.Channel] = {}
        self._lock = threading.Lock()
        self._preferred = 0
        self._closed = False

    def close(self) -> None:
        """Close the channels; calls under way end, later ones fail."""
        with self._lock:
            self._closed = True
            channels = [channel for _, channel in self._channels.values()] + [*self._replaced.values()]
            self._channels, self._replaced = {}, {}
        for channel in channels:
            channel.close()

    def call(
        self,
        method: str,
        request: Message,
        answer: type[Answer],
        timeout_ms: float,
        token: str | None = None,
    ) -> Answer:
        """Ask until a service answers, or the budget is used up.

        Args:
            method: of which service does not matter: their names are distinct.
            request: the question.
            answer: the kind of the answer.
            timeout_ms: the budget.
            token: is shown instead of our own; None: our own is.

        Raises:
            ParallaxError: what a service answered with, or that none did.
        """
        if request.ByteSize() > MAX_REQUEST_BYTES:
            raise LimitError(
                f"{method}: a request of {request.ByteSize()} bytes; the limit is {MAX_REQUEST_BYTES}"
            )
        with span(f"parallax.{method}", kind="client", rpc__system="grpc", rpc__method=method):
            return self._called(method, request, answer, timeout_ms, token)

    def _called(
        self, method: str, request: Message, answer: type[Answer], timeout_ms: float, token: str | None
    ) -> Answer:
        deadline = Deadline.after_ms(timeout_ms)
        told: ParallaxError | None = None
        heard: _AllAwayError | None = None

        def attempt() -> Answer:
            nonlocal told, heard
            too_short = deadline.remaining_ms < _SHORTEST_ATTEMPT_MS
            try:
                return self._round(method, request, answer, deadline, token)
            except _AllAwayError as away:
                # A reason says more than that a later attempt came too late, whoever noticed that.
                if told is None or not isinstance(away.told, DeadlineError):
                    told = away.told or told
                # So do refusals: the last attempt may begin when hardly any time is left.
                if heard is None or not (too_short and away.came_too_late):
                    heard = away
                raise

        try:
            return retry(
                attempt,
                policy=self._policy,
                deadline=deadline,
                retriable=lambda error: isinstance(error, _AllAwayError),
            )
        except _AllAwayError as away:
            raise (told or (heard or away).final(method)) from away.__cause__

    def _round(
        self, method: str, request: Message, answer: type[Answer], deadline: Deadline, token: str | None
    ) -> Answer:
        """Ask each target once, the last good one first."""
        failures: dict[str, grpc.RpcError] = {}
        first = self._preferred
        for turn in range(len(self._targets)):
            index = (first + turn) % len(self._targets)
            target = self._targets[index]
            share_ms = deadline.remaining_ms / (len(self._targets) - turn)
            budget_ms = min(deadline.remaining_ms, max(share_ms, _SHORTEST_ATTEMPT_MS))
            call = self._channel(target, token).unary_unary(
                _PATHS[method],
                request_serializer=type(request).SerializeToString,
                response_deserializer=answer.FromString,
            )
            try:
                found = cast("Answer", self._shown(call, request, Deadline.after_ms(budget_ms), token))
            except grpc.RpcError as error:
                begun = method in _BEGUN_ONCE and _may_have_begun(error)
                if begun or not _worth_another_try(error):
                    raise to_domain(error) from error
                if self._closed:
                    raise ServiceUnavailableError(f"{method}: the offset client is closed") from error
                failures[target] = error
            except ValueError as error:  # gRPC's word for a channel that was closed meanwhile
                raise ServiceUnavailableError(f"{method}: the offset client is closed") from error
            else:
                self._preferred = index
                return found
            if deadline.passed:
                break
        raise _AllAwayError(failures) from next(iter(failures.values()))

    def _shown(self, call: Any, request: Message, deadline: Deadline, token: str | None) -> Any:
        """One call with a token; with our own once more, with another one, if a service does not take it any more."""
        traced = sent()
        if token is not None:
            return call(request, timeout=deadline.remaining_s, metadata=(*bearer(token), *traced))
        shown = self._credentials.metadata()
        try:
            return call(request, timeout=deadline.remaining_s, metadata=(*shown, *traced))
        except grpc.RpcError as error:
            refused = cast("grpc.Call", error).code() is grpc.StatusCode.UNAUTHENTICATED
            if not refused or not self._credentials.renew(shown):
                raise
        renewed = self._credentials.metadata()
        return call(request, timeout=deadline.remaining_s, metadata=(*renewed, *traced))

    def open_stream(
        self, method: str, answer: type[Message], request: Message, attempt: int, timeout_ms: float
    ) -> Any:
        """A stream from the preferred target, or from the next one at every later attempt."""
        target = self._targets[(self._preferred + attempt) % len(self._targets)]
        call = self._channel(target).unary_stream(
            _PATHS[method],
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call(request, timeout=timeout_ms / 1_000, metadata=self._credentials.metadata())

    def _channel(self, target: str, token: str | None = None) -> grpc.Channel:
        """The channel to a target; a new one once our certificates have changed."""
        credentials = self._credentials.channel(target, with_token=token is not None)
        with self._lock:
            if self._closed:
                raise ServiceUnavailableError("the offset client is closed")
            known, channel = self._channels.get(target, (None, None))
            if channel is not None and known is credentials:
                return channel
            if channel is not None:
                # Calls under way end on it; those of the time before have, or are made again.
                older, self._replaced[target] = self._replaced.get(target), channel
                if older is not None:
                    older.close()
            made = (
                grpc.insecure_channel(target, _CHANNEL_OPTIONS)
                if credentials is None
                else grpc.secure_channel(target, credentials, _CHANNEL_OPTIONS)
            )
            self._channels[target] = credentials, made
            return made


_TOO_LARGE = "larger than max"
"""In gRPC's own words; with the same status it says that a service is busy, which passes."""


class _AllAwayError(Exception):
    """One round found no target that answered."""

    def __init__(self, failures: Mapping[str, grpc.RpcError]) -> None:
        super().__init__("no target answered")
        self._failures = failures

    @property
    def told(self) -> ParallaxError | None:
        """What a service itself gave as the reason; None: none of them said a word."""
        told = [error for error in self._failures.values() if code_of(error) is not None]
        return to_domain(told[0]) if told else None

    @property
    def came_too_late(self) -> bool:
        """Whether the time was over before some target answered."""
        return grpc.StatusCode.DEADLINE_EXCEEDED in self._statuses

    @property
    def _statuses(self) -> set[grpc.StatusCode]:
        return {cast("grpc.Call", error).code() for error in self._failures.values()}

    def final(self, method: str) -> ParallaxError:
        """What the caller gets when no further round fits into the deadline, and no service said why."""
        story = "; ".join(f"{target}: {to_domain(error)}" for target, error in self._failures.items())
        if self._statuses == {grpc.StatusCode.RESOURCE_EXHAUSTED} and _TOO_LARGE in story:
            return LimitError(f"{method}: the answer is too large ({story})")
        if self.came_too_late:
            return DeadlineError(f"{method}: the deadline passed before an offset service answered ({story})")
        return ServiceUnavailableError(f"{method}: no offset service answered ({story})")


def _may_have_begun(error: grpc.RpcError) -> bool:
    """Whether a service may be at work on it that has said nothing."""
    silent = {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
    return cast("grpc.Call", error).code() in silent


def _worth_another_try(error: grpc.RpcError) -> bool:
    """Whether another target, or the same one a little later, may answer."""
    status = cast("grpc.Call", error).code()
    busy = status is grpc.StatusCode.RESOURCE_EXHAUSTED and code_of(error) is None
    return status in _TRY_ELSEWHERE or busy
