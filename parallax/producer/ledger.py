"""Every record between ``produce`` and its report, and what the application is still to be told."""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, Message

from parallax.producer.site import DeliveryReport, ProducedRecord


@dataclass(frozen=True, slots=True)
class ProducerCounts:
    """What became of the records so far.

    Attributes:
        acknowledged: by region.
        failed: reported with an error.
        resent: handed to another region after one that did not acknowledge them; a record counts each time.
        maybe_duplicate: acknowledged, and maybe written a second time.
        moves: moves away from a region that was down.
        returns: moves back to one that is well.
    """

    acknowledged: Mapping[str, int] = field(default_factory=dict)
    failed: int = 0
    resent: int = 0
    maybe_duplicate: int = 0
    moves: int = 0
    returns: int = 0


class ProducerLedger:
    """Counts and bounds the records that are not reported yet; holds those that no region has.

    All but `serve` and ``len`` is guarded by the engine's lock.

    Attributes:
        moves: see `ProducerCounts`.
        returns: see `ProducerCounts`.
        resent: see `ProducerCounts`.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._held: list[ProducedRecord] = []
        self._told: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._open = self._open_bytes = 0
        self._acknowledged: Counter[str] = Counter()
        self._failed = self._maybe_duplicate = 0
        self.moves = self.returns = self.resent = 0

    def __len__(self) -> int:
        """Records not reported yet, and whatever else the application is to be told."""
        return self._open + len(self._told)

    def check_room(self, record: ProducedRecord) -> None:
        """Room for one more?

        Raises:
            BufferError: no, as confluent-kafka says it.
        """
        if len(self) >= self._max_messages or self._open_bytes + record.size_bytes > self._max_bytes:
            raise BufferError("Local: Queue full")

    def accept(self, record: ProducedRecord) -> None:
        """The record was taken: it will be reported, once."""
        self._open += 1
        self._open_bytes += record.size_bytes

    @property
    def held_records(self) -> int:
        """Records that no region has."""
        return len(self._held)

    def hold(self, record: ProducedRecord) -> None:
        """Keep it until a region can take it."""
        heapq.heappush(self._held, record)

    def oldest(self) -> ProducedRecord | None:
        """The record held that was produced first."""
        return self._held[0] if self._held else None

    def pop(self) -> ProducedRecord:
        """Take that one out."""
        return heapq.heappop(self._held)

    def report(
        self, record: ProducedRecord, error: KafkaError | None, message: Message, region: str | None = None
    ) -> None:
        """End a record: acknowledged by ``region``, or failed."""
        report = DeliveryReport(region, record.unconfirmed)
        self._open -= 1
        self._open_bytes -= record.size_bytes
        if region is None:
            self._failed += 1
        else:
            self._acknowledged[region] += 1
            self._maybe_duplicate += report.maybe_duplicate
        if record.on_delivery is not None:
            self._told.append((record.on_delivery, (error, message, report)))

    def fail(self, record: ProducedRecord, error: KafkaError) -> None:
        """End a record that librdkafka does not have."""
        self.report(record, error, record.message(error))

    def tell(self, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call the application in the thread that polls."""
        self._told.append((callback, arguments))

    def serve(self) -> int:
        """Call the application for everything that it is to be told, in order; what it raises comes out.

        Returns:
            How many calls were made.
        """
        served = 0
        while True:
            try:
                callback, arguments = self._told.popleft()
            except IndexError:  # nothing more, or another thread that polls took the last one
                return served
            callback(*arguments)
            served += 1

    @property
    def counts(self) -> ProducerCounts:
        """What became of the records so far."""
        return ProducerCounts(
            dict(self._acknowledged),
            self._failed,
            self.resent,
            self._maybe_duplicate,
            self.moves,
            self.returns,
        )
