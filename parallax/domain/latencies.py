"""How long records took, counted by bounds: what a histogram of Prometheus is made of. Plain values.

Counted by batch: one that was passed on whole counts all of its records as its newest one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""From an idle network to half an hour's outage, a few for each power of ten."""

_BOUNDS_MS = tuple(bound_s * 1_000 for bound_s in BOUNDS_S)


@dataclass(frozen=True, slots=True)
class Latencies:
    """How many records took how long.

    Attributes:
        counts: by the lowest of `BOUNDS_S` that is not exceeded; last those beyond all of them.
        sum_s: of all, seconds.
    """

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_S) + 1)
    sum_s: float = 0.0

    def __add__(self, other: Latencies) -> Latencies:
        counts = tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True))
        return Latencies(counts, self.sum_s + other.sum_s)

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: by bound, how many took no longer."""
        bounds = [*map(str, BOUNDS_S), "+Inf"]
        return list(zip(bounds, accumulate(map(float, self.counts)), strict=True))

    def to_json(self) -> dict[str, Any]:
        """The counts as JSON types."""
        return {"counts": list(self.counts), "sum_s": self.sum_s}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Latencies:
        """What `to_json` wrote.

        Raises:
            KeyError: a value is missing.
            TypeError, ValueError: it is something else.
        """
        counts = tuple(map(int, values["counts"]))
        if len(counts) != len(BOUNDS_S) + 1:
            raise ValueError(f"{len(counts)} counts of latencies instead of {len(BOUNDS_S) + 1}")
        return cls(counts, float(values["sum_s"]))


NO_LATENCIES = Latencies()


class LatencyCounter:
    """Counts latencies; cheap enough to be told of every batch."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_ms = 0.0

    def add(self, latency_ms: float, records: int) -> None:
        """Count records that took so long; below 0 (clocks differ) is 0."""
        latency_ms = max(0.0, latency_ms)
        self._counts[bisect_left(_BOUNDS_MS, latency_ms)] += records
        self._sum_ms += latency_ms * records

    def value(self) -> Latencies:
        """What was counted so far."""
        return Latencies(tuple(self._counts), self._sum_ms / 1_000)
