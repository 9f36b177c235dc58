"""How long a transaction had better keep quiet for the end of the one before it: learned from what was too early."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_CALM_MS = 5.0
_FIRST_MS = 1.0
_TOO_EARLY_MS = 15.0
"""A small request that takes so long has met markers that were not there: the broker looks again after 20 ms by default
(``add.partitions.to.txn.retry.backoff.ms``)."""
_LONGER_BY_MS = 0.25
_SHORTER_BY_MS_PER_S = 0.05
"""Together one request in 5 s comes too early, where nothing changes."""


class Calm:
    """The pause between a commit and the next transaction's first request.

    EndTxn is answered once the decision is written; markers follow. Under transaction version 2 a batch that comes before them
    makes the broker itself wait, and whatever follows in the same connection waits with it. Nothing tells when they are
    there, so the pause is as long as the commit took, or as has been found out: longer each time that a first request was
    answered late, slowly shorter otherwise.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._learned_ms = _FIRST_MS
        self._learned_at = clock()
        self._until_s = 0.0
        self._sent_at: float | None = None
        self._first = False

    @property
    def left_ms(self) -> float:
        """What is left of the pause; 0: none."""
        return max(0.0, (self._until_s - self._clock()) * 1_000)

    def committed(self, took_ms: float) -> float:
        """A transaction has been committed, which took so long: how long to keep quiet, ms."""
        now = self._clock()
        shorter_ms = _SHORTER_BY_MS_PER_S * (now - self._learned_at)
        self._learned_ms, self._learned_at = max(0.0, self._learned_ms - shorter_ms), now
        calm_ms = min(max(took_ms, self._learned_ms), LONGEST_CALM_MS)
        self._until_s = now + calm_ms / 1_000
        self._first, self._sent_at = True, None
        return calm_ms

    def sent(self, *, small: bool) -> None:
        """A request goes out; only the first one of a transaction says something, and only if it is small."""
        if self._first:
            self._first, self._sent_at = False, self._clock() if small else None

    def answered(self) -> None:
        """An answer has come."""
        if self._sent_at is not None:
            took_ms, self._sent_at = (self._clock() - self._sent_at) * 1_000, None
            if took_ms >= _TOO_EARLY_MS:
                self._learned_ms = min(self._learned_ms + _LONGER_BY_MS, LONGEST_CALM_MS)
