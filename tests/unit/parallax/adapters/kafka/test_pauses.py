"""A loop goes on to send and receive while something is waited for."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from parallax.adapters.kafka.event_loop import EventLoop


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    with closing(EventLoop()) as loop:
        yield loop


def test_a_pause_lasts_as_long_as_it_is_told_to_and_what_is_due_is_done_in_it(loop: EventLoop) -> None:
    seen: list[str] = []
    loop.after(1, lambda: seen.append("due"))
    begun = time.monotonic()
    loop.pause(50)
    assert time.monotonic() - begun >= 0.05
    assert seen == ["due"]


def test_a_pause_ends_with_what_is_waited_for(loop: EventLoop) -> None:
    seen: list[str] = []
    loop.after(30, lambda: seen.append("answer"))
    loop.pause(600_000, lambda: seen)
    assert seen == ["answer"]


def test_nothing_is_turned_where_that_is_there_already(loop: EventLoop) -> None:
    seen: list[str] = []
    loop.after(0, lambda: seen.append("due"))
    loop.pause(600_000, lambda: True)
    assert seen == []


def test_what_an_action_raises_ends_the_pause(loop: EventLoop) -> None:
    loop.after(1, lambda: {}["missing"])
    with pytest.raises(KeyError, match="missing"):
        loop.pause(600_000)
