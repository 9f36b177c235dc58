from __future__ import annotations

import gzip
import struct
from random import Random

import pyarrow as pa
import pytest

from bench.batches import (
    FIRST_TIMESTAMP_MS,
    HEADER_BYTES,
    PreparedBatch,
    Shape,
    encode_record,
    json_value,
    prepare,
    varint,
)
from bench.crc32c import changes_of_byte, crc32c
from bench.wire import produce_errors, produce_request


def test_the_checksum_is_the_standards() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA


@pytest.mark.parametrize("place", [0, 1, 17, 98, 99])
def test_a_changed_byte_changes_the_checksum_by_the_amount_foretold(place: int) -> None:
    data = bytearray(Random(3).randbytes(100))
    before = crc32c(data)
    old, new = data[place], 0xA7
    data[place] = new
    assert crc32c(data) == before ^ changes_of_byte(len(data) - 1 - place)[old ^ new]


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, b"\x00"), (-1, b"\x01"), (1, b"\x02"), (63, b"\x7e"), (64, b"\x80\x01"), (300, b"\xd8\x04")],
)
def test_varints_are_zigzag(value: int, encoded: bytes) -> None:
    assert varint(value) == encoded


def test_a_value_is_json_of_the_size_asked_for() -> None:
    value = json_value(Random(1), 170)
    assert len(value) == 170
    assert value.startswith(b'{"trip":"')
    assert value.endswith(b'"}')
    with pytest.raises(ValueError, match="at least"):
        json_value(Random(1), 20)


@pytest.mark.parametrize("compression", ["none", "gzip", "lz4", "zstd"])
def test_a_stamped_batch_has_the_right_checksum_and_timestamps(compression: str) -> None:
    shape = Shape(batch_bytes=4_096, variants=2, compression=compression)  # type: ignore[arg-type] # parametrized
    for batch in prepare(shape):
        for first in (0, 1, 123_456_789):
            stamped = batch.at(first)
            assert struct.unpack_from(">I", stamped, 17)[0] == crc32c(stamped[21:])
            base, latest = struct.unpack_from(">qq", stamped, 27)
            assert (base, latest) == (
                FIRST_TIMESTAMP_MS + first,
                FIRST_TIMESTAMP_MS + first + batch.count - 1,
            )
            assert struct.unpack_from(">i", stamped, 8)[0] == len(stamped) - 12
            assert struct.unpack_from(">i", stamped, 57)[0] == batch.count
            assert struct.unpack_from(">i", stamped, 23)[0] == batch.count - 1


def test_batches_are_filled_to_their_size_and_no_further() -> None:
    for batch in prepare(Shape(batch_bytes=4_096, variants=3)):
        assert 4_096 - 200 < batch.record_bytes <= 4_096
    assert [batch.count for batch in prepare(Shape(batch_records=5, variants=2))] == [5, 5]


def test_the_same_seed_gives_the_same_bytes() -> None:
    shape = Shape(batch_records=3, variants=2)
    assert [batch.at(7) for batch in prepare(shape)] == [batch.at(7) for batch in prepare(shape)]
    assert prepare(shape)[0].at(0) != prepare(shape)[1].at(0)


def test_compressed_records_are_the_records() -> None:
    records = b"".join(encode_record(i, b"key", json_value(Random(i), 170)) for i in range(700))
    assert gzip.decompress(PreparedBatch(records, 700, "gzip").at(0)[HEADER_BYTES:]) == records
    assert _unframed(bytes(PreparedBatch(records, 700, "lz4").at(0)[HEADER_BYTES:]), len(records)) == records
    assert bytes(PreparedBatch(records, 700, "none").at(0)[HEADER_BYTES:]) == records


def _unframed(frame: bytes, size: int) -> bytes:
    """The content of an lz4 frame of independent blocks of 64 KiB, the last one shorter."""
    assert frame[:7] == bytes.fromhex("04224d18604082")
    place, found = 7, bytearray()
    while (length := struct.unpack_from("<I", frame, place)[0]) != 0:
        block = frame[place + 4 : place + 4 + (length & 0x7FFFFFFF)]
        full = min(65_536, size - len(found))
        compressed = not length & 0x80000000
        found += pa.decompress(block, full, codec="lz4_raw", asbytes=True) if compressed else block
        place += 4 + len(block)
    assert place + 4 == len(frame)
    return bytes(found)


def test_a_produce_request_carries_one_batch_of_each_partition() -> None:
    request = b"".join(produce_request(9, b"trips", [(0, b"first"), (3, b"second!")]))
    assert struct.unpack_from(">i", request)[0] == len(request) - 4
    assert struct.unpack_from(">hhi", request, 4) == (0, 7, 9)
    assert request.endswith(
        struct.pack(">i", 2) + struct.pack(">ii", 0, 5) + b"first" + struct.pack(">ii", 3, 7) + b"second!"
    )


def test_errors_are_read_from_an_answer() -> None:
    part = struct.Struct(">ihqqq")
    answer = struct.pack(">ih", 1, 5) + b"trips" + struct.pack(">i", 2)
    answer += part.pack(0, 0, 17, -1, 0) + part.pack(3, 87, -1, -1, -1) + struct.pack(">i", 0)
    assert produce_errors(answer) == [(0, 0), (3, 87)]
