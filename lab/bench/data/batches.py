"""Record batches made once and sent many times, each time with other timestamps.

Every record's timestamp tells its place in its partition: the first record has `FIRST_TIMESTAMP_MS`, each further
one a millisecond more. So a copy can be checked batch by batch without being decompressed (`lab.bench.data.copied`).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from fastcrc.crc32 import iscsi as crc32c

from replicator.format.batch import ATTRIBUTES_AT, CRC_AT, Record, encode_varint, make_batch, record_body
from replicator.format.compression import Compression

_DAY_MS = 86_400_000
FIRST_TIMESTAMP_MS = (int(time.time() * 1_000) // _DAY_MS - 1) * _DAY_MS
"""Of the first record of each partition: midnight before yesterday, UTC (what is a week old, brokers would delete)."""

_TIMESTAMPS_AT = 27
_TIMESTAMPS = struct.Struct(">qq")
_CRC = struct.Struct(">I")
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
    compression: Compression = Compression.LZ4
    variants: int = 64


class PreparedBatch:
    """A batch ready to be sent, but for its timestamps.

    Args:
        records: in order, their timestamps 0, 1, 2, ...
        record_bytes: their size, encoded, before compression.
        compression: how to send them.
    """

    def __init__(self, records: Sequence[Record], record_bytes: int, compression: Compression) -> None:
        self.count = len(records)
        self.record_bytes = record_bytes
        self._bytes = make_batch(records, compression)

    @property
    def size_bytes(self) -> int:
        """Of the whole batch, header included, as sent."""
        return len(self._bytes)

    def at(self, first: int) -> bytearray:
        """The batch whose first record is number ``first`` of its partition."""
        base = FIRST_TIMESTAMP_MS + first
        batch = bytearray(self._bytes)
        _TIMESTAMPS.pack_into(batch, _TIMESTAMPS_AT, base, base + self.count - 1)
        _CRC.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[ATTRIBUTES_AT:]))
        return batch


def prepare(shape: Shape, seed: int = 1) -> list[PreparedBatch]:
    """Different batches of one shape; the same seed gives the same bytes."""
    draw = Random(seed)  # noqa: S311 - places and fares, not secrets
    return [_prepare_one(shape, draw) for _ in range(shape.variants)]


def _prepare_one(shape: Shape, draw: Random) -> PreparedBatch:
    records: list[Record] = []
    size = 0
    while not shape.batch_records or len(records) < shape.batch_records:
        content = record_body(
            f"rider-{draw.randrange(10**6):06}".encode(), json_value(draw, shape.value_bytes)
        )
        delta = encode_varint(len(records))
        inner = 1 + 2 * len(delta) + len(content)
        outer = len(encode_varint(inner)) + inner
        if records and size + outer > shape.batch_bytes:
            break
        records.append(Record(len(records), len(records), content))
        size += outer
    return PreparedBatch(records, size, shape.compression)


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


def mean_batch(batches: Sequence[PreparedBatch]) -> tuple[float, float]:
    """Mean number of records and of bytes (as sent) of a data set's batches."""
    return (
        sum(batch.count for batch in batches) / len(batches),
        sum(batch.size_bytes for batch in batches) / len(batches),
    )
