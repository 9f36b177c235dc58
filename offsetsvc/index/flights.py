"""One read for many callers, none of whom waits for it while what is known will do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

import structlog

from offsetsvc.parallel import LONGEST_READ_S, came_too_late, found_by_another
from parallax.errors import ParallaxError, StoreUnavailableError

T = TypeVar("T")

OVERDUE = 5
"""What is so many times too old is used by nobody any more."""

_log = structlog.get_logger(__name__)


class _Flight:
    """A read under way, and when it began (monotonic seconds): what it finds is as old as that."""

    __slots__ = ("began_at_s", "result")

    def __init__(self) -> None:
        self.began_at_s = time.monotonic()
        self.result: Future[Any] = Future()


class Flights:
    """Sees to it that each thing is read by one caller at a time.

    Args:
        behind: where things are read anew that will do for the moment; None: whoever comes first reads, the others go on. Its
            threads wait for no read of others.
        longest_wait_s: for a read of another caller.
    """

    def __init__(self, behind: Executor | None = None, longest_wait_s: float = LONGEST_READ_S) -> None:
        self._behind = behind
        self._longest_wait_s = longest_wait_s
        self._lock = threading.Lock()
        """Held for moments, never while anything is read."""
        self._under_way: dict[Hashable, _Flight] = {}

    def fresh(
        self, key: Hashable, known: Callable[[float], T | None], read: Callable[[], T], *, max_age_s: float
    ) -> T:
        """What is known, if it is young enough; else what is read now, by this caller or by another one.

        Args:
            key: what is read.
            known: what is known of it and at most so many seconds old, or None.
            read: reads it and makes it known.
            max_age_s: older than this, it is read again, while callers go on with it; `OVERDUE` times as old, nobody uses it any
                more. What another caller reads is used if it was begun no longer than that before this call.

        Raises:
            UnavailableError: it could not be read, by this caller or by the one that it waited for.
        """
        value = known(max_age_s)
        if value is not None:
            return value
        called_at_s, oldest_s = time.monotonic(), OVERDUE * max_age_s
        value = known(oldest_s)
        if value is not None and self._goes_on(key, read):
            return value
        while True:
            flight, begun = self._join(key)
            if begun:
                return self._fly(key, flight, read)
            left_s = called_at_s + self._longest_wait_s - time.monotonic()
            found: T = found_by_another(flight.result, left_s, came_too_late(self._longest_wait_s))
            if flight.began_at_s >= called_at_s - oldest_s:
                return found

    def _goes_on(self, key: Hashable, read: Callable[[], T]) -> bool:
        """Whether a caller need not read: somebody does, or will."""
        if self._behind is None:
            return key in self._under_way
        flight, begun = self._join(key)
        if begun:
            try:
                self._behind.submit(self._fly_behind, key, flight, read)
            except RuntimeError:  # it is shut down
                self._land(key, flight)
                flight.result.set_exception(StoreUnavailableError("store: the service ends"))
                return False
        return True

    def _join(self, key: Hashable) -> tuple[_Flight, bool]:
        """The read of a thing, and whether it is this caller who has to carry it out."""
        with self._lock:
            flight = self._under_way.get(key)
            if flight is not None:
                return flight, False
            flight = self._under_way[key] = _Flight()
            return flight, True

    def _land(self, key: Hashable, flight: _Flight) -> None:
        with self._lock:
            if self._under_way.get(key) is flight:
                del self._under_way[key]

    def _fly(self, key: Hashable, flight: _Flight, read: Callable[[], T]) -> T:
        try:
            value = read()
        except BaseException as error:
            self._land(key, flight)
            flight.result.set_exception(error)
            raise
        self._land(key, flight)
        flight.result.set_result(value)
        return value

    def _fly_behind(self, key: Hashable, flight: _Flight, read: Callable[[], T]) -> None:
        flight.began_at_s = time.monotonic()
        try:
            self._fly(key, flight, read)
        except ParallaxError:
            return  # whoever can't go on with what is known will be told
        except Exception as error:  # noqa: BLE001 - it would vanish in the pool
            _log.error("read_failed", what=str(key), exc_info=error)
