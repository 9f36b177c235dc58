"""A table in a compacted topic of one partition: the newest record of each key. For what replication needs to remember."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.librdkafka import client_settings, translated
from parallax.adapters.kafka.topic_settings import SettingsDoor
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName, TopicName, TopicPartition
from parallax.domain.place import LogRange
from parallax.errors import ClusterUnavailableError
from parallax.runtime.deadline import Deadline

_POLL_S = 0.2
_ROOM_WITHIN_S = 1.0


class CompactedTable:
    """Keys and values in one topic of a cluster; for one thread.

    Whoever writes last counts: two writers must not mind that.

    Args:
        cluster: the cluster's name.
        settings: its address and security.
        topic: the table.
        timeout_ms: bound of each call.
    """

    def __init__(self, cluster: ClusterName, settings: Cluster, topic: TopicName, *, timeout_ms: int) -> None:
        self._cluster = cluster
        self._settings = settings
        self._topic = topic
        self._timeout_ms = timeout_ms
        self._reader = KafkaCluster(cluster, settings, timeout_ms=timeout_ms)

    def read(self) -> Mapping[str, bytes]:
        """Every key's newest value; empty if there is no such topic yet.

        Raises:
            ConfigError: this client may not read it.
            ClusterUnavailableError: the cluster did not answer in time.
        """
        found, _ = self.read_since(0)
        return {key.decode(errors="replace"): value for key, value in found.items() if value is not None}

    def end(self) -> int:
        """Where the next record will lie; 0 if there is no such topic yet.

        Raises:
            ConfigError, ClusterUnavailableError: as `read` does.
        """
        span = self._span()
        return 0 if span is None else int(span.high_watermark)

    def read_since(self, start: int) -> tuple[dict[bytes, bytes | None], int]:
        """The newest value of each key that was written at an offset or later, None for one taken out, and the end.

        Raises:
            ConfigError, ClusterUnavailableError: as `read` does.
        """
        span = self._span()
        if span is None:
            return {}, start
        at, end = max(start, int(span.low_watermark)), int(span.high_watermark)
        if at >= end:
            return {}, end
        deadline = Deadline.after_ms(self._timeout_ms)
        found: dict[bytes, bytes | None] = {}
        # Only assigned to: the group is a name that librdkafka asks for, and never used.
        consumer = Consumer(
            client_settings(self._settings, client_id=f"parallax-{self._cluster}")
            | {"group.id": "parallax.tables", "enable.auto.commit": False, "enable.partition.eof": True}
        )
        try:
            consumer.assign([KafkaPartition(self._topic, 0, at)])
            while at < end:
                if deadline.passed:
                    raise ClusterUnavailableError(
                        f"{self._cluster}: reading {self._topic}: no more than {at} of {end} in time"
                    )
                message = consumer.poll(_POLL_S)
                if message is None:
                    continue
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
                        break  # compaction may have left no record at the end
                    raise KafkaException(error)  # noqa: TRY301 - as all others are told below
                at = (message.offset() or 0) + 1
                found[message.key() or b""] = message.value()
        except KafkaException as error:
            raise translated(error, self._cluster, f"reading {self._topic}") from error
        finally:
            consumer.close()
        return found, max(at, end)

    def _span(self) -> LogRange | None:
        place = TopicPartition(self._topic, 0)
        if self._topic not in self._reader.topics():
            return None
        found = self._reader.log_ranges([place]).get(place)
        if found is None:
            raise ClusterUnavailableError(f"{self._cluster}: {self._topic} has no leader")
        return found

    def write(self, values: Mapping[str, bytes | None]) -> None:
        """Write values by key, None to take one out; the topic is created if there is none.

        Raises:
            RefusedError: the cluster does not let this client create it.
            ConfigError: this client may not write to it.
            ClusterUnavailableError: the cluster did not confirm all in time; some may be written.
        """
        self.write_records({key.encode(): value for key, value in values.items()})

    def write_records(self, records: Mapping[bytes, bytes | None]) -> None:
        """The same for keys that are no text.

        Raises:
            RefusedError, ConfigError, ClusterUnavailableError: as `write` does.
        """
        if not records:
            return
        SettingsDoor(self._cluster, self._settings, timeout_ms=self._timeout_ms).create_compacted(self._topic)
        producer = Producer(
            client_settings(self._settings, client_id=f"parallax-{self._cluster}")
            | {"enable.idempotence": True, "acks": "all", "delivery.timeout.ms": self._timeout_ms}
        )
        problems: list[KafkaException] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                problems.append(KafkaException(error))

        for key, value in records.items():
            _produce(producer, self._topic, key, value, delivered)
        left = producer.flush(self._timeout_ms / 1_000 + 1)
        if problems:
            raise translated(problems[0], self._cluster, f"writing to {self._topic}") from problems[0]
        if left:
            raise ClusterUnavailableError(f"{self._cluster}: writing to {self._topic}: not confirmed in time")


def _produce(
    producer: Producer,
    topic: TopicName,
    key: bytes,
    value: bytes | None,
    delivered: Callable[[object, object], None],
) -> None:
    """Hand a record to librdkafka; where its queue is full, wait for room."""
    while True:
        try:
            producer.produce(topic, key=key, value=value, partition=0, on_delivery=delivered)
        except BufferError:
            producer.poll(_ROOM_WITHIN_S)  # records that are not confirmed in time leave the queue
        else:
            producer.poll(0)
            return
