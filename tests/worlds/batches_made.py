"""Record batches made by another implementation (kafka-python), for the tests of the batch path."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import crc32c
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from parallax.domain.ids import ClusterName, TopicName, TopicPartition
from replicator.format.batch import BatchPlace

PLACE = BatchPlace(ClusterName("regional-a"), TopicPartition(TopicName("orders"), 3))
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


class Made(NamedTuple):
    """What a reader sees of a record."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def made(
    records: Sequence[Made],
    *,
    codec: str = "none",
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    leader_epoch: int = 5,
    last_offset: int | None = None,
) -> bytes:
    """A batch of these records as a broker would hand it out."""
    base = records[0].offset
    builder = DefaultRecordBatchBuilder(2, CODECS[codec], transactional, *producer, 2**30)
    for record in records:
        appended = builder.append(
            record.offset - base, record.timestamp, record.key, record.value, list(record.headers)
        )
        assert appended is not None
    last = records[-1].offset if last_offset is None else last_offset
    return altered(
        bytes(builder.build()),
        q0=base,
        i12=leader_epoch,
        i23=last - base,
    )


def altered(raw: bytes, **fields: int) -> bytes:
    """The batch with fields overwritten (``i12``: a 32-bit number at byte 12) and a checksum that fits."""
    batch = bytearray(raw)
    for field, value in fields.items():
        struct.pack_into(">" + field[0], batch, int(field[1:]), value)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


def read(raw: bytes | bytearray) -> list[Made]:
    """The records as kafka-python reads them."""
    batch = DefaultRecordBatch(bytes(raw))
    assert batch.validate_crc()
    return [
        Made(item.offset, item.timestamp, item.key, item.value, tuple(tuple(pair) for pair in item.headers))
        for item in batch
    ]


def control(base: int, producer_id: int, *, commit: bool) -> bytes:
    """The batch that ends a transaction."""
    key = struct.pack(">hh", 0, int(commit))
    raw = made(
        [Made(base, 1_000, key, struct.pack(">hi", 0, 0), ())],
        producer=(producer_id, 0, -1),
        transactional=True,
    )
    return altered(raw, h21=0x30)
