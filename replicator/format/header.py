"""Record batches as they stand on the wire: taken apart, checked, and refused when they can't be true.

The format is Kafka's record batch v2 (KIP-98). Whatever a broker, a network or a disk has damaged is found here,
before anything of it can reach the target.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import crc32c

from parallax.domain.ids import ClusterName, TopicPartition
from parallax.errors import PartitionStoppedError

HEADER_BYTES = 61
LENGTH_END = 12
"""``length`` counts the bytes from here on."""
CRC_AT = 17
ATTRIBUTES_AT = 21
"""The checksum covers everything from here on."""
MAGIC = 2
LARGEST_BATCH_BYTES = 256 * 1024 * 1024
_LARGEST_OFFSET = 2**63 - 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
COMPRESSION, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
"""Bits of the attributes."""


class Compression(IntEnum):
    """How the records of a batch are compressed."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


COMPRESSIONS = tuple(Compression)
"""By their number in the attributes."""


class CorruptBatchError(PartitionStoppedError):
    """A batch that can't be what a producer wrote: the message names cluster, partition, offset and the damage."""

    code = "CORRUPT_BATCH"


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Where a batch was read, for messages."""

    cluster: ClusterName
    topic_partition: TopicPartition

    def corrupt(self, offset: int, damage: str) -> CorruptBatchError:
        """The error that says so."""
        return CorruptBatchError(
            f"{self.cluster}: {self.topic_partition}: the batch at offset {offset} is damaged: {damage}; nothing of "
            "it was copied (read it with another client: if that fails too, the source's log is damaged)"
        )


class Batch(NamedTuple):
    """One record batch, whole and checked.

    Attributes:
        raw: all of its bytes, header included.
        last_offset_delta: the last offset less the base offset, whether or not a record is still there.
        count: records that are still there.
    """

    raw: memoryview
    base_offset: int
    leader_epoch: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int  # type: ignore[assignment] # a tuple has a method of that name; nobody counts in a batch

    @property
    def next_offset(self) -> int:
        """The first offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """How its records are compressed."""
        return COMPRESSIONS[self.attributes & COMPRESSION]

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record bears the broker's time, ``max_timestamp``."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether its records count only once their transaction is committed."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether it holds a transaction's end instead of records."""
        return bool(self.attributes & CONTROL)

    @property
    def records(self) -> memoryview:
        """The records, compressed or not."""
        return self.raw[HEADER_BYTES:]


def split(
    buffer: bytes | bytearray | memoryview,
    place: BatchPlace,
    *,
    at_offset: int = 0,
    may_begin_below: bool = True,
    largest_bytes: int = LARGEST_BATCH_BYTES,
) -> Iterator[Batch]:
    """The batches of a fetched buffer, in order. An incomplete batch at its end is left out.

    Args:
        buffer: the record set of a fetch response.
        place: where it came from.
        at_offset: what was asked for: names the place of a batch whose own offset can't be trusted. None ends below it.
        may_begin_below: whether the first batch may begin below it.
        largest_bytes: a batch that says to be larger is damaged.

    Raises:
        CorruptBatchError: a checksum, length, version or count that can't be; the batches before it were handed out.
    """
    view = memoryview(buffer)
    begin, total = 0, len(view)
    length_at = _LENGTH.unpack_from
    expected, may_be_below = at_offset, may_begin_below
    while total - begin >= LENGTH_END:
        (length,) = length_at(view, begin + 8)
        if not HEADER_BYTES - LENGTH_END <= length <= largest_bytes - LENGTH_END:
            raise place.corrupt(expected, f"a length of {length} bytes is impossible")
        end = begin + LENGTH_END + length
        if end > total:
            _refuse_old_format(view[begin:], place, expected)
            return
        batch = _checked(view[begin:end], place, expected)
        next_offset = batch.next_offset
        if next_offset <= expected or (not may_be_below and batch.base_offset < expected):
            raise place.corrupt(
                expected,
                f"it says to hold the offsets {batch.base_offset} to {next_offset - 1}, which come before",
            )
        yield batch
        begin, expected, may_be_below = end, next_offset, False


def _refuse_old_format(rest: memoryview, place: BatchPlace, offset: int) -> None:
    if len(rest) > 16 and rest[16] != MAGIC:  # noqa: PLR2004 - the place of the format's version
        raise place.corrupt(offset, f"message format {rest[16]} is not {MAGIC}")


def _checked(raw: memoryview, place: BatchPlace, expected: int) -> Batch:
    (
        base_offset,
        _length,
        leader_epoch,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise place.corrupt(expected, f"message format {magic} is not {MAGIC}")
    found = crc32c.crc32c(raw[ATTRIBUTES_AT:])
    if found != crc:
        raise place.corrupt(expected, f"checksum {crc:08x}, but its bytes have {found:08x}")
    if base_offset < 0 or last_offset_delta < 0 or base_offset + last_offset_delta >= _LARGEST_OFFSET:
        raise place.corrupt(
            expected, f"base offset {base_offset} and last delta {last_offset_delta} can't be"
        )
    if not 0 <= count <= last_offset_delta + 1:
        raise place.corrupt(expected, f"{count} records can't have {last_offset_delta + 1} offsets")
    if attributes & COMPRESSION >= len(COMPRESSIONS):
        raise place.corrupt(expected, f"compression {attributes & COMPRESSION} is unknown")
    return Batch(
        raw,
        base_offset,
        leader_epoch,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
