"""What a `FailoverProducer` tells its application besides delivery reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import structlog

from parallax.errors import ParallaxError

_log = structlog.get_logger("parallax.failover_producer")


class ProducerEventKind(Enum):
    """What happened."""

    MOVED = "moved"
    """The region in use was down: records go to another one; ``reason`` says what was wrong."""
    RETURNED = "returned"
    """A region that comes earlier in the order is well again: new records go there."""
    STUCK = "stuck"
    """The region in use is down and no other can take over; records wait, as long as there is room."""
    UNSTUCK = "unstuck"
    """The region in use takes records again, without a move."""
    UNFIT = "unfit"
    """A region could not take over now; ``error`` says why. Told before it is needed, and once per cause."""
    FIT = "fit"
    """A region that was unfit could take over now."""


class DownReason(Enum):
    """Why a region counts as down."""

    UNREACHABLE = "unreachable"
    """No broker answered for ``unreachable_after_ms``."""
    STALLED = "stalled"
    """Brokers answer, and for ``stalled_after_ms`` none of the waiting records was acknowledged."""
    TIMED_OUT = "timed_out"
    """A record failed there for a cause that lies in the cluster, as a rule by ``message.timeout.ms``."""
    FATAL = "fatal"
    """librdkafka can't go on with its producer there (a fatal error of the idempotent producer)."""


@dataclass(frozen=True, slots=True)
class ProducerEvent:
    """Something that an operator may want to see.

    Attributes:
        kind: what happened.
        region: where records go now, or whom it concerns (UNFIT, FIT).
        from_region: where they went before (MOVED, RETURNED).
        reason: why the region in use is down (MOVED, STUCK).
        taken_back_records: handed to the region that is down and not acknowledged by it (MOVED).
        held_records: produced since the region was suspected, never handed to it (MOVED, STUCK).
        error: what keeps a region from taking over (UNFIT).
        message: a sentence for people.
    """

    kind: ProducerEventKind
    region: str
    from_region: str | None = None
    reason: DownReason | None = None
    taken_back_records: int = 0
    held_records: int = 0
    error: ParallaxError | None = None
    message: str = ""

    def log(self) -> None:
        """Write it to the log, too."""
        write = _log.warning if self.kind in (ProducerEventKind.UNFIT, ProducerEventKind.STUCK) else _log.info
        write(
            f"producer_{self.kind.value}",  # consumers move, too
            region=self.region,
            from_region=self.from_region,
            reason=None if self.reason is None else self.reason.value,
            taken_back_records=self.taken_back_records,
            held_records=self.held_records,
            code=None if self.error is None else self.error.code,
            detail=self.message or None,
        )
