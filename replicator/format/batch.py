"""One record batch of Kafka's format v2 (KIP-98): read and checked, taken apart, made anew, given to another producer.

Whatever a broker, a network or a disk has damaged is found here, before anything of it can reach the target. Keys,
values and headers of records pass as the bytes they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fastcrc.crc32 import iscsi as crc32c

from parallax.adapters.kafka.transport import packed_unsigned_varint
from parallax.domain.ids import ClusterName, TopicPartition
from parallax.errors import PartitionStoppedError
from replicator.format.compression import (
    COMPRESSIONS,
    BadCompressionError,
    Compression,
    compress,
    decompress,
)

HEADER_BYTES = 61
LENGTH_END = 12
"""``length`` counts the bytes from here on."""
CRC_AT = 17
ATTRIBUTES_AT = 21
"""The checksum covers everything from here on."""
MAGIC = 2
LARGEST_BATCH_BYTES = 256 * 1024 * 1024
SMALLEST_RECORD_BYTES = 6
_LARGEST_OFFSET = 2**63 - 1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
COMPRESSION, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
"""Bits of the attributes."""

_DELETE_HORIZON = 0x40
_PRODUCER_AT = 43
_PRODUCER = struct.Struct(">qhi")
_UNSIGNED = struct.Struct(">I")
_SHORT = struct.Struct(">h")
_HEAD = struct.Struct(">qii")
_NO_EPOCH = -1
_LONGEST_VARINT = 10


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
    found = crc32c(raw[ATTRIBUTES_AT:])
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


# --- records --------------------------------------------------------------------------------------------------------


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


def read_records(batch: Batch, place: BatchPlace) -> list[Record]:
    """The records of a batch, in order. Of a LogAppendTime batch each bears the broker's time.

    Raises:
        CorruptBatchError: they are not what the header says.
    """
    try:
        return list(records_of(batch, decompress(batch.records, batch.compression)))
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
        length, at = read_varint(data, at)
        end = at + length
        if length < SMALLEST_RECORD_BYTES or end > len(data):
            raise ValueError(f"a record of {length} bytes does not fit")
        timestamp_delta, begin = read_varint(data, at + 1)
        offset_delta, begin = read_varint(data, begin)
        if not last_delta < offset_delta <= batch.last_offset_delta or begin > end:
            raise ValueError(f"a record with offset delta {offset_delta} after one with {last_delta}")
        timestamp = batch.base_timestamp + timestamp_delta if stamp is None else stamp
        if not -(2**63) <= timestamp < 2**63:
            raise ValueError(f"a record with the timestamp {timestamp}, which has more than 64 bits")
        yield Record(batch.base_offset + offset_delta, timestamp, bytes(data[begin:end]))
        at, last_delta = end, offset_delta
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last record")


# --- making a batch -------------------------------------------------------------------------------------------------


def make_batch(records: Sequence[Record], compression: Compression) -> bytes:
    """A batch of these records, one after the other, without a producer (`rewrite_batch` adds it)."""
    base, newest = records[0].timestamp, max(record.timestamp for record in records)
    data = b"".join(encode_record(record, index, base) for index, record in enumerate(records))
    return finish_batch(data, len(records), base, newest, compression)


def encode_record(record: Record, index: int, base_timestamp: int) -> bytes:
    """The record as number ``index`` of a batch."""
    head = b"\x00" + encode_varint(record.timestamp - base_timestamp) + encode_varint(index)
    return encode_varint(len(head) + len(record.body)) + head + record.body


def finish_batch(
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
    batch = bytearray(HEADER_BYTES) + compress(data, compression, quickly=quickly)
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
    _UNSIGNED.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
    return bytes(batch)


def record_body(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[bytes, bytes | None]] = ()
) -> bytes:
    """A record's body."""
    parts = [_bytes(key), _bytes(value), encode_varint(len(headers))]
    for name, content in headers:
        parts += [_bytes(name), _bytes(content)]
    return b"".join(parts)


def _bytes(value: bytes | None) -> bytes:
    return encode_varint(-1) if value is None else encode_varint(len(value)) + value


def rewrite_batch(
    raw: bytes | bytearray | memoryview, producer_id: int, epoch: int, sequence: int
) -> tuple[bytearray, memoryview]:
    """The batch as this producer's own, ready for a Produce request: a new header, and the records where they are.

    The offset is relative to 0 and the leader epoch unknown (the target's broker sets both), the transactional bit
    is set, the delete horizon cleared: it is a matter of the source's cleaner. ``base_timestamp`` stays as it is,
    because the timestamps of the records count from it.
    """
    view = memoryview(raw)
    header, records = bytearray(view[:HEADER_BYTES]), view[HEADER_BYTES:]
    _HEAD.pack_into(header, 0, 0, len(view) - LENGTH_END, _NO_EPOCH)
    (attributes,) = _SHORT.unpack_from(header, ATTRIBUTES_AT)
    _SHORT.pack_into(header, ATTRIBUTES_AT, (attributes | TRANSACTIONAL) & ~_DELETE_HORIZON)
    _PRODUCER.pack_into(header, _PRODUCER_AT, producer_id, epoch, sequence)
    checksum = crc32c(records, crc32c(memoryview(header)[ATTRIBUTES_AT:]))
    _UNSIGNED.pack_into(header, CRC_AT, checksum)
    return header, records


# --- numbers --------------------------------------------------------------------------------------------------------


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
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


def encode_varint(number: int) -> bytes:
    """The number in zigzag encoding; its 64 lowest bits, with which readers calculate."""
    value = ((number << 1) ^ -(number >> 63 & 1)) & (2**64 - 1)
    if value < 0x80:  # noqa: PLR2004 - one byte is enough
        return bytes((value,))
    return packed_unsigned_varint(value)
