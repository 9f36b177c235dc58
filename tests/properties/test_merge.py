"""Merging many batches side by side, held against the plain way; and whatever bytes a source may hold."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from random import Random

import lz4.frame
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from replicator.format.batch import Batch, CorruptBatchError, encode_varint, finish_batch, split
from replicator.format.compression import BadCompressionError, Compression, compress, decompress
from replicator.format.merge import Merged, Unusual, merge_batches
from replicator.format.repack import FEW_RECORDS, Passage, Repacker
from replicator.format.small_batches import decompress_each, headers_of
from tests.worlds.batches_made import PLACE, Made, altered, made, read

LARGEST = 2**63 - 1
TIMES = st.integers(1_000_000, 1_000_100) | st.integers(-1, 2**42)
SIZES = st.integers(0, 40) | st.sampled_from(
    [50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 8_170, 8_190, 20_000]
)
PARTS = st.lists(
    st.lists(st.tuples(TIMES, st.none() | SIZES, st.integers(1, 300)), min_size=1, max_size=9),
    min_size=1,
    max_size=9,
)

Gathered = list[tuple[Batch, int]]


def only(raw: bytes) -> Batch:
    (batch,) = split(raw, PLACE)
    return batch


def contents(batches: Gathered) -> list[bytes | memoryview]:
    return [decompress(batch.records, batch.compression) for batch, _ in batches]


def plain(batches: Gathered, inside: Sequence[bytes | memoryview]) -> Merged | None:
    return Repacker(PLACE)._one_by_one(batches, inside)


def side_by_side(batches: Gathered, inside: Sequence[bytes | memoryview]) -> Merged | None:
    return merge_batches(
        headers_of(batch for batch, _ in batches), inside, [position for _, position in batches]
    )


def same(one: Merged | None, other: Merged | None) -> bool:
    if one is None or other is None:
        return one is other
    facts = [
        (bytes(it.data), list(it.offsets), it.base_timestamp, it.max_timestamp, it.newest_timestamp)
        for it in (one, other)
    ]
    return facts[0] == facts[1]


def through(batches: Gathered) -> list[Made]:
    """What a reader sees of the batches gathered into one, with the offsets of the source."""
    gathered = Repacker(PLACE)
    for batch, position in batches:
        gathered.add(batch, position, Passage.OPENED)
    (block,) = gathered.blocks()
    found = read(bytes(block.raw))
    assert [record.offset for record in found] == list(range(len(found)))
    return [record._replace(offset=offset) for record, offset in zip(found, list(block.offsets), strict=True)]


@st.composite
def gatherings(draw: st.DrawFn) -> Gathered:
    """Batches with holes between and in them, some with the broker's time, and a position for each."""
    base, result = draw(st.integers(0, 2**40)), []
    for part in draw(PARTS):
        records, offset = [], base
        for time, size, step in part:
            value = None if size is None else bytes(size)
            headers = (("h", None), ("", b"x")) if step % 3 == 0 else ()
            records.append(Made(offset, time, None if step % 2 else b"k", value, headers))
            offset += 1 if step > 100 else step
        raw = made(records, last_offset=offset)
        if draw(st.integers(0, 4)) == 0:
            raw = altered(raw, h21=only(raw).attributes | 0x08)
        position = draw(st.sampled_from([0, base, base + 1, records[-1].offset, offset + 1]))
        result.append((only(raw), position))
        base = offset + draw(st.integers(1, 3))
    return result


@given(gatherings())
def test_side_by_side_gives_what_the_plain_way_gives(batches: Gathered) -> None:
    inside = contents(batches)
    assert same(side_by_side(batches, inside), plain(batches, inside))


