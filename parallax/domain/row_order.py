"""Rows of one lineage in order: what stores share when they choose which rows to hand out. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.runs import Run

BEFORE = 2
"""How many rows before the floor a look-up hands out."""

AFTER = 3
"""How many rows after the floor."""


by_target: Callable[[Run], tuple[int, int, int]] = attrgetter("target_start", "source_start", "count")
"""Sort key: a watermark comes before the run that begins where it stands. By source the order is the same."""


def ordered(rows: Iterable[Run]) -> list[Run]:
    """Each row once, in order."""
    return sorted(set(rows), key=by_target)


def around_target(rows: Sequence[Run], target: TargetOffset) -> list[Run]:
    """The last row with ``target_start <= target`` and a few rows before and after it, of ``rows`` in order."""
    return _around(rows, bisect_right(rows, target, key=lambda row: row.target_start))


def around_source(rows: Sequence[Run], source: SourceOffset) -> list[Run]:
    """The last row with ``source_start <= source`` and a few rows before and after it, of ``rows`` in order."""
    return _around(rows, bisect_right(rows, source, key=lambda row: row.source_start))


def _around(rows: Sequence[Run], successor: int) -> list[Run]:
    return list(rows[max(successor - 1 - BEFORE, 0) : successor + AFTER])
