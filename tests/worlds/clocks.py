"""A clock for tests."""

from __future__ import annotations


class StandingClock:
    """Stands where it is put; only sleeping moves it."""

    def __init__(self) -> None:
        self.at_ms = 1_000.0

    def now_ms(self) -> int:
        return int(self.at_ms)

    def monotonic_ms(self) -> float:
        return self.at_ms

    def sleep_ms(self, duration_ms: float) -> None:
        self.at_ms += duration_ms
