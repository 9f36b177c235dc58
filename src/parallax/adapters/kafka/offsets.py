"""ListOffsets by an admin client that may have lived through a change of leaders."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

_OUTDATED = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.NOT_LEADER_FOR_PARTITION,
}


def list_offsets(
    admin: AdminClient,
    request: Mapping[KafkaPartition, OffsetSpec],
    *,
    isolation_level: IsolationLevel,
    request_timeout: float,
) -> dict[KafkaPartition, Future[Any]]:
    """`AdminClient.list_offsets`, asked again with fresh metadata if the client's own was outdated.

    librdkafka sends the leader epoch that it has cached and doesn't refresh it when the broker refuses it: after a
    broker's restart the same client would fail with FENCED_LEADER_EPOCH for minutes (seen with 2.16).
    """
    asked = dict(request)
    futures: dict[KafkaPartition, Future[Any]] = admin.list_offsets(
        asked, isolation_level=isolation_level, request_timeout=request_timeout
    )
    wait_for(futures.values(), timeout=request_timeout + 1)
    if not any(_outdated(future) for future in futures.values()):
        return futures
    try:
        admin.list_topics(timeout=request_timeout)
    except KafkaException:  # the cluster is away: the first answers say so well enough
        return futures
    again: dict[KafkaPartition, Future[Any]] = admin.list_offsets(
        asked, isolation_level=isolation_level, request_timeout=request_timeout
    )
    return again


def _outdated(future: Future[Any]) -> bool:
    error = future.exception() if future.done() else None
    return isinstance(error, KafkaException) and error.args[0].code() in _OUTDATED
