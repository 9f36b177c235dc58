"""Runs, watermarks and lost ranges: the rows of a mapping.

A **run** says that ``count`` consecutive records of a source partition are ``count`` consecutive records of the
target partition. A **watermark** is a run of count 0: nothing of the source lies between its two offsets and the
run before it. A **lost range** names source records that retention took before they were copied.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from parallax.domain.ids import UNKNOWN_EPOCH, SourceOffset, TargetOffset
from parallax.errors import InvariantError


@dataclass(frozen=True, slots=True)
class Run:
    """``count`` records in a row: ``source_start + i`` of the source is ``target_start + i`` of the target.

    What a row claims, and what the resume rule leans on:

    * every source record below ``source_start`` that was copied lies below ``target_start``;
    * every source record at or above ``source_end`` lies (or will lie) at or above ``target_end``;
    * ``[previous_source_end, source_start)`` holds no record that a consumer could ever see: control records,
      aborted data, compacted records. It is empty where the predecessor is unknown; after lost records it begins
      with the end of the `LostRange`. The watermark that opens a lineage has 0: the lineage holds nothing below.

    A run never spans two source leader epochs. With ``count == 0`` the row is a watermark, and
    ``source_leader_epoch`` that of the last record before it, or a later one under which the position was
    confirmed.
    """

    source_start: SourceOffset
    target_start: TargetOffset
    count: int
    previous_source_end: SourceOffset
    source_leader_epoch: int = UNKNOWN_EPOCH

    def __post_init__(self) -> None:
        if self.count < 0 or self.source_start < 0 or self.target_start < 0 or self.previous_source_end < 0:
            raise InvariantError(f"D: a run with a negative field: {self}")
        if self.previous_source_end > self.source_start:
            raise InvariantError(f"C: a run whose predecessor ends above its own start: {self}")

    @property
    def source_end(self) -> SourceOffset:
        """The source's next offset after the run."""
        return SourceOffset(self.source_start + self.count)

    @property
    def target_end(self) -> TargetOffset:
        """The target's next offset after the run."""
        return TargetOffset(self.target_start + self.count)

    @property
    def is_watermark(self) -> bool:
        """Whether the row holds no record."""
        return self.count == 0

    @property
    def last_record_end(self) -> SourceOffset:
        """The next offset after the last source record known to exist: a watermark's is that of the run before."""
        return self.previous_source_end if self.is_watermark else self.source_end

    def to_target(self, source: SourceOffset) -> TargetOffset:
        """The place on the target of the source record at ``source``, which must lie inside the run."""
        if not self.source_start <= source <= self.source_end:
            raise InvariantError(f"source offset {source} is not inside {self}")
        return TargetOffset(self.target_start + (source - self.source_start))

    def to_source(self, target: TargetOffset) -> SourceOffset:
        """The place in the source of the target record at ``target``, which must lie inside the run."""
        if not self.target_start <= target <= self.target_end:
            raise InvariantError(f"target offset {target} is not inside {self}")
        return SourceOffset(self.source_start + (target - self.target_start))


def watermark(
    *,
    source_next: SourceOffset,
    target_end: TargetOffset,
    last_run_end: SourceOffset,
    source_leader_epoch: int = UNKNOWN_EPOCH,
) -> Run:
    """A watermark: everything of the source below ``source_next`` lies below ``target_end``, all else will not."""
    return Run(source_next, target_end, 0, last_run_end, source_leader_epoch)


@dataclass(frozen=True, slots=True)
class LostRange:
    """Source records ``[source_start, source_end)`` that were gone before they could be copied.

    The range begins where the last record before it ended: between that and what retention took nothing was to be
    seen. Nobody knows the leader epochs of what was lost.

    ``target_at`` is the target's end when the loss was found: records before the range lie below it, records
    after the range at or above it.
    """

    source_start: SourceOffset
    source_end: SourceOffset
    target_at: TargetOffset

    def __post_init__(self) -> None:
        if not 0 <= self.source_start < self.source_end or self.target_at < 0:
            raise InvariantError(f"D: a lost range that is empty or negative: {self}")


def without(gaps: Iterable[LostRange], spans: Iterable[tuple[int, int]]) -> list[LostRange]:
    """What is left of lost ranges without some spans of source offsets."""
    left = list(gaps)
    for start, end in spans:
        left = [
            replace(gap, source_start=SourceOffset(first), source_end=SourceOffset(last))
            for gap in left
            for first, last in (
                (gap.source_start, min(gap.source_end, start)),
                (max(gap.source_start, end), gap.source_end),
            )
            if first < last
        ]
    return left


def within(gap: LostRange, spans: Iterable[tuple[int, int]]) -> list[LostRange]:
    """The parts of a lost range that lie in some spans of source offsets, which don't overlap."""
    return [
        replace(gap, source_start=SourceOffset(first), source_end=SourceOffset(last))
        for start, end in spans
        if (first := max(gap.source_start, start)) < (last := min(gap.source_end, end))
    ]
