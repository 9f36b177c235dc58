"""Record batches made once and sent many times, each time with other timestamps.

Every record's timestamp tells its place in its partition: the first record has `FIRST_TIMESTAMP_MS`, each further
one a millisecond more. So a copy can be checked batch by batch without being decompressed (`bench.copy_check`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

import pyarrow as pa

from bench.crc32c import changes_of_byte, crc32c

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

FIRST_TIMESTAMP_MS = 1_700_000_000_000
"""Of the first record of each partition; a round number, so that a look at a log tells a record's place."""

HEADER_BYTES = 61
_CRC_AT = 17
_CRC_FROM = 21
_BASE_TIMESTAMP_AT = 27
_MAX_TIMESTAMP_AT = 35
_CODES: dict[Compression, int] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
# After the checksum: attributes, last offset delta, timestamps, producer id, epoch and sequence, count.
_CHECKED_HEADER = struct.Struct(">hiqqqhii")
_FRONT = struct.Struct(">qiibI")
_TIMESTAMP = struct.Struct(">q")
# Magic number; version 1, independent blocks; blocks of 64 KiB; checksum of the two bytes before it.
_LZ4_HEAD = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 65_536
_LZ4_NOT_COMPRESSED = 0x8000_0000
_CITIES = ("Amsterdam", "Bogota", "Chicago", "Delhi", "Edinburgh", "Fukuoka", "Geneva", "Hanoi")


@dataclass(frozen=True, slots=True)
class Shape:
    """What the batches of a data set look like.

    Attributes:
        value_bytes: of each record's value, JSON.
        batch_bytes: of a batch's records before compression, at most (the producer's `batch.size`).
        batch_records: at most so many in a batch, where that is fewer; 0: as many as fit.
        compression: of each batch.
        variants: how many different batches take turns.
    """

    value_bytes: int = 170
    batch_bytes: int = 131_072
    batch_records: int = 0
    compression: Compression = "lz4"
    variants: int = 64


class PreparedBatch:
    """A batch ready to be sent, but for its timestamps.

    Args:
        records: the encoded records, with timestamp deltas 0, 1, 2, ...
        count: how many they are.
        compression: how to send them.
    """

    def __init__(self, records: bytes, count: int, compression: Compression) -> None:
        self.count = count
        self.record_bytes = len(records)
        payload = records if compression == "none" else _compressed(records, compression)
        checked = _CHECKED_HEADER.pack(_CODES[compression], count - 1, 0, 0, -1, -1, -1, count) + payload
        self._crc = crc32c(checked)
        front = _FRONT.pack(0, HEADER_BYTES - 12 + len(payload), -1, 2, 0)
        self._bytes = front + checked
        end = len(self._bytes)
        self._changes = [
            changes_of_byte(end - 1 - place)
            for start in (_BASE_TIMESTAMP_AT, _MAX_TIMESTAMP_AT)
            for place in range(start, start + _TIMESTAMP.size)
        ]

    @property
    def size_bytes(self) -> int:
        """Of the whole batch, header included, as sent."""
        return len(self._bytes)

    def at(self, first: int) -> bytearray:
        """The batch whose first record is number ``first`` of its partition."""
        base = FIRST_TIMESTAMP_MS + first
        stamps = _TIMESTAMP.pack(base) + _TIMESTAMP.pack(base + self.count - 1)
        crc = self._crc
        for change, byte in zip(self._changes, stamps, strict=True):
            crc ^= change[byte]
        batch = bytearray(self._bytes)
        batch[_BASE_TIMESTAMP_AT : _BASE_TIMESTAMP_AT + 16] = stamps
        struct.pack_into(">I", batch, _CRC_AT, crc)
        return batch


def prepare(shape: Shape, seed: int = 1) -> list[PreparedBatch]:
    """Different batches of one shape; the same seed gives the same bytes."""
    draw = Random(seed)  # noqa: S311 - places and fares, not secrets
    return [_prepare_one(shape, draw) for _ in range(shape.variants)]


def _prepare_one(shape: Shape, draw: Random) -> PreparedBatch:
    records: list[bytes] = []
    size = 0
    while not shape.batch_records or len(records) < shape.batch_records:
        encoded = encode_record(
            len(records), f"rider-{draw.randrange(10**6):06}".encode(), json_value(draw, shape.value_bytes)
        )
        if records and size + len(encoded) > shape.batch_bytes:
            break
        records.append(encoded)
        size += len(encoded)
    return PreparedBatch(b"".join(records), len(records), shape.compression)


def json_value(draw: Random, size_bytes: int) -> bytes:
    """A trip event as JSON, of exactly that size; longer ones carry a note of random words."""
    head = (
        f'{{"trip":"{draw.getrandbits(64):016x}","rider":{draw.randrange(10**6)},"city":"{draw.choice(_CITIES)}",'
        f'"lat":{draw.uniform(-90, 90):.5f},"lon":{draw.uniform(-180, 180):.5f},'
        f'"fare_cents":{draw.randrange(200, 9_000)},"note":"'
    ).encode()
    words = bytearray()
    room = size_bytes - len(head) - 2
    if room < 0:
        raise ValueError(f"a value has at least {len(head) + 2} bytes, not {size_bytes}")
    while len(words) < room:
        words += f"{draw.getrandbits(32):x} ".encode()
    return head + bytes(words[:room]) + b'"}'


def encode_record(delta: int, key: bytes, value: bytes) -> bytes:
    """One record of a batch (message format 2); its timestamp and offset lie ``delta`` above the batch's."""
    body = b"".join(
        (b"\x00", varint(delta), varint(delta), varint(len(key)), key, varint(len(value)), value, varint(0))
    )
    return varint(len(body)) + body


def varint(value: int) -> bytes:
    """A signed number as Kafka writes it: zigzag, seven bits a byte."""
    left = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while left > 0x7F:  # noqa: PLR2004 - seven bits
        encoded.append((left & 0x7F) | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


def mean_batch(batches: Sequence[PreparedBatch]) -> tuple[float, float]:
    """Mean number of records and of bytes (as sent) of a data set's batches."""
    return (
        sum(batch.count for batch in batches) / len(batches),
        sum(batch.size_bytes for batch in batches) / len(batches),
    )


def _compressed(records: bytes, compression: Compression) -> bytes:
    if compression == "lz4":
        return _lz4_frame(records)
    if compression == "snappy":
        # Framed as snappy-java does it, which is Kafka's way.
        block = _packed(records, "snappy")
        return b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, len(block)) + block
    return _packed(records, compression)


def _lz4_frame(records: bytes) -> bytes:
    """A frame as Java's producer writes it: independent blocks of 64 KiB (Arrow's depend on each other)."""
    parts = [_LZ4_HEAD]
    for start in range(0, len(records), _LZ4_BLOCK_BYTES):
        piece = records[start : start + _LZ4_BLOCK_BYTES]
        block = _packed(piece, "lz4_raw")
        if len(block) < len(piece):
            parts += [struct.pack("<I", len(block)), block]
        else:
            parts += [struct.pack("<I", len(piece) | _LZ4_NOT_COMPRESSED), piece]
    return b"".join([*parts, struct.pack("<I", 0)])


def _packed(data: bytes, codec: str) -> bytes:
    packed: bytes = pa.compress(data, codec=codec, asbytes=True)
    return packed
