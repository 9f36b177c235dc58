"""Callers that a service has to live with: they send half of a request, far too much, or nothing at all."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

Address = tuple[str, int]


@contextmanager
def half_sent(address: Address, count: int) -> Iterator[list[socket.socket]]:
    """Connections that have sent a part of a request's headers."""
    with ExitStack() as stack:
        made = [
            stack.enter_context(closing(socket.create_connection(address, timeout=10))) for _ in range(count)
        ]
        for each in made:
            each.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-A: ")
        yield made


def alive(connections: Sequence[socket.socket]) -> int:
    """How many the server still holds."""
    held = 0
    for each in connections:
        each.settimeout(0)
        try:
            held += each.recv(1) != b""
        except BlockingIOError:
            held += 1
        except ConnectionError:
            pass
    return held


def sent_of(connection: socket.socket, head: bytes, size: int, *, within_s: float = 10) -> tuple[int, bytes]:
    """Send a head and so many bytes of a body; how many could be sent, and the answer."""
    sent, piece = 0, bytes(1 << 16)
    connection.settimeout(within_s)
    ends_at_s = time.monotonic() + within_s
    try:
        connection.sendall(head)
        while sent < size and time.monotonic() < ends_at_s:
            sent += connection.send(piece[: size - sent])
    except OSError:
        pass  # closed, or not read any further
    return sent, answer_of(connection)


def answer_of(connection: socket.socket) -> bytes:
    """All that the server says until it closes, or says nothing for a while."""
    parts: list[bytes] = []
    try:
        while part := connection.recv(1 << 16):
            parts.append(part)
    except OSError:
        pass
    return b"".join(parts)
