"""Fetch answers and Produce requests, against kafka-python's own reading and writing of them."""

from __future__ import annotations

import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.producer import ProduceRequest

from parallax.domain.ids import TopicName, TopicPartition
from replicator.kafka.batch.exchange import Fetch, Fetched, Produce, WantedPartition

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
CODE = st.integers(-1, 2**15 - 1)
_Topic = FetchResponse.FetchableTopicResponse
_Partition = _Topic.PartitionData

PARTITIONS = st.builds(
    _Partition,
    partition_index=INT32,
    error_code=CODE,
    high_watermark=INT64,
    last_stable_offset=INT64,
    log_start_offset=INT64,
    aborted_transactions=st.none()
    | st.lists(st.builds(_Partition.AbortedTransaction, producer_id=INT64, first_offset=INT64), max_size=3),
    preferred_read_replica=INT32,
    records=st.none() | st.binary(max_size=300),
    diverging_epoch=st.none() | st.builds(_Partition.EpochEndOffset, epoch=INT32, end_offset=INT64),
    current_leader=st.none() | st.builds(_Partition.LeaderIdAndEpoch, leader_id=INT32, leader_epoch=INT32),
)
ANSWERS = st.builds(
    FetchResponse,
    throttle_time_ms=INT32,
    error_code=CODE,
    session_id=INT32,
    responses=st.lists(
        st.builds(
            _Topic,
            topic_id=st.uuids(allow_nil=False),
            partitions=st.lists(PARTITIONS, max_size=4),
        ),
        max_size=3,
    ),
)


def fetch(version: int = 16) -> Fetch:
    request = Fetch([WantedPartition(uuid.UUID(int=1), 0, 5)], wait_ms=1, most_bytes=1, partition_bytes=1)
    request.API_VERSION = version
    return request


@given(ANSWERS, st.sampled_from([13, 14, 15, 16]))
def test_a_fetch_answer_is_read_as_kafka_python_reads_it(answer: FetchResponse, version: int) -> None:
    raw = bytes(answer.encode(version=version))
    theirs = FetchResponse.decode(raw, version=version)
    ours = fetch(version).read(memoryview(raw))
    assert (ours.throttle_time_ms, ours.error_code) == (theirs.throttle_time_ms, theirs.error_code)
    parts = [(topic.topic_id, part) for topic in theirs.responses for part in topic.partitions]
    assert len(parts) == len(ours.partitions)
    for (topic_id, their), our in zip(parts, ours.partitions, strict=True):
        assert our.topic_id == topic_id
        assert our.partition == their.partition_index
        assert our.error_code == their.error_code
        assert our.high_watermark == their.high_watermark
        assert our.last_stable_offset == their.last_stable_offset
        assert list(our.aborted) == [
            (item.producer_id, item.first_offset) for item in their.aborted_transactions or ()
        ]
        assert our.nearer_replica == their.preferred_read_replica
        assert bytes(our.records) == (their.records or b"")
        diverging = their.diverging_epoch
        found = our.diverging_from or (-1, -1)
        assert found == ((-1, -1) if diverging is None else (diverging.epoch, diverging.end_offset))


@given(ANSWERS, st.data())
def test_a_damaged_fetch_answer_is_refused_or_read_but_never_anything_else(
    answer: FetchResponse, data: st.DataObject
) -> None:
    raw = bytearray(answer.encode(version=16))
    for _ in range(data.draw(st.integers(0, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        found = fetch().read(memoryview(cut))
    except (ValueError, IndexError, struct.error):
        return
    assert isinstance(found, Fetched)
    assert sum(len(part.records) for part in found.partitions) <= len(cut)


def test_a_length_beyond_the_answer_is_refused() -> None:
    part = _Partition(partition_index=0, error_code=0, high_watermark=1, records=b"x" * 100)
    answer = FetchResponse(responses=[_Topic(topic_id=uuid.UUID(int=1), partitions=[part])])
    raw = memoryview(bytes(answer.encode(version=16)))
    with pytest.raises(ValueError, match="100 bytes of records in an answer with 99 left"):
        fetch().read(raw[: raw.tobytes().index(b"x") + 99])


@given(
    st.dictionaries(
        st.builds(
            TopicPartition, st.text(min_size=1, max_size=200).map(TopicName), st.integers(0, 2**31 - 1)
        ),
        st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=3),
        max_size=5,
    ),
    st.text(max_size=200),
    st.integers(0, 2**31 - 1),
    st.sampled_from([9, 10, 11, 12]),
)
def test_a_produce_request_is_written_as_kafka_python_writes_it(
    batches: dict[TopicPartition, list[bytes]], transactional_id: str, timeout_ms: int, version: int
) -> None:
    ours = Produce(batches, transactional_id=transactional_id, timeout_ms=timeout_ms, newest=True)
    ours.API_VERSION = version
    topics: dict[str, list[ProduceRequest.TopicProduceData.PartitionProduceData]] = {}
    for item, pieces in batches.items():
        topics.setdefault(str(item.topic), []).append(
            ProduceRequest.TopicProduceData.PartitionProduceData(
                index=item.partition, records=b"".join(pieces)
            )
        )
    theirs = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(name=topic, partition_data=parts)
            for topic, parts in topics.items()
        ],
    )
    assert b"".join(ours.parts()) == bytes(theirs.encode(version=version))
