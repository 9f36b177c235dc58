"""What the rows of the index's tables say, and what they may lack. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from operator import itemgetter

from parallax.adapters.cassandra.codec import RowFields, run_of, unpack, unpack_fields
from parallax.adapters.cassandra.connection import Row
from parallax.adapters.cassandra.ways import Order
from parallax.domain.ids import Lineage, RoutePartition, SourceOffset, TargetOffset
from parallax.domain.row_order import ordered
from parallax.domain.runs import LostRange, Run
from parallax.ports.index import LineageRecord, LineageTail, StampedRow

TAIL_BATCHES = 64
"""Writes of a lineage that a tail goes back: ten seconds of a busy one, twice the default interval of automatic commits."""

_ENOUGH_ROWS, _ENOUGH_MS = 256, 13_000
"""It need not go back further than both: a write may hold many rows, after a replay a minute of them."""

KEY = "route = ? AND topic = ? AND partition = ? AND lineage = ?"
"""What names one partition's lineage in every table."""

STARTS: Mapping[Order, int] = {"source": 0, "target": 1}
"""Where a row's fields say where it starts."""

TARGET_START = STARTS["target"]

FIELDS_BY_TARGET: Callable[[RowFields], tuple[int, int, int]] = itemgetter(1, 0, 2)
"""As `row_order.by_target`."""

_READ_AGAIN = 8_192

_unpack_again = lru_cache(maxsize=_READ_AGAIN)(unpack)
"""Of two tails read one after the other, nearly all writes are the same."""


def may_lack_a_row(rows: Sequence[Run], order: Order, offset: int) -> bool:
    """Whether a run is known to lie between the floor of ``offset`` and the row after it, but was not read.

    It happens where a replay packed the same runs into other groups: the group that begins nearest to the offset
    may be shorter than one that begins before it.
    """
    starts = [row.target_start if order == "target" else row.source_start for row in rows]
    below = [row for row, start in zip(rows, starts, strict=True) if start <= offset]
    above = [row for row, start in zip(rows, starts, strict=True) if start > offset]
    if (
        not below
        or not above
        or offset < (below[-1].target_end if order == "target" else below[-1].source_end)
    ):
        return False
    return above[0].previous_source_end > below[-1].source_end


def surround(group: Sequence[RowFields], field: Callable[[RowFields], int], offset: int) -> bool:
    """Whether one of the rows, which were written together, begins at or below the offset and the next one above it.

    Then nothing lies between them: what a replay grouped otherwise says the same.
    """
    return bool(group) and field(group[0]) <= offset < field(group[-1])


def tail(hours: Sequence[Sequence[Row]], lost: Sequence[LostRange]) -> LineageTail:
    """The last rows, from what the last writes of each hour held, the latest hour first."""
    found: list[Run] = []
    starts: list[int] = []
    newest_ms = 0
    for packed, start, *_ in chain.from_iterable(hours):
        group = _unpack_again(packed)
        newest_ms = max(newest_ms, group.committed_at_ms)
        old = group.committed_at_ms < newest_ms - _ENOUGH_MS
        if len(starts) == TAIL_BATCHES or (old and len(found) >= _ENOUGH_ROWS):
            break
        found += group.rows
        starts.append(int(start))
    rows = ordered(found)
    complete_from = min(starts, default=-1) + 1
    for before, after in pairwise(rows):
        if after.previous_source_end > before.source_end:
            # A run between them was not read: a replay grouped it with earlier ones, or it is being written.
            complete_from = max(complete_from, int(after.target_start))
    return LineageTail(tuple(rows), TargetOffset(complete_from), tuple(lost))


def lost_ranges(rows: Sequence[Row]) -> list[LostRange]:
    """Lost ranges, in the order in which they were read."""
    return [LostRange(SourceOffset(row[0]), SourceOffset(row[1]), TargetOffset(row[2])) for row in rows]


def last_fields(blob: bytes) -> tuple[int, RowFields]:
    """When the rows of a blob were committed, and the last of them as numbers."""
    committed_at_ms, rows = unpack_fields(blob)
    return committed_at_ms, max(rows, key=FIELDS_BY_TARGET)


@lru_cache(maxsize=_READ_AGAIN)
def stamped(blob: bytes) -> StampedRow:
    """The last row of a blob, and when it was committed."""
    committed_at_ms, fields = last_fields(blob)
    return StampedRow(run_of(fields), committed_at_ms)


@lru_cache(maxsize=_READ_AGAIN)
def lineage_record(partition: RoutePartition, lineage: str, body: str) -> LineageRecord:
    """A lineage as it was recorded."""
    values = json.loads(body)
    closed_at = values["closed_at"]
    return LineageRecord(
        partition=partition,
        lineage=Lineage.parse(lineage),
        sequence=values["sequence"],
        source_first=SourceOffset(values["source_first"]),
        target_first=TargetOffset(values["target_first"]),
        closed_at=None if closed_at is None else SourceOffset(closed_at),
        version=values["version"],
    )
