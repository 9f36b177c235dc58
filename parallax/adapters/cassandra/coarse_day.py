"""A day's coarse rows as a table of contents: what surrounds an offset of that day needs no read. Pure."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import cast

from parallax.adapters.cassandra.codec import RowFields, run_of
from parallax.adapters.cassandra.index_rows import STARTS, TARGET_START, last_fields
from parallax.adapters.cassandra.ways import Order, Way
from parallax.ports.index import StampedRow

MOST_ROWS = 4_000
"""A day of one coarse row a minute, and of the last runs before pauses, has fewer."""

_SETTLED_AFTER_MS = 5_000
"""Rows of different writers overtake each other for less."""


class CoarseDay:
    """The coarse rows of one lineage and day, without those so young that one before them may still be missing.

    Args:
        blobs: as they are stored, in order.
    """

    def __init__(self, blobs: Sequence[bytes]) -> None:
        rows = [last_fields(blob) for blob in blobs]
        newest_ms = max((at_ms for at_ms, _ in rows), default=0)
        count = len(rows)
        while count and rows[count - 1][0] > newest_ms - _SETTLED_AFTER_MS:
            count -= 1
        # Plain numbers, not rows: some thousand rows of some hundred days are kept.
        self._committed_at_ms = array("q", (at_ms for at_ms, _ in rows[:count]))
        self._fields = [
            array("q", values) for values in zip(*(fields for _, fields in rows[:count]), strict=True)
        ]

    def __len__(self) -> int:
        return len(self._committed_at_ms)

    def way(self, order: Order, offset: int) -> Way | None:
        """The rows on both sides of the offset; None: not both are of this day."""
        if not self._fields:
            return None
        successor = bisect_right(self._fields[STARTS[order]], offset)
        if not 0 < successor < len(self):
            return None
        floor, successor_row = (
            StampedRow(run_of(fields), at_ms) for at_ms, fields in self._rows(successor - 1, successor + 1)
        )
        return Way(floor, successor_row, None)

    def rows_from(self, start: int, limit: int) -> list[tuple[int, RowFields]] | None:
        """So many rows from the last one on that starts at or below ``start``, each with its commit's time.

        None: not all of them are of this day.
        """
        floor = bisect_right(self._fields[TARGET_START], start) - 1 if self._fields else -1
        return None if floor < 0 or floor + limit > len(self) else self._rows(floor, floor + limit)

    def _rows(self, first: int, end: int) -> list[tuple[int, RowFields]]:
        fields = cast(
            "Iterator[RowFields]", zip(*(values[first:end] for values in self._fields), strict=True)
        )
        return list(zip(self._committed_at_ms[first:end], fields, strict=True))
