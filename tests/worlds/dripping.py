"""A server on loopback that answers byte by byte and never ends: no pause of it is long enough for a socket's time-out."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

PAUSE_S = 0.05
LASTS_S = 30.0
HEADS = pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\n",
        "HTTP/1.0 403 Forbidden\r\nContent-Length: 1000\r\n\r\n",
        "HTTP/1.0 200 OK\r\nX-Slow: ",
        "",
    ],
    ids=["the document", "a refusal's reason", "a header", "all of it"],
)
"""What comes at once."""


@contextlib.contextmanager
def dripping(head: str) -> Iterator[str]:
    """The server's address, which takes one connection; its answer goes on in drips after ``head``."""
    enough = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(4_096)
                connection.sendall(head.encode())
                for _ in range(int(LASTS_S / PAUSE_S)):
                    if enough.wait(PAUSE_S):
                        return
                    connection.sendall(b"H")

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        enough.set()
        listener.close()
        thread.join(10)
