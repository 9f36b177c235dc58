"""Histories in blocks, for tests that hold them against the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from parallax.domain.block_history import BlockHistory, BlockTable
from parallax.domain.blocks import Block, encode
from parallax.domain.history import History
from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.lineage_history import EpochRows, epochs_of
from parallax.domain.progress import SourceHistory
from parallax.domain.runs import LostRange, Run


def blocks_of(rows: Sequence[Run], size: int) -> list[Block]:
    """Rows in blocks of so many rows at most; two at least, for one is that of the block before."""
    blocks: list[Block] = []
    before: dict[int, EpochRows] = {}
    for start in range(0, max(len(rows) - 1, min(len(rows), 1)), size - 1):
        blocks.append(Block(encode(rows[start : start + size], 1_000 + start, before)))
        before |= epochs_of(rows[start : start + size - 1], before)
    return blocks


def in_blocks(history: History, size: int) -> BlockHistory:
    """The same history, in blocks."""
    return BlockHistory(history.lineage, BlockTable.of(blocks_of(history.rows, size)), history.lost)


class CutHistory(History):
    """A history that knows what it was before it was cut, so that blocks can be cut as well."""

    __slots__ = ("uncut",)

    uncut: tuple[History, TargetOffset]

    def cut_at(self, target_end: TargetOffset) -> History:
        """The history without what the target lost."""
        cut = super().cut_at(target_end)
        remembering = CutHistory(cut.lineage, cut.rows, cut.lost)
        remembering.uncut = self, target_end
        return remembering


def side_in_blocks(items: Sequence[SourceHistory], size: int) -> list[SourceHistory]:
    """Histories of a model's world in blocks, cut in blocks where they were cut."""
    side = []
    for item in items:
        history = item.history
        assert isinstance(history, CutHistory)
        uncut, cut = getattr(history, "uncut", (history, None))
        blocks = in_blocks(uncut, size)
        side.append(replace(item, history=blocks if cut is None else blocks.cut_at(cut)))
    return side


def made_up(chance: Random, most_rows: int, *, small: bool = False) -> tuple[list[Run], list[LostRange]]:
    """Rows as a replicator writes them, with all that can be among them, and what was lost between them.

    Args:
        chance: decides.
        most_rows: not more.
        small: offsets lie near to each other.
    """
    rows: list[Run] = []
    lost: list[LostRange] = []
    source, target, last_run_end, epoch = (
        0,
        0 if small else chance.choice([0, 0, 1 << 40]),
        0,
        chance.choice([-1, 0, 3]),
    )
    previous = 0
    for _ in range(chance.randint(0, most_rows)):
        source += chance.choice([0, 0, 1, 3])
        target += chance.choice([0, 1, 4, 9 if small else 300])
        if not small and chance.random() < 0.02:
            source, target = source + chance.choice([70_000, 1 << 33]), target + (1 << 17)
        kind = chance.random()
        if kind < 0.1:
            gap = chance.randint(1, 4)
            lost.append(
                LostRange(SourceOffset(last_run_end), SourceOffset(source + gap), TargetOffset(target))
            )
            source += gap
            previous = source  # what comes next begins with the end of what was lost
            if chance.random() < 0.5:
                continue
        if kind < 0.35:
            if rows and (rows[-1].source_start, rows[-1].target_start) == (source, target):
                continue  # of two at one place nobody knows which comes first
            told = epoch + (chance.random() < 0.1)
            rows.append(_row(chance, source, target, 0, previous, told))
            continue
        if chance.random() < 0.1:
            epoch += chance.randint(1, 2)
        count = chance.choice([1, 2, 5, 9 if small else 200])
        rows.append(_row(chance, source, target, count, previous, epoch))
        source, target = source + count, target + count
        last_run_end = previous = source
    return rows, lost


def _row(chance: Random, source: int, target: int, count: int, previous: int, epoch: int) -> Run:
    before = previous if chance.random() < 0.8 else source  # nobody knows the predecessor
    return Run(SourceOffset(source), TargetOffset(target), count, SourceOffset(before), epoch)
