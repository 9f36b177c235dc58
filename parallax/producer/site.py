"""One region's inner producer, with what is owed by it."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from parallax.errors import ClusterUnavailableError
from parallax.producer.events import DownReason
from parallax.producer.ports import InnerProducer
from parallax.producer.record import ProducedRecord

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


def refused_settings(failure: KafkaException) -> ClusterUnavailableError:
    """What keeps records from a region whose settings librdkafka does not take."""
    error = ClusterUnavailableError(f"librdkafka refuses its settings: {error_of(failure).str()}")
    error.__cause__ = failure
    return error
