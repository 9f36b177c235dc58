"""Ctrl-C ends a command between two steps, so that it can be run again."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Set ``stop`` at the first SIGINT or SIGTERM; the second one does what it would have done before."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

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
