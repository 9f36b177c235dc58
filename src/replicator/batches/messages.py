"""The few messages of Kafka's protocol that the batch path speaks (KIP-98, KIP-227, KIP-516, KIP-890)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, DescribeProducersRequest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
)

from parallax.domain.ids import TopicPartition

_READ_COMMITTED = 1
_ALL_IN_SYNC = -1
_TOPIC = 2
_TRANSACTION = 1


def _by_topic(items: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for item in items:
        topics.setdefault(str(item.topic), []).append(item.partition)
    return topics


def fetch(
    wanted: Iterable[tuple[uuid.UUID, int, int, int]],
    *,
    wait_ms: int,
    most_bytes: int,
    partition_bytes: int,
) -> Any:
    """Committed batches of (topic id, partition, from offset, epoch of the record before it or -1)."""
    topics: dict[uuid.UUID, list[Any]] = {}
    for topic, partition, offset, epoch in wanted:
        topics.setdefault(topic, []).append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=partition,
                fetch_offset=offset,
                last_fetched_epoch=epoch,
                partition_max_bytes=partition_bytes,
            )
        )
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=most_bytes,
        isolation_level=_READ_COMMITTED,
        topics=[FetchRequest.FetchTopic(topic_id=topic, partitions=parts) for topic, parts in topics.items()],
        min_version=13,
        max_version=16,
    )


def produce(
    batches: Mapping[TopicPartition, bytes | bytearray],
    *,
    transactional_id: str,
    timeout_ms: int,
    newest: bool,
) -> Any:
    """One batch for each partition. ``newest``: partitions join the transaction by themselves (KIP-890)."""
    topics: dict[str, list[Any]] = {}
    for item, raw in batches.items():
        topics.setdefault(str(item.topic), []).append(
            ProduceRequest.TopicProduceData.PartitionProduceData(index=item.partition, records=raw)
        )
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=_ALL_IN_SYNC,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(name=topic, partition_data=parts)
            for topic, parts in topics.items()
        ],
        max_version=12 if newest else 11,
    )


def find_coordinator(transactional_id: str) -> Any:
    """Who coordinates the transactions of this id."""
    return FindCoordinatorRequest(key=transactional_id, key_type=_TRANSACTION, max_version=3)


def init_producer_id(transactional_id: str, timeout_ms: int, *, newest: bool) -> Any:
    """Fence whoever used the id before."""
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=-1,
        producer_epoch=-1,
        max_version=5 if newest else 4,
    )


def add_partitions(
    items: Iterable[TopicPartition], *, transactional_id: str, producer_id: int, epoch: int
) -> Any:
    """Let partitions join the transaction, where they don't by themselves."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=parts)
            for topic, parts in _by_topic(items).items()
        ],
        max_version=3,
    )


def end_transaction(
    transactional_id: str, producer_id: int, epoch: int, *, newest: bool, committed: bool
) -> Any:
    """Commit or abort."""
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        committed=committed,
        max_version=5 if newest else 3,
    )


def describe_producers(items: Iterable[TopicPartition]) -> Any:
    """Who has written to these partitions, and where their open transactions begin (KIP-664)."""
    return DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=parts)
            for topic, parts in _by_topic(items).items()
        ]
    )


def describe_topic(topic: str, key: str) -> Any:
    """One setting of a topic."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=_TOPIC, resource_name=topic, configuration_keys=[key]
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=False, include_documentation=False)
