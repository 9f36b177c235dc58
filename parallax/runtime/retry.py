"""Retries: the policy is data, its state an object, and sleeping an argument."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from parallax.runtime.deadline import Deadline

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff with full jitter."""

    first_wait_ms: float = 50
    longest_wait_ms: float = 2_000
    factor: float = 2.0
    random: random.Random = field(default_factory=random.Random)

    def waits_ms(self) -> Iterator[float]:
        """The waits between attempts, without end."""
        bound = self.first_wait_ms
        while True:
            yield self.random.uniform(bound / 2, bound)
            bound = min(bound * self.factor, self.longest_wait_ms)


def retry(
    call: Callable[[], T],
    *,
    policy: RetryPolicy,
    deadline: Deadline,
    retriable: Callable[[Exception], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Call until it succeeds, fails for good, or the next wait would pass the deadline.

    Raises:
        Exception: whatever the last attempt raised.
    """
    for wait_ms in policy.waits_ms():
        try:
            return call()
        except Exception as error:
            if not retriable(error) or wait_ms >= deadline.remaining_ms:
                raise
        sleep(wait_ms / 1_000)
    raise AssertionError("waits_ms() ended")  # it never does
