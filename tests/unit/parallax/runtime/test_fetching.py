"""What is fetched is all there, or an error says why not."""

from __future__ import annotations

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from parallax.runtime.fetching import fetch


@contextmanager
def answering(said: bytes) -> Iterator[str]:
    """The address of a server that says this to its only caller, and leaves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4_096)
                connection.sendall(said)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join(10)


def fetched(address: str) -> bytes:
    request = urllib.request.Request(address)  # noqa: S310 - loopback
    return fetch(request, context=None, within_s=10.0, most_bytes=8)


@pytest.mark.parametrize(
    ("said", "document"),
    [
        (b"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\ndocument", b"document"),
        (b"HTTP/1.0 200 OK\r\n\r\ndocument", b"document"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ndoc\r\n5\r\nument\r\n0\r\n\r\n",
            b"document",
        ),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
    ],
    ids=["with its length", "to the end", "in pieces", "empty"],
)
def test_a_document_is_fetched(said: bytes, document: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # leads nowhere, and not to loopback
    with answering(said) as address:
        assert fetched(address) == document


@pytest.mark.parametrize(
    ("said", "kind", "problem"),
    [
        (b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\ndocuments", ValueError, "more than 8 bytes"),
        (b"HTTP/1.0 200 OK\r\n\r\ndocuments", ValueError, "more than 8 bytes"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\ndoc", ConnectionError, "ends 5 bytes early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\ndoc", ConnectionError, "not HTTP"),
        (b"SSH-2.0\r\n", ConnectionError, "not HTTP: BadStatusLine"),
        (b"", ConnectionError, "closed connection without response"),
    ],
    ids=["too long", "too long without a length", "cut", "cut in pieces", "another protocol", "nothing"],
)
def test_what_is_no_whole_document_is_an_error(said: bytes, kind: type[Exception], problem: str) -> None:
    with answering(said) as address, pytest.raises(kind, match=problem):
        fetched(address)


def test_a_redirection_is_not_followed_and_a_refusal_keeps_what_it_says() -> None:
    head = b"HTTP/1.0 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 6\r\n\r\n"
    with answering(head + b"reason") as address, pytest.raises(urllib.error.HTTPError) as caught:
        fetched(address)
    with caught.value as error:
        assert (error.code, error.read()) == (302, b"reason")
