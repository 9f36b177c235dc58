"""Small batches taken apart side by side, held against the plain way: batch for batch, record for record, error for error."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import TypeVar

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.format import repack
from replicator.format.batch import Batch, CorruptBatchError, read_records, split
from replicator.format.block import BatchBlock, detach_from_answer
from replicator.format.compression import Compression, decompress
from replicator.format.repack import AbortedRanges, Passage, blocks_of, passage_of
from replicator.format.small_batches import (
    FULL_BYTES,
    LEAST_BATCHES,
    MERGED_BYTES,
    WHOLE_FROM_BYTES,
    SmallBatches,
    batches_of,
)
from tests.worlds.batches_made import PLACE, Made, altered, control, made, read

BELOW_RECORDS = 6
"""Keeps the batches that count as large small enough to be made many times."""


_LZ4_HEADER_BYTES = 7
"""Of a frame that claims no size."""


@dataclass
class At:
    """How far the partition has been read."""

    position: int = 0
    epoch: int = -1


def tiny(
    offset: int, *, count: int = 1, codec: str = "lz4", epoch: int = 5, last_offset: int | None = None
) -> bytes:
    records = [
        Made(
            offset + index,
            1_000 + (offset * 7 + index) % 90,
            None if offset % 3 else b"k",
            b"v" * (60 + offset % 50),
            (),
        )
        for index in range(count)
    ]
    return made(records, codec=codec, leader_epoch=epoch, last_offset=last_offset)


Item = TypeVar("Item")
Log = tuple[list[bytes], list[tuple[int, int]]]
"""Batches, and the aborted transactions among them."""
ODD = ["commit", "abort", "time", "hole", "large", "plain", "empty"]


def odd(kind: str, offset: int, codec: str, epoch: int) -> list[bytes]:
    """What may stand between tiny batches."""
    few = tiny(offset, count=2, codec=codec, epoch=epoch)
    match kind:
        case "commit" | "abort":
            record = made([Made(offset, 1, None, b"t", ())], producer=(9, 0, 0), transactional=True)
            marker = control(offset + 1, 9, commit=kind == "commit")
            return [altered(raw, i12=epoch) for raw in (record, marker)]
        case "time":
            return [altered(few, h21=0x08 | few[22], q35=77_000)]
        case "hole":
            return [tiny(offset, count=2, codec=codec, epoch=epoch, last_offset=offset + 5)]
        case "large":
            return [tiny(offset, count=BELOW_RECORDS + 1, codec=codec, epoch=epoch)]
        case "plain":
            return [tiny(offset, codec="none", epoch=epoch)]
        case _:
            return [altered(few, i57=0)]


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Stretches of tiny batches, each followed by something odd, by a gap, or by another epoch or compression."""
    offset = draw(st.integers(0, 2**40))
    result: list[bytes] = []
    aborted: list[tuple[int, int]] = []
    for epoch in range(draw(st.integers(1, 5))):
        codec = draw(st.sampled_from(["lz4", "lz4", "none", "zstd", "gzip", "snappy"]))
        for _ in range(draw(st.sampled_from([0, 1, LEAST_BATCHES - 1, LEAST_BATCHES, 2 * LEAST_BATCHES]))):
            result.append(tiny(offset, count=1 + offset % 3, codec=codec, epoch=epoch // 2))
            offset += 1 + offset % 3
        kind = draw(st.sampled_from(ODD))
        if kind == "abort":
            aborted.append((9, offset))
        result += odd(kind, offset, codec, epoch // 2)
        offset += draw(st.integers(10, 99))
    return result, aborted


def collected(items: Iterable[Item]) -> tuple[list[Item], str]:
    """The items, and the damage that ended them."""
    found: list[Item] = []
    try:
        found.extend(items)
    except CorruptBatchError as error:
        return found, str(error)
    return found, ""


def outcome(blocks: list[BatchBlock]) -> list[Made]:
    """What a reader sees of the blocks, with the offsets of the source."""
    result = []
    for block in blocks:
        records = read(bytes(block.raw))
        result += [
            record._replace(offset=offset)
            for record, offset in zip(records, list(block.offsets), strict=True)
        ]
    return result


def plainly(raw: bytes, position: int, aborted: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of every record that passes."""
    hiding = AbortedRanges(aborted)
    for batch in split(raw, PLACE, at_offset=position):
        if not hiding.hides(batch, PLACE) and passage_of(batch, position) is not Passage.DROPPED:
            inside = read_records(batch, PLACE)
            yield from ((item.offset, item.timestamp) for item in inside if item.offset >= position)
        position = batch.next_offset


@given(logs(), st.data())
def test_every_record_passes_as_if_its_batch_were_alone(log: Log, data: st.DataObject) -> None:
    raws, aborted = log
    whole = bytearray(b"".join(raws))
    (first,) = split(raws[0], PLACE)
    position = data.draw(st.sampled_from([0, first.base_offset, first.next_offset - 1]))
    match data.draw(st.sampled_from(["as it is", "flip", "cut", "swap"])):
        case "flip":
            whole[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del whole[data.draw(st.integers(0, len(whole))) :]
        case "swap":
            one, other = (data.draw(st.integers(0, len(raws) - 1)) for _ in range(2))
            raws[one], raws[other] = raws[other], raws[one]
            whole = bytearray(b"".join(raws))
    blocks, damage = collected(
        blocks_of(
            whole,
            At(position),
            PLACE,
            AbortedRanges(aborted),
            whole_from_records=BELOW_RECORDS,
            merged_bytes=data.draw(st.sampled_from([0, 1, 100, 500, 3_000, MERGED_BYTES])),
        )
    )
    seen = [(record.offset, record.timestamp) for record in outcome(blocks)]
    assert (seen, damage) == collected(plainly(bytes(whole), position, aborted))


@given(logs(), st.data())
def test_parted_has_the_batches_that_split_has(log: Log, data: st.DataObject) -> None:
    whole = bytearray(b"".join(log[0]))
    for _ in range(data.draw(st.integers(0, 2))):
        at = data.draw(st.integers(0, len(whole) - 1))
        whole[at] = data.draw(st.integers(0, 255))
    parts, damage = collected(batches_of(whole, PLACE, at_offset=0, below_records=BELOW_RECORDS))
    found: list[Batch] = []
    for item in parts:
        if isinstance(item, SmallBatches):
            inside = list(split(item.raw, PLACE, at_offset=item.base_offset, may_begin_below=False))
            assert len(inside) == len(item.begins) >= LEAST_BATCHES
            assert (item.next_offset, item.leader_epoch) == (inside[-1].next_offset, inside[-1].leader_epoch)
            assert item.compressions == [batch.compression for batch in inside]
            assert not any(batch.is_transactional or batch.is_control for batch in inside)
            found += inside
        else:
            found.append(item)
    assert (found, damage) == collected(split(whole, PLACE))


def kinds(raws: list[bytes], *, at_offset: int = 0) -> list[int]:
    """How many batches each item has that `batches_of` hands out."""
    found = batches_of(b"".join(raws), PLACE, at_offset=at_offset, below_records=BELOW_RECORDS)
    return [len(item.begins) if isinstance(item, SmallBatches) else 1 for item in found]


def test_enough_tiny_batches_are_a_stretch() -> None:
    raws = [tiny(offset) for offset in range(LEAST_BATCHES)]
    assert kinds(raws) == [LEAST_BATCHES]
    assert kinds(raws[1:]) == [1] * (LEAST_BATCHES - 1)


def test_a_stretch_ends_before_what_may_not_be_in_it() -> None:
    before = [tiny(offset) for offset in range(20)]
    after = [tiny(offset) for offset in range(40, 44)]
    for strange in (
        tiny(30, codec="zstd"),
        tiny(30, epoch=6),
        tiny(30, count=BELOW_RECORDS),
        made([Made(30, 1, None, bytes(WHOLE_FROM_BYTES), ())]),
        control(30, 1, commit=True),
        altered(tiny(30), i57=0),
    ):
        assert kinds([*before, strange, *after])[:2] == [20, 1]
    assert kinds([*before, tiny(30, codec="none"), *after]) == [25]


def test_a_stretch_begins_only_where_the_first_batch_is_wanted_whole() -> None:
    raws = [tiny(offset, count=2) for offset in range(100, 140, 2)]
    assert kinds(raws, at_offset=100) == [20]
    assert kinds(raws, at_offset=101) == [1] * 20


def test_what_becomes_one_batch_is_bounded() -> None:
    raws = [made([Made(offset, 1, None, Random(offset).randbytes(5_000), ())]) for offset in range(200)]
    sizes = kinds(raws)
    assert sum(sizes) == 200
    assert max(sizes) <= FULL_BYTES / 5_000 + 1


@pytest.mark.parametrize("codec", ["lz4", "zstd", "none"])
def test_damage_inside_a_stretch_names_its_offset(codec: str) -> None:
    raws = [tiny(offset, codec=codec) for offset in range(50)]
    hostile = bytearray(raws[31])
    hostile[61:65] = b"\xee\xee\xee\xee"
    raws[31] = altered(bytes(hostile))
    blocks = blocks_of(b"".join(raws), At(), PLACE, AbortedRanges(), whole_from_records=BELOW_RECORDS)
    with pytest.raises(CorruptBatchError, match="regional-a: orders-3: the batch at offset 31 is damaged"):
        list(blocks)


@pytest.mark.parametrize("claimed_bytes", [2**40, 2**62])
def test_a_frame_that_claims_a_size_is_not_believed(claimed_bytes: int) -> None:
    raws = [tiny(offset) for offset in range(50)]
    (batch,) = split(raws[7], PLACE)
    content = decompress(batch.records, batch.compression)
    said = lz4.frame.compress_begin(lz4.frame.create_compression_context(), source_size=claimed_bytes)
    frame = said + lz4.frame.compress(content, store_size=False)[_LZ4_HEADER_BYTES:]
    raws[7] = altered(raws[7][:61] + frame, i8=61 + len(frame) - 12)
    blocks, damage = collected(
        blocks_of(b"".join(raws), At(), PLACE, AbortedRanges(), whole_from_records=BELOW_RECORDS)
    )
    if damage:
        assert "the batch at offset 7 is damaged" in damage
    else:
        assert [record.offset for record in outcome(blocks)] == list(range(50))


def bombs(codec: str, *, count: int, size: int, log_append_time: bool = False) -> bytes:
    """Small batches of one record each, of which much comes out."""
    (one,) = [made([Made(0, 1_000, b"k", bytes(size), ())], codec=codec)]
    fields = {"h21": 0x08 | one[22]} if log_append_time else {}
    return b"".join(altered(one, q0=offset, **fields) for offset in range(count))


def passed(raw: bytes, merged_bytes: int = MERGED_BYTES) -> list[BatchBlock]:
    return list(
        blocks_of(raw, At(), PLACE, AbortedRanges(), whole_from_records=64, merged_bytes=merged_bytes)
    )


def peak_bytes(raw: bytes) -> int:
    """The most memory that it takes to pass these batches on."""
    tracemalloc.start()
    try:
        passed(raw)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("codec", "count"), [("zstd", 6), ("zstd", 2 * LEAST_BATCHES), ("gzip", 6)])
def test_small_batches_of_which_much_comes_out_take_bounded_memory(codec: str, count: int) -> None:
    raw = bombs(codec, count=count, size=20 * 1024 * 1024)
    assert len(raw) < count * WHOLE_FROM_BYTES
    assert peak_bytes(raw) < 3 * MERGED_BYTES


def test_without_the_bound_they_would_take_all_memory() -> None:
    raw = bombs("zstd", count=6, size=20 * 1024 * 1024)
    tracemalloc.start()
    try:
        passed(raw, 2**40)
        assert tracemalloc.get_traced_memory()[1] > 6 * 20 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("log_append_time", [False, True])
@pytest.mark.parametrize("count", [5, 2 * LEAST_BATCHES])
def test_batches_that_would_be_too_much_together_are_divided_and_pass_whole_if_they_may(
    codec: str,
    log_append_time: bool,  # noqa: FBT001 - a case
    count: int,
) -> None:
    raw = bombs(codec, count=count, size=10_000, log_append_time=log_append_time)
    divided = passed(raw, 3 * 10_100)
    assert [len(block.offsets) for block in divided[:-1]] == [3] * (len(divided) - 1)
    assert len(passed(raw, 5_000)) == count
    assert outcome(passed(raw, 5_000)) == outcome(divided) == outcome(passed(raw))


def test_a_batch_that_has_to_be_opened_and_has_far_too_much_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repack, "LARGEST_RECORDS_BYTES", 50_000)
    raw = bombs("zstd", count=1, size=60_000, log_append_time=True)
    with pytest.raises(
        CorruptBatchError, match="the batch at offset 0 is damaged: more than 50000 bytes come out"
    ):
        passed(raw)


def test_a_stretch_keeps_its_compression() -> None:
    raws = [tiny(offset, codec="none" if offset % 2 else "zstd") for offset in range(40)]
    (block,) = blocks_of(b"".join(raws), At(), PLACE, AbortedRanges(), whole_from_records=BELOW_RECORDS)
    (batch,) = split(block.raw, PLACE)
    assert batch.compression is Compression.ZSTD
    assert [record.offset for record in outcome([block])] == list(range(40))


def test_only_what_keeps_more_than_itself_is_copied() -> None:
    raws = [tiny(0, count=BELOW_RECORDS), *(tiny(offset) for offset in range(10, 40))]
    answer = bytearray(b"".join(raws) + bytes(10_000))
    whole, made_here = blocks_of(
        memoryview(answer)[: len(answer) - 10_000],
        At(),
        PLACE,
        AbortedRanges(),
        whole_from_records=BELOW_RECORDS,
    )
    ((_, first), (_, second)) = detach_from_answer([[(1, whole), (2, made_here)]], len(answer))[0]
    assert second is made_here
    assert isinstance(first, BatchBlock)
    assert bytes(first.raw) == raws[0]
    assert first.raw.obj is not answer
    assert detach_from_answer([[(1, whole)]], len(raws[0])) == [[(1, whole)]]
