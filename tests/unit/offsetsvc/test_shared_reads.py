"""A read that many share begins after each of them has asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from concurrent.futures._base import DoneAndNotDoneFutures
from random import Random

import pytest

from offsetsvc.shared_reads import SharedReads
from parallax.errors import StoreUnavailableError


class Store:
    """A value that is read when the test lets it be."""

    def __init__(self) -> None:
        self.value = 0
        self.reads: list[threading.Event] = []
        self.begun = threading.Semaphore(0)

    def read(self) -> int:
        may_end = threading.Event()
        value = self.value
        self.reads.append(may_end)
        self.begun.release()
        assert may_end.wait(30)
        if value < 0:
            raise StoreUnavailableError("store: no answer")
        return value

    def end(self, number: int) -> None:
        """Let a read end, once it has begun."""
        self.reads[number].set()


def waiting(shared: SharedReads, key: str, callers: Callable[[], int]) -> None:
    """Wait until a second read of a key is waited for."""
    while shared._under_way.get(key, (None, None))[1] is None or callers() < 1:
        threading.Event().wait(0.001)


@pytest.mark.parametrize("value", [2, -1])
def test_who_comes_later_is_told_what_was_read_later_and_all_share_it(value: int) -> None:
    shared, store = SharedReads(), Store()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(shared.read, "key", store.read)
        assert store.begun.acquire(timeout=30)
        store.value = value
        others = [pool.submit(shared.read, "key", store.read) for _ in range(5)]
        waiting(shared, "key", lambda: sum(call.running() for call in others) - 4)
        store.end(0)
        assert first.result(30) == 0
        assert store.begun.acquire(timeout=30)
        store.end(1)
        for call in others:
            if value > 0:
                assert call.result(30) == value
            else:
                assert type(call.exception(30)) is StoreUnavailableError
    assert len(store.reads) == 2
    assert not shared._under_way


def test_other_things_are_read_meanwhile() -> None:
    shared, store = SharedReads(), Store()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(shared.read, "key", store.read)
        assert store.begun.acquire(timeout=30)
        assert shared.read("other", lambda: 7) == 7
        store.end(0)
        assert first.result(30) == 0


def test_nobody_waits_for_ever() -> None:
    shared, store = SharedReads(longest_wait_s=0.05), Store()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(shared.read, "key", store.read)
        assert store.begun.acquire(timeout=30)
        with pytest.raises(StoreUnavailableError, match="has not come"):
            shared.read("key", store.read)
        store.end(0)
        assert first.result(30) == 0
    assert shared.read("key", lambda: 5) == 5


def test_who_has_waited_too_long_as_its_turn_comes_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    shared, store = SharedReads(), Store()

    def too_long(reads: list[Future[int]], _: float) -> DoneAndNotDoneFutures[int]:
        store.end(0)
        wait(reads, 30)  # the next one begins
        return DoneAndNotDoneFutures(set(), set(reads))

    monkeypatch.setattr("offsetsvc.shared_reads.wait", too_long)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(shared.read, "key", store.read)
        assert store.begun.acquire(timeout=30)
        assert shared.read("key", lambda: 5) == 5
        assert first.result(30) == 0
    assert not shared._under_way


def test_whatever_was_there_when_a_caller_asked_is_told() -> None:
    """Many threads and keys: no caller is told less than was there before it asked."""
    shared, values, lock = SharedReads(), [0, 0], threading.Lock()

    def ask(seed: int) -> None:
        chance = Random(seed)
        for _ in range(300):
            key = chance.randrange(2)
            if chance.random() < 0.3:
                with lock:
                    values[key] += 1
            before = values[key]
            assert shared.read(key, lambda key=key: values[key]) >= before  # type: ignore[misc]

    with ThreadPoolExecutor(8) as pool:
        for call in [pool.submit(ask, seed) for seed in range(8)]:
            call.result(60)
    assert not shared._under_way
