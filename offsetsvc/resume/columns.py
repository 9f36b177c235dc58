"""Rows of a lineage as arrays, for questions that are asked of many positions at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from parallax.domain.block_history import BlockHistory

Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Columns:
    """The rows of some blocks that follow each other, a number of each array for each row.

    Attributes:
        sources, targets, counts, previous, epochs: `Run.source_start` and so on; what is cut from the last row does not count.
        first, last: the blocks' numbers.
        at_end: no row follows.
    """

    sources: Numbers
    targets: Numbers
    counts: Numbers
    previous: Numbers
    epochs: Numbers
    first: int
    last: int
    at_end: bool

    @property
    def run_end(self) -> int:
        """The greatest end of a run, a source offset: no row behind these has a `Run.previous_source_end` below it."""
        ends = (self.sources + self.counts)[self.counts > 0]
        return int(ends.max()) if len(ends) else -1

    def proven(self) -> Numbers:
        """Of each row the least ``previous`` of it and those behind it; ascends. See `LineageHistory.last_proven_by`."""
        return np.minimum.accumulate(self.previous[::-1])[::-1]


def columns_of(history: BlockHistory, first: int, last: int) -> Columns:
    """The rows of blocks by number, ``last`` included.

    Raises:
        StoreUnavailableError: a block had to be read, and the index did not answer in time.
    """
    parts: list[tuple[Numbers, ...]] = []
    for block, rows in history.blocks(first, last):
        sources = _numbers(block.sources) + block.source_base
        counts = _numbers(block.counts)
        previous = np.empty_like(sources)
        np.add(sources[:-1], counts[:-1], out=previous[1:])
        places, ends = block.holes
        previous[np.asarray(places)] = np.asarray(ends)
        begins, of_stretches = block.stretches
        lengths = np.diff(_numbers(begins), append=len(sources))
        whole = (
            sources,
            _numbers(block.targets) + block.target_base,
            counts,
            previous,
            np.repeat(_numbers(of_stretches), lengths),
        )
        parts.append(tuple(column[:rows] for column in whole))
    if not parts:
        empty = np.empty(0, np.int64)
        return Columns(empty, empty, empty, empty, empty, first, last, at_end=True)
    sources, targets, counts, previous, epochs = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    at_end = last >= history.last_block
    if at_end and history.cut is not None and len(counts):
        counts[-1] = min(counts[-1], history.cut - targets[-1])
    return Columns(sources, targets, counts, previous, epochs, first, last, at_end)


def _numbers(column: Sequence[int]) -> Numbers:
    return np.asarray(column).astype(np.int64)
