"""Time-outs kept in line: each fires unless its answer came, whatever else was cancelled."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest

from parallax.adapters.kafka import event_loop as module
from parallax.adapters.kafka.event_loop import EventLoop, Timers


class Loop:
    """The part of a loop that time-outs need, on a clock that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.waiting: list[tuple[float, Any]] = []
        self.made = 0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)

    def call_at(self, when: float, action: Any) -> tuple[float, Any]:
        self.made += 1
        self.waiting.append((when, action))
        return self.waiting[-1]

    def cancel(self, task: Any) -> None:
        if task in self.waiting:
            self.waiting.remove(task)

    def go_to(self, when: float) -> None:
        while self.waiting and (task := min(self.waiting, key=lambda item: item[0]))[0] <= when:
            self.waiting.remove(task)
            self.now = max(self.now, task[0])
            task[1]()
        self.now = when


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(monkeypatch)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_not_cancelled_happens_at_its_time(loop: Loop, seed: int) -> None:
    draw = Random(seed)
    timers = Timers(loop)  # type: ignore[arg-type] # as much of one as it needs
    happened: dict[int, float] = {}
    due: dict[int, float] = {}
    known: dict[int, Any] = {}
    for number in range(300):
        loop.go_to(loop.now + draw.choice([0.0, 0.1, 1.0]))
        when = loop.now + draw.choice([10.0, 10.0, 10.0, 0.5, 30.0])
        known[number] = timers.call_at(when, lambda number=number: happened.setdefault(number, loop.now))
        due[number] = when
        for other in draw.sample(sorted(known), min(len(known), draw.choice([0, 1, 3]))):
            timers.cancel(known.pop(other))
            if due[other] > loop.now:
                del due[other]
    loop.go_to(loop.now + 60.0)
    assert happened == due
    assert not loop.waiting


def test_answers_in_time_cost_the_loop_no_task_each(loop: Loop) -> None:
    timers = Timers(loop)  # type: ignore[arg-type] # as above
    for number in range(1_000):
        loop.go_to(number / 100)
        timers.cancel(timers.call_at(loop.now + 10.0, lambda: pytest.fail("it was cancelled")))
    loop.go_to(100.0)
    assert loop.made == 1


def test_an_action_may_make_and_cancel_others(loop: Loop) -> None:
    timers = Timers(loop)  # type: ignore[arg-type] # as above
    seen: list[str] = []
    later = timers.call_at(2.0, lambda: pytest.fail("the first one cancelled it"))

    def first() -> None:
        seen.append("first")
        timers.cancel(later)
        timers.call_at(5.0, lambda: seen.append("third"))

    timers.call_at(1.0, first)
    timers.call_at(3.0, lambda: seen.append("second"))
    loop.go_to(10.0)
    assert seen == ["first", "second", "third"]


def test_on_the_real_loop_a_time_out_fires_and_a_cancelled_one_does_not() -> None:
    loop = EventLoop()
    timers = Timers(loop.net)
    seen: list[str] = []
    begun = time.monotonic()
    timers.cancel(timers.call_at(begun + 0.02, lambda: seen.append("cancelled")))
    timers.call_at(begun + 0.05, lambda: seen.append("due"))
    while not seen and time.monotonic() < begun + 5:
        loop.turn(20)
    assert seen == ["due"]
    assert time.monotonic() >= begun + 0.05
    loop.close()
