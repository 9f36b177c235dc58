"""Sends prepared batches: fills topics, and measures how fast a broker takes them, the limit of any copier.

Of Kafka's protocol this speaks only Produce, over one connection with a bounded number of requests in flight and one
batch of each partition in a request: nothing else happens between two sends, so what comes out is the broker's speed.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from lab.bench import BenchError
from lab.bench.data.batches import PreparedBatch

_PRODUCE_KEY = 0
_PRODUCE_VERSION = 7
_ALL_REPLICAS = -1
_TIMEOUT_MS = 30_000
_SOCKET_TIMEOUT_S = 60.0
_CLIENT_ID = b"bench-loader"
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
) -> list[Segment]:
    """Write data sets one after another into every partition of an empty topic.

    Args:
        address: of the broker.
        topic: exists, is empty and is led by that broker alone.
        partitions: of the topic.
        parts: name, batches and least number of records per partition of each data set.

    Returns:
        Where each data set lies.

    Raises:
        BenchError: the broker refused a batch.
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
        BenchError: the broker refused a batch.
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


class ProduceConnection:
    """Sends batches to the broker that leads every partition of one topic.

    Args:
        address: ``host:port``.
        topic: exists already.
        in_flight: requests sent and not yet answered, at most.
    """

    def __init__(self, address: str, topic: str, in_flight: int = 5) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_SOCKET_TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._topic = topic.encode()
        self._in_flight = in_flight
        self._waiting: deque[int] = deque()
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def send(self, batches: Sequence[tuple[int, bytes | bytearray]]) -> None:
        """Send one batch for each of some partitions; waits only while too many requests are in flight.

        Raises:
            BenchError: the broker refused an earlier one, or went away.
        """
        while len(self._waiting) >= self._in_flight:
            self._receive()
        self._correlation += 1
        parts = produce_request(self._correlation, self._topic, batches)
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as error:
            raise BenchError(f"topic {self._topic.decode()}: connection lost: {error}") from error
        self._waiting.append(self._correlation)

    def flush(self) -> None:
        """Wait for all answers.

        Raises:
            BenchError: the broker refused a batch, or went away.
        """
        while self._waiting:
            self._receive()

    def _receive(self) -> None:
        (size,) = struct.unpack(">i", self._read(4))
        answer = self._read(size)
        (correlation,) = struct.unpack_from(">i", answer)
        if correlation != self._waiting.popleft():
            raise BenchError("an answer came that belongs to another request")
        for partition, error in produce_errors(answer[4:]):
            if error:
                raise BenchError(f"topic {self._topic.decode()}, partition {partition}: error {error}")

    def _read(self, size: int) -> bytes:
        pieces = bytearray()
        try:
            while len(pieces) < size:
                piece = self._socket.recv(size - len(pieces))
                if not piece:
                    raise BenchError(f"topic {self._topic.decode()}: the broker hung up")
                pieces += piece
        except OSError as error:
            raise BenchError(f"topic {self._topic.decode()}: connection lost: {error}") from error
        return bytes(pieces)


def produce_request(
    correlation: int, topic: bytes, batches: Sequence[tuple[int, bytes | bytearray]]
) -> list[bytes | bytearray]:
    """The parts of a Produce request, version 7, acknowledged by all in-sync replicas."""
    head = struct.pack(">hhi", _PRODUCE_KEY, _PRODUCE_VERSION, correlation) + _string(_CLIENT_ID)
    head += struct.pack(">hhi", -1, _ALL_REPLICAS, _TIMEOUT_MS)
    head += struct.pack(">i", 1) + _string(topic) + struct.pack(">i", len(batches))
    parts: list[bytes | bytearray] = []
    for partition, batch in batches:
        parts += [struct.pack(">ii", partition, len(batch)), batch]
    size = len(head) + sum(len(part) for part in parts)
    return [struct.pack(">i", size) + head, *parts]


def produce_errors(answer: bytes) -> list[tuple[int, int]]:
    """Partition and error code of each part of an answer (version 7, after the correlation id)."""
    found = []
    (topics,) = struct.unpack_from(">i", answer)
    place = 4
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", answer, place)
        place += 2 + length
        (partitions,) = struct.unpack_from(">i", answer, place)
        place += 4
        for _ in range(partitions):
            partition, error = struct.unpack_from(">ih", answer, place)
            found.append((partition, error))
            place += 30  # partition, error, base offset, log append time, log start offset
    return found


def _string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text
