"""What the tables of the index hold, as values: keys, newest rows, lineages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from parallax.domain.blocks import Block, encode
from parallax.domain.formats import read_text, stored_text
from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, RoutePartition, SourceOffset, TargetOffset
from parallax.domain.index_rows import LineageRecord, StampedRow
from parallax.domain.runs import Run

KEY = "route = ? AND topic = ? AND partition = ? AND lineage = ?"
"""What names one partition's lineage in every table."""

LineageKey = tuple[str, str, int, str]


def lineage_key(partition: RoutePartition, lineage: Lineage) -> LineageKey:
    """The columns that name one partition's lineage in every table."""
    item = partition.topic_partition
    return (str(partition.route), item.topic, item.partition, str(lineage))


# --- rows ------------------------------------------------------------------------------------------------------

_READ_AGAIN = 8_192


def newest_body(row: Run, committed_at_ms: int) -> bytes:
    """A newest row, and when it was committed (ms since the Unix epoch): a block of one row."""
    return encode([row], committed_at_ms)


@lru_cache(maxsize=_READ_AGAIN)
def newest_row(stored: bytes) -> StampedRow:
    """The inverse of `newest_body`.

    Raises:
        UnreadableRowError: it is of another format, or damaged.
    """
    block = Block(stored)
    return StampedRow(block.run(0), block.committed_at_ms)


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
