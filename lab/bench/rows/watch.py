"""Watches a copier that catches up, and finds the stretch in which it was warm and inside one data set."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.bench.data.loading import Segment
from lab.bench.sides import Copier
from lab.bench.stage import BenchStage
from lab.workload.topics import EndOffsets

_SAMPLE_EVERY_S = 0.5
"""Forty samples in a window; each asks brokers, and reads CPU seconds of every process."""
_FIRST_RECORD_WITHIN_S = 600.0
_MARGIN = 0.01
"""Of a data set, left out at its end: targets hold markers between records, so their offsets run ahead a little."""


@dataclass(frozen=True, slots=True)
class WarmRules:
    """How long to watch.

    Attributes:
        warm_s: after the first record (and after the border to a further data set) this long is not counted.
        window_s: what is counted of each data set, at most.
        least_s: a shorter window does not count.
        at_most_s: a data set that takes longer ends the run.
        inside: the share of partitions that have to be inside a data set. Less than all only where nothing follows it:
            then some may have ended while the others keep the copier as busy.
    """

    warm_s: float = 5.0
    window_s: float = 20.0
    least_s: float = 0.0
    at_most_s: float = 90.0
    inside: float = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """How far a copy was at one moment.

    Attributes:
        at_s: the moment, monotonic.
        ends: the end offset of each partition of each target cluster.
        cpu_s: CPU seconds so far by group of processes.
    """

    at_s: float
    ends: Mapping[tuple[str, int], int]
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

    @property
    def offsets(self) -> int:
        """By how much the targets' ends moved: records, and a few markers."""
        return sum(self.end.ends.values()) - sum(self.start.ends.values())

    def cpu_s(self, group: str) -> float:
        """CPU seconds that a group of processes used in it."""
        return self.end.cpu_s[group] - self.start.cpu_s[group]


def inside(sample: Sample, segment: Segment, share: float = 1.0) -> bool:
    """Whether enough partitions of a copy are inside a data set, its last hundredth left out."""
    last = segment.end - _MARGIN * segment.records
    found = sum(segment.start < end <= last for end in sample.ends.values())
    return found >= share * len(sample.ends)


def beyond(sample: Sample, segment: Segment, share: float = 1.0) -> bool:
    """Whether too many partitions have left a data set, or its last hundredth has begun."""
    last = segment.end - _MARGIN * segment.records
    found = sum(end > last for end in sample.ends.values())
    return len(sample.ends) - found < share * len(sample.ends)


def find_window(
    samples: Sequence[Sample], segment: Segment, *, warm_s: float, at_most_s: float, share: float = 1.0
) -> Window | None:
    """The window of a data set: from ``warm_s`` after enough partitions had entered it, at most ``at_most_s`` long.

    Args:
        samples: of the whole run, in order.
        segment: the data set.
        warm_s: how long a copier must have been in it.
        at_most_s: the window ends there even if the data set goes on.
        share: of partitions that are enough.

    Returns:
        The window, or None if fewer than two samples lie in it.
    """
    within = [sample for sample in samples if inside(sample, segment, share)]
    if not within:
        return None
    warm = [sample for sample in within if sample.at_s - within[0].at_s >= warm_s]
    chosen = [sample for sample in warm if sample.at_s - warm[0].at_s <= at_most_s]
    if len(chosen) < 2:  # noqa: PLR2004 - a window has two ends
        return None
    return Window(chosen[0], chosen[-1])


class CopyWatch:
    """Samples the ends of targets and CPU seconds while a copier runs.

    Args:
        stage: the brokers.
        copier: which one.
        topic: what it copies.
        partitions: of the topic.
        clusters: where it copies to.
    """

    def __init__(
        self, stage: BenchStage, copier: Copier, topic: str, partitions: int, clusters: Sequence[str]
    ) -> None:
        self._stage, self._copier, self._topic, self._clusters = stage, copier, topic, clusters
        self._ends = {
            cluster: EndOffsets(stage.bootstrap(cluster), topic, partitions) for cluster in clusters
        }
        self._samples: list[Sample] = []

    def await_first_record(self) -> None:
        """Wait until something was copied.

        Raises:
            BenchError: nothing was, or the copier ended.
        """
        # Asking for the ends of a topic that is not there takes long.
        self._copier.await_topic(self._topic, self._clusters, _FIRST_RECORD_WITHIN_S)

        def something() -> bool:
            return any(any((ends.ask() or {}).values()) for ends in self._ends.values())

        self._copier.await_true(something, _FIRST_RECORD_WITHIN_S, f"no record of {self._topic} was copied")

    def follow(self, segment: Segment, rules: WarmRules) -> Window | None:
        """Sample until the data set's window is full and, if the copy gets there first, until it leaves the data set.

        Raises:
            BenchError: the copier ended.
        """
        began = time.monotonic()
        while time.monotonic() - began < rules.at_most_s:
            sample = self._sample()
            if sample is None:
                continue
            self._samples.append(sample)
            window = self._window(segment, rules, rules.window_s + _SAMPLE_EVERY_S)
            if beyond(sample, segment, rules.inside) or (
                window is not None and window.seconds >= rules.window_s
            ):
                return window
            time.sleep(_SAMPLE_EVERY_S)
        return self._window(segment, rules, rules.window_s)

    def _window(self, segment: Segment, rules: WarmRules, at_most_s: float) -> Window | None:
        return find_window(
            self._samples, segment, warm_s=rules.warm_s, at_most_s=at_most_s, share=rules.inside
        )

    def _sample(self) -> Sample | None:
        self._copier.check_alive()
        ends: dict[tuple[str, int], int] = {}
        for cluster in self._clusters:
            found = self._ends[cluster].ask()
            if found is None:
                return None
            ends |= {(cluster, partition): end for partition, end in found.items()}
        return Sample(time.monotonic(), ends, self._stage.cpu_s(copier=self._copier.pids))
