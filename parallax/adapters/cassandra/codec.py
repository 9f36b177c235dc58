"""Several rows in one blob: variable-length integers, each row relative to the one before it. Pure.

A run of a busy partition takes 4 to 8 bytes. The layout, after a format byte::

    committed_at_ms, row count, then for each row: source_start, target_start, count, previous_source_end, epoch

``source_start`` is written as its distance from the end of the row before, ``target_start`` likewise,
``previous_source_end`` as its distance below ``source_start``, the leader epoch as its distance from the one
before. Distances that can be negative are zigzag-coded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from operator import itemgetter

from parallax.adapters.cassandra.coarse import Order
from parallax.adapters.cassandra.connection import Row
from parallax.domain.ids import Lineage, RoutePartition, SourceOffset, TargetOffset
from parallax.domain.index_rows import LineageRecord, LineageTail, StampedRow, ordered
from parallax.domain.runs import LostRange, Run
from parallax.errors import InvariantError

FORMAT = 1
_CONTINUES = 0x80
_LOW_BITS = 0x7F
RowFields = tuple[int, int, int, int, int]
"""``source_start``, ``target_start``, ``count``, ``previous_source_end`` and leader epoch of a row."""

_ENOUGH_ROWS, _ENOUGH_MS = 256, 13_000
"""It need not go back further than both: a write may hold many rows, after a replay a minute of them."""

KEY = "route = ? AND topic = ? AND partition = ? AND lineage = ?"
"""What names one partition's lineage in every table."""

STARTS: Mapping[Order, int] = {"source": 0, "target": 1}
"""Where a row's fields say where it starts."""

TARGET_START = STARTS["target"]
FIELDS_BY_TARGET: Callable[[RowFields], tuple[int, int, int]] = itemgetter(1, 0, 2)
"""As `by_target`."""

_READ_AGAIN = 8_192


@dataclass(frozen=True, slots=True)
class PackedRows:
    """What a blob holds: rows that were committed at ``committed_at_ms`` (milliseconds since the Unix epoch)."""

    committed_at_ms: int
    rows: tuple[Run, ...]


def pack(rows: Sequence[Run], committed_at_ms: int) -> bytes:
    """The rows as a blob; the order is kept."""
    out = bytearray([FORMAT])
    _put(out, committed_at_ms)
    _put(out, len(rows))
    source, target, epoch = 0, 0, 0
    for row in rows:
        _put(out, _zigzag(row.source_start - source))
        _put(out, _zigzag(row.target_start - target))
        _put(out, row.count)
        _put(out, row.source_start - row.previous_source_end)
        _put(out, _zigzag(row.source_leader_epoch - epoch))
        source, target, epoch = row.source_end, row.target_end, row.source_leader_epoch
    return bytes(out)


def unpack(blob: bytes) -> PackedRows:
    """The rows of a blob.

    Raises:
        InvariantError: the blob is of another format, cut off, or holds rows that can't be.
    """
    committed_at_ms, rows = unpack_fields(blob)
    return PackedRows(committed_at_ms, tuple(map(run_of, rows)))


def run_of(fields: RowFields) -> Run:
    """The row of these fields.

    Raises:
        InvariantError: there can't be such a row.
    """
    source_start, target_start, count, previous_source_end, epoch = fields
    return Run(
        SourceOffset(source_start),
        TargetOffset(target_start),
        count,
        SourceOffset(previous_source_end),
        epoch,
    )


def fields_of(row: Run) -> RowFields:
    """The inverse of `run_of`."""
    return (row.source_start, row.target_start, row.count, row.previous_source_end, row.source_leader_epoch)


def unpack_fields(blob: bytes) -> tuple[int, list[RowFields]]:
    """The rows of a blob as plain numbers, and when they were committed.

    A look-up reads some hundred rows and uses six: making a `Run` costs several times as much as its numbers.

    Raises:
        InvariantError: the blob is of another format, or cut off.
    """
    if not blob or blob[0] != FORMAT:
        raise InvariantError(f"packed rows of an unknown format: {blob[:1].hex() or 'empty'}")
    at = 1
    try:
        committed_at_ms, at = _get(blob, at)
        length, at = _get(blob, at)
        source, target, epoch = 0, 0, 0
        rows: list[RowFields] = []
        for _ in range(length):
            # Nearly every number is a byte: that is looked at here, without a call.
            source_step = blob[at]
            at += 1
            if source_step & _CONTINUES:
                source_step, at = _get(blob, at - 1)
            target_step = blob[at]
            at += 1
            if target_step & _CONTINUES:
                target_step, at = _get(blob, at - 1)
            count = blob[at]
            at += 1
            if count & _CONTINUES:
                count, at = _get(blob, at - 1)
            empty_before = blob[at]
            at += 1
            if empty_before & _CONTINUES:
                empty_before, at = _get(blob, at - 1)
            epoch_step = blob[at]
            at += 1
            if epoch_step & _CONTINUES:
                epoch_step, at = _get(blob, at - 1)
            source += -((source_step + 1) >> 1) if source_step & 1 else source_step >> 1
            target += -((target_step + 1) >> 1) if target_step & 1 else target_step >> 1
            epoch += -((epoch_step + 1) >> 1) if epoch_step & 1 else epoch_step >> 1
            rows.append((source, target, count, source - empty_before, epoch))
            source += count
            target += count
    except IndexError as error:
        raise InvariantError(f"packed rows end too early, after {len(blob)} bytes") from error
    if at != len(blob):
        raise InvariantError(f"packed rows are followed by {len(blob) - at} unknown bytes")
    return committed_at_ms, rows


def _zigzag(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _put(out: bytearray, value: int) -> None:
    if value < 0:
        raise InvariantError(f"D: {value} can't be packed as it is negative")
    while value > _LOW_BITS:
        out.append(value & _LOW_BITS | _CONTINUES)
        value >>= 7
    out.append(value)


def _get(blob: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = blob[at]
        at += 1
        value |= (byte & _LOW_BITS) << shift
        if not byte & _CONTINUES:
            return value, at
        shift += 7


TAIL_BATCHES = 64
"""Writes of a lineage that a tail goes back: ten seconds of a busy one, twice the default interval of automatic commits."""


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
