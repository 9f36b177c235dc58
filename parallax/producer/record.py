"""A record from ``produce`` to its delivery report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, Message

if TYPE_CHECKING:
    from parallax.producer.site import ProducerSite


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
