"""How signals end a process."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = (signal.SIGINT, signal.SIGTERM)


def stop_on_signals(stop: threading.Event) -> None:
    """Set ``stop`` at each SIGINT or SIGTERM, for as long as the process lives: a service ends in good order."""
    for number in _ENDING:
        signal.signal(number, lambda *_: stop.set())


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Set ``stop`` at the first SIGINT or SIGTERM; the second one does what it would have done before.

    A command that moves groups ends between two steps, so that it can be run again.
    """
    before = {number: signal.getsignal(number) for number in _ENDING}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def first(_number: int, _frame: FrameType | None) -> None:
        restore()
        stop.set()
        sys.stderr.write("stopping after the present step; once more to end at once\n")

    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        restore()
