"""The rows of one lineage in blocks, none of them read before it is asked for: the resume rule runs on it unchanged."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from parallax.domain.blocks import Block
from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, SourceOffset, TargetOffset
from parallax.domain.lineage_history import EpochRows, LineageHistory, epochs_of
from parallax.domain.runs import LostRange, Run


@dataclass(frozen=True, slots=True)
class BlockTable:
    """The blocks of one lineage, in order. Each begins with the last row of the one before it, or holds it.

    Attributes:
        sources, targets: ``source_start`` and ``target_start`` of each block's first row; neither goes back.
        get: gives the block of a number. What it raises where the block has to be read first goes through to the caller,
            who may ask again once it has been.
    """

    sources: Sequence[int]
    targets: Sequence[int]
    get: Callable[[int], Block]

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> BlockTable:
        """Blocks that are all at hand."""
        return cls(
            [block.source_base for block in blocks],
            [block.target_base for block in blocks],
            blocks.__getitem__,
        )

    def rows_of(self, number: int) -> int:
        """How many rows of a block come before the next block's first row."""
        block = self.get(number)
        if number + 1 >= len(self.targets):
            return len(block)
        start = self.targets[number + 1], self.sources[number + 1]
        end = block.floor_by_target(start[0] - 1) + 1
        while end < len(block) and (at := (block.target_start(end), block.source_start(end))) <= start:
            # Where the next block begins there may be watermarks before its first row, which is mostly this block's last.
            if at == start and (block.counts[end] or end == len(block) - 1):
                break
            end += 1
        return end


