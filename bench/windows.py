"""Finds the warm stretch of a run in which all partitions were inside one data set. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.loading import Segment

_MARGIN = 0.01
"""Of a data set, left out at its end: targets hold markers between records, so their offsets run ahead a little."""


@dataclass(frozen=True, slots=True)
class Sample:
    """How far a copy was at one moment.

    Attributes:
        at_s: the moment, monotonic.
        ends: the target's end offset by partition.
        cpu_s: CPU seconds so far by group of processes.
    """

    at_s: float
    ends: Mapping[int, int]
    cpu_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Window:
    """Two moments between which a copier was warm and copied one data set only."""

    start: Sample
    end: Sample

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end.at_s - self.start.at_s

    def cpu_s(self, group: str) -> float:
        """CPU seconds that a group of processes used in it."""
        return self.end.cpu_s[group] - self.start.cpu_s[group]


def inside(sample: Sample, segment: Segment) -> bool:
    """Whether every partition of a copy is inside a data set, its last hundredth left out."""
    last = segment.end - _MARGIN * segment.records
    return all(segment.start < end <= last for end in sample.ends.values())


def beyond(sample: Sample, segment: Segment) -> bool:
    """Whether some partition has left a data set, or its last hundredth has begun."""
    last = segment.end - _MARGIN * segment.records
    return any(end > last for end in sample.ends.values())


def find_window(
    samples: Sequence[Sample], segment: Segment, *, warm_s: float, at_most_s: float
) -> Window | None:
    """The window of a data set: from ``warm_s`` after all partitions had entered it, at most ``at_most_s`` long.

    Args:
        samples: of the whole run, in order.
        segment: the data set.
        warm_s: how long a copier must have been in it.
        at_most_s: the window ends there even if the data set goes on.

    Returns:
        The window, or None if fewer than two samples lie in it.
    """
    within = [sample for sample in samples if inside(sample, segment)]
    if not within:
        return None
    warm = [sample for sample in within if sample.at_s - within[0].at_s >= warm_s]
    chosen = [sample for sample in warm if sample.at_s - warm[0].at_s <= at_most_s]
    if len(chosen) < 2:  # noqa: PLR2004 - a window has two ends
        return None
    return Window(chosen[0], chosen[-1])
