"""The one table between Parallax's errors and what gRPC and HTTP call them, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import grpc

from parallax import errors
from parallax.errors import ParallaxError

CODE_KEY = "parallax-error-code"
"""Trailing metadata key that carries `ParallaxError.code`."""


@dataclass(frozen=True, slots=True)
class Status:
    """What one class of errors is called on the wire."""

    grpc: grpc.StatusCode
    http: int


STATUSES: Mapping[type[ParallaxError], Status] = {
    ParallaxError: Status(grpc.StatusCode.INTERNAL, 500),
    errors.ConfigError: Status(grpc.StatusCode.FAILED_PRECONDITION, 500),
    errors.InvalidNameError: Status(grpc.StatusCode.INVALID_ARGUMENT, 400),
    errors.NotFoundError: Status(grpc.StatusCode.NOT_FOUND, 404),
    errors.UnknownRegionError: Status(grpc.StatusCode.NOT_FOUND, 404),
    errors.UnknownRouteError: Status(grpc.StatusCode.NOT_FOUND, 404),
    errors.UnknownTopicError: Status(grpc.StatusCode.NOT_FOUND, 404),
    errors.UnknownPartitionError: Status(grpc.StatusCode.NOT_FOUND, 404),
    errors.UnknownGroupError: Status(grpc.StatusCode.NOT_FOUND, 404),
    errors.InvalidOffsetError: Status(grpc.StatusCode.OUT_OF_RANGE, 400),
    errors.InvariantError: Status(grpc.StatusCode.DATA_LOSS, 500),
    errors.UnreadableRowError: Status(grpc.StatusCode.FAILED_PRECONDITION, 500),
    errors.UnavailableError: Status(grpc.StatusCode.UNAVAILABLE, 503),
    errors.ClusterUnavailableError: Status(grpc.StatusCode.UNAVAILABLE, 503),
    errors.StoreUnavailableError: Status(grpc.StatusCode.UNAVAILABLE, 503),
    errors.ServiceUnavailableError: Status(grpc.StatusCode.UNAVAILABLE, 503),
    errors.DeadlineError: Status(grpc.StatusCode.DEADLINE_EXCEEDED, 504),
    errors.FencedError: Status(grpc.StatusCode.ABORTED, 409),
    errors.RefusedError: Status(grpc.StatusCode.FAILED_PRECONDITION, 409),
    errors.PlanChangedError: Status(grpc.StatusCode.FAILED_PRECONDITION, 409),
    errors.UnauthenticatedError: Status(grpc.StatusCode.UNAUTHENTICATED, 401),
    errors.ForbiddenError: Status(grpc.StatusCode.PERMISSION_DENIED, 403),
    errors.PreflightError: Status(grpc.StatusCode.FAILED_PRECONDITION, 409),
    errors.PartitionStoppedError: Status(grpc.StatusCode.FAILED_PRECONDITION, 409),
    errors.MetadataError: Status(grpc.StatusCode.FAILED_PRECONDITION, 409),
    errors.LimitError: Status(grpc.StatusCode.RESOURCE_EXHAUSTED, 429),
}
"""Every class of `parallax.errors`."""

CLASSES: Mapping[str, type[ParallaxError]] = {found.code: found for found in STATUSES}
"""The way back: `ParallaxError.code` to its class."""

_BY_STATUS: Mapping[grpc.StatusCode, type[ParallaxError]] = {
    grpc.StatusCode.UNAVAILABLE: errors.ServiceUnavailableError,
    grpc.StatusCode.CANCELLED: errors.ServiceUnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.LimitError,
    grpc.StatusCode.NOT_FOUND: errors.NotFoundError,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidNameError,
    grpc.StatusCode.UNAUTHENTICATED: errors.UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: errors.ForbiddenError,
}
"""For statuses without our code: gRPC itself, a proxy or another server made them."""


def status_of(error: ParallaxError) -> Status:
    """The status of the error's class, or of its nearest base that has one."""
    return next(STATUSES[found] for found in type(error).__mro__ if found in STATUSES)


def code_of(error: grpc.RpcError) -> str | None:
    """Our code in the error's trailing metadata; None if our server did not make the error."""
    metadata = cast("grpc.Call", error).trailing_metadata() or ()
    found = next((value for key, value in metadata if key == CODE_KEY), None)
    return found.decode() if isinstance(found, bytes) else found


def to_domain(error: grpc.RpcError) -> ParallaxError:
    """The domain error that the server raised, or the nearest for what gRPC itself reports."""
    call = cast("grpc.Call", error)
    code = code_of(error)
    details = call.details() or call.code().name
    if code is not None and code in CLASSES:
        return CLASSES[code](details)
    return _BY_STATUS.get(call.code(), ParallaxError)(details)
