"""Topics of a workload: created, waited for, measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from lab.stack.access import kafka_client
from lab.workload.worker import WorkerError, wait_until
from parallax.adapters.kafka.librdkafka import list_offsets

_ANSWER_S, _CHANGED_S, _AGAIN_S = 30.0, 90.0, 0.5
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the library leaves it untyped


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """Create a topic; nothing happens if it exists.

    Returns once the brokers have begun all its partitions. Of records that reach them sooner librdkafka may say that they
    were written, without an offset, though they were not.

    Raises:
        WorkerError: the cluster refused, or did not answer.
    """
    _change(
        bootstrap_servers,
        lambda admin: admin.create_topics([NewTopic(topic, partitions)])[topic],
        KafkaError.TOPIC_ALREADY_EXISTS,
        f"topic {topic} was not created",
    )
    ends = EndOffsets(bootstrap_servers, topic, partitions)
    wait_until(
        lambda: ends.ask() is not None,
        _CHANGED_S,
        f"{bootstrap_servers}: the partitions of {topic} were not begun in {_CHANGED_S:.0f} s",
    )


def delete_topic(bootstrap_servers: str, topic: str) -> None:
    """Delete a topic; nothing happens if there is none.

    Raises:
        WorkerError: the cluster refused, or did not answer.
    """
    _change(
        bootstrap_servers,
        lambda admin: admin.delete_topics([topic])[topic],
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        f"topic {topic} was not deleted",
    )


def _change(
    bootstrap_servers: str, ask: Callable[[AdminClient], Future[None]], done_already: int, otherwise: str
) -> None:
    """Ask a cluster until it has done something; one that has just stood still may let a request lie.

    Raises:
        WorkerError: the cluster refused, or did not answer.
    """
    give_up_at = time.monotonic() + _CHANGED_S
    while True:
        # A client that has seen its cluster die takes long to see it return; a new one does not.
        admin = AdminClient({**kafka_client(bootstrap_servers), "log_level": 3})
        try:
            ask(admin).result(timeout=_ANSWER_S)
        except KafkaException as error:
            if error.args[0].code() == done_already:
                return
            if not error.args[0].retriable() or time.monotonic() > give_up_at:
                raise WorkerError(f"{bootstrap_servers}: {otherwise}: {error}") from error
            time.sleep(_AGAIN_S)
        except TimeoutError as error:
            if time.monotonic() > give_up_at:
                raise WorkerError(f"{bootstrap_servers}: {otherwise}: no answer") from error
        else:
            return


def wait_for_topic(bootstrap_servers: str, topic: str, partitions: int, within_s: float) -> float:
    """Wait until a topic is there; returns how long it took, in seconds.

    Raises:
        WorkerError: it did not appear in time, or has another number of partitions.
    """
    admin = AdminClient({**kafka_client(bootstrap_servers), "log_level": 3})

    def there() -> bool:
        found = admin.list_topics(timeout=_ANSWER_S).topics.get(topic)
        if found is None or found.error is not None or not found.partitions:
            return False
        if len(found.partitions) != partitions:
            raise WorkerError(
                f"{bootstrap_servers}: {topic} has {len(found.partitions)} partitions, not {partitions}"
            )
        return True

    return wait_until(
        there,
        within_s,
        f"{bootstrap_servers}: no topic {topic} after {within_s:.0f} s: is the replicator at work?",
    )


class EndOffsets:
    """The ends of a topic's partitions on one cluster, asked again and again.

    Args:
        bootstrap_servers: the cluster.
        topic: the topic.
        partitions: how many it has.
    """

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._admin: AdminClient | None = None
        self._request = {TopicPartition(topic, partition): _LATEST for partition in range(partitions)}

    def ask(self, *, committed: bool = False, within_s: float = 2.0) -> dict[int, int] | None:
        """High watermarks, or last stable offsets, by partition; None: the cluster does not answer."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        if self._admin is None:
            self._admin = AdminClient({**kafka_client(self._bootstrap_servers), "log_level": 0})
        try:
            futures = list_offsets(
                self._admin, self._request, isolation_level=isolation, request_timeout=within_s
            )
            return {
                place.partition: future.result(timeout=within_s + 1).offset
                for place, future in futures.items()
            }
        except (KafkaException, TimeoutError):
            # A client that has seen its cluster die takes long to see it return; a new one does not.
            self._admin = None
            return None


def committed_offsets(
    bootstrap_servers: str, group: str, topic: str, partitions: Iterable[int]
) -> dict[int, int]:
    """A group's committed next offsets on one cluster; partitions without one are left out.

    Raises:
        WorkerError: the cluster did not answer.
    """
    consumer = Consumer({**kafka_client(bootstrap_servers), "group.id": group, "log_level": 3})
    try:
        asked = [TopicPartition(topic, partition) for partition in partitions]
        found = consumer.committed(asked, timeout=_ANSWER_S)
    except KafkaException as error:
        raise WorkerError(f"{bootstrap_servers}: no offsets of group {group}: {error}") from error
    finally:
        consumer.close()
    return {place.partition: place.offset for place in found if place.offset >= 0}


def total(offsets: Mapping[int, int] | None) -> int:
    """The sum over all partitions; 0 where nothing is known."""
    return sum((offsets or {}).values())
