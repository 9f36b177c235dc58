"""Where one partition begins, and which of its records reach the application: deliver, skip, or hold until more is known.

After a move the records above the resume offset are a mix of consumed and unconsumed ones. Skip ranges tell them
apart, below ``known_to``. What lies beyond is decided when the offset service has said more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from parallax.consumer.events import PartitionStart
from parallax.consumer.ports import Key
from parallax.domain.ids import TargetOffset, next_offset
from parallax.domain.metadata import CommittedMetadata
from parallax.domain.outcome import Outcome
from parallax.domain.skips import SkipRange, merge_ranges
from parallax.errors import InvariantError


class GateDecision(Enum):
    """What happens to a record that was fetched."""

    DELIVER = "deliver"
    """It is unconsumed and the next one in order."""
    SKIP = "skip"
    """It was consumed in another region."""
    HOLD = "hold"
    """Nobody can tell yet; the partition waits here."""
    REPEATED = "repeated"
    """It lies below the position: it was dealt with before."""


class Gate:
    """The delivery state of one partition.

    Its invariants:

    A. Skip ranges are in order, and neither overlap nor touch.
    B. The position (a next offset) goes back only by `seek`.
    C. ``known_to`` never goes back: what is known stays known.

    Args:
        position: the first offset that may be delivered.
        skip_ranges: offsets already consumed.
        known_to: skip ranges are complete below it; None: they are complete, whatever follows is unconsumed.
        floor: skipping holds from here on; a seek below it is a rewind, and voids it.
    """

    __slots__ = ("_floor", "_known_to", "_position", "_ranges", "_starts")

    def __init__(
        self,
        position: int,
        *,
        skip_ranges: Iterable[SkipRange] = (),
        known_to: int | None = None,
        floor: int | None = None,
    ) -> None:
        self._position = position
        self._known_to = known_to
        self._floor = position if floor is None else floor
        self._ranges: list[SkipRange] = merge_ranges(skip_ranges)
        self._starts: list[int] = [item.start for item in self._ranges]
        check_invariants(self)

    @property
    def position(self) -> int:
        """Every record below was delivered or skipped."""
        return self._position

    @property
    def known_to(self) -> int | None:
        """Skip ranges are complete below it; None: nothing is pending any more."""
        return self._known_to

    @property
    def floor(self) -> int:
        """Where skipping begins: the resume offset of the move."""
        return self._floor

    @property
    def is_open(self) -> bool:
        """Whether skip ranges are still to be asked for."""
        return self._known_to is not None

    def decide(self, record_offset: int) -> GateDecision:
        """Judge the next record that was fetched, and move the position past it unless it is held."""
        if record_offset < self._position:
            return GateDecision.REPEATED
        if self._is_skipped(record_offset):
            self._position = next_offset(record_offset)
            return GateDecision.SKIP
        if self._known_to is not None and record_offset >= self._known_to:
            return GateDecision.HOLD
        self._position = next_offset(record_offset)
        return GateDecision.DELIVER

    def learn(self, skip_ranges: Iterable[SkipRange], known_to: int | None) -> None:
        """Take further skip ranges, and how far they are complete now."""
        if self._known_to is None:
            return
        fresh = list(skip_ranges)
        if fresh:
            self._ranges = merge_ranges([*self._ranges, *fresh])
            self._starts = [item.start for item in self._ranges]
        self._known_to = None if known_to is None else max(known_to, self._known_to)
        check_invariants(self)

    def abandon(self) -> None:
        """Wait for nothing more: whatever lies beyond the known skip ranges is delivered."""
        self._known_to = None

    def seek(self, position: int) -> bool:
        """Go to another position.

        Returns:
            False: the position lies below the floor. That is a rewind: the application wants records again that
            were consumed elsewhere, so nothing is skipped or held from now on.
        """
        self._position = position
        if position >= self._floor:
            return True
        self._floor = position
        self._ranges, self._starts, self._known_to = [], [], None
        return False

    def ranges_from(self, position: int) -> Sequence[SkipRange]:
        """Skip ranges that end above ``position``: what a commit at it has to carry."""
        first = max(bisect_right(self._starts, position) - 1, 0)
        return [item for item in self._ranges[first:] if item.end > position]

    def _is_skipped(self, record_offset: int) -> bool:
        index = bisect_right(self._starts, record_offset) - 1
        return index >= 0 and record_offset < self._ranges[index].end


def check_invariants(gate: Gate) -> None:
    """Recompute the invariants from scratch.

    Raises:
        InvariantError: one does not hold; the message names it by its letter.
    """
    ranges = gate.ranges_from(TargetOffset(-1))
    for item in ranges:
        if item.start >= item.end:
            raise InvariantError(f"A: skip range [{item.start}, {item.end}) is empty")
    for before, after in pairwise(ranges):
        if after.start <= before.end:
            raise InvariantError(f"A: skip ranges meet at {after.start}")


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
