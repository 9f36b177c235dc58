"""One read for many callers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from offsetsvc.index.memory import Flights


class Memory:
    """A number that grows with each read, and its age."""

    def __init__(self) -> None:
        self.flights = Flights()
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
        memory.age_s = 3.5
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
