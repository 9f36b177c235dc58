"""The few bytes of Kafka's protocol that send prepared batches as fast as a broker takes them.

One connection, a bounded number of requests in flight, one batch of each partition in a request: nothing else
happens between two sends, so what comes out is the broker's own speed.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Self

_PRODUCE_KEY = 0
_PRODUCE_VERSION = 7
_ALL_REPLICAS = -1
_TIMEOUT_MS = 30_000
_SOCKET_TIMEOUT_S = 60.0
_CLIENT_ID = b"bench-loader"


class ProduceRefusedError(Exception):
    """The broker refused a batch, or the connection ended."""


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
            ProduceRefusedError: the broker refused an earlier one, or went away.
        """
        while len(self._waiting) >= self._in_flight:
            self._receive()
        self._correlation += 1
        parts = produce_request(self._correlation, self._topic, batches)
        try:
            self._socket.sendall(b"".join(parts))
        except OSError as error:
            raise ProduceRefusedError(f"topic {self._topic.decode()}: connection lost: {error}") from error
        self._waiting.append(self._correlation)

    def flush(self) -> None:
        """Wait for all answers.

        Raises:
            ProduceRefusedError: the broker refused a batch, or went away.
        """
        while self._waiting:
            self._receive()

    def _receive(self) -> None:
        (size,) = struct.unpack(">i", self._read(4))
        answer = self._read(size)
        (correlation,) = struct.unpack_from(">i", answer)
        if correlation != self._waiting.popleft():
            raise ProduceRefusedError("an answer came that belongs to another request")
        for partition, error in produce_errors(answer[4:]):
            if error:
                raise ProduceRefusedError(
                    f"topic {self._topic.decode()}, partition {partition}: error {error}"
                )

    def _read(self, size: int) -> bytes:
        pieces = bytearray()
        try:
            while len(pieces) < size:
                piece = self._socket.recv(size - len(pieces))
                if not piece:
                    raise ProduceRefusedError(f"topic {self._topic.decode()}: the broker hung up")
                pieces += piece
        except OSError as error:
            raise ProduceRefusedError(f"topic {self._topic.decode()}: connection lost: {error}") from error
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
