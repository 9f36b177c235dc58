"""What failover requests, watches and reports speak of, before any transport: plain values, no messages.

What is made for each of thousands of answers a second is a tuple: a frozen dataclass takes three times as long to make.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    GroupName,
    RegionName,
    SourceId,
    TargetOffset,
    TopicId,
    TopicPartition,
)
from parallax.domain.lineage_history import Stretch
from parallax.domain.outcome import Outcome
from parallax.domain.place import LogRange
from parallax.domain.progress import Progress, SourcePosition
from parallax.domain.resume import SourceAnswer
from parallax.domain.runs import Run


class Basis(Enum):
    """Whose word the group's next offset at the origin is."""

    CALLER = "caller"
    COMMITTED = "committed"
    OBSERVED = "observed"
    """The cluster is away: what was seen or reported last."""
    POLICY = "policy"
    """The group never committed on the partition."""


@dataclass(frozen=True, slots=True)
class TimestampPolicy:
    """Where a source has no usable row, go by record timestamps instead of the log start.

    Attributes:
        margin_ms: how much older than the group's position an unconsumed record may be; None: as configured.
        timestamp_ms: the time to go by instead of that of the group's position, milliseconds since the Unix epoch.
    """

    margin_ms: int | None = None
    timestamp_ms: int | None = None


class TimeBasis(Enum):
    """Where the time came from by which a resume offset was looked for."""

    CALLER = "caller"
    POSITION = "position"
    """The record at the group's position in the origin, or the first of its batch."""
    BELOW = "below"
    """The last record below the position: the origin holds nothing at or above it."""
    NONE = "none"
    """No time could be had, or none can be gone by: the log start holds."""


@dataclass(frozen=True, slots=True)
class ByTimestamp:
    """What became of a caller's wish for record timestamps where no row proves anything.

    Attributes:
        timestamp_ms: the time that was found, milliseconds since the Unix epoch; None with `TimeBasis.NONE`.
        problem: with `TimeBasis.NONE`, why; empty otherwise.
        redelivery_at_most_offsets: what of the records that the destination holds now can be read again at most: all from
            the resume offset to its end. How many it will be can't be known. None with `TimeBasis.NONE`.
    """

    basis: TimeBasis
    margin_ms: int
    timestamp_ms: int | None = None
    problem: str = ""
    redelivery_at_most_offsets: int | None = None


class Commit(NamedTuple):
    """Where a group stands at the origin.

    Attributes:
        next_offset: None only with `Basis.POLICY`.
        observed_at_ms: when it was seen, milliseconds since the Unix epoch; None: for this call.
        leader_epoch: the partition's leader epoch that Kafka keeps with a commit (KIP-320); UNKNOWN_EPOCH: none.
        read_epoch: a leader epoch of the log in which the group has read up to there, as a caller names it: it may be later
            than that of the last record below. UNKNOWN_EPOCH: not told.
    """

    next_offset: TargetOffset | None
    basis: Basis
    observed_at_ms: int | None = None
    leader_epoch: int = UNKNOWN_EPOCH
    read_epoch: int = UNKNOWN_EPOCH

    @property
    def epoch(self) -> int:
        """A leader epoch of the log in which the group has read up to there, whoever names it."""
        return self.read_epoch if self.leader_epoch == UNKNOWN_EPOCH else self.leader_epoch


class Side(NamedTuple):
    """One cluster's side of an answer.

    Attributes:
        topic_id: empty when neither the cluster nor the index knows the topic there.
        log: None when the cluster could not be asked, or has no such partition.
        indexed_to: the index tells of every record of every source below; None: some source has no row.
        without_rows: the regions of those sources.
    """

    cluster: ClusterName
    topic_id: TopicId
    next_offset: TargetOffset | None
    log: LogRange | None
    indexed_to: TargetOffset | None
    basis: Basis | None = None
    observed_at_ms: int | None = None
    without_rows: tuple[RegionName, ...] = ()

    @property
    def lag_offsets(self) -> int | None:
        """High watermark less next offset, never negative; None when either is unknown."""
        if self.log is None or self.next_offset is None:
            return None
        return max(0, self.log.high_watermark - self.next_offset)


class SourceView(NamedTuple):
    """One source's part of an answer.

    Attributes:
        proof: the origin's row that proves what was consumed; None: an earlier move, or nothing does.
        place: the destination's row that proves the position; None: none does, or it holds nothing back.
        redelivery_records: consumed records above the resume offset, those still to arrive included; None: timestamps
            decided, so that it can't be known.
        freshness_ms: age of the source's newest row at the destination; None without one.
    """

    answer: SourceAnswer
    proof: Run | None
    place: Run | None
    redelivery_records: int | None
    freshness_ms: int | None

    @property
    def pending_records(self) -> int:
        """Source offsets consumed but not at the destination yet."""
        pending = self.answer.pending
        return 0 if pending is None else pending[1] - pending[0]


class FailoverAnswer(NamedTuple):
    """Where one partition of a group resumes, and why.

    Attributes:
        notes: all that applies, the gravest first.
        skip_ranges: consumed target offsets ``[start, end)`` above the resume offset, merged and in order.
        complete_to: they are known below this offset; None: nothing is pending, whatever follows is new.
        skip_ranges_continue_at: set when a limit cut them short.
        progress: the vector that the move leaves behind.
        nearest_checkpoint_offset: what the nearest-checkpoint rule would have said; None without rows, or if nobody
            asked.
        by_timestamp: set where the caller asked for timestamps and a source has no usable row.
    """

    group: GroupName
    topic_partition: TopicPartition
    origin: Side
    destination: Side
    resume_offset: TargetOffset
    notes: tuple[Outcome, ...]
    sources: tuple[SourceView, ...]
    skip_ranges: Sequence[Stretch]
    complete_to: TargetOffset | None
    skip_ranges_continue_at: TargetOffset | None
    progress: Mapping[SourceId, SourcePosition]
    nearest_checkpoint_offset: TargetOffset | None
    by_timestamp: ByTimestamp | None = None

    @property
    def outcome(self) -> Outcome:
        """The gravest of the notes."""
        return self.notes[0] if self.notes else Outcome.OK

    @property
    def redelivery_records(self) -> int | None:
        """Over all sources; None if that of one can't be known."""
        counts = [view.redelivery_records for view in self.sources]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def pending_records(self) -> int:
        """Over all sources."""
        return sum(view.pending_records for view in self.sources)

    @property
    def freshness_ms(self) -> int | None:
        """The age of the oldest newest row of any source; None if one has none."""
        ages = [view.freshness_ms for view in self.sources]
        known = [age for age in ages if age is not None]
        return max(known) if known and len(known) == len(ages) else None


@dataclass(frozen=True, slots=True)
class SkipPage:
    """Consumed target offsets of one stretch.

    Attributes:
        complete_to: the end of the stretch; None: nothing is pending, whatever follows is new.
        cut: a limit made the stretch end here: the next one is known already.
    """

    skip_ranges: Sequence[Stretch]
    complete_to: TargetOffset | None
    pending_records: int
    cut: bool = False


@dataclass(frozen=True, slots=True)
class ReportedPosition:
    """A next offset that a group has delivered."""

    topic_partition: TopicPartition
    next_offset: TargetOffset
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class ReportedMove:
    """A move as its answer told it."""

    topic_partition: TopicPartition
    topic_id: TopicId
    progress: Progress
