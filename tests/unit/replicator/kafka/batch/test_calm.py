"""How long a transaction keeps quiet for the end of the one before it."""

from __future__ import annotations

import pytest

from replicator.kafka.batch.calm import LONGEST_CALM_MS, Calm

LATE_MS, IN_TIME_MS = 20.0, 14.0


class World:
    """A target that answers when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.calm = Calm(lambda: self.now_s)

    def transaction(
        self, answered_after_ms: float = 1.0, *, took_ms: float = 0.0, small: bool = True, more: int = 0
    ) -> float:
        """A commit, and a next transaction with so many requests behind its first; the pause between them, ms."""
        pause_ms = self.calm.committed(took_ms)
        assert self.calm.left_ms == pytest.approx(pause_ms, abs=1e-6)
        self.now_s += pause_ms / 1_000
        assert self.calm.left_ms == pytest.approx(0.0, abs=1e-6)
        self.calm.sent(small=small)
        for _ in range(more):
            self.calm.sent(small=True)
        self.now_s += answered_after_ms / 1_000
        self.calm.answered()
        for _ in range(more):
            self.now_s += LATE_MS / 1_000
            self.calm.answered()
        return pause_ms


def test_it_begins_with_a_millisecond_and_lasts_at_least_as_long_as_the_commit_took() -> None:
    world = World()
    assert world.transaction() == pytest.approx(1.0)
    assert world.transaction(took_ms=3.0) == 3.0
    assert world.transaction(took_ms=10_000.0) == LONGEST_CALM_MS


def test_each_first_request_that_is_answered_late_makes_it_longer_up_to_a_bound() -> None:
    world = World()
    pauses_ms = [world.transaction(LATE_MS) for _ in range(30)]
    assert pauses_ms[:4] == pytest.approx([1.0, 1.25, 1.5, 1.75], abs=0.01)
    assert max(pauses_ms) <= LONGEST_CALM_MS
    assert pauses_ms[-1] == pytest.approx(LONGEST_CALM_MS, abs=0.01)


def test_it_becomes_shorter_with_time_where_nothing_is_late() -> None:
    world = World()
    for _ in range(10):
        world.transaction(LATE_MS)
    longest_ms = world.transaction(IN_TIME_MS)
    world.now_s += 10
    assert world.transaction(IN_TIME_MS) == pytest.approx(longest_ms - 0.5, abs=0.02)
    world.now_s += 1_000
    assert world.transaction(IN_TIME_MS) == 0.0


@pytest.mark.parametrize(("small", "more"), [(False, 0), (True, 3)], ids=["large", "behind the first"])
def test_what_is_late_for_another_reason_says_nothing(*, small: bool, more: int) -> None:
    world = World()
    world.transaction(IN_TIME_MS if small else LATE_MS, small=small, more=more)
    assert world.transaction() <= 1.0


def test_an_answer_of_the_transaction_before_says_nothing_of_the_next_one() -> None:
    world = World()
    world.calm.committed(0.0)
    world.calm.sent(small=True)
    world.now_s += LATE_MS / 1_000
    world.calm.committed(0.0)
    world.calm.answered()
    assert world.transaction() <= 1.0