class BlockHistory(LineageHistory):
    """The rows of a lineage, each look-up in one block, or in two that follow each other.

    Args:
        lineage: what the rows belong to.
        table: its blocks.
        lost: its lost ranges.
        cut: the target lost what lay from here on; None: nothing.
    """

    __slots__ = ("_cut", "_end", "_epoch_ends", "_epochs", "_lost", "_table", "lineage")

    def __init__(
        self,
        lineage: Lineage,
        table: BlockTable,
        lost: Iterable[LostRange] = (),
        cut: TargetOffset | None = None,
    ) -> None:
        self.lineage = lineage
        self._table = table
        self._cut = cut
        kept = {gap for gap in lost if cut is None or gap.target_at <= cut}
        self._lost = sorted(kept, key=lambda gap: (gap.source_start, gap.source_end))
        self._end: tuple[int, int] | None = None
        self._epochs: Mapping[int, EpochRows] | None = None
        self._epoch_ends: Sequence[tuple[int, SourceOffset]] | None = None

    @property
    def rows(self) -> Sequence[Run]:
        """Runs and watermarks, in order: reads every block."""
        return list(self._rows_from(0, 0))

    @property
    def lost(self) -> Sequence[LostRange]:
        """Lost ranges, in source order."""
        return self._lost

    @property
    def first(self) -> Run | None:
        """The first row."""
        return next(self._rows_from(0, 0), None)

    @property
    def newest(self) -> Run | None:
        """The last row."""
        number, end = self._last()
        return self._run(number, end - 1) if end else None

    @property
    def epochs(self) -> Mapping[int, EpochRows]:
        """What the rows tell of each source leader epoch, `UNKNOWN_EPOCH` included."""
        if self._epochs is None:
            number, end = self._last()
            # The cut may have shortened the last row.
            before = self._table.get(number).epochs(end - 1) if end else {}
            self._epochs = before | epochs_of([self._run(number, end - 1)], before) if end else {}
        return self._epochs

    @property
    def epoch_ends(self) -> Sequence[tuple[int, SourceOffset]]:
        """Pairs (source leader epoch, next offset after its last known record), ascending."""
        if self._epoch_ends is None:
            ends = [(epoch, known.end) for epoch, known in self.epochs.items() if epoch != UNKNOWN_EPOCH]
            self._epoch_ends = tuple(sorted(ends))
        return self._epoch_ends

    def floor_by_target(self, target: TargetOffset) -> Run | None:
        """The last row with ``target_start <= target``."""
        return self._floor(self._table.targets, target, Block.floor_by_target)

    def floor_by_source(self, source: SourceOffset) -> Run | None:
        """The last row with ``source_start <= source``."""
        return self._floor(self._table.sources, source, Block.floor_by_source)

    def last_proven_by(self, source: SourceOffset) -> Run | None:
        """The last row before whose start no record at or above ``source`` lies, but perhaps in the row's run."""
        found: Run | None = None
        last, _ = self._last()
        first = min(bisect_right(self._table.sources, source) - 1, last)
        for number in range(max(first, 0), last + 1):
            block, end = self._table.get(number), self._rows_in(number)
            for place in range(max(min(block.floor_by_source(source), end - 1), 0), end):
                if self._before_lost(block.previous_source_end(place)) <= source:
                    found = self._run(number, place)
                count = block.counts[place]
                if count and block.source_start(place) + count > source:
                    return found  # no later row's predecessor ends below that
        return found

    def between_targets(self, start: TargetOffset, end: TargetOffset) -> Iterator[Run]:
        """The rows that may hold records of the target range ``[start, end)``, in order."""
        number, place = self._place(self._table.targets, start, Block.floor_by_target)
        for row in self._rows_from(number, place):
            if row.target_start >= end:
                return
            yield row

    def cut_at(self, target_end: TargetOffset) -> BlockHistory:
        """The history without what the target lost: rows end at ``target_end``, watermarks above it are void."""
        cut = target_end if self._cut is None else min(self._cut, target_end)
        return BlockHistory(self.lineage, self._table, self._lost, cut)

    def _last(self) -> tuple[int, int]:
        """The last block, and how many of its rows count; no rows: there is none at all."""
        if self._end is None:
            self._end = self._find_last()
        return self._end

    def _find_last(self) -> tuple[int, int]:
        targets = self._table.targets
        number = len(targets) - 1 if self._cut is None else bisect_right(targets, self._cut) - 1
        while number >= 0:
            block, end = self._table.get(number), self._table.rows_of(number)
            if self._cut is not None:
                end = min(end, block.floor_by_target(self._cut) + 1)
                # Of rows at the cut a run is gone as a whole, and comes after watermarks.
                if end and block.counts[end - 1] and block.target_start(end - 1) == self._cut:
                    end -= 1
            if end:
                return number, end
            number -= 1
        return -1, 0

    def _rows_in(self, number: int) -> int:
        """How many rows of a block count."""
        last, end = self._last()
        return end if number == last else self._table.rows_of(number)

    def _run(self, number: int, place: int) -> Run:
        row = self._table.get(number).run(place)
        if self._cut is not None and row.target_end > self._cut:
            return replace(row, count=self._cut - row.target_start)
        return row

    def _floor(self, starts: Sequence[int], offset: int, floor: Callable[[Block, int], int]) -> Run | None:
        number, place = self._place(starts, offset, floor)
        return self._run(number, place) if number >= 0 and place >= 0 else None

    def _place(
        self, starts: Sequence[int], offset: int, floor: Callable[[Block, int], int]
    ) -> tuple[int, int]:
        """Block and place of the last row that starts at or below an offset; negative ones: there is none."""
        last, end = self._last()
        number = min(bisect_right(starts, offset) - 1, last)
        if number < 0:
            return -1, -1
        place = floor(self._table.get(number), offset)
        return number, min(place, end - 1) if number == last else place

    def _rows_from(self, number: int, place: int) -> Iterator[Run]:
        """The rows from a place on, in order."""
        last, _ = self._last()
        number, place = max(number, 0), max(place, 0)
        while number <= last:
            for here in range(place, self._rows_in(number)):
                yield self._run(number, here)
            number, place = number + 1, 0
