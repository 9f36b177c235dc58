"""A record on its way, and the report that ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message

if TYPE_CHECKING:
    from parallax.producer.site import Site

Headers = list[tuple[str, Any]]


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


class Record:
    """What was given to ``produce``, until it is reported.

    Reports of librdkafka carry neither headers nor, for a record that was taken back, the time: both are kept here,
    so that a record is the same wherever it is written in the end.
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
        value: bytes | None,
        key: bytes | None,
        partition: int,
        timestamp_ms: int,
        headers: Headers | None,
        on_delivery: OnDelivery | None,
        born_s: float,
        settle: Callable[[Record, KafkaError | None, Message], None],
    ) -> None:
        self.topic = topic
        self.value = value
        self.key = key
        self.partition = partition
        self.timestamp_ms = timestamp_ms
        self.headers = headers
        self.on_delivery = on_delivery
        self.sequence = 0
        self.born_s = born_s
        self.settle = settle
        self.size_bytes = (len(value) if value else 0) + (len(key) if key else 0)
        self.unconfirmed: tuple[str, ...] = ()
        self.site: Site | None = None

    def __lt__(self, other: Record) -> bool:
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


def as_bytes(value: str | bytes | None) -> bytes | None:
    """A value or key as it goes over the wire, safe from what the application does to its buffer later.

    Raises:
        TypeError: neither text nor bytes.
    """
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else bytes(memoryview(value))


def as_headers(headers: Mapping[str, Any] | Iterable[tuple[str, Any]] | None) -> Headers | None:
    """Headers as a list of their own; None for none."""
    if not headers:
        return None
    return list(headers.items()) if isinstance(headers, Mapping) else list(headers)
