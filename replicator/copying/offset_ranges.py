"""Record offsets of one partition, kept as ranges: a batch of a thousand records costs what one record costs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from operator import lt
from typing import overload

from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.runs import Run
from parallax.errors import InvariantError


class OffsetRanges(Sequence[int]):
    """Offsets in the order in which they were added; what follows without a gap is one range.

    Args:
        offsets: the first ones.
    """

    __slots__ = ("_before", "_count", "_ranges")

    def __init__(self, offsets: Sequence[int] = ()) -> None:
        self._ranges: list[range] = []
        self._before: list[int] = []
        self._count = 0
        self.extend(offsets)

    @property
    def ranges(self) -> Sequence[range]:
        """The ranges, none of them empty."""
        return self._ranges

    def extend(self, offsets: Sequence[int]) -> None:
        """Add offsets."""
        if isinstance(offsets, range) and offsets.step == 1:
            self._append(offsets)
        elif isinstance(offsets, OffsetRanges):
            for piece in offsets.ranges:
                self._append(piece)
        elif (
            offsets
            and offsets[-1] - offsets[0] == len(offsets) - 1
            and all(map(lt, offsets, islice(offsets, 1, None)))
        ):
            self._append(range(offsets[0], offsets[-1] + 1))
        else:
            for offset in offsets:
                self._append(range(offset, offset + 1))

    def _append(self, piece: range) -> None:
        if not piece:
            return
        if self._ranges and self._ranges[-1].stop == piece.start:
            self._ranges[-1] = range(self._ranges[-1].start, piece.stop)
        else:
            self._ranges.append(piece)
            self._before.append(self._count)
        self._count += len(piece)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for piece in self._ranges:
            yield from piece

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> OffsetRanges: ...

    def __getitem__(self, index: int | slice) -> int | OffsetRanges:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            if step != 1:
                raise ValueError("offsets are sliced in steps of 1")
            result = OffsetRanges()
            for before, piece in zip(self._before, self._ranges, strict=True):
                result.extend(piece[max(0, start - before) : max(0, stop - before)])
            return result
        if not -self._count <= index < self._count:
            raise IndexError(index)
        index %= self._count
        place = bisect_right(self._before, index) - 1
        return self._ranges[place][index - self._before[place]]

    def __repr__(self) -> str:
        return f"OffsetRanges({self._ranges})"


def runs_of(
    sources: OffsetRanges,
    targets: OffsetRanges,
    *,
    previous_source_end: SourceOffset,
    source_leader_epoch: int,
) -> Iterator[Run]:
    """The runs of records copied one after the other: ``sources[i]`` became ``targets[i]``.

    Raises:
        InvariantError: they differ in number or do not ascend.
    """
    if len(sources) != len(targets):
        raise InvariantError(f"A: {len(sources)} source records became {len(targets)} target records")
    for side in (sources.ranges, targets.ranges):
        for earlier, later in pairwise(side):
            if later.start < earlier.stop:
                raise InvariantError(f"A: record offsets that do not ascend: {earlier}, then {later}")
    for source, target in _together(sources.ranges, targets.ranges):
        yield Run(
            SourceOffset(source.start),
            TargetOffset(target.start),
            len(source),
            previous_source_end,
            source_leader_epoch,
        )
        previous_source_end = SourceOffset(source.stop)


def _together(sources: Iterable[range], targets: Iterable[range]) -> Iterator[tuple[range, range]]:
    """Pairs of ranges of one length, cut wherever either side has a gap."""
    right = iter(targets)
    target = range(0)
    for whole in sources:
        source = whole
        while source:
            if not target:
                target = next(right)
            count = min(len(source), len(target))
            yield source[:count], target[:count]
            source, target = source[count:], target[count:]
