"""ListOffsets by librdkafka's admin client, for the replicator; the services ask by `parallax.adapters.kafka.logs`."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from functools import partial
from typing import Any

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException
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

    A leader that dies while it is asked leaves librdkafka with offset -1001 and no error (seen with 2.16): taken
    for an end, it would say that the log is empty. Such a future fails with _TIMED_OUT here.
    """
    asked = dict(request)
    futures: dict[KafkaPartition, Future[Any]] = admin.list_offsets(
        asked, isolation_level=isolation_level, request_timeout=request_timeout
    )
    wait_for(futures.values(), timeout=request_timeout + 1)
    if any(_outdated(future) for future in futures.values()):
        try:
            admin.list_topics(timeout=request_timeout)
        except KafkaException:  # the cluster is away: the first answers say so well enough
            return _checked(futures)
        futures = admin.list_offsets(asked, isolation_level=isolation_level, request_timeout=request_timeout)
    return _checked(futures)


def _outdated(future: Future[Any]) -> bool:
    error = future.exception() if future.done() else None
    return isinstance(error, KafkaException) and error.args[0].code() in _OUTDATED


def _checked(futures: Mapping[KafkaPartition, Future[Any]]) -> dict[KafkaPartition, Future[Any]]:
    """The same answers, but those without an offset fail."""
    checked: dict[KafkaPartition, Future[Any]] = {}
    for place, future in futures.items():
        checked[place] = Future()
        future.add_done_callback(partial(_pass_on, checked[place]))
    return checked


def _pass_on(to: Future[Any], done: Future[Any]) -> None:
    error = done.exception()
    if error is None and done.result().offset == OFFSET_INVALID:
        why = "the partition's leader went away before it answered"
        error = KafkaException(KafkaError(KafkaError._TIMED_OUT, why))  # noqa: SLF001 - librdkafka's name for it
    if error is None:
        to.set_result(done.result())
    else:
        to.set_exception(error)
