"""Keeps callers from piling up before a store that is slow rather than dead.

Each of them would wait out a time-out of its own, and hold a thread for so long. So there is room for so many calls at once,
and when calls in a row were not answered in time, those that follow fail at once, but for one a second that finds out whether
the store answers again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from parallax.errors import StoreUnavailableError

MOST_CALLS = 128
"""More than the threads that a service has at work while Cassandra answers within milliseconds."""
MOST_SILENT = 8
"""Fewer may have met one slow node, or one slow partition of a table."""
TRY_EVERY_S = 1.0


class SilentStoreError(StoreUnavailableError):
    """The store did not answer a call in time, as opposed to answering that it can't serve it."""


class StoreGate:
    """Lets calls of a store through, or fails them at once.

    Args:
        most_calls: at once.
        clock: seconds, never going back.
    """

    def __init__(self, *, most_calls: int = MOST_CALLS, clock: Callable[[], float] = time.monotonic) -> None:
        self._most_calls = most_calls
        self._clock = clock
        self._lock = threading.Lock()
        self._calls = 0
        self._silent = 0
        """Calls in a row that were not answered in time."""
        self._answered_at_s = float("-inf")
        self._try_at_s = float("-inf")
        self._problem = ""

    @contextmanager
    def call(self) -> Iterator[None]:
        """Make one call, which raises `SilentStoreError` when it was not answered in time.

        Raises:
            StoreUnavailableError: not now; the message says why.
        """
        begun_at_s = self._begin()
        try:
            yield
        except SilentStoreError as error:
            self._end(begun_at_s, str(error))
            raise
        except BaseException:
            # It could not be served, or was no call at all: that is told at once, and says nothing of the store's pace.
            self._end(begun_at_s, None)
            raise
        self._end(begun_at_s, "")

    def _begin(self) -> float:
        with self._lock:
            now_s = self._clock()
            if self._calls >= self._most_calls:
                raise StoreUnavailableError(
                    f"store: {self._calls} calls are waiting for it already; it is slow"
                )
            if self._silent >= MOST_SILENT:
                if now_s < self._try_at_s:
                    raise StoreUnavailableError(
                        f"store: the last {self._silent} calls were not answered in time; it is tried once a second "
                        f"({self._problem})"
                    )
                self._try_at_s = now_s + TRY_EVERY_S
            self._calls += 1
            return now_s

    def _end(self, begun_at_s: float, silence: str | None) -> None:
        """A call has ended: unanswered, because of ``silence``; answered, if that is empty."""
        with self._lock:
            self._calls -= 1
            if silence is None:
                return
            now_s = self._clock()
            if not silence:
                self._silent, self._answered_at_s = 0, now_s
            elif begun_at_s >= self._answered_at_s:
                # Calls that began before the last answer say nothing of what came after it.
                self._silent, self._problem = self._silent + 1, silence
                self._try_at_s = now_s + TRY_EVERY_S
