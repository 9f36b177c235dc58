"""The wall clock, and one time budget for a whole operation, handed to every call that may block."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from parallax.errors import DeadlineError


def wall_clock_ms() -> int:
    """Milliseconds since the Unix epoch."""
    return time.time_ns() // 1_000_000


SHORTEST_LEASE_MS = 5_000


def lease_ms(deadline_unix_ms: int, now_unix_ms: int, longest_ms: int) -> int:
    """How long to hold a lease from now on, by monotonic time.

    The deadline is another process's word, by the wall clock of another machine perhaps, and either clock may have been
    stepped since, by days. Whatever they say a lease lasts for an epoch at most; and one that seems to be over as it begins
    lasts for some seconds: a task that was only late delays the others by that, and where clocks differ work goes on.

    Args:
        deadline_unix_ms: when the lease ends, milliseconds since the Unix epoch.
        now_unix_ms: this process's wall clock.
        longest_ms: how long an epoch lasts.
    """
    left_ms = deadline_unix_ms - now_unix_ms
    return min(left_ms if left_ms > 0 else SHORTEST_LEASE_MS, longest_ms)


class Deadline:
    """A moment on a monotonic clock by which an operation must be done."""

    __slots__ = ("_clock", "_ends_at_s")

    def __init__(self, ends_at_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ends_at_s = ends_at_s
        self._clock = clock

    @classmethod
    def after_ms(cls, budget_ms: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """A deadline ``budget_ms`` milliseconds from now."""
        return cls(clock() + budget_ms / 1_000, clock)

    @classmethod
    def of_timeout(cls, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> Deadline:
        """The end of a call's ``timeout`` in confluent-kafka's sense: seconds, and none if it is negative."""
        return cls(math.inf if timeout_s < 0 else clock() + timeout_s, clock)

    @property
    def remaining_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._ends_at_s - self._clock())

    @property
    def remaining_ms(self) -> float:
        """Milliseconds left, never negative."""
        return self.remaining_s * 1_000

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining_s <= 0

    def check(self, what: str) -> None:
        """Raise unless time is left.

        Raises:
            DeadlineError: the deadline has passed; the message says during what.
        """
        if self.passed:
            raise DeadlineError(f"the deadline passed while {what}")

    def at_most_ms(self, budget_ms: float) -> Deadline:
        """The nearer of this deadline and one ``budget_ms`` from now."""
        return Deadline(min(self._ends_at_s, self._clock() + budget_ms / 1_000), self._clock)
