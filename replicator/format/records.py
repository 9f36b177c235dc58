"""Opening a batch: for the few that can't pass whole. Keys, values and headers pass as the bytes they are."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import crc32c

from parallax.adapters.kafka.transport import packed_unsigned_varint
from replicator.format.compression import BadCompressionError, compressed, decompressed
from replicator.format.header import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    Batch,
    BatchPlace,
    Compression,
)

_HEADER = struct.Struct(">qiibIhiqqqhii")
SMALLEST_RECORD_BYTES = 6
_LONGEST_VARINT = 10


@dataclass(frozen=True, slots=True)
class Record:
    """One record.

    Attributes:
        offset: its own.
        timestamp: milliseconds since the Unix epoch, or -1.
        body: key, value and headers, encoded as in the batch.
    """

    offset: int
    timestamp: int
    body: bytes


def opened(batch: Batch, place: BatchPlace) -> list[Record]:
    """The records of a batch, in order. Of a LogAppendTime batch each bears the broker's time.

    Raises:
        CorruptBatchError: they are not what the header says.
    """
    try:
        return list(records_of(batch, decompressed(batch.records, batch.compression)))
    except (BadCompressionError, ValueError, IndexError) as error:
        raise place.corrupt(batch.base_offset, str(error)) from error


def records_of(batch: Batch, data: bytes | memoryview) -> Iterator[Record]:
    """The records of a batch, in order, of what came out of it.

    Raises:
        IndexError: the data ends inside a number.
        ValueError: they are not what the header says.
    """
    stamp = batch.max_timestamp if batch.is_log_append_time else None
    at, last_delta = 0, -1
    for _ in range(batch.count):
        length, at = varint(data, at)
        end = at + length
        if length < SMALLEST_RECORD_BYTES or end > len(data):
            raise ValueError(f"a record of {length} bytes does not fit")
        timestamp_delta, begin = varint(data, at + 1)
        offset_delta, begin = varint(data, begin)
        if not last_delta < offset_delta <= batch.last_offset_delta or begin > end:
            raise ValueError(f"a record with offset delta {offset_delta} after one with {last_delta}")
        timestamp = batch.base_timestamp + timestamp_delta if stamp is None else stamp
        if not -(2**63) <= timestamp < 2**63:
            raise ValueError(f"a record with the timestamp {timestamp}, which has more than 64 bits")
        yield Record(batch.base_offset + offset_delta, timestamp, bytes(data[begin:end]))
        at, last_delta = end, offset_delta
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last record")


def packed(records: Sequence[Record], compression: Compression) -> bytes:
    """A batch of these records, one after the other, without a producer (`rewrite.rewritten` adds it)."""
    base, newest = records[0].timestamp, max(record.timestamp for record in records)
    data = b"".join(encoded_record(record, index, base) for index, record in enumerate(records))
    return finished(data, len(records), base, newest, compression)


def encoded_record(record: Record, index: int, base_timestamp: int) -> bytes:
    """The record as number ``index`` of a batch."""
    head = b"\x00" + encoded(record.timestamp - base_timestamp) + encoded(index)
    return encoded(len(head) + len(record.body)) + head + record.body


def finished(
    data: bytes | memoryview,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    compression: Compression,
    *,
    quickly: bool = False,
) -> bytes:
    """The batch of encoded records whose deltas begin at ``base_timestamp`` and 0.

    Args:
        data: the records.
        count: of them.
        base_timestamp: the first one's.
        max_timestamp: the largest.
        compression: of the batch.
        quickly: rather in less time than in fewer bytes.
    """
    batch = bytearray(HEADER_BYTES) + compressed(data, compression, quickly=quickly)
    _HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LENGTH_END,
        -1,
        MAGIC,
        0,
        compression,
        count - 1,
        base_timestamp,
        max_timestamp,
        -1,
        -1,
        -1,
        count,
    )
    struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


def body(key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]] = ()) -> bytes:
    """A record's body."""
    parts = [_bytes(key), _bytes(value), encoded(len(headers))]
    for name, content in headers:
        parts += [_bytes(name), _bytes(content)]
    return b"".join(parts)


def _bytes(value: bytes | None) -> bytes:
    return encoded(-1) if value is None else encoded(len(value)) + value


def varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The zigzag number at ``at``, and where it ends.

    Raises:
        IndexError: the data ends inside it.
        ValueError: it has more bytes than 64 bits need.
    """
    byte = data[at]
    at += 1
    value = byte & 0x7F
    shift = 7
    while byte > 0x7F:  # noqa: PLR2004 - the high bit says that more follows
        if shift >= 7 * _LONGEST_VARINT:
            raise ValueError("a number of more than 64 bits")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
    return (value >> 1) ^ -(value & 1), at


def encoded(number: int) -> bytes:
    """The number in zigzag encoding; its 64 lowest bits, with which readers calculate."""
    value = ((number << 1) ^ -(number >> 63 & 1)) & (2**64 - 1)
    if value < 0x80:  # noqa: PLR2004 - one byte is enough
        return bytes((value,))
    return packed_unsigned_varint(value)
