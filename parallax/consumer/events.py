"""What a `FailoverConsumer` tells its application while it moves, waits and skips."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import structlog

from parallax.domain.outcome import Outcome

_log = structlog.get_logger("parallax.failover_consumer")


class EventKind(Enum):
    """What happened."""

    MOVE_STARTED = "move_started"
    """Delivery has stopped; the offset service is being asked."""
    MOVED = "moved"
    """The partitions are assigned at the new cluster; ``partitions`` tells where each resumes."""
    RESUMED = "resumed"
    """The first record of the new cluster is delivered; ``failover_ms`` counts from the call of ``move_to``."""
    MOVE_FAILED = "move_failed"
    """The move was given up; the consumer stays where it was."""
    FENCED = "fenced"
    """The group is being moved: this consumer has left its cluster and goes on where the next decision says."""
    UNFENCED = "unfenced"
    """The move was given up or rolled back: the consumer joins again where it was."""
    AGAINST_PRIMARY = "against_primary"
    """The application moves the consumer to where its group is not recorded as primary; ``message`` says what to do."""
    RESTORED = "restored"
    """A partition started from a commit that carries skip ranges of an earlier move."""
    PENDING_STARTED = "pending_started"
    """Records consumed elsewhere have not all arrived here: the partitions named deliver no further than known."""
    PENDING_CLEARED = "pending_cleared"
    """Everything is known of the partitions named; they deliver freely."""
    SKIPPED = "skipped"
    """Records were dropped that had been consumed in another region; ``skipped_records`` since the last event."""
    REWOUND = "rewound"
    """A seek below the resume offset of the move: the partition skips nothing from here on."""
    SERVICE_AWAY = "service_away"
    """No offset service answers while an answer is needed; the policy decides what follows."""
    SERVICE_BACK = "service_back"
    """An offset service answers again."""
    SKIPPING_ABANDONED = "skipping_abandoned"
    """The partitions named go on although records may be read twice: by the policy "metadata", or because the
    service says that nothing will become known (the topic was created anew)."""
    INDEX_INCOMPLETE = "index_incomplete"
    """The newest records delivered at the origin were not indexed in time: a few may be read twice."""
    METADATA_UNREADABLE = "metadata_unreadable"
    """A commit's metadata is damaged or newer than this release: records may be read twice, none is lost."""
    UNKNOWN_NAMES = "unknown_names"
    """Regions, the group or topics that the offset services do not know, or leave out; ``message`` says which."""
    NO_OFFSET = "no_offset"
    """A partition without any commit started where ``on_no_offset`` says."""


_WARNINGS = frozenset(
    {
        EventKind.AGAINST_PRIMARY,
        EventKind.INDEX_INCOMPLETE,
        EventKind.METADATA_UNREADABLE,
        EventKind.MOVE_FAILED,
        EventKind.SERVICE_AWAY,
        EventKind.SKIPPING_ABANDONED,
        EventKind.UNKNOWN_NAMES,
    }
)
"""A move failed, records may be read twice, or somebody has to do something; all else is logged as information."""


@dataclass(frozen=True, slots=True)
class PartitionStart:
    """Where one partition goes on.

    Attributes:
        resume_offset: the first offset that is read.
        outcome: why it is what it is; None where no offset service was asked.
        pending_records: consumed elsewhere, not here yet.
        skip_range_count: skip ranges known so far.
    """

    topic: str
    partition: int
    resume_offset: int
    outcome: Outcome | None = None
    pending_records: int = 0
    skip_range_count: int = 0


@dataclass(frozen=True, slots=True)
class FailoverEvent:
    """Something that an operator may want to see.

    Attributes:
        kind: what happened.
        region: where the consumer is, or moves to.
        from_region: where it moves from.
        partitions: the partitions concerned.
        failover_ms: milliseconds since ``move_to`` was called (MOVED, RESUMED).
        skipped_records: records dropped since the last such event (SKIPPED).
        message: a sentence for people.
    """

    kind: EventKind
    region: str
    from_region: str | None = None
    partitions: tuple[PartitionStart, ...] = ()
    failover_ms: float | None = None
    skipped_records: int | None = None
    message: str = ""


class EventQueue:
    """Events of all threads, handed to the application by the one that polls.

    Args:
        on_event: the application's callback; what it raises comes out of ``poll``.
    """

    def __init__(self, on_event: Callable[[FailoverEvent], None] | None) -> None:
        self._on_event = on_event
        self._events: deque[FailoverEvent] = deque()
        self._lock = threading.Lock()

    @property
    def waiting(self) -> bool:
        """Whether `deliver` has something to do."""
        return bool(self._events)

    def put(self, event: FailoverEvent) -> None:
        """Log the event and keep it for the application."""
        (_log.warning if event.kind in _WARNINGS else _log.info)(
            event.kind.value,
            region=event.region,
            from_region=event.from_region,
            partitions=[
                f"{item.topic}-{item.partition}@{item.resume_offset}"
                + (f" {item.outcome.name}" if item.outcome is not None else "")
                for item in event.partitions
            ],
            failover_ms=None if event.failover_ms is None else round(event.failover_ms),
            skipped_records=event.skipped_records,
            detail=event.message or None,
        )
        if self._on_event is not None:
            with self._lock:
                self._events.append(event)

    def deliver(self) -> None:
        """Call the application for each event, in order; only the polling thread does."""
        while self._on_event is not None:
            with self._lock:
                if not self._events:
                    return
                event = self._events.popleft()
            self._on_event(event)
