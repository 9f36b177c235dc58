from __future__ import annotations

import struct
from random import Random

import pytest

from lab.bench.data.batches import FIRST_TIMESTAMP_MS, Shape, json_value, mean_batch, prepare
from lab.bench.data.loading import produce_errors, produce_request
from parallax.domain.ids import ClusterName, TopicName, TopicPartition
from replicator.format.batch import BatchPlace, read_records, split
from replicator.format.compression import Compression

PLACE = BatchPlace(ClusterName("aggregate-a"), TopicPartition(TopicName("trips"), 0))


def test_a_value_is_json_of_the_size_asked_for() -> None:
    value = json_value(Random(1), 170)
    assert len(value) == 170
    assert value.startswith(b'{"trip":"')
    assert value.endswith(b'"}')
    with pytest.raises(ValueError, match="at least"):
        json_value(Random(1), 20)


@pytest.mark.parametrize("compression", list(Compression))
def test_a_stamped_batch_is_right_and_every_record_tells_its_place(compression: Compression) -> None:
    for prepared in prepare(Shape(batch_bytes=4_096, variants=2, compression=compression)):
        for first in (0, 1, 123_456_789):
            (batch,) = split(prepared.at(first), PLACE)
            assert batch.compression is compression
            base = FIRST_TIMESTAMP_MS + first
            assert (batch.base_timestamp, batch.max_timestamp) == (base, base + prepared.count - 1)
            records = read_records(batch, PLACE)
            assert [record.timestamp - base for record in records] == list(range(prepared.count))


def test_batches_are_filled_to_their_size_and_no_further() -> None:
    for batch in prepare(Shape(batch_bytes=4_096, variants=3)):
        assert 4_096 - 200 < batch.record_bytes <= 4_096
    assert [batch.count for batch in prepare(Shape(batch_records=5, variants=2))] == [5, 5]


def test_the_same_seed_gives_the_same_bytes() -> None:
    shape = Shape(batch_records=3, variants=2)
    assert [batch.at(7) for batch in prepare(shape)] == [batch.at(7) for batch in prepare(shape)]
    assert prepare(shape)[0].at(0) != prepare(shape)[1].at(0)


def test_a_data_set_knows_its_mean_batch() -> None:
    batches = prepare(Shape(batch_records=4, variants=2, compression=Compression.NONE))
    assert mean_batch(batches) == (4.0, sum(len(batch.at(0)) for batch in batches) / 2)


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
