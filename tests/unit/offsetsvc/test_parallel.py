"""Tasks here and side by side, within a deadline; a pool's threads bear its name where tools of the system look."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest

from offsetsvc.parallel import Concurrently, named_pool
from parallax.errors import DeadlineError
from parallax.runtime.deadline import Deadline


@pytest.fixture
def pool() -> Iterator[Executor]:
    with named_pool(16, "a-pool") as pool:
        yield pool


def test_what_waits_for_nothing_is_done_in_the_callers_thread(pool: Executor) -> None:
    together = Concurrently(pool, Deadline.after_ms(10_000))

    def place(number: int) -> tuple[int, int]:
        return number, threading.get_ident()

    # A busy machine may stop the caller for longer than it goes on alone.
    for _ in range(20):
        found = together.map_here_first(place, range(10), "looking")
        assert [number for number, _ in found] == list(range(10))
        if {thread for _, thread in found} == {threading.get_ident()}:
            return
    pytest.fail("nothing was done here")


def test_what_waits_is_done_side_by_side_but_for_the_first(pool: Executor) -> None:
    together = Concurrently(pool, Deadline.after_ms(10_000))
    all_wait = threading.Barrier(9)

    def wait(number: int) -> int:
        if number == 0:
            time.sleep(0.02)
        else:
            all_wait.wait(5)
        return number

    assert together.map_here_first(wait, range(10), "looking") == list(range(10))
    assert together.map_here_first(wait, [], "looking") == []
    assert together.map_here_first(wait, [0], "looking") == [0]


@pytest.mark.parametrize("first_waits", [True, False], ids=["here", "side by side"])
def test_a_deadline_that_passes_ends_it(pool: Executor, *, first_waits: bool) -> None:
    together = Concurrently(pool, Deadline.after_ms(100))
    begun = []

    def wait(number: int) -> None:
        begun.append(number)
        time.sleep(0.3 if number or first_waits else 0.02)

    with pytest.raises(DeadlineError, match="while looking"):
        together.map_here_first(wait, range(3), "looking")
    assert sorted(begun) == ([0] if first_waits else [0, 1, 2])


def name_for_the_kernel() -> str:
    return Path(f"/proc/self/task/{threading.get_native_id()}/comm").read_text(encoding="utf-8").strip()


def test_the_kernel_knows_a_thread_by_its_pool() -> None:
    with named_pool(2, "some-pool") as pool:
        assert pool.submit(name_for_the_kernel).result() == "some-pool"
    with named_pool(1, "a-name-that-is-too-long") as pool:
        assert pool.submit(name_for_the_kernel).result() == "a-name-that-is-"
    assert "pool" not in name_for_the_kernel()
