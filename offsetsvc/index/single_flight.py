"""One read for many callers: while somebody reads a thing anew, the others go on with what is known of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TypeVar

T = TypeVar("T")

_LOCKS = 64
"""Things read at one time: more than the index is asked side by side."""


class Flights:
    """Sees to it that each thing is read by one caller at a time.

    Two things may share a lock by chance; that costs time, nothing else.
    """

    def __init__(self) -> None:
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def fresh(
        self,
        key: Hashable,
        known: Callable[[float], T | None],
        read: Callable[[], T],
        *,
        max_age_s: float,
        overdue_age_s: float,
    ) -> T:
        """What is known, if it is young enough; else what is read now, by this caller or by another one.

        Args:
            key: what is read.
            known: what is known of it and at most so many seconds old, or None.
            read: reads it and makes it known.
            max_age_s: older than this, it is read again.
            overdue_age_s: older than this, nobody uses it any more, even while it is being read.
        """
        found = known(max_age_s)
        if found is not None:
            return found
        lock = self._locks[hash(key) % _LOCKS]
        if not lock.acquire(blocking=False):
            found = known(overdue_age_s)
            if found is not None:
                return found
            lock.acquire()
        try:
            found = known(max_age_s)
            return read() if found is None else found
        finally:
            lock.release()
