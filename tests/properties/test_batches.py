"""Batches on their way: against batches made, and read again, by another implementation."""

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.format.batch import Batch, CorruptBatchError, make_batch, read_records, rewrite_batch, split
from replicator.format.compression import BadCompressionError, Compression, compress, decompress
from replicator.format.repack import AbortedRanges, Passage, Repacker, is_small, passage_of
from replicator.format.small_batches import WHOLE_FROM_BYTES
from replicator.kafka.transactions.coordinator import SEQUENCES, ProducerState
from tests.worlds.batches_made import CODECS, PLACE, Made, altered, control, made, read

TIMES = st.integers(0, 2**42)
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn, *, holes: bool = False) -> list[Made]:
    offset = draw(st.integers(0, 2**40))
    result = []
    for _ in range(draw(st.integers(1, 12))):
        headers = tuple(draw(HEADERS))
        value = draw(st.none() | st.binary(min_size=1, max_size=8).map(lambda piece: piece * 40))
        result.append(Made(offset, draw(TIMES), draw(BYTES), value, headers))
        offset += draw(st.integers(1, 400)) if holes else 1
    return result


CODEC = st.sampled_from(sorted(CODECS))


def only(raw: bytes | bytearray) -> Batch:
    (batch,) = split(raw, PLACE)
    return batch


@given(record_lists(), CODEC, st.integers(0, 2**62), st.integers(0, 32767), st.integers(0, SEQUENCES - 1))
def test_a_rewritten_batch_differs_in_nothing_but_its_producer_and_place(
    records: list[Made], codec: str, producer_id: int, epoch: int, sequence: int
) -> None:
    before = made(records, codec=codec)
    raw = altered(before, h21=only(before).attributes | 0x40)
    result = b"".join(rewrite_batch(raw, producer_id, epoch, sequence))
    assert read(result) == [record._replace(offset=index) for index, record in enumerate(records)]
    after = only(result)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (producer_id, epoch, sequence)
    assert (after.base_offset, after.leader_epoch, after.attributes) == (
        0,
        -1,
        only(before).attributes | 0x10,
    )
    same = [slice(8, 12), slice(16, 17), slice(23, 43), slice(57, None)]
    assert [result[part] for part in same] == [raw[part] for part in same]


@given(st.lists(record_lists(), min_size=1, max_size=4), CODEC, st.data())
def test_a_buffer_splits_into_its_whole_batches(
    parts: list[list[Made]], codec: str, data: st.DataObject
) -> None:
    base, raws = 0, []
    for part in parts:
        moved = [record._replace(offset=base + index) for index, record in enumerate(part)]
        raws.append(made(moved, codec=codec))
        base += len(part) + 3
    whole = b"".join(raws)
    cut = data.draw(st.integers(0, len(whole)))
    found = list(split(whole[:cut], PLACE))
    ends = [sum(map(len, raws[: index + 1])) for index in range(len(raws))]
    assert [bytes(batch.raw) for batch in found] == raws[: sum(end <= cut for end in ends)]
    assert [batch.count for batch in found] == [len(part) for part in parts[: len(found)]]


@given(record_lists(holes=True), CODEC)
def test_an_opened_batch_holds_what_another_reader_finds(records: list[Made], codec: str) -> None:
    batch = only(made(records, codec=codec))
    inside = read_records(batch, PLACE)
    assert [(record.offset, record.timestamp) for record in inside] == [
        (record.offset, record.timestamp) for record in records
    ]
    again = read(make_batch(inside, batch.compression))
    assert again == [record._replace(offset=index) for index, record in enumerate(records)]


@given(st.lists(record_lists(holes=True), min_size=1, max_size=5), CODEC, st.integers(0, 500))
def test_batches_gathered_into_one_hold_the_records_of_all(
    parts: list[list[Made]], codec: str, skipped: int
) -> None:
    base, expected, gathered = 1_000, [], Repacker(PLACE)
    for part in parts:
        first = part[0].offset
        moved = [record._replace(offset=base + record.offset - first) for record in part]
        batch = only(made(moved, codec=codec))
        assert gathered.takes(batch)
        gathered.add(batch, base + skipped, Passage.OPENED)
        expected += [record for record in moved if record.offset >= base + skipped]
        base = batch.next_offset
    blocks = list(gathered.blocks())
    assert list(gathered.blocks()) == []
    assert len(blocks) == bool(expected)
    if not expected:
        return
    (block,) = blocks
    assert list(block.offsets) == [record.offset for record in expected]
    assert read(bytes(block.raw)) == [record._replace(offset=index) for index, record in enumerate(expected)]
    assert block.newest_timestamp_ms == expected[-1].timestamp
    assert only(bytes(block.raw)).max_timestamp == max(record.timestamp for record in expected)


