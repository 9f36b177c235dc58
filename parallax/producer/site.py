"""One region's inner producer, with what is owed by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from parallax.errors import ClusterUnavailableError
from parallax.producer.events import DownReason
from parallax.producer.ports import InnerProducer

PURGED = frozenset(
    {
        KafkaError._PURGE_QUEUE,  # noqa: SLF001 - librdkafka's own code
        KafkaError._PURGE_INFLIGHT,  # noqa: SLF001 - as above
    }
)
FATAL = frozenset(
    {
        KafkaError._FATAL,  # noqa: SLF001 - librdkafka's own code
        KafkaError._GAPLESS_GUARANTEE,  # noqa: SLF001 - as above
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.UNKNOWN_PRODUCER_ID,
        KafkaError.INVALID_PRODUCER_EPOCH,
    }
)
"""Errors after which librdkafka's idempotent producer takes no more records."""

CLUSTER_FAILURES = FATAL | {
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - librdkafka's own code
    KafkaError._TIMED_OUT,  # noqa: SLF001 - as above
    KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001 - as above
    KafkaError._TRANSPORT,  # noqa: SLF001 - as above
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
}
"""A record that fails so may do well in another region; after every other error it would fail there, too."""

UNKNOWN_TOPIC = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - librdkafka's own code
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)

REFUSED_TOPIC = UNKNOWN_TOPIC | {KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED}
"""Where records go nothing can be written to the topic: it is not there, can't be, or is not for this client."""


@dataclass(frozen=True, slots=True)
class DeliveryReport:
    """How a record ended: the third argument of a delivery callback.

    Attributes:
        region: whose regional cluster acknowledged the record; None: none did.
        unconfirmed: regions that were given the record and never said what became of it, in order: it may have
            been written there, too.
    """

    region: str | None
    unconfirmed: tuple[str, ...] = ()

    @property
    def maybe_duplicate(self) -> bool:
        """The record was acknowledged, and may be written a second time: in a region of ``unconfirmed``."""
        return self.region is not None and bool(self.unconfirmed)


OnDelivery = Callable[[KafkaError | None, Message, DeliveryReport], Any]
"""A delivery callback: as confluent-kafka's, with the report as a third argument."""


class ProducedRecord:
    """What was given to ``produce``, until it is reported.

    Reports of librdkafka carry neither headers nor, for a record that was taken back, the time: both are kept here,
    so that a record is the same wherever it is written in the end.

    Raises:
        TypeError: what confluent-kafka does not take, either: a topic that is no text, a value, key or header that is
            neither text nor bytes, a partition or time that is no integer; and a callback that can't be called.
        OverflowError: a partition or time beyond 32 or 64 bits.
    """

    __slots__ = (
        "born_s",
        "headers",
        "key",
        "on_delivery",
        "partition",
        "sequence",
        "settle",
        "site",
        "size_bytes",
        "timestamp_ms",
        "topic",
        "unconfirmed",
        "value",
    )

    def __init__(
        self,
        *,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        partition: int,
        timestamp_ms: int,
        headers: Mapping[str, Any] | list[tuple[str, Any]] | None,
        on_delivery: OnDelivery | None,
        born_s: float,
        settle: Callable[[ProducedRecord, KafkaError | None, Message], None],
    ) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"topic must be str, not {type(topic).__name__}")
        if on_delivery is not None and not callable(on_delivery):
            raise TypeError(f"expected on_delivery to be callable, not {type(on_delivery).__name__}")
        self.topic = topic
        self.value = value = _as_bytes(value)
        self.key = key = _as_bytes(key)
        self.partition = _as_integer(partition, 32)
        self.timestamp_ms = _as_integer(timestamp_ms, 64)
        self.headers = None if headers is None else _as_headers(headers)
        self.on_delivery = on_delivery
        self.sequence = 0
        self.born_s = born_s
        self.settle = settle
        self.size_bytes = (len(value) if value else 0) + (len(key) if key else 0)
        self.unconfirmed: tuple[str, ...] = ()
        self.site: ProducerSite | None = None

    def __lt__(self, other: ProducedRecord) -> bool:
        """Records go out in the order in which they were produced."""
        return self.sequence < other.sequence

    def answered(self, error: KafkaError | None, message: Message) -> None:
        """Librdkafka's report, in whichever thread serves it."""
        self.settle(self, error, message)

    def taken_back(self, region: str, message: Message) -> None:
        """It had been handed to a region, which did not say what became of it."""
        if region not in self.unconfirmed:
            self.unconfirmed += (region,)
        partition = message.partition()
        if self.partition < 0 and partition is not None and partition >= 0:
            self.partition = partition  # as it was chosen: two copies of a record stay in one partition

    def message(self, error: KafkaError) -> Message:
        """The record as a message, for a report that librdkafka has no part in."""
        return Message(
            topic=self.topic,
            value=self.value,
            key=self.key,
            partition=self.partition,
            headers=self.headers,
            timestamp=(1, self.timestamp_ms),
            error=error,
        )


