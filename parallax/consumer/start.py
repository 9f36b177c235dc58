"""Where a partition begins, and what is known of the records from there on."""

from __future__ import annotations

from dataclasses import dataclass

from parallax.client.answer import ResumeAnswer
from parallax.consumer.events import PartitionStart
from parallax.consumer.gate import Gate
from parallax.consumer.ports import Key
from parallax.domain.metadata import CommittedMetadata
from parallax.domain.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition begins.

    Attributes:
        offset: the first offset to read.
        skipping: what a move left, to skip by and to ask for what is not known yet; None: every record from there on is unconsumed.
        committed: the group has this offset committed already.
        from_log_start: no row proves anything better for some source.
    """

    offset: int
    skipping: CommittedMetadata | None = None
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
            skip_ranges=self.skipping.skips,
            known_to=self.skipping.complete_to,
            floor=self.skipping.resume_offset,
        )

    def described(self, key: Key) -> PartitionStart:
        """The start for an event."""
        return PartitionStart(
            topic=key[0],
            partition=key[1],
            resume_offset=self.offset,
            outcome=self.outcome,
            pending_records=self.pending_records,
            skip_range_count=0 if self.skipping is None else len(self.skipping.skips),
        )


def start_of(answer: ResumeAnswer) -> Start:
    """Where the offset service lets a partition resume."""
    return Start(
        offset=answer.resume_offset,
        skipping=answer.metadata(),
        outcome=answer.outcome,
        pending_records=answer.pending_records,
        from_log_start=Outcome.EARLIEST_FALLBACK in answer.notes,
    )


def never_committed(answer: ResumeAnswer) -> bool:
    """Whether the service knows of no position of the group at the origin either."""
    return Outcome.NO_COMMIT in answer.notes
