"""Between the messages about record timestamps and our values. Needs the base install only."""

from __future__ import annotations

from offsetsvc.answers import ByTimestamp, TimestampPolicy
from parallax.errors import InvalidNameError, InvalidOffsetError
from parallax.v1 import offsets_pb2 as pb


def policy_from_pb(
    request: pb.GetFailoverOffsetRequest | pb.GetGroupFailoverOffsetsRequest,
) -> TimestampPolicy | None:
    """The caller's choice of record timestamps; None: it did not choose them.

    Raises:
        InvalidOffsetError: a time is negative.
    """
    if not request.HasField("by_timestamp"):
        return None
    policy = request.by_timestamp
    return timestamp_policy(
        chosen=True,
        margin_ms=policy.margin_ms if policy.HasField("margin_ms") else None,
        timestamp_ms=policy.timestamp_ms if policy.HasField("timestamp_ms") else None,
    )


def timestamp_policy(
    *, chosen: bool, margin_ms: int | None, timestamp_ms: int | None
) -> TimestampPolicy | None:
    """A choice of record timestamps; None: it was not made.

    Raises:
        InvalidNameError: it was not made, but a margin or a time is named.
        InvalidOffsetError: a time is negative.
    """
    for value, what in ((margin_ms, "margin_ms"), (timestamp_ms, "timestamp_ms")):
        if value is not None and not chosen:
            raise InvalidNameError(f"{what} means nothing unless resume offsets by timestamp are asked for")
        if value is not None and value < 0:
            raise InvalidOffsetError(f"{what} {value} is negative")
    return TimestampPolicy(margin_ms, timestamp_ms) if chosen else None


def by_timestamp_to_pb(found: ByTimestamp | None) -> pb.ByTimestamp | None:
    """What became of the choice."""
    if found is None:
        return None
    return pb.ByTimestamp(
        basis=found.basis.value,
        margin_ms=found.margin_ms,
        timestamp_ms=found.timestamp_ms,
        problem=found.problem,
        redelivery_at_most_offsets=found.redelivery_at_most_offsets,
    )
