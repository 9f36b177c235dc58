"""One read for many callers: who asks for what is being read waits for it instead of reading it too."""

from __future__ import annotations

import threading
from collections.abc import Hashable

_LOCKS = 64
"""Things read at one time: more than the index is asked side by side."""


class Flights:
    """A lock for each thing that is read, by its key. Two things may share one; that costs time, nothing else."""

    def __init__(self) -> None:
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def of(self, key: Hashable) -> threading.Lock:
        """To be held while looking the key up in a memory, and while reading it if it is not there."""
        return self._locks[hash(key) % _LOCKS]
