"""Holding a loop to a rate."""

from __future__ import annotations

import time
from collections.abc import Callable

_BURST_S = 0.1


class Pace:
    """A token bucket: at most ``per_s`` records a second, in bursts of a tenth of a second.

    Args:
        per_s: None: no limit.
        clock: seconds, never going back.
    """

    def __init__(self, per_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._per_s = per_s
        self._tokens = 0.0
        self._filled_at = clock()

    def limit(self, per_s: float | None) -> None:
        """Change the rate from now on."""
        self._per_s = per_s
        self._tokens, self._filled_at = 0.0, self._clock()

    def allowance(self, most: int) -> int:
        """How many records may pass now, at most ``most``."""
        if self._per_s is None:
            return most
        now = self._clock()
        self._tokens = min(
            max(1.0, self._per_s * _BURST_S), self._tokens + (now - self._filled_at) * self._per_s
        )
        self._filled_at = now
        return min(most, int(self._tokens))

    def took(self, records: int) -> None:
        """Records have passed."""
        if self._per_s is not None:
            self._tokens -= records
