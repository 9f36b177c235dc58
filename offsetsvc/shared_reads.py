"""One read for all who ask for the same at the same time, none of whom is told what was read before it asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from offsetsvc.parallel import LONGEST_READ_S, came_too_late, found_by_another
from parallax.errors import StoreUnavailableError

T = TypeVar("T")


class SharedReads:
    """Nothing is remembered: whoever comes while a read is under way waits for the next one, with all others who do.

    Args:
        longest_wait_s: for another caller's read.
    """

    def __init__(self, longest_wait_s: float = LONGEST_READ_S) -> None:
        self._longest_wait_s = longest_wait_s
        self._lock = threading.Lock()
        """Held for moments, never while anything is read."""
        self._under_way: dict[Hashable, tuple[Future[Any], Future[Any] | None]] = {}
        """By what is read: the read that has begun, and the one after it if somebody waits for that."""

    def read(self, key: Hashable, read: Callable[[], T]) -> T:
        """What is read once this call has begun, by this caller or by another one.

        Args:
            key: what is read.
            read: reads it.

        Raises:
            UnavailableError: it could not be read, by this caller or by the one that it waited for.
        """
        with self._lock:
            known = self._under_way.get(key)
            before, following = (None, None) if known is None else known
            mine: Future[T] = Future() if following is None else following
            if before is None:
                self._under_way[key] = mine, None
            elif following is None:
                self._under_way[key] = before, mine
        if following is not None:
            return self._of_another(mine)
        if before is not None and not wait([before], self._longest_wait_s).done:
            self._give_up(key, before, mine)
        try:
            value = read()
        except BaseException as error:
            self._end(key)
            mine.set_exception(error)
            raise
        self._end(key)
        mine.set_result(value)
        return value

    def _end(self, key: Hashable) -> None:
        """Let the next one begin."""
        with self._lock:
            _, following = self._under_way.pop(key)
            if following is not None:
                self._under_way[key] = following, None

    def _of_another(self, read: Future[T]) -> T:
        return found_by_another(read, 2 * self._longest_wait_s, came_too_late(self._longest_wait_s))

    def _give_up(self, key: Hashable, before: Future[Any], mine: Future[Any]) -> None:
        """Read no more, unless its turn has come this very moment.

        Raises:
            StoreUnavailableError: it has not.
        """
        with self._lock:
            if self._under_way[key] != (before, mine):
                return
            self._under_way[key] = before, None
        mine.set_exception(self._too_long())
        raise self._too_long()

    def _too_long(self) -> StoreUnavailableError:
        return StoreUnavailableError(came_too_late(self._longest_wait_s))
