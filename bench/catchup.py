"""One catching up: a copier starts before a backlog, and is watched until it has shown its warm speed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.copiers import Copier
from bench.copy_check import CopiedLog, read_partition
from bench.errors import BenchError
from bench.loading import Segment
from bench.stage import Stage
from bench.windows import Sample, Window, beyond, find_window
from devstack.workload.topics import EndOffsets

_SAMPLE_EVERY_S = 0.5
_FIRST_RECORD_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class CatchUpRules:
    """How long to watch.

    Attributes:
        warm_s: after the first record (and after the border to a further data set) this long is not counted.
        window_s: what is counted of each data set.
        at_most_s: a data set that takes longer ends the run.
    """

    warm_s: float = 3.0
    window_s: float = 20.0
    at_most_s: float = 90.0


@dataclass(frozen=True, slots=True)
class CatchUp:
    """What one life of a copier showed of one data set.

    Attributes:
        window_s: how long the warm window was.
        records_per_s: committed records a second in it.
        mb_per_s: the same in 10^6 bytes of records before compression.
        copier_cpu_s_per_million: CPU seconds of the copier's whole process tree per million records.
        broker_cpu_s_per_million: of all brokers together.
        cassandra_cpu_s_per_million: of Cassandra.
    """

    window_s: float
    records_per_s: float
    mb_per_s: float
    copier_cpu_s_per_million: float
    broker_cpu_s_per_million: float
    cassandra_cpu_s_per_million: float


@dataclass(frozen=True, slots=True)
class CatchUpRun:
    """One life of a copier.

    Attributes:
        first_record_s: from its start to the first record on a target.
        data_sets: by name; one that gave no window is missing.
        misplaced_batches: batches that are not where the source's records belong (lost or repeated records).
        problem: the first of them, in words.
    """

    first_record_s: float
    data_sets: dict[str, CatchUp]
    misplaced_batches: int
    problem: str


def catch_up(
    stage: Stage,
    copier: Copier,
    topic: str,
    partitions: int,
    segments: Sequence[Segment],
    rules: CatchUpRules,
    targets: Sequence[tuple[str, int]] = (("aggregate-a", 1),),
    tell: Callable[[str], None] = lambda _line: None,
) -> CatchUpRun:
    """Start a copier before a backlog, watch it, stop it, and check what it copied.

    Args:
        stage: the brokers; the targets don't have the topic.
        copier: not started yet.
        topic: the backlog.
        partitions: of the topic.
        segments: its data sets, in order.
        rules: how long to watch.
        targets: clusters that get the topic, each with the number of sources that are merged in it.
        tell: gets a line now and then.

    Raises:
        BenchError: the copier ended, or copied nothing.
    """
    started = time.monotonic()
    copier.start()
    try:
        watch = _Watch(stage, copier, topic, partitions, [cluster for cluster, _ in targets])
        watch.await_first_record(started)
        first_record_s = watch.samples[0].at_s - started
        tell(f"{copier.name}: first record after {first_record_s:.1f} s")
        for segment in _merged(segments, targets):
            watch.follow(segment, rules)
    finally:
        copier.stop()
    found: dict[str, CatchUp] = {}
    logs = {
        (cluster, partition): read_partition(stage.storage(cluster), topic, partition)
        for cluster, _ in targets
        for partition in range(partitions)
    }
    for segment in _merged(segments, targets):
        window = find_window(watch.samples, segment, warm_s=rules.warm_s, at_most_s=rules.window_s)
        if window is None:
            tell(f"{copier.name}: {segment.name} gave no warm window")
            continue
        found[segment.name] = _figures(window, segment, watch, logs)
    # Where sources are merged, a partition is not one source's beginning: its order can't be told by headers.
    checked = [log for (cluster, _), log in logs.items() if dict(targets)[cluster] == 1]
    problem = next((log.first_problem for log in checked if log.misplaced), "")
    return CatchUpRun(first_record_s, found, sum(log.misplaced for log in checked), problem)


def _merged(segments: Sequence[Segment], targets: Sequence[tuple[str, int]]) -> list[Segment]:
    """The data sets as they lie on the targets, where so many sources of the same size are merged."""
    sources = targets[0][1]
    return [
        Segment(segment.name, segment.start * sources, segment.end * sources, segment.record_bytes)
        for segment in segments
    ]


def _figures(
    window: Window, segment: Segment, watch: _Watch, logs: dict[tuple[str, int], CopiedLog]
) -> CatchUp:
    records = sum(
        log.records_below(window.end.ends[watch.number(*place)])
        - log.records_below(window.start.ends[watch.number(*place)])
        for place, log in logs.items()
    )
    if records <= 0:
        raise BenchError(f"{segment.name}: nothing was committed in the window")
    millions = records / 1e6
    return CatchUp(
        window_s=window.seconds,
        records_per_s=records / window.seconds,
        mb_per_s=records * segment.record_bytes / window.seconds / 1e6,
        copier_cpu_s_per_million=window.cpu_s("copier") / millions,
        broker_cpu_s_per_million=window.cpu_s("brokers") / millions,
        cassandra_cpu_s_per_million=window.cpu_s("cassandra") / millions,
    )


class _Watch:
    """Samples ends of targets and CPU seconds."""

    def __init__(
        self, stage: Stage, copier: Copier, topic: str, partitions: int, clusters: Sequence[str]
    ) -> None:
        self._stage, self._copier, self._topic = stage, copier, topic
        self._clusters, self._partitions = clusters, partitions
        self._ends = {
            cluster: EndOffsets(stage.bootstrap(cluster), topic, partitions) for cluster in clusters
        }
        self.samples: list[Sample] = []

    def number(self, cluster: str, partition: int) -> int:
        """One number for each partition of each target."""
        return self._clusters.index(cluster) * self._partitions + partition

    def await_first_record(self, started: float) -> None:
        """Sample until something was copied; keeps that sample only."""
        while time.monotonic() - started < _FIRST_RECORD_WITHIN_S:
            self._copier.check_alive()
            # Asking for the ends of a topic that is not there takes long.
            if all(self._topic in self._stage.topics(cluster) for cluster in self._clusters):
                sample = self._sample()
                if sample is not None and any(sample.ends.values()):
                    self.samples.append(sample)
                    return
            time.sleep(_SAMPLE_EVERY_S / 5)
        raise BenchError(f"{self._copier.name} copied nothing within {_FIRST_RECORD_WITHIN_S:.0f} s")

    def follow(self, segment: Segment, rules: CatchUpRules) -> None:
        """Sample until the data set's window is full and, if another one follows, until the copy is in that one."""
        began = time.monotonic()
        while time.monotonic() - began < rules.at_most_s:
            sample = self._sample()
            if sample is None:
                continue
            self.samples.append(sample)
            if beyond(sample, segment):
                return
            window = find_window(
                self.samples, segment, warm_s=rules.warm_s, at_most_s=rules.window_s + _SAMPLE_EVERY_S
            )
            if window is not None and window.seconds >= rules.window_s:
                return
            time.sleep(_SAMPLE_EVERY_S)

    def _sample(self) -> Sample | None:
        self._copier.check_alive()
        ends: dict[int, int] = {}
        for cluster in self._clusters:
            found = self._ends[cluster].ask()
            if found is None:
                return None
            ends |= {self.number(cluster, partition): end for partition, end in found.items()}
        return Sample(time.monotonic(), ends, self._stage.cpu_s(copier=self._copier.pids))
