"""A decision that others overtake again and again: it gives way, and costs the store little."""

from __future__ import annotations

import pytest

from offsetsvc import primaries
from offsetsvc.primaries import Primaries
from parallax.domain.ids import GroupName, RegionName
from parallax.domain.primary import Change, PrimaryDecision
from parallax.errors import DeadlineError
from parallax.ports.audit import Auditor
from parallax.ports.groups import PrimaryLog, Reach
from parallax.runtime.deadline import Deadline
from parallax.runtime.retry import RetryPolicy
from tests.memory.audit import MemoryAuditLog
from tests.memory.groups import MemoryPrimaryStore
from tests.worlds.offset_world import World

CHANGE = Change(GroupName("g"), RegionName("a"))


class Overtaken(MemoryPrimaryStore):
    """Somebody else is faster, so many times."""

    def __init__(self, times: float) -> None:
        super().__init__()
        self.left = times
        self.attempts = 0

    def append(self, decision: PrimaryDecision, *, log: PrimaryLog, reach: Reach) -> bool:
        self.attempts += 1
        self.left -= 1
        return self.left < 0 and super().append(decision, log=log, reach=reach)


class Clock:
    """Time that passes while somebody sleeps, and a little at each look."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


def auditor() -> Auditor:
    return Auditor(MemoryAuditLog(), lambda: 1)


def decide(store: Overtaken, clock: Clock, budget_ms: float = 10_000) -> None:
    made = Primaries(World().config, RegionName("a"), store, auditor(), lambda: 1, clock, clock.sleep)
    made.set(CHANGE, Deadline.after_ms(budget_ms, clock))


def test_who_is_overtaken_all_the_time_asks_the_store_a_few_times_and_says_so() -> None:
    store, clock = Overtaken(float("inf")), Clock()

    with pytest.raises(DeadlineError, match="while others decided"):
        decide(store, clock)

    assert 5 <= store.attempts <= 30
    assert clock.now_s < 11


def test_who_is_overtaken_once_waits_a_moment_and_decides() -> None:
    store, clock = Overtaken(1), Clock()

    decide(store, clock)

    assert store.attempts == 2
    assert clock.now_s < 0.1


def test_two_that_overtake_each_other_do_not_wait_equally_long() -> None:
    waits = []
    for _ in range(2):
        store, clock = Overtaken(6), Clock()
        decide(store, clock)
        waits.append(clock.slept)

    assert waits[0] != waits[1]


def test_without_a_wait_the_store_would_be_asked_thousands_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primaries, "_AFTER_A_RIVAL", RetryPolicy(first_wait_ms=0))
    store, clock = Overtaken(float("inf")), Clock()

    with pytest.raises(DeadlineError):
        decide(store, clock)

    assert store.attempts > 1_000
