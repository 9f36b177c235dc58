"""Where a run's time goes: what each step was given, and what it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

Steps = Mapping[str, float]
"""Seconds by the name of a step."""


class Budget:
    """The time of one run, step by step. Steps follow each other; what goes on in the background is no step.

    Args:
        planned: what each step is given; one that is not among them is told with what it took alone.
        clock: seconds, never going back.
    """

    def __init__(self, planned: Steps | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self.planned = dict(planned or {})
        self.taken: dict[str, float] = {}
        self._clock = clock
        self._begun_at_s = clock()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """The time inside counts for the step, also if it fails; a step may come again."""
        begun_at_s = self._clock()
        try:
            yield
        finally:
            self.taken[name] = self.taken.get(name, 0.0) + self._clock() - begun_at_s

    def lines(self) -> list[str]:
        """A line for each step and one for all; without what was taken as long as nothing was."""
        total_s = self._clock() - self._begun_at_s
        rest_s = total_s - sum(self.taken.values())
        taken = {**self.taken, "between the steps": rest_s} if self.taken else {}
        names = list(dict.fromkeys([*self.planned, *taken]))
        found = [_line(name, self.planned.get(name), taken.get(name)) for name in names]
        planned_s = sum(self.planned.values()) if self.planned else None
        return [*found, _line("in all", planned_s, total_s if self.taken else None)]

    def values(self) -> dict[str, dict[str, float | None]]:
        """What was planned and taken by step, in seconds, as JSON types."""
        names = dict.fromkeys([*self.planned, *self.taken])
        return {
            name: {"planned_s": self.planned.get(name), "taken_s": self.taken.get(name)} for name in names
        }


def _line(name: str, planned_s: float | None, taken_s: float | None) -> str:
    words = [] if taken_s is None else [f"took {minutes(taken_s)}"]
    words += [] if planned_s is None else [f"given {minutes(planned_s)}"]
    return f"{name}: {', '.join(words)}"


def minutes(seconds: float) -> str:
    """Minutes and seconds, the last one begun counted in full."""
    whole = int(-(-seconds // 1))
    return f"{whole // 60}:{whole % 60:02d}"