def test_what_is_gathered_is_of_one_epoch_and_one_compression() -> None:
    def batch(epoch: int, codec: str) -> Batch:
        return only(made([Made(1, 1, None, bytes(200), ())], leader_epoch=epoch, codec=codec))

    gathered = Repacker(PLACE)
    gathered.add(batch(5, "lz4"), 0, Passage.WHOLE)
    assert gathered.takes(batch(5, "lz4"))
    assert not gathered.takes(batch(6, "lz4"))
    assert gathered.takes(batch(5, "none"))
    assert not gathered.takes(batch(5, "zstd"))
    (alone,) = gathered.blocks()
    assert bytes(alone.raw) == bytes(batch(5, "lz4").raw)


@given(record_lists(), CODEC)
def test_the_brokers_time_is_on_every_record(records: list[Made], codec: str) -> None:
    raw = made(records, codec=codec)
    raw = altered(raw, h21=only(raw).attributes | 0x08, q35=1_234_567)
    batch = only(raw)
    assert passage_of(batch, 0) is Passage.OPENED
    again = make_batch(read_records(batch, PLACE), batch.compression)
    assert {record.timestamp for record in read(again)} == {1_234_567}
    gathered = Repacker(PLACE)
    gathered.add(batch, 0, Passage.OPENED)
    (block,) = gathered.blocks()
    assert [record.timestamp for record in read(bytes(block.raw))] == [1_234_567] * len(records)
    assert not only(again).is_log_append_time


@given(st.binary(max_size=300), st.integers(0, 1_000), st.sampled_from(list(Compression)))
def test_compression_comes_back(piece: bytes, times: int, how: Compression) -> None:
    data = piece * times
    assert bytes(decompress(memoryview(compress(data, how)), how)) == data


@pytest.mark.parametrize("how", [item for item in Compression if item is not Compression.NONE])
def test_a_small_batch_can_not_demand_all_memory(how: Compression) -> None:
    bomb = compress(bytes(8 * 1024 * 1024), how)
    with pytest.raises(BadCompressionError, match="more than 1000 bytes"):
        decompress(memoryview(bomb), how, 1_000)


