"""What the syncjob's holder tells the driver after each cycle. Losing a report must not hurt.

Like the leases of the replicator it says its whole state each time, with counters since it began.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from parallax.adapters.spark.status_part import SidePart
from parallax.domain.ids import region_of
from parallax.domain.latencies import NO_LATENCIES, Latencies
from syncjob.decide import UNPUBLISHABLE, Reason
from syncjob.latency import CheckpointLatency

REPORTS_PATH = "/sync-reports"
UNREADABLE_TOLD = 20
CYCLES = "cycles"
FAILED_CYCLES = "failed_cycles"
FAILED_GROUPS = "failed_groups"
CHECKPOINTS = "checkpoints"
_COUNTERS = {
    CYCLES: "Cycles that came to their end.",
    FAILED_CYCLES: "Cycles that did not, as the store did not answer or the like.",
    FAILED_GROUPS: "Groups about which nothing could be decided, one for each cycle.",
    CHECKPOINTS: "Checkpoints written for clients of MirrorMaker 2 (mm2_export.checkpoints).",
}
"""The counts that are metrics of their own."""

PREFIX = "parallax_sync_"
MIRROR_MAKER_PREFIX = "kafka_connect_mirror_mirrorcheckpointconnector_"
LATE_AFTER_INTERVALS = 10
LATE_AFTER_AT_LEAST_MS = 30_000
"""Between two epochs the next task connects anew, and a cluster that is away costs a cycle its time-out: some seconds."""

_ATTEMPTS_KEPT = 16
"""A replaced holder's report can come late by seconds; holders last for minutes."""


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a holder has done since it began.

    Attributes:
        attempt: names the holder; the next one has another name, and counts from 0.
        counts: of cycles, failed cycles, and what `CycleReport.counts` names, over all cycles.
        problem: why the last cycle failed; empty if it was good.
        unreadable_rows: the first `UNREADABLE_TOLD` of what is stored and can't be read, as the last cycle saw it.
        unreadable: how many there are.
        unpublished: in the last cycle, how many groups had something that can't be published, by reason.
        export_problem: why checkpoints for MirrorMaker 2's clients could not be written; empty: they could.
        latencies: from a commit that was seen at a group's origin to its offset that stands elsewhere.
        slowest: which took longest, of the newest of each group and cluster.
    """

    attempt: str
    counts: Mapping[str, int] = field(default_factory=dict)
    problem: str = ""
    unreadable_rows: tuple[str, ...] = ()
    unreadable: int = 0
    unpublished: Mapping[str, int] = field(default_factory=dict)
    export_problem: str = ""
    latencies: Latencies = NO_LATENCIES
    slowest: tuple[CheckpointLatency, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The report as JSON types."""
        return asdict(self) | {"slowest": [item.to_json() for item in self.slowest]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SyncReport:
        """The report that ``to_json`` wrote.

        Raises:
            ValueError: it is none.
        """
        try:
            counts, unpublished = (
                {str(name): int(count) for name, count in values[kind].items()}
                for kind in ("counts", "unpublished")
            )
            rows = tuple(map(str, values["unreadable_rows"]))
            problem, unreadable = str(values["problem"]), int(values["unreadable"])
            exported = str(values["export_problem"])
            latencies = Latencies.from_json(values["latencies"])
            slowest = tuple(map(CheckpointLatency.from_json, values["slowest"]))
            return cls(
                str(values["attempt"]),
                counts,
                problem,
                rows,
                unreadable,
                unpublished,
                exported,
                latencies,
                slowest,
            )
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a report of the syncjob: {error!r}") from error


def late_after_ms(interval_ms: int) -> int:
    """How old the last good cycle may be, for a ``sync.interval_ms``."""
    return max(LATE_AFTER_INTERVALS * interval_ms, LATE_AFTER_AT_LEAST_MS)


class SyncBoard(SidePart):
    """The syncjob's newest report, and totals that only grow: its part of the status. Safe to use from several threads.

    Args:
        interval_ms: ``sync.interval_ms``.
        clock: seconds, monotonic.
        old_names: whether a scrape shows what was renamed under its old name too.
    """

    name = "sync"

    def __init__(
        self, interval_ms: int, clock: Callable[[], float] = time.monotonic, *, old_names: bool = True
    ) -> None:
        self._old_names = old_names
        self.takers = {REPORTS_PATH: self.record}
        self._late_after_ms = late_after_ms(interval_ms)
        self._clock = clock
        self._lock = threading.Lock()
        self._report = SyncReport("")
        self._before: Counter[str] = Counter()
        self._latencies_before = NO_LATENCIES
        self._replaced: deque[str] = deque(maxlen=_ATTEMPTS_KEPT)
        self._good_at_s: float | None = None

    def record(self, values: Mapping[str, Any]) -> None:
        """Take a report in. One of a holder that another has replaced since is ignored.

        Raises:
            ValueError: it is none.
        """
        report = SyncReport.from_json(values)
        with self._lock:
            if report.attempt in self._replaced:
                return
            good_before = self._report.counts.get(CYCLES, 0)
            if report.attempt != self._report.attempt:
                self._before.update(self._report.counts)
                self._latencies_before += self._report.latencies
                self._replaced.append(self._report.attempt)
                good_before = 0
            if report.counts.get(CYCLES, 0) > good_before:
                self._good_at_s = self._clock()
            self._report = report

    def missing(self) -> Sequence[str]:
        """Why the syncjob is not ready, one line; empty if it is."""
        with self._lock:
            problem = self._report.problem
            good_ms = self._good_ms()
        if good_ms is None:
            lateness = "has not finished a good cycle yet"
        elif good_ms > self._late_after_ms:
            bound_s = self._late_after_ms / 1_000
            lateness = f"finished its last good cycle {good_ms / 1_000:.0f} s ago, which may be {bound_s:.0f} s at most"
        else:
            return ()
        return (f"{lateness}; its last cycle failed: {problem}" if problem else lateness,)

    def troubles(self) -> Sequence[str]:
        """Checkpoints that can't be written; groups about which nothing can be decided are counted (`failed_groups`)."""
        with self._lock:
            return (self._report.export_problem,) if self._report.export_problem else ()

    def state(self) -> dict[str, Any]:
        """The board as JSON types, under the sync job's name."""
        counts = self._totals()
        missing = self.missing()
        with self._lock:
            report, good_ms = self._report, self._good_ms()
        state = {
            "ready": not missing,
            "missing": list(missing),
            **{name: counts[name] for name in _COUNTERS},
            "last_good_cycle_age_ms": None if good_ms is None else round(good_ms),
            "problem": report.problem,
            "export_problem": report.export_problem,
            "unreadable_rows": list(report.unreadable_rows),
            "decisions": {reason.value: counts[reason.value] for reason in Reason if counts[reason.value]},
        }
        return {self.name: state}

    def collect(self) -> Iterator[Metric]:
        """Every metric with its samples."""
        counts = self._totals()
        with self._lock:
            report, good_ms = self._report, self._good_ms()
            latencies = self._latencies_before + report.latencies
        for name, description in _COUNTERS.items():
            yield CounterMetricFamily(f"{PREFIX}{name}_total", description, value=counts[name])
        yield HistogramMetricFamily(
            f"{PREFIX}checkpoint_latency_seconds",
            "From a commit that was seen at a group's origin to the offset published for it at another cluster.",
            buckets=latencies.buckets(),
            sum_value=latencies.sum_s,
        )
        age = GaugeMetricFamily(
            f"{PREFIX}last_good_cycle_age_seconds",
            "How long ago the last cycle came to its end; none did: no sample.",
        )
        old_age = GaugeMetricFamily(
            f"{PREFIX}last_good_cycle_age_ms", "Old name of last_good_cycle_age_seconds, in milliseconds."
        )
        if good_ms is not None:
            age.add_metric((), good_ms / 1_000)
            old_age.add_metric((), good_ms)
        yield from (age, old_age) if self._old_names else (age,)
        yield GaugeMetricFamily(
            f"{PREFIX}unreadable_rows",
            "Rows of groups that this release can't read; /status names them.",
            value=report.unreadable,
        )
        unpublished = GaugeMetricFamily(
            f"{PREFIX}unpublished_groups",
            "Groups of which something can't be published, by reason, as the last cycle saw it.",
            labels=("reason",),
        )
        for name in (*(reason.value for reason in UNPUBLISHABLE), FAILED_GROUPS):
            unpublished.add_metric((name,), report.unpublished.get(name, 0))
        yield unpublished
        decisions = CounterMetricFamily(
            f"{PREFIX}decisions_total",
            "Decisions, one for each group, partition, target cluster and cycle, by reason.",
            labels=("reason",),
        )
        for reason in Reason:
            decisions.add_metric((reason.value,), counts[reason.value])
        yield decisions

    def mirror_maker(self) -> Iterator[Metric]:
        """How long the offsets of single groups took, under MirrorMaker 2's name: the slowest groups alone."""
        took = GaugeMetricFamily(
            f"{MIRROR_MAKER_PREFIX}checkpoint_latency_ms",
            "From a commit that was seen to the offset published for it, of the group's slowest partition when one was published last.",
            labels=("source", "target", "group", "topic", "partition"),
        )
        with self._lock:
            slowest = self._report.slowest
        for item in slowest:
            place = item.topic_partition
            named = (region_of(item.origin), region_of(item.target), item.group)
            took.add_metric((*named, place.topic, str(place.partition)), item.took_s * 1_000)
        yield took

    def _totals(self) -> Counter[str]:
        with self._lock:
            return self._before + Counter(self._report.counts)

    def _good_ms(self) -> float | None:
        return None if self._good_at_s is None else (self._clock() - self._good_at_s) * 1_000
