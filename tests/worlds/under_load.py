"""Calls that are made over and over while a test changes something: none of them may fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def under_load(*calls: Callable[[], Any]) -> Iterator[list[int]]:
    """Each call over and over in a thread of its own; an error of one is an error of the test."""
    stop, errors, counts = threading.Event(), [], [0] * len(calls)

    def repeat(index: int, call: Callable[[], Any]) -> None:
        while not stop.is_set() and not errors:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - whatever it is, the test tells
                errors.append(error)
            counts[index] += 1

    threads = [threading.Thread(target=repeat, args=item) for item in enumerate(calls)]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        if errors:  # it says more than whatever waited for further calls
            raise errors[0]


def some_more(counts: list[int]) -> None:
    """Wait until every thread has made some calls more."""
    wanted = [count + 10 for count in counts]
    deadline_s = time.monotonic() + 30
    while any(count < least for count, least in zip(counts, wanted, strict=True)):
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
