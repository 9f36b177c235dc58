"""Fills topics with prepared batches, and measures how fast a broker takes them: the limit of any copier."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.batches import PreparedBatch
from bench.wire import ProduceConnection

_PREPARED_REQUESTS = 2_000
_PREPARED_BYTES = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a topic that holds one data set.

    Attributes:
        name: of the data set.
        start, end: offsets, the same in every partition; ``end`` is the first one after it.
        record_bytes: mean size of a record (key and value with their framing) before compression.
    """

    name: str
    start: int
    end: int
    record_bytes: float

    @property
    def records(self) -> int:
        """Per partition."""
        return self.end - self.start


def fill(
    address: str,
    topic: str,
    partitions: int,
    parts: Sequence[tuple[str, Sequence[PreparedBatch], int]],
    advance: Callable[[int], None] = lambda _records: None,
) -> list[Segment]:
    """Write data sets one after another into every partition of an empty topic.

    Args:
        address: of the broker.
        topic: exists, is empty and is led by that broker alone.
        partitions: of the topic.
        parts: name, batches and least number of records per partition of each data set.
        advance: told of records written.

    Returns:
        Where each data set lies.

    Raises:
        ProduceRefusedError: the broker refused a batch.
    """
    segments = []
    first = 0
    with ProduceConnection(address, topic) as connection:
        for name, batches, records in parts:
            start, sent_bytes, turn = first, 0, 0
            while first - start < records:
                batch = batches[turn % len(batches)]
                stamped = batch.at(first)
                connection.send([(partition, stamped) for partition in range(partitions)])
                first += batch.count
                sent_bytes += batch.record_bytes
                turn += 1
                advance(batch.count * partitions)
            segments.append(Segment(name, start, first, sent_bytes / (first - start)))
        connection.flush()
    return segments


def measure_limit(
    address: str, topic: str, partitions: int, batches: Sequence[PreparedBatch], windows_s: Sequence[float]
) -> list[float]:
    """How fast a broker takes prepared batches from a loop that does nothing else.

    The first window only warms the broker up. As a copier does, each request carries one batch of every partition,
    five requests are in flight, and all in-sync replicas acknowledge.

    Args:
        address: of the broker.
        topic: led by that broker alone.
        partitions: of the topic.
        batches: what to send.
        windows_s: length of each window, in seconds.

    Returns:
        Records a second of each window but the first.

    Raises:
        ProduceRefusedError: the broker refused a batch.
    """
    prepared = _stamped(batches, partitions)
    rates = []
    with ProduceConnection(address, topic) as connection:
        turn = 0
        for window_s in windows_s:
            started, records = time.perf_counter(), 0
            while time.perf_counter() - started < window_s:
                count, stamped = prepared[turn % len(prepared)]
                connection.send([(partition, stamped) for partition in range(partitions)])
                records += count * partitions
                turn += 1
            connection.flush()
            rates.append(records / (time.perf_counter() - started))
    return rates[1:]


def _stamped(batches: Sequence[PreparedBatch], partitions: int) -> list[tuple[int, bytearray]]:
    stamped: list[tuple[int, bytearray]] = []
    first, size = 0, 0
    while len(stamped) < _PREPARED_REQUESTS and size * partitions < _PREPARED_BYTES:
        batch = batches[len(stamped) % len(batches)]
        stamped.append((batch.count, batch.at(first)))
        first += batch.count
        size += batch.size_bytes
    return stamped
