"""Medians, spreads and percentiles; nothing is rounded up."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """What several rounds gave."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value.

        Raises:
            ValueError: there is none.
        """
        if not values:
            raise ValueError("no round was measured")
        return cls(statistics.median(values), min(values), max(values))

    def to_json(self) -> dict[str, float]:
        """As the report has it."""
        return {"median": self.median, "min": self.min, "max": self.max}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` percent of the values don't exceed.

    Args:
        ordered: values in ascending order.
        percent: above 0, at most 100.

    Raises:
        ValueError: there is no value, or no such percentile.
    """
    if not ordered:
        raise ValueError("no value")
    if not 0 < percent <= 100:  # noqa: PLR2004 - percent
        raise ValueError(f"{percent} is no percentile")
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]


def ratio(ours: float, theirs: float) -> float | None:
    """Ours to theirs; None where theirs is 0."""
    return ours / theirs if theirs else None
