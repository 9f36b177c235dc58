"""What the tables of the index hold, as values: keys, rows, lineages. Pure.

Several rows lie in one blob: variable-length integers, each row relative to the one before it. A run of a busy
partition takes 4 to 8 bytes. The layout, after a format byte::

    committed_at_ms, row count, then for each row: source_start, target_start, count, previous_source_end, epoch

``source_start`` is written as its distance from the end of the row before, ``target_start`` likewise,
``previous_source_end`` as its distance below ``source_start``, the leader epoch as its distance from the one
before. Distances that can be negative are zigzag-coded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any

from parallax.adapters.cassandra.coarse import Order
from parallax.domain.formats import read_text, stored_text
from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, RoutePartition, SourceOffset, TargetOffset
from parallax.domain.index_rows import LineageRecord, StampedRow
from parallax.domain.runs import Run
from parallax.errors import InvariantError

KEY = "route = ? AND topic = ? AND partition = ? AND lineage = ?"
"""What names one partition's lineage in every table."""

LineageKey = tuple[str, str, int, str]


def lineage_key(partition: RoutePartition, lineage: Lineage) -> LineageKey:
    """The columns that name one partition's lineage in every table."""
    item = partition.topic_partition
    return (str(partition.route), item.topic, item.partition, str(lineage))


# --- rows ------------------------------------------------------------------------------------------------------

FORMAT = 1
_CONTINUES = 0x80
_LOW_BITS = 0x7F
RowFields = tuple[int, int, int, int, int]
"""``source_start``, ``target_start``, ``count``, ``previous_source_end`` and leader epoch of a row."""

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


def last_fields(blob: bytes) -> tuple[int, RowFields]:
    """When the rows of a blob were committed, and the last of them as numbers."""
    committed_at_ms, rows = unpack_fields(blob)
    return committed_at_ms, max(rows, key=FIELDS_BY_TARGET)


@lru_cache(maxsize=_READ_AGAIN)
def stamped(blob: bytes) -> StampedRow:
    """The last row of a blob, and when it was committed."""
    committed_at_ms, fields = last_fields(blob)
    return StampedRow(run_of(fields), committed_at_ms)


# --- lineages --------------------------------------------------------------------------------------------------

LINEAGE_FORMAT = 1


def lineage_body(record: LineageRecord) -> str:
    """What the key of a lineage does not say."""
    return stored_text(
        {
            "sequence": record.sequence,
            "source_first": record.source_first,
            "target_first": record.target_first,
            "closed_at": record.closed_at,
            "version": record.version,
            "lost_epoch": record.lost_epoch,
        },
        LINEAGE_FORMAT,
    )


@lru_cache(maxsize=_READ_AGAIN)
def lineage_record(partition: RoutePartition, lineage: str, body: str) -> LineageRecord:
    """The lineage of that key, written by `lineage_body`; raises as `parallax.domain.formats.read_text` does."""

    def record(values: Mapping[str, Any]) -> LineageRecord:
        closed_at = values["closed_at"]
        return LineageRecord(
            partition=partition,
            lineage=Lineage.parse(lineage),
            sequence=values["sequence"],
            source_first=SourceOffset(values["source_first"]),
            target_first=TargetOffset(values["target_first"]),
            closed_at=None if closed_at is None else SourceOffset(closed_at),
            version=values["version"],
            lost_epoch=values.get("lost_epoch", UNKNOWN_EPOCH),
        )

    return read_text(body, LINEAGE_FORMAT, record, f"lineages of {partition}, {lineage},")