@given(gatherings(), st.data())
def test_of_damaged_records_nothing_comes_that_the_plain_way_refuses(
    batches: Gathered, data: st.DataObject
) -> None:
    inside = [bytearray(content) for content in contents(batches)]
    for _ in range(data.draw(st.integers(1, 3))):
        victim = inside[data.draw(st.integers(0, len(inside) - 1))]
        at = data.draw(st.integers(0, min(len(victim), 40)))
        match data.draw(st.sampled_from(["change", "cut", "lengthen", "insert"])):
            case "change" if at < len(victim):
                victim[at] = data.draw(st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
            case "cut":
                del victim[at:]
            case "lengthen":
                victim += bytes(data.draw(st.integers(1, 9)))
            case _:
                victim[at:at] = b"\xff" * data.draw(st.integers(1, 11))
    damaged = [bytes(content) for content in inside]
    expected: Merged | None = None
    refused = False
    try:
        expected = plain(batches, damaged)
    except CorruptBatchError:
        refused = True
    try:
        found = side_by_side(batches, damaged)
    except Unusual:
        return
    assert not refused
    assert same(found, expected)


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=4), st.integers(1, 2**31 - 1))
@example([b"\x0c\x00\x00\x00\x01\x01\x00"], 2**31 - 1)
@example([b"\x0c\x00\x00\x00\x01\x01\x00" * 2, b""], 2)
def test_noise_is_left_to_the_plain_way_or_is_the_same(noise: list[bytes], count: int) -> None:
    head = only(made([Made(5, 1, None, b"v", ())], last_offset=5 + count - 1))
    batches = [(head._replace(raw=memoryview(altered(bytes(head.raw), i57=count)), count=count), 0)] * len(
        noise
    )
    try:
        found = side_by_side(batches, noise)
    except Unusual:
        return
    assert same(found, plain(batches, noise))


@pytest.mark.parametrize("count", [FEW_RECORDS - 1, FEW_RECORDS, 200, 9_000])
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_of_many_batches_arrives(count: int, codec: str) -> None:
    draw = Random(count)
    records, offset = [], 2**33
    for index in range(count):
        value = None if index % 7 == 0 else draw.randbytes(draw.choice([0, 5, 61, 64, 130])) * 2
        headers = (("trace", draw.randbytes(3)), ("empty", None)) if index % 5 == 0 else ()
        time = 1_700_000_000_000 + index + (draw.choice([-90_000, -70, 70, 10**7]) if index % 11 == 0 else 0)
        records.append(Made(offset, time, draw.choice([None, b"", b"key"]), value, headers))
        offset += 1 if index % 50 else 3
    batches, at = [], 0
    while at < count:
        size = draw.randrange(1, 30)
        batches.append((only(made(records[at : at + size], codec=codec)), 2**33 + 2))
        at += size
    expected = [record for record in records if record.offset >= 2**33 + 2]
    assert through(batches) == expected
    fast = side_by_side(batches, contents(batches))
    assert fast is not None
    assert list(fast.offsets) == [record.offset for record in expected]


def test_more_records_than_go_side_by_side_at_once_arrive_all_the_same() -> None:
    times = [index % 97 for index in range(2**17 + 5)]
    batches = [(only(_raw(1_000, 1_100, times, first)), first + 1) for first in (0, len(times))]
    with pytest.raises(Unusual):
        side_by_side(batches, contents(batches))
    found = through(batches)
    assert [record.timestamp for record in found] == [1_000 + time for time in times[1:] * 2]


def test_damage_in_one_of_many_batches_names_its_offset() -> None:
    records = [Made(offset, 1, None, b"value", ()) for offset in range(10 * FEW_RECORDS)]
    raws = [made(records[at : at + 10]) for at in range(0, len(records), 10)]
    broken = bytearray(raws[7])
    broken[61] += 2
    raws[7] = altered(bytes(broken))
    gathered = Repacker(PLACE)
    for raw in raws:
        gathered.add(only(raw), 0, Passage.WHOLE)
    with pytest.raises(CorruptBatchError, match="regional-a: orders-3: the batch at offset 70 is damaged"):
        list(gathered.blocks())


def _raw(base_timestamp: int, max_timestamp: int, deltas: Sequence[int], first_offset: int) -> bytes:
    out = bytearray()
    for index, delta in enumerate(deltas):
        inner = b"\x00" + encode_varint(delta) + encode_varint(index) + b"\x01\x02v\x00"
        out += encode_varint(len(inner)) + inner
    raw = finish_batch(bytes(out), len(deltas), base_timestamp, max_timestamp, Compression.NONE)
    return altered(raw, q0=first_offset)


@pytest.mark.parametrize("copies", [1, FEW_RECORDS])
@pytest.mark.parametrize(
    ("base", "deltas"),
    [
        (2**60 - 1, [0, 1, 2]),
        (-(2**60) - 5, [0, 5, 6]),
        (LARGEST - 3, [0, 3, -1]),
        (-LARGEST - 1, [0, 1]),
        (0, [LARGEST, 0, -LARGEST]),
        (1_700_000_000_000, [0, 2**55, -(2**55), 2**40]),
    ],
)
def test_timestamps_at_the_limits_stay_as_they_are(base: int, deltas: list[int], copies: int) -> None:
    size = len(deltas)
    batches = [(only(_raw(base, base + max(deltas), deltas, index * size)), 0) for index in range(copies)]
    others = [(only(_raw(-1, 0, [0, 1], size * copies)), 0)]
    found = [record.timestamp for record in through(batches + others)]
    assert [_wrapped(time) for time in found] == [base + delta for delta in deltas] * copies + [-1, 0]


