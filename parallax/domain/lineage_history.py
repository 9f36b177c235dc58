"""What the resume rule asks of the rows of one lineage, whatever holds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, SourceOffset, TargetOffset
from parallax.domain.runs import LostRange, Run

Stretch = tuple[int, int]
"""Target offsets ``[start, end)``, as plain numbers: an answer has hundreds, and most end up in one range with others."""


class MissingBlock:
    """A block of rows that is not at hand. Which one it is knows the index that has told of it, and reads it."""

    __slots__ = ()


class EpochRows(NamedTuple):
    """What the rows of one source leader epoch tell of it.

    Attributes:
        first: the source offset of its first row, or the next one if that row is a run.
        run_end: the end of its last run; -1 without one.
        watermark_end: the greatest ``previous_source_end`` of its watermarks; -1 without one.
    """

    first: SourceOffset
    run_end: int
    watermark_end: int

    @property
    def end(self) -> SourceOffset:
        """The next offset after its last known record."""
        return SourceOffset(max(self.run_end, self.watermark_end))


def epochs_of(rows: Iterable[Run], before: Mapping[int, EpochRows] | None = None) -> dict[int, EpochRows]:
    """What rows tell of each of their source leader epochs, `UNKNOWN_EPOCH` included.

    Args:
        rows: in order.
        before: what the rows before them tell.
    """
    found: dict[int, list[int]] = {}
    for row in rows:
        epoch, count = row.source_leader_epoch, row.count
        known = found.get(epoch)
        if known is None and before and epoch in before:
            found[epoch] = known = list(before[epoch])
        elif known is None:
            # A watermark has the epoch of the last record before it, so one at a lost range's end still tells of below.
            found[epoch] = known = [row.source_start + (count > 0), -1, -1]
        if count:
            known[1] = max(known[1], row.source_start + count)
        elif row.previous_source_end > known[2]:
            known[2] = row.previous_source_end
    return {epoch: EpochRows(SourceOffset(known[0]), *known[1:]) for epoch, known in found.items()}


class LineageHistory(ABC):
    """The rows of one lineage of one route and partition, in order; the invariants are those of `History`.

    It may hold any subset of the rows that were ever written: each answer that it gives is a floor, so missing rows make
    it earlier, never wrong.
    """

    __slots__ = ()

    lineage: Lineage

    @property
    @abstractmethod
    def rows(self) -> Sequence[Run]:
        """Runs and watermarks, in order. The rule never asks for all of them: they may have to be read first."""

    @property
    @abstractmethod
    def lost(self) -> Sequence[LostRange]:
        """Lost ranges, in source order."""

    @property
    @abstractmethod
    def first(self) -> Run | None:
        """The first row."""

    @property
    @abstractmethod
    def newest(self) -> Run | None:
        """The last row."""

    @property
    @abstractmethod
    def epochs(self) -> Mapping[int, EpochRows]:
        """What the rows tell of each source leader epoch, `UNKNOWN_EPOCH` included."""

    @property
    @abstractmethod
    def epoch_ends(self) -> Sequence[tuple[int, SourceOffset]]:
        """Pairs (source leader epoch, next offset after its last known record), ascending."""

    @abstractmethod
    def floor_by_target(self, target: TargetOffset) -> Run | None:
        """The last row with ``target_start <= target``."""

    @abstractmethod
    def floor_by_source(self, source: SourceOffset) -> Run | None:
        """The last row with ``source_start <= source``."""

    def missing_at_target(self, target: TargetOffset) -> MissingBlock | None:
        """The block that has to be read before `floor_by_target` finds its row; None: none."""
        del target
        return None

    def missing_at_source(self, source: SourceOffset) -> MissingBlock | None:
        """As `missing_at_target`, of `floor_by_source`."""
        del source
        return None

    @abstractmethod
    def last_proven_by(self, source: SourceOffset) -> Run | None:
        """The last row before whose start no record at or above ``source`` lies, but perhaps in the row's run.

        It is the floor by source or a row above it that nothing separates from ``source``.
        """

    @abstractmethod
    def between_targets(self, start: TargetOffset, end: TargetOffset) -> Iterable[Run]:
        """The rows that may hold records of the target range ``[start, end)``, in order."""

    def numbers_between(self, start: TargetOffset, end: TargetOffset) -> Iterable[tuple[int, int, int]]:
        """As `between_targets`, ``source_start``, ``target_start`` and ``count`` of each row alone."""
        return ((row.source_start, row.target_start, row.count) for row in self.between_targets(start, end))

    def stretches_below(
        self, source_next: SourceOffset, start: TargetOffset, end: TargetOffset, most_rows: int | None = None
    ) -> tuple[list[Stretch], TargetOffset | None]:
        """The target offsets of ``[start, end)`` at which records below a source offset lie.

        Args:
            source_next: the source offset.
            start: the first target offset of interest.
            end: the first target offset beyond it.
            most_rows: at least one; further rows are not looked at.

        Returns:
            The offsets, in order, and where the first row begins that was not looked at for ``most_rows``; None: all were.
        """
        found: list[Stretch] = []
        for number, (source_start, target_start, count) in enumerate(self.numbers_between(start, end)):
            if source_start >= source_next:
                break
            if most_rows is not None and number >= most_rows:
                return found, TargetOffset(target_start)
            low = max(target_start, start)
            high = min(target_start + min(source_next - source_start, count), end)
            if low < high:
                found.append((low, high))
        return found, None

    @abstractmethod
    def cut_at(self, target_end: TargetOffset) -> LineageHistory:
        """The history without what the target lost: rows end at ``target_end``, watermarks above it are void."""

    @property
    def read_ends(self) -> Sequence[tuple[int, SourceOffset]]:
        """As `epoch_ends`, but none ends in or behind a lost range for it: of what was lost nobody knows the epoch."""
        if not self.lost:
            return self.epoch_ends
        return tuple(
            sorted(
                (epoch, SourceOffset(max(known.run_end, self._before_lost(known.watermark_end))))
                for epoch, known in self.epochs.items()
                if epoch != UNKNOWN_EPOCH
            )
        )

    def read_below(
        self, source_next: SourceOffset, *, lost_before: Sequence[LostRange] = (), passed_over: bool = False
    ) -> tuple[tuple[int, SourceOffset], ...]:
        """What a reader of the log below an offset has read: `read_ends` up to there, as `SourcePosition` names them.

        An epoch of which all lies behind a lost range was read from the range's beginning on, and not at all by a reader
        that stands before it: the range may hide that the source had thrown away what was read before, and that its log
        has other records there.

        Args:
            source_next: where the reader stands.
            lost_before: what older generations lost below this one's beginning: it stands behind that as well.
            passed_over: the reader may have come to where a range lies with records from behind it, and none from before:
                what it has read begins at the range's end then, be it the log's beginning.
        """
        if not self.lost and not lost_before:
            return tuple((epoch, min(end, source_next)) for epoch, end in self.epoch_ends)
        epochs = self.epochs
        gaps = self._whole_gaps(lost_before)
        pairs: list[tuple[int, SourceOffset]] = []
        for epoch, end in self.read_ends:
            behind = [
                gap_end if passed_over else gap for gap, gap_end in gaps if epochs[epoch].first > gap_end
            ]
            start = max(behind, default=SourceOffset(0))
            if behind and start >= source_next:
                continue
            if start:
                pairs.append((epoch, start))
            pairs.append((epoch, max(min(end, source_next), start)))
        return tuple(pairs)

    def _whole_gaps(self, lost_before: Sequence[LostRange] = ()) -> list[tuple[SourceOffset, SourceOffset]]:
        """Beginning and end of what is lost; ranges between which no record was read are one."""
        gaps: list[tuple[SourceOffset, SourceOffset]] = []
        for gap in sorted({*lost_before, *self.lost}, key=lambda gap: (gap.source_start, gap.source_end)):
            if gaps and gap.source_start <= gaps[-1][1]:
                gaps[-1] = (gaps[-1][0], max(gaps[-1][1], gap.source_end))
            else:
                gaps.append((gap.source_start, gap.source_end))
        return gaps

    def holds_nothing_in(self, start: SourceOffset, end: SourceOffset) -> bool:
        """Whether the rows prove that the log has no record in ``[start, end)``."""
        row = self.last_proven_by(start)
        return row is not None and row.source_start >= end

    def without_lost_before(self, row: Run) -> SourceOffset:
        """The row's ``previous_source_end``, moved down over lost ranges that lead up to it.

        What was lost can lie nowhere on the target, so a lost range hides nothing between two rows.
        """
        return SourceOffset(self._before_lost(row.previous_source_end))

    def _before_lost(self, end: int) -> int:
        for gap in reversed(self.lost):
            if gap.source_start < end <= gap.source_end:
                end = gap.source_start
        return end
