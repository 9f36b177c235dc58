"""One read for many callers."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from offsetsvc.index.flights import OVERDUE, Flights, _Flight
from parallax.errors import StoreUnavailableError


class Memory:
    """A number that grows with each read, and its age."""

    def __init__(self, flights: Flights | None = None) -> None:
        self.flights = flights or Flights()
        self.value: int | None = None
        self.age_s = 0.0
        self.reads = 0
        self.reading, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()

    def get(self) -> int:
        return self.flights.fresh(
            "number",
            lambda max_age_s: self.value if self.age_s < max_age_s else None,
            self.read,
            max_age_s=1,
        )

    def read(self) -> int:
        self.reading.set()
        assert self.may_end.wait(30)
        self.reads += 1
        self.value, self.age_s = self.reads, 0.0
        return self.reads


def test_what_is_young_is_not_read_again() -> None:
    memory = Memory()
    assert [memory.get(), memory.get()] == [1, 1]
    memory.age_s = 1.5
    assert memory.get() == 2


def test_while_one_reads_the_others_go_on_with_what_is_not_overdue() -> None:
    memory = Memory()
    assert memory.get() == 1
    memory.age_s = 1.5
    memory.may_end.clear()
    memory.reading.clear()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(memory.get)
        assert memory.reading.wait(30)
        assert memory.get() == 1
        memory.age_s = OVERDUE + 0.5
        late = pool.submit(memory.get)
        memory.may_end.set()
        assert {first.result(30), late.result(30)} == {2}
    assert memory.reads == 2


def test_a_failed_read_is_the_callers_own_and_the_next_one_reads_again() -> None:
    memory = Memory()
    seen = []

    def fail() -> int:
        raise LookupError

    try:
        memory.flights.fresh("number", lambda _age_s: None, fail, max_age_s=1)
    except LookupError as error:
        seen.append(error)
    assert len(seen) == 1
    assert memory.get() == 1


SLOW_S = 0.2


def all_at_once(flights: Flights, callers: int = 10) -> tuple[list[BaseException | None], int, float]:
    """What callers hear of a store that takes long to fail, how often it was asked, and how long that took."""
    asked: list[int] = []

    def read() -> int:
        asked.append(1)
        time.sleep(SLOW_S)
        raise StoreUnavailableError("store: no answer")

    def ask() -> int:
        return flights.fresh("thing", lambda _age: None, read, max_age_s=1.0)

    begun = time.monotonic()
    with ThreadPoolExecutor(callers) as pool:
        calls = [pool.submit(ask) for _ in range(callers)]
        return [call.exception() for call in calls], len(asked), time.monotonic() - begun


def test_callers_of_a_slow_store_fail_together() -> None:
    errors, asked, took_s = all_at_once(Flights())
    assert {type(error) for error in errors} == {StoreUnavailableError}
    assert len({id(error) for error in errors}) == len(errors), "each has a traceback of its own"
    assert asked <= 2
    assert took_s < 4 * SLOW_S


def test_one_after_the_other_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flights, "_join", lambda _self, _key: (_Flight(), True))
    assert all_at_once(Flights())[1] == 10


def test_nobody_waits_for_ever_for_a_read_of_another_caller() -> None:
    flights, go, reading = Flights(longest_wait_s=0.05), threading.Event(), threading.Event()

    def read() -> int:
        reading.set()
        go.wait(20)
        return 1

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(flights.fresh, "thing", lambda _age: None, read, max_age_s=1.0)
        assert reading.wait(20)
        with pytest.raises(StoreUnavailableError, match="has not come within"):
            flights.fresh("thing", lambda _age: None, read, max_age_s=1.0)
        go.set()
        assert first.result() == 1


def test_a_failure_before_the_call_is_not_shared() -> None:
    flights = Flights()

    def fails() -> int:
        raise StoreUnavailableError("store: no answer")

    with pytest.raises(StoreUnavailableError):
        flights.fresh("thing", lambda _age: None, fails, max_age_s=1.0)
    assert flights.fresh("thing", lambda _age: None, lambda: 7, max_age_s=1.0) == 7


def test_nobody_waits_while_what_is_known_will_do() -> None:
    with ThreadPoolExecutor(1) as behind:
        memory = Memory(Flights(behind))
        assert memory.get() == 1
        memory.age_s = OVERDUE - 0.5
        memory.may_end.clear()
        memory.reading.clear()
        assert [memory.get() for _ in range(3)] == [1, 1, 1]
        assert memory.reading.wait(30)
        assert memory.get() == 1
        memory.may_end.set()
    assert memory.reads == 2
    assert memory.get() == 2


def test_what_nobody_may_use_any_more_is_waited_for() -> None:
    with ThreadPoolExecutor(1) as behind:
        memory = Memory(Flights(behind))
        assert memory.get() == 1
        memory.age_s = OVERDUE + 0.5
        assert memory.get() == 2


def test_a_pool_that_is_shut_down_leaves_reading_to_the_caller() -> None:
    behind = ThreadPoolExecutor(1)
    memory = Memory(Flights(behind))
    assert memory.get() == 1
    behind.shutdown()
    memory.age_s = 1.5
    assert memory.get() == 2


@pytest.mark.parametrize("fails", [False, True])
def test_a_failure_behind_is_told_to_those_who_can_not_go_on(*, fails: bool) -> None:
    """And what a read that began before them found does for them, however slow it was."""
    reading, may_end = threading.Event(), threading.Event()

    def read() -> int:
        reading.set()
        assert may_end.wait(30)
        if fails:
            raise StoreUnavailableError("store: no answer")
        return 7

    with ThreadPoolExecutor(1) as behind, ThreadPoolExecutor(4) as pool:
        flights = Flights(behind)
        assert flights.fresh("thing", lambda age_s: 1 if age_s > 1 else None, read, max_age_s=1.0) == 1
        assert reading.wait(30)
        calls = [
            pool.submit(flights.fresh, "thing", lambda _age: None, read, max_age_s=1.0) for _ in range(4)
        ]
        may_end.set()
        if fails:
            assert {type(call.exception()) for call in calls} == {StoreUnavailableError}
        else:
            assert {call.result() for call in calls} == {7}


def test_a_read_that_takes_longer_than_its_find_may_be_used_is_not_made_by_one_caller_after_the_other() -> (
    None
):
    """So it was once: nobody could use what another one had read, and the last of many waited for all the others."""
    asked: list[int] = []

    def read() -> int:
        asked.append(1)
        time.sleep(SLOW_S)
        return 7

    flights = Flights()
    with ThreadPoolExecutor(10) as pool:
        calls = [
            pool.submit(flights.fresh, "thing", lambda _age: None, read, max_age_s=SLOW_S / 100)
            for _ in range(10)
        ]
        assert {call.result() for call in calls} == {7}
    assert len(asked) <= 3
