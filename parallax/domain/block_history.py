"""The rows of one lineage in blocks, none of them read before it is asked for: the resume rule runs on it unchanged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from parallax.domain.blocks import Block
from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, SourceOffset, TargetOffset
from parallax.domain.lineage_history import EpochRows, LineageHistory, MissingBlock, Stretch, epochs_of
from parallax.domain.runs import LostRange, Run


class BlockTable(ABC):
    """The blocks of one lineage, in order. Each begins with the last row of the one before it, or holds it.

    Blocks have numbers. Those of a table that was made for some blocks begin with 0; one that learns of older blocks while
    it is used gives them negative ones.

    Args:
        sources, targets: ``source_start`` and ``target_start`` of each block's first row; neither goes back.
        alone_from: blocks from this number on tell of no leader epochs before them; None: all do.
    """

    __slots__ = ("_known", "alone_from")

    def __init__(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        alone_from: int | None = None,
    ) -> None:
        self._known = (0, sources, targets)
        """The number of the first block that is known, and where they begin: of several threads one may `learn` of others."""
        self.alone_from = len(targets) if alone_from is None else alone_from

    @staticmethod
    def of(blocks: Sequence[Block]) -> BlockTable:
        """Blocks that are all at hand."""
        return _AtHand(blocks)

    @property
    def low(self) -> int:
        """The number of the first block that is known."""
        return self._known[0]

    @property
    def last(self) -> int:
        """The number of the last block; less than `low`: there is none."""
        low, _, targets = self._known
        return low + len(targets) - 1

    def learn_before(self) -> None:
        """See to it that a block before the first one that is known is known too, if there is one."""
        _, _, targets = self._known
        self.learn(target=targets[0] - 1 if targets else None)

    @abstractmethod
    def get(self, number: int) -> Block:
        """The block of a number. What reading it raises goes through to the caller."""

    def missing(self, number: int) -> MissingBlock | None:
        """What has to be read to `get` a block; None: nothing."""
        del number  # at hand
        return None

    @abstractmethod
    def learn(self, *, source: int | None = None, target: int | None = None) -> None:
        """See to it that the last block that begins at or below an offset is known, if there is one; neither: the first."""

    def by_source(self, source: int) -> int:
        """The last block that begins at or below a source offset; less than `low`: none does."""
        low, sources, _ = self._known
        if not sources or source < sources[0]:
            self.learn(source=source)
            low, sources, _ = self._known
        return low + bisect_right(sources, source) - 1

    def by_target(self, target: int) -> int:
        """As `by_source`, by target offset."""
        low, _, targets = self._known
        if not targets or target < targets[0]:
            self.learn(target=target)
            low, _, targets = self._known
        return low + bisect_right(targets, target) - 1

    def rows_of(self, number: int) -> int:
        """How many rows of a block come before the next block's first row."""
        block = self.get(number)
        low, sources, targets = self._known
        following = number + 1 - low
        if following >= len(targets):
            return len(block)
        start = targets[following], sources[following]
        end = block.floor_by_target(start[0] - 1) + 1
        while end < len(block) and (at := (block.target_start(end), block.source_start(end))) <= start:
            # Where the next block begins there may be watermarks before its first row, which is mostly this block's last.
            if at == start and (block.counts[end] or end == len(block) - 1):
                break
            end += 1
        return end


class _AtHand(BlockTable):
    __slots__ = ("_blocks",)

    def __init__(self, blocks: Sequence[Block]) -> None:
        super().__init__([block.source_base for block in blocks], [block.target_base for block in blocks])
        self._blocks = blocks

    def get(self, number: int) -> Block:
        return self._blocks[number]

    def learn(self, *, source: int | None = None, target: int | None = None) -> None:
        del source, target  # there are no others


