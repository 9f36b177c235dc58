"""What was used last, as much of it as is bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Newest(Generic[K, T]):
    """What was used last, as much as is bounded. Safe to use from several threads.

    Args:
        most: remembered, in the unit of ``weigh``.
        weigh: what a value counts for; None: each for one.
    """

    def __init__(self, most: int, weigh: Callable[[T], int] | None = None) -> None:
        self._most, self._weigh = most, weigh
        self._lock = threading.Lock()
        self._values: OrderedDict[K, T] = OrderedDict()
        self._weight = 0

    def get(self, key: K) -> T | None:
        """What is remembered of it, if it is."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: T) -> None:
        """Remember it, for the next `get` at least."""
        self.put_all({key: value})

    def put_all(self, values: Mapping[K, T]) -> None:
        """Remember what belongs together: all of it is there afterwards, however much it is."""
        with self._lock:
            for key, value in values.items():
                self._put(key, value)
            while self._weight > self._most and len(self._values) > len(values):
                _, last = self._values.popitem(last=False)
                self._weight -= self._weight_of(last)

    def replace(self, key: K, known: T, value: T) -> None:
        """Remember it in the place of what is known, unless that is another one by now."""
        with self._lock:
            if self._values.get(key) is known:
                self._put(key, value)

    def _put(self, key: K, value: T) -> None:
        former = self._values.get(key)
        if former is not None:
            self._weight -= self._weight_of(former)
        self._values[key] = value
        self._values.move_to_end(key)
        self._weight += self._weight_of(value)

    def _weight_of(self, value: T) -> int:
        return 1 if self._weigh is None else self._weigh(value)
