"""Where a partition begins, and what is known of the records from there on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from parallax.consumer.events import PartitionStart
from parallax.consumer.gate import Gate
from parallax.consumer.ports import Key
from parallax.domain.ids import TargetOffset
from parallax.domain.outcome import Outcome
from parallax.domain.skips import SkipRange
from parallax.v1 import offsets_pb2 as pb


@dataclass(frozen=True, slots=True)
class Skipping:
    """What a move left: enough to skip, and to ask for what is not known yet.

    Attributes:
        floor: the resume offset of the move; below it nothing of this holds.
        topic_id: the topic's id at this cluster.
        progress: how far each source was consumed.
        skip_ranges: target offsets already consumed.
        known_to: the ranges are complete below it; None: nothing is pending.
        fencing_number: of the decision that made this cluster primary; 0 if none was recorded.
    """

    floor: int
    topic_id: str
    progress: tuple[pb.SourceProgress, ...]
    skip_ranges: tuple[SkipRange, ...]
    known_to: int | None
    fencing_number: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition begins.

    Attributes:
        offset: the first offset to read.
        skipping: what a move left; None: every record from there on is unconsumed.
        committed: the group has this offset committed already.
        from_log_start: no row proves anything better for some source.
    """

    offset: int
    skipping: Skipping | None = None
    outcome: Outcome | None = None
    pending_records: int = 0
    committed: bool = False
    from_log_start: bool = False

    def gate(self) -> Gate:
        """The delivery gate of a partition that begins here."""
        if self.skipping is None:
            return Gate(self.offset)
        return Gate(
            self.offset,
            skip_ranges=self.skipping.skip_ranges,
            known_to=self.skipping.known_to,
            floor=self.skipping.floor,
        )

    def described(self, key: Key) -> PartitionStart:
        """The start for an event."""
        return PartitionStart(
            topic=key[0],
            partition=key[1],
            resume_offset=self.offset,
            outcome=self.outcome,
            pending_records=self.pending_records,
            skip_range_count=0 if self.skipping is None else len(self.skipping.skip_ranges),
        )


def ranges_of(messages: Iterable[pb.OffsetRange]) -> tuple[SkipRange, ...]:
    """Skip ranges of a protobuf answer."""
    return tuple(SkipRange(TargetOffset(item.start), TargetOffset(item.end)) for item in messages)


def start_of(answer: pb.FailoverOffset) -> Start:
    """Where the offset service lets a partition resume.

    An answer may be incomplete in two ways: some source is not there yet (``complete_to``), or not all ranges
    fitted into it (``skip_ranges_continue_at``). To the gate both are one thing: known so far, ask for more.
    """
    bounds = []
    if answer.HasField("complete_to"):
        bounds.append(answer.complete_to)
    if answer.HasField("skip_ranges_continue_at"):
        bounds.append(answer.skip_ranges_continue_at)
    return Start(
        offset=answer.resume_offset,
        skipping=Skipping(
            floor=answer.resume_offset,
            topic_id=answer.to.topic_id,
            progress=tuple(answer.progress),
            skip_ranges=ranges_of(answer.skip_ranges),
            known_to=min(bounds, default=None),
        ),
        outcome=Outcome(answer.outcome) if answer.outcome else None,
        pending_records=answer.pending_records,
        from_log_start=pb.EARLIEST_FALLBACK in (answer.outcome, *answer.notes),
    )


def never_committed(answer: pb.FailoverOffset) -> bool:
    """Whether the service knows of no position of the group at the origin either."""
    return pb.NO_COMMIT in (answer.outcome, *answer.notes)