@given(record_lists(holes=True), CODEC, st.data())
def test_no_flipped_bit_gets_through(records: list[Made], codec: str, data: st.DataObject) -> None:
    raw = bytearray(made(records, codec=codec))
    at = data.draw(st.integers(16, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptBatchError, match=r"regional-a: orders-3: the batch at offset 0 is damaged"):
        list(split(raw, PLACE))


@given(st.binary(max_size=400), st.integers(0, 2**40))
def test_noise_is_refused_or_ignored_never_handed_out(noise: bytes, offset: int) -> None:
    found: list[Batch] = []
    damage = ""
    try:
        found = list(split(noise, PLACE, at_offset=offset))
    except CorruptBatchError as error:
        damage = str(error)
    assert found == []
    assert not damage or f"the batch at offset {offset} is damaged" in damage


@given(record_lists(holes=True), CODEC, st.data())
def test_a_hostile_batch_with_a_fitting_checksum_opens_or_is_refused(
    records: list[Made], codec: str, data: st.DataObject
) -> None:
    raw = bytearray(made(records, codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(21, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(61, len(raw))) :]
        struct.pack_into(">i", raw, 8, len(raw) - 12)
    hostile = altered(bytes(raw))
    gathered = Repacker(PLACE)
    try:
        (batch,) = split(hostile, PLACE)
    except CorruptBatchError:
        return
    gathered.add(batch, 0, Passage.OPENED)
    try:
        inside = read_records(batch, PLACE)
    except CorruptBatchError:
        with pytest.raises(CorruptBatchError):
            list(gathered.blocks())
        return
    blocks = list(gathered.blocks())
    assert [offset for block in blocks for offset in block.offsets] == [record.offset for record in inside]
    offsets = [record.offset for record in inside]
    assert len(inside) == batch.count
    assert all(earlier < later for earlier, later in itertools.pairwise(offsets))
    assert all(batch.base_offset <= offset < batch.next_offset for offset in offsets)


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_an_impossible_length_names_its_place(length: int) -> None:
    good = made([Made(7, 1, None, b"v", ())])
    bad = bytearray(made([Made(8, 1, None, b"v", ())]))
    struct.pack_into(">i", bad, 8, length)
    batches = split(good + bytes(bad), PLACE, at_offset=7)
    assert next(batches).base_offset == 7
    with pytest.raises(
        CorruptBatchError, match=f"orders-3: the batch at offset 8 .* length of {length} bytes"
    ):
        next(batches)


@pytest.mark.parametrize(
    ("fields", "damage"),
    [
        ({"b16": 1}, "message format 1 is not 2"),
        ({"i57": -1}, "-1 records"),
        ({"i57": 3}, "3 records can't have 1 offsets"),
        ({"i23": -1}, "last delta -1"),
        ({"q0": -5}, "base offset -5"),
        ({"q0": 2**63 - 1}, "base offset"),
        ({"h21": 5}, "compression 5 is unknown"),
    ],
)
def test_what_can_not_be_is_refused_by_name(fields: dict[str, int], damage: str) -> None:
    raw = altered(made([Made(7, 1, None, b"v", ())]), **fields)
    with pytest.raises(CorruptBatchError, match=damage):
        list(split(raw, PLACE))


def test_batches_that_go_back_are_refused() -> None:
    first, second = (made([Made(offset, 1, None, b"v", ())]) for offset in (7, 8))
    assert [batch.base_offset for batch in split(first + second, PLACE)] == [7, 8]
    with pytest.raises(CorruptBatchError, match="which come before"):
        list(split(second + first, PLACE))
    with pytest.raises(CorruptBatchError, match="which come before"):
        list(split(first, PLACE, at_offset=8))


def test_what_passes_whole() -> None:
    records = [Made(10 + index, 1, None, b"v", ()) for index in range(3)]
    whole = only(made(records))
    assert passage_of(whole, 10) is Passage.WHOLE
    assert passage_of(whole, 11) is Passage.OPENED
    assert passage_of(only(made(records, last_offset=14)), 10) is Passage.OPENED
    assert passage_of(only(control(10, 1, commit=True)), 10) is Passage.DROPPED
    assert passage_of(only(altered(made(records), i57=0)), 10) is Passage.DROPPED


def test_a_batch_of_few_records_is_small_unless_they_are_large() -> None:
    few = [Made(index, 1, None, b"v", ()) for index in range(63)]
    assert is_small(only(made(few)), 64)
    assert not is_small(only(made([*few, Made(63, 1, None, b"v", ())])), 64)
    assert not is_small(only(made([Made(0, 1, None, bytes(WHOLE_FROM_BYTES), ())])), 64)


def test_aborted_ranges_end_at_their_own_marker() -> None:
    def data(offset: int, producer: int) -> bytes:
        record = Made(offset, 1, None, b"v", ())
        return made([record], producer=(producer, 0, 0), transactional=True)

    log = [
        data(0, 1),
        data(1, 2),
        control(2, 1, commit=False),
        data(3, 1),
        control(4, 2, commit=True),
        control(5, 1, commit=True),
        data(6, 1),
        made([Made(7, 1, None, b"v", ())]),
        control(8, 1, commit=False),
        data(9, 1),
    ]
    aborted = AbortedRanges([(1, 6), (1, 0)])
    hidden = [batch.base_offset for batch in split(b"".join(log), PLACE) if aborted.hides(batch, PLACE)]
    assert hidden == [0, 6]


def test_sequences_wrap_and_begin_anew_with_an_epoch() -> None:
    item, state = PLACE.topic_partition, ProducerState(1, 0)
    assert [state.take(item, SEQUENCES - 2), state.take(item, 5), state.take(item, 1)] == [
        0,
        SEQUENCES - 2,
        3,
    ]
    state.renewed(1, 0)
    assert state.take(item, 1) == 4
    state.renewed(1, 1)
    assert state.take(item, 1) == 0
