"""The small messages of Kafka's protocol that the batch path speaks (KIP-98, KIP-890); `exchange` has the large ones."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka.protocol.admin import DescribeConfigsRequest, DescribeProducersRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

from parallax.domain.ids import TopicPartition

_TOPIC = 2
_TRANSACTION = 1


def _by_topic(items: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for item in items:
        topics.setdefault(str(item.topic), []).append(item.partition)
    return topics


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
