"""Waits of the event loop that are shorter than what epoll counts in."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from parallax.adapters.kafka import event_loop as module
from parallax.adapters.kafka.event_loop import EventLoop

SHORT_MS = 0.3


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    made = EventLoop()
    yield made
    made.close()


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


def shortest_s(loop: EventLoop) -> float:
    """Of some waits: a busy machine makes one long, not all of them."""
    found = []
    for _ in range(50):
        began = time.perf_counter()
        loop.turn(SHORT_MS)
        found.append(time.perf_counter() - began)
    return min(found)


def test_a_wait_of_less_than_a_millisecond_is_none_of_a_whole_one(loop: EventLoop) -> None:
    assert SHORT_MS / 1_000 <= shortest_s(loop) < 0.001


@pytest.mark.parametrize("most_files", [1024, 0], ids=["in time", "in whole milliseconds"])
def test_what_is_readable_is_told_of_however_it_is_waited_for(
    ends: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
    most_files: int,
) -> None:
    monkeypatch.setattr(module, "_MOST_FILES", most_files)
    one, other = ends
    selector = module._Selector()
    try:
        selector.register(one, module.selectors.EVENT_READ)
        assert selector.select(0.005) == []
        other.send(b"x")
        [(key, event)] = selector.select(0.005)
        assert (key.fileobj, event) == (one, module.selectors.EVENT_READ)
    finally:
        selector.close()
