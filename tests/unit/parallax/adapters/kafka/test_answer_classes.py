"""Answers can be read in every process, however many threads begin to speak with brokers at the same moment."""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from kafka.protocol.api_header import RequestHeader, ResponseClassRegistry
from kafka.protocol.metadata import MetadataResponse

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName

VERSION = 9
HEADER = {
    "request_api_key": MetadataResponse.API_KEY,
    "request_api_version": VERSION,
    "correlation_id": 1,
    "client_id": "test",
}


class Versions(dict[int, Any]):
    """The classes of single versions, where another thread makes the same one just before the first is put down."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile: Callable[[], object] | None = meanwhile

    def __setitem__(self, version: int, made: Any) -> None:
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        super().__setitem__(version, made)


def race(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataResponse, "_VERSIONS", Versions(lambda: MetadataResponse[VERSION]))
    MetadataResponse[VERSION]
    gc.collect()


def test_two_threads_that_begin_at_once_leave_the_answers_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    race(monkeypatch)
    assert RequestHeader(**HEADER).get_response_class() is MetadataResponse[VERSION]


def test_kafka_pythons_own_notes_leave_them_unreadable_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    noted = ResponseClassRegistry._response_class_registry

    def note(found: Any) -> None:
        noted[found.API_KEY] = found

    monkeypatch.setitem(noted, MetadataResponse.API_KEY, noted[MetadataResponse.API_KEY])
    monkeypatch.setattr(ResponseClassRegistry, "register_response_class", staticmethod(note))
    race(monkeypatch)
    with pytest.raises(ReferenceError):
        RequestHeader(**HEADER).get_response_class()


def test_every_note_is_of_all_versions() -> None:
    assert all(found[None] is not None for found in ResponseClassRegistry._response_class_registry.values())
    assert {found._class_version for found in ResponseClassRegistry._response_class_registry.values()} == {
        None
    }


def test_a_broker_whose_answers_cannot_be_read_is_not_called_silent() -> None:
    loop = EventLoop()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        connections = Connections(
            loop,
            ClusterName("aggregate-b"),
            Cluster(bootstrap_servers=f"127.0.0.1:{server.getsockname()[1]}"),
            client_id="test",
            largest_answer_bytes=1_000,
        )
        with closing(loop), closing(connections):
            server.settimeout(0.01)
            accepted: list[socket.socket] = []
            give_up_at = time.monotonic() + 5.0
            while connections.problem == "no broker has answered yet" and time.monotonic() < give_up_at:
                loop.turn(20)
                try:
                    accepted.append(server.accept()[0])
                except TimeoutError:
                    continue
                accepted[-1].sendall(b"\0\0\0\x06" + b"\0\0\0\x01" + b"\0\0")
            for each in accepted:
                each.close()
            assert "an answer can't be read: " in connections.problem