def _as_bytes(value: str | bytes | None) -> bytes | None:
    """A value or key as it goes over the wire, safe from what the application does to its buffer later."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else bytes(memoryview(value))


def _as_integer(value: int, bits: int) -> int:
    number = index(value)
    if number.bit_length() >= bits:
        raise OverflowError(f"{number} has more than {bits} bits")
    return number


def _as_headers(headers: Mapping[str, Any] | list[tuple[str, Any]]) -> list[tuple[str, Any]] | None:
    """Headers as a list of their own; None for none."""
    if not isinstance(headers, (Mapping, list)):
        raise TypeError(
            f"expected headers to be dict or list of (key, value) tuples, not {type(headers).__name__}"
        )
    items = list(headers.items() if isinstance(headers, Mapping) else headers)
    for item in items:
        if not isinstance(item, tuple) or len(item) != 2:  # noqa: PLR2004 - key and value
            raise TypeError("Headers are expected to be a list of (key, value) tuples")
        if not isinstance(item[1], (str, bytes, type(None))):
            raise TypeError(
                f"expected header value to be None, binary, or unicode string, not {type(item[1]).__name__}"
            )
    return items or None


class ProducerSite:
    """An inner producer. Its state is guarded by the engine's lock.

    Attributes:
        region: whose regional cluster it writes to.
        inner: the producer.
        outstanding: records handed over and not reported back.
        left: it is given up, and what it does not acknowledge is taken back.
        suspected_at_s: since when it may be down; None: nothing speaks against it.
        failure: what a record or librdkafka said; it sticks until it is dealt with.
        failed_at_s: since when.
    """

    def __init__(self, region: str, inner: InnerProducer, now_s: float) -> None:
        self.region = region
        self.inner = inner
        self.outstanding = 0
        self.left = False
        self.suspected_at_s: float | None = None
        self.failure: DownReason | None = None
        self.failed_at_s: float | None = None
        self._waiting_since_s = now_s
        self._acknowledged_at_s = now_s
        self._given_up: dict[int, int] = {}

    def hand(self, record: ProducedRecord, now_s: float) -> None:
        """Give a record to librdkafka.

        Raises:
            BufferError: its queue is full.
            KafkaException: it does not take the record.
        """
        self.inner.produce(
            record.topic,
            record.value,
            record.key,
            record.partition,
            on_delivery=record.answered,
            timestamp=record.timestamp_ms,
            headers=record.headers,
        )
        record.site = self
        if self.outstanding == 0:
            self._waiting_since_s = now_s
        self.outstanding += 1

    def settled(self, *, acknowledged: bool, now_s: float) -> None:
        """A record was reported back."""
        self.outstanding -= 1
        if acknowledged:
            self._acknowledged_at_s = now_s
            if self.failure is None:
                self.suspected_at_s = None

    def silent_s(self, now_s: float) -> float:
        """For how long records have waited without any of them being acknowledged."""
        return now_s - max(self._waiting_since_s, self._acknowledged_at_s) if self.outstanding else 0.0

    def suspect(self, now_s: float) -> None:
        """It may be down."""
        if self.suspected_at_s is None and not self.left:
            self.suspected_at_s = now_s

    def answers(self) -> None:
        """Its cluster answers: enough where it owes nothing; what it owes, it has to acknowledge."""
        if self.outstanding == 0 and self.failure is None:
            self.suspected_at_s = None

    def fail(self, reason: DownReason, now_s: float) -> None:
        """It has failed a record, or itself."""
        self.suspect(now_s)
        if self.failure is not DownReason.FATAL:
            self.failure = reason
            self.failed_at_s = now_s

    def forgive(self) -> None:
        """Go on here after a failure."""
        self.failure = self.failed_at_s = self.suspected_at_s = None

    def given_up(self, before: int, *, in_queue: bool, in_flight: bool) -> None:
        """The application gives up what it has produced before the record numbered ``before``."""
        if in_queue:
            self._given_up[KafkaError._PURGE_QUEUE] = before  # noqa: SLF001 - librdkafka's own code
        if in_flight:
            self._given_up[KafkaError._PURGE_INFLIGHT] = before  # noqa: SLF001 - as above

    def was_given_up(self, record: ProducedRecord, code: int) -> bool:
        """Whether a record that was purged so was given up by the application."""
        return record.sequence < self._given_up.get(code, 0)

    def take_back(self) -> None:
        """Leave it: librdkafka sends nothing more, and reports all that it owes as purged."""
        self.left = True
        self.inner.purge(in_queue=True, in_flight=True, blocking=False)


def error_of(exception: KafkaException) -> KafkaError:
    """The error inside of librdkafka's exception."""
    error: KafkaError = exception.args[0]
    return error


def not_made(failure: Exception) -> ClusterUnavailableError:
    """What keeps records from a region for which no client can be made, mostly as librdkafka does not take its settings."""
    if isinstance(failure, KafkaException):
        problem = f"librdkafka refuses its settings: {error_of(failure).str()}"
    else:
        problem = f"no client can be made for it: {failure!r}"
    error = ClusterUnavailableError(problem)
    error.__cause__ = failure
    return error