class BlockHistory(LineageHistory):
    """The rows of a lineage, each look-up in one block, or in two that follow each other.

    Args:
        lineage: what the rows belong to.
        table: its blocks.
        lost: its lost ranges.
        cut: the target lost what lay from here on; None: nothing.
    """

    __slots__ = ("_cut", "_end", "_epoch_ends", "_epochs", "_lost", "_newest", "_table", "lineage")

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
        self._newest: Run | None = None
        self._epochs: Mapping[int, EpochRows] | None = None
        self._epoch_ends: Sequence[tuple[int, SourceOffset]] | None = None

    @property
    def rows(self) -> Sequence[Run]:
        """Runs and watermarks, in order: reads every block."""
        self._table.learn()
        return list(self._rows_from(self._table.low, 0))

    @property
    def lost(self) -> Sequence[LostRange]:
        """Lost ranges, in source order."""
        return self._lost

    @property
    def first(self) -> Run | None:
        """The first row."""
        self._table.learn()
        return next(self._rows_from(self._table.low, 0), None)

    @property
    def newest(self) -> Run | None:
        """The last row."""
        if self._newest is None:
            number, end = self._last()
            self._newest = self._run(number, end - 1) if end else None
        return self._newest

    @property
    def epochs(self) -> Mapping[int, EpochRows]:
        """What the rows tell of each source leader epoch, `UNKNOWN_EPOCH` included."""
        if self._epochs is None:
            self._epochs = self._find_epochs()
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
        return self._floor(self._table.by_target(target), target, Block.floor_by_target)

    def floor_by_source(self, source: SourceOffset) -> Run | None:
        """The last row with ``source_start <= source``."""
        return self._floor(self._table.by_source(source), source, Block.floor_by_source)

    def missing_at_target(self, target: TargetOffset) -> MissingBlock | None:
        """The block in which `floor_by_target` finds its row, if it has to be read; which one it is may have to be read for that."""
        return self._missing(self._table.by_target(target))

    def missing_at_source(self, source: SourceOffset) -> MissingBlock | None:
        """As `missing_at_target`, of `floor_by_source`."""
        return self._missing(self._table.by_source(source))

    def last_proven_by(self, source: SourceOffset) -> Run | None:
        """The last row before whose start no record at or above ``source`` lies, but perhaps in the row's run."""
        found: Run | None = None
        last, _ = self._last()
        first = min(self._table.by_source(source), last)
        for number in range(max(first, self._table.low), last + 1):
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
        number, place = self._place(self._table.by_target(start), start, Block.floor_by_target)
        for row in self._rows_from(number, place):
            if row.target_start >= end:
                return
            yield row

    def numbers_between(self, start: TargetOffset, end: TargetOffset) -> Iterator[tuple[int, int, int]]:
        """As `between_targets`, ``source_start``, ``target_start`` and ``count`` of each row alone."""
        number, place = self._place(self._table.by_target(start), start, Block.floor_by_target)
        last, _ = self._last()
        number, place, cut = max(number, self._table.low), max(place, 0), self._cut
        while number <= last:
            block, rows = self._table.get(number), slice(place, self._rows_in(number))
            source_base, target_base = block.source_base, block.target_base
            for source, target, count in zip(
                block.sources[rows], block.targets[rows], block.counts[rows], strict=True
            ):
                target_start = target_base + target
                if target_start >= end:
                    return
                if cut is not None and target_start + count > cut:
                    yield source_base + source, target_start, cut - target_start
                else:
                    yield source_base + source, target_start, count
            number, place = number + 1, 0

    def stretches_below(
        self, source_next: SourceOffset, start: TargetOffset, end: TargetOffset, most_rows: int | None = None
    ) -> tuple[list[Stretch], TargetOffset | None]:
        """The target offsets of ``[start, end)`` at which records below a source offset lie: whole columns at a time."""
        number, place = self._place(self._table.by_target(start), start, Block.floor_by_target)
        last, _ = self._last()
        number, place = max(number, self._table.low), max(place, 0)
        found: list[Stretch] = []
        left = most_rows
        ended: TargetOffset | None = None
        while number <= last and ended is None:
            block, rows = self._table.get(number), self._rows_in(number)
            base = block.target_base
            stop = bisect_left(block.sources, source_next - block.source_base, place, max(place, rows))
            stop = min(stop, bisect_left(block.targets, end - base, place, max(place, rows)))
            over = stop < rows
            if left is not None:
                if stop - place > left:
                    stop = place + left
                    ended = TargetOffset(base + block.targets[stop])
                left -= max(stop - place, 0)
            found += [
                (base + target, base + target + count)
                for target, count in zip(block.targets[place:stop], block.counts[place:stop], strict=True)
                if count
            ]
            if stop > place:
                # Records at and behind the source offset may lie in the last of them alone.
                self._shorten(found, block, stop - 1, source_next)
            if over:
                break
            number, place = number + 1, 0
        bound = end if self._cut is None else min(end, self._cut)
        return _within(found, start, bound), ended

    @staticmethod
    def _shorten(found: list[Stretch], block: Block, place: int, source_next: SourceOffset) -> None:
        """End the last stretch, if it is that of a row, where records from a source offset on begin."""
        count, below = block.counts[place], source_next - block.source_start(place)
        if count > below:
            low = found.pop()[0]
            if below > 0:
                found.append((low, low + below))

    @property
    def cut(self) -> TargetOffset | None:
        """The target lost what lay from here on; None: nothing."""
        return self._cut

    @property
    def last_block(self) -> int:
        """The number of the last block of which rows count."""
        return self._last()[0]

    def block_by_source(self, source: int) -> int:
        """The number of the block with the last row that starts at or below a source offset; of the first one, if none does."""
        number, last = self._table.by_source(source), self.last_block
        return max(min(number, last), self._table.low)

    def block_by_target(self, target: int) -> int:
        """As `block_by_source`, by target offset."""
        number, last = self._table.by_target(target), self.last_block
        return max(min(number, last), self._table.low)

    def blocks(self, first: int, last: int) -> list[tuple[Block, int]]:
        """Blocks by number, ``last`` included, and how many rows of each come before the next one's first, or count."""
        last = min(last, self.last_block)
        return [(self._table.get(number), self._rows_in(number)) for number in range(first, last + 1)]

    def backwards(self) -> Iterator[Run]:
        """The rows from the last one back to the first."""
        number, end = self._last()
        while end or number > self._table.low:
            for place in range(end - 1, -1, -1):
                yield self._run(number, place)
            if number == self._table.low:
                self._table.learn_before()
            number -= 1
            end = self._table.rows_of(number) if number >= self._table.low else 0

    def around_target(self, target: TargetOffset, before: int, after: int) -> list[Run]:
        """The last row that starts at or below a target offset, with so many rows before and after it."""
        found = self._place(self._table.by_target(target), target, Block.floor_by_target)
        return self._around(*found, before, after)

    def around_source(self, source: SourceOffset, before: int, after: int) -> list[Run]:
        """The last row that starts at or below a source offset, with so many rows before and after it."""
        found = self._place(self._table.by_source(source), source, Block.floor_by_source)
        return self._around(*found, before, after)

    def _around(self, number: int, place: int, before: int, after: int) -> list[Run]:
        if place < 0:
            return list(islice(self._rows_from(self._table.low, 0), after))
        at, first, asked = number, place - before, before + 1 + after
        while first < 0:
            if at == self._table.low:
                self._table.learn_before()
            if at == self._table.low:
                asked, first = asked + first, 0
                break
            at -= 1
            first += self._rows_in(at)
        return list(islice(self._rows_from(at, first), asked))

    def with_lost(self, lost: Iterable[LostRange]) -> BlockHistory:
        """The same rows with lost ranges."""
        return BlockHistory(self.lineage, self._table, lost, self._cut)

    def cut_at(self, target_end: TargetOffset) -> BlockHistory:
        """The history without what the target lost: rows end at ``target_end``, watermarks above it are void."""
        cut = target_end if self._cut is None else min(self._cut, target_end)
        return BlockHistory(self.lineage, self._table, self._lost, cut)

    def _last(self) -> tuple[int, int]:
        """The last block, and how many of its rows count; no rows: there is none at all."""
        if self._end is None:
            self._end = self._find_last()
        return self._end

    def _find_epochs(self) -> Mapping[int, EpochRows]:
        number, end = self._last()
        if not end:
            return {}
        telling = number
        while telling >= self._table.alone_from and telling > self._table.low:
            telling -= 1
        # The cut may have shortened the last row.
        known = self._table.get(telling).epochs(end - 1 if telling == number else self._rows_in(telling))
        if telling == number:
            return known | epochs_of([self._run(number, end - 1)], known)
        for alone in range(telling + 1, number + 1):
            known |= epochs_of((self._run(alone, place) for place in range(self._rows_in(alone))), known)
        return known

    def _find_last(self) -> tuple[int, int]:
        number = self._table.last if self._cut is None else self._table.by_target(self._cut)
        while number >= self._table.low:
            block, end = self._table.get(number), self._table.rows_of(number)
            if self._cut is not None:
                end = min(end, block.floor_by_target(self._cut) + 1)
                # Of rows at the cut a run is gone as a whole, and comes after watermarks.
                if end and block.counts[end - 1] and block.target_start(end - 1) == self._cut:
                    end -= 1
            if end:
                return number, end
            number -= 1
            if self._cut is not None and number < self._table.low:
                self._table.learn(target=self._cut - 1)
        return self._table.low - 1, 0

    def _rows_in(self, number: int) -> int:
        """How many rows of a block count."""
        last, end = self._last()
        return end if number == last else self._table.rows_of(number)

    def _run(self, number: int, place: int) -> Run:
        return self._without_lost(self._table.get(number).run(place))

    def _without_lost(self, row: Run) -> Run:
        if self._cut is not None and row.target_end > self._cut:
            return replace(row, count=self._cut - row.target_start)
        return row

    def _missing(self, number: int) -> MissingBlock | None:
        number = min(number, self.last_block)
        return self._table.missing(number) if number >= self._table.low else None

    def _floor(self, number: int, offset: int, floor: Callable[[Block, int], int]) -> Run | None:
        last, end = self._last()
        number = min(number, last)
        if number < self._table.low:
            return None
        block = self._table.get(number)
        place = floor(block, offset)
        if number == last:
            place = min(place, end - 1)
        return self._without_lost(block.run(place)) if place >= 0 else None

    def _place(self, number: int, offset: int, floor: Callable[[Block, int], int]) -> tuple[int, int]:
        """Block and place of the last row that starts at or below an offset; a negative place: there is none.

        Args:
            number: the last block that begins there.
            offset: the offset.
            floor: finds a place in a block.
        """
        last, end = self._last()
        number = min(number, last)
        if number < self._table.low:
            return number, -1
        place = floor(self._table.get(number), offset)
        return number, min(place, end - 1) if number == last else place

    def _rows_from(self, number: int, place: int) -> Iterator[Run]:
        """The rows from a place on, in order."""
        last, _ = self._last()
        number, place = max(number, self._table.low), max(place, 0)
        while number <= last:
            for here in range(place, self._rows_in(number)):
                yield self._run(number, here)
            number, place = number + 1, 0


def _within(stretches: list[Stretch], start: int, end: int) -> list[Stretch]:
    """The same without what lies outside of ``[start, end)``; they are in order, and apart."""
    while stretches and stretches[0][0] < start:
        high = stretches[0][1]
        if high > start:
            stretches[0] = (start, high)
        else:
            del stretches[0]
    while stretches and stretches[-1][1] > end:
        low = stretches[-1][0]
        if low < end:
            stretches[-1] = (low, end)
        else:
            del stretches[-1]
    return stretches
