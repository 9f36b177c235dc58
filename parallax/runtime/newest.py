"""What was used last, as much of it as is bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Newest(Generic[K, T]):
    """What was used last, as much as is bounded. Safe to use from several threads.

    Args:
        most: remembered.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._values: OrderedDict[K, T] = OrderedDict()

    def get(self, key: K) -> T | None:
        """What is remembered of it, if it is."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: K, value: T) -> None:
        """Remember it."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            while len(self._values) > self._most:
                self._values.popitem(last=False)