def _wrapped(time: int) -> int:
    """As a reader of 64 bits has it."""
    return (time + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize("copies", [1, FEW_RECORDS])
def test_a_timestamp_of_more_than_64_bits_is_refused(copies: int) -> None:
    batches = [(only(_raw(LARGEST, LARGEST, [0, 1], 2 * index)), 0) for index in range(copies)]
    gathered = Repacker(PLACE)
    for batch, position in batches:
        gathered.add(batch, position, Passage.OPENED)
    with pytest.raises(CorruptBatchError, match=r"offset 0 is damaged: .*more than 64 bits"):
        list(gathered.blocks())


def test_lz4_is_written_as_kafkas_readers_take_it() -> None:
    data = Random(1).randbytes(70_000) + bytes(100_000)
    for quickly in (False, True):
        frame = bytes(compress(data, Compression.LZ4, quickly=quickly))
        assert bytes(decompress(memoryview(frame), Compression.LZ4)) == data
        facts = lz4.frame.get_frame_info(frame)
        assert facts["block_size_id"] == lz4.frame.BLOCKSIZE_MAX64KB
    assert not any(
        facts[name] for name in ("block_linked", "content_checksum", "block_checksum", "content_size")
    )


@given(
    st.lists(
        st.tuples(st.sampled_from(list(Compression)), st.binary(max_size=40), st.integers(1, 30)), min_size=1
    ),
    st.sampled_from([None, Compression.LZ4]),
    st.data(),
)
def test_decompressed_side_by_side_they_are_what_each_is_alone(
    parts: list[tuple[Compression, bytes, int]], one: Compression | None, data: st.DataObject
) -> None:
    hows = [one or how for how, _, _ in parts]
    frames = [
        bytearray(compress(piece * times, how)) for how, (_, piece, times) in zip(hows, parts, strict=True)
    ]
    for _ in range(data.draw(st.integers(0, 2))):
        frame = frames[data.draw(st.integers(0, len(frames) - 1))]
        if frame:
            at = data.draw(st.integers(0, min(len(frame), 14) - 1) | st.integers(0, len(frame) - 1))
            frame[at] = data.draw(st.sampled_from([0x00, 0x68, 0x80]) | st.integers(0, 255))
    ends = list(accumulate(map(len, frames), initial=61))
    whole = memoryview(bytes(61) + b"".join(frames))
    try:
        found = decompress_each(whole, np.array(ends[:-1]), np.array(ends[1:]), hows)
    except BadCompressionError:
        return
    alone = [decompress(memoryview(frame), how) for frame, how in zip(frames, hows, strict=True)]
    assert [bytes(item) for item in found] == [bytes(item) for item in alone]


@pytest.mark.parametrize("content", [b"", b"x", Random(1).randbytes(300), b"tripe" * 60, bytes(70_000)])
def test_an_ordinary_lz4_frame_is_read_side_by_side(content: bytes) -> None:
    frame = compress(content, Compression.LZ4)
    whole = memoryview(bytes(20) + frame)
    place = np.array([20]), np.array([len(whole)])
    assert [bytes(item) for item in decompress_each(whole, *place, [Compression.LZ4])] == [content]


@pytest.mark.parametrize("claimed", [0, 5, 2**20, 2**62])
def test_the_size_that_an_lz4_frame_claims_is_not_believed(claimed: int) -> None:
    data = bytes(1_000)
    frame = bytearray(lz4.frame.compress(data, store_size=True))
    frame[6:14] = struct.pack("<Q", claimed)
    try:
        found = decompress(memoryview(frame), Compression.LZ4)
    except BadCompressionError:
        return
    assert bytes(found) == data


@pytest.mark.parametrize("size", range(20))
def test_an_lz4_frame_that_ends_too_early_is_refused(size: int) -> None:
    frame = bytes(compress(b"record" * 3, Compression.LZ4))
    with pytest.raises(BadCompressionError):
        decompress(memoryview(frame[: min(size, len(frame) - 1)]), Compression.LZ4)
