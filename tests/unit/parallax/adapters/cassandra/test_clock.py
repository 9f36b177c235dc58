"""Moments that are stored are told by the store's clock, whatever this machine's wall clock says."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from structlog.testing import capture_logs

from parallax.adapters.cassandra.clock import StoreClock
from parallax.domain.commits import ObservedCommit
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.errors import StoreUnavailableError
from parallax.runtime.deadline import wall_clock_ms
from tests.memory.groups import MemoryGroupStore
from tests.support import poll_until

DAYS_15_MS = 15 * 86_400_000
START_MS = 1_800_000_000_000
ITEM = TopicPartition(TopicName("trips"), 0)
GROUP, CLUSTER = GroupName("riders"), ClusterName("aggregate-a")


@dataclass
class Store:
    """A store that tells its time, and how it does."""

    steady_s: float = 5_000.0
    now_ms: int = START_MS
    takes_s: float = 0.0
    away: bool = False
    asked: int = 0

    def pass_s(self, seconds: float) -> None:
        self.steady_s += seconds
        self.now_ms += int(seconds * 1_000)

    def ask(self) -> int:
        self.asked += 1
        if self.away:
            raise StoreUnavailableError("store: away")
        self.pass_s(self.takes_s / 2)
        told = self.now_ms
        self.pass_s(self.takes_s / 2)
        return told


def clock_of(store: Store) -> StoreClock:
    return StoreClock(store.ask, lambda: store.steady_s)


def looked(store: Store, clock: StoreClock, asked: int) -> None:
    """Wait until the store was asked so often, and the look has ended."""
    give_up_at = time.monotonic() + 10
    while store.asked < asked or clock._lock.locked():
        assert time.monotonic() < give_up_at
        time.sleep(0.001)


def test_it_tells_the_time_of_the_store_and_asks_now_and_then() -> None:
    store = Store()
    clock = clock_of(store)
    for _ in range(29):
        assert clock.now_ms() == store.now_ms
        store.pass_s(1.0)
    assert store.asked == 2
    store.pass_s(2.0)
    store.now_ms += 400  # the two clocks have drifted
    assert clock.now_ms() == store.now_ms - 400  # nobody waits for a later look
    looked(store, clock, 3)
    assert clock.now_ms() == store.now_ms


def test_a_store_that_has_never_answered_is_not_guessed_at() -> None:
    store = Store(away=True)
    clock = clock_of(store)
    with pytest.raises(StoreUnavailableError):
        clock.now_ms()
    store.away = False
    assert clock.now_ms() == store.now_ms


@pytest.mark.parametrize("fault", ["away", "slow"])
def test_what_was_found_stays_until_the_store_answers_at_once(fault: str) -> None:
    store = Store()
    clock = clock_of(store)
    clock.now_ms()
    store.away, store.takes_s = (True, 0.0) if fault == "away" else (False, 20.0)
    store.pass_s(31.0)
    clock.now_ms()
    looked(store, clock, 3)
    assert clock.now_ms() == store.now_ms
    assert store.asked == 3  # not at each call
    store.away, store.takes_s = False, 0.0
    store.now_ms += 400
    store.pass_s(1.5)
    clock.now_ms()
    looked(store, clock, 4)
    assert clock.now_ms() == store.now_ms


def test_a_look_that_meets_a_defect_is_not_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store, asked = Store(), 0
    clock = clock_of(store)
    clock.now_ms()

    def broken() -> int:
        nonlocal asked
        asked += 1
        raise RuntimeError("nobody thought of this")

    with monkeypatch.context() as defect, capture_logs() as logs:
        defect.setattr(clock, "_ask", broken)
        store.pass_s(31.0)
        clock.now_ms()
        poll_until(lambda: asked == 1 and not clock._lock.locked(), 10, "the look has ended")
    assert [line["event"] for line in logs] == ["store_time_unknown"]
    store.now_ms += 400
    store.pass_s(1.5)
    clock.now_ms()
    looked(store, clock, 3)
    assert clock.now_ms() == store.now_ms


def test_half_the_time_that_an_answer_took_is_added() -> None:
    store = Store(takes_s=0.5)
    assert clock_of(store).now_ms() == store.now_ms


@pytest.mark.parametrize(("by_store", "found"), [(True, 900), (False, 700)])
def test_what_was_seen_by_a_clock_that_was_ahead_does_not_outweigh_what_is_seen_later(
    monkeypatch: pytest.MonkeyPatch, *, by_store: bool, found: int
) -> None:
    """A sync job's clock is fifteen days ahead for a while; the cluster is lost after it has returned.

    By wall clocks the position of that while would be the last one for fifteen days.
    """
    store, groups = Store(), MemoryGroupStore()
    now_ms: Callable[[], int] = clock_of(store).now_ms if by_store else wall_clock_ms
    true_ns = time.time_ns

    def see(next_offset: int) -> None:
        store.pass_s(1.0)
        seen = ObservedCommit(GROUP, CLUSTER, ITEM, TopicId("one"), TargetOffset(next_offset), -1, now_ms())
        groups.save_observed([seen])

    see(500)
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + DAYS_15_MS * 1_000_000)
    see(700)
    monkeypatch.setattr(time, "time_ns", true_ns)
    see(900)
    assert [item.next_offset for item in groups.observed(GROUP, CLUSTER)] == [found]
