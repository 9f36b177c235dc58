"""How far the leases are: their reports on the wire, and what the reports of all add up to.

A lease reports its whole state about once a second, with counters since it began (`replicator.lease.LeaseProgress`).
A report that gets lost is therefore made good by the next one; the board turns counters that begin anew with each
lease into ones that only grow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from parallax.domain.ids import Route, RoutePartition, TopicName, TopicPartition
from parallax.domain.latencies import NO_LATENCIES, Latencies
from replicator.lease import Lease, LeaseKey, LeaseProgress, PartitionProgress, PartitionStatus

_log = structlog.get_logger(__name__)

SILENT_AFTER_MS = 30_000
"""A lease that has not reported for this long is not ready: its task is gone, or can't reach the driver."""


STARTS_WITHIN_MS = 60_000
"""So long a lease may take to report for the first time: Spark has to start the tasks that hold it."""


@dataclass(frozen=True, slots=True)
class LeaseReport:
    """A lease's progress, and who says so.

    Attributes:
        attempt: names this holder of the lease: another task that takes it over has another one.
        ended: whether this is the holder's last report.
    """

    progress: LeaseProgress
    attempt: str
    ended: bool = False

    def to_json(self) -> dict[str, Any]:
        """The report as JSON types."""
        progress = self.progress
        # Not with `asdict` as a whole: it takes ten times as long, a second's report of many partitions some 10 ms.
        partitions = [{**vars(item), "status": item.status.value} for item in progress.partitions]
        return {
            "progress": {
                **vars(progress),
                "lease": progress.lease.to_json(),
                "partitions": partitions,
                "record_ages": progress.record_ages.to_json(),
                "latencies": progress.latencies.to_json(),
            },
            "attempt": self.attempt,
            "ended": self.ended,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LeaseReport:
        """The report that ``to_json`` wrote.

        Raises:
            ValueError: it is none.
        """
        try:
            progress = dict(values["progress"])
            progress["lease"] = Lease.from_json(progress["lease"])
            progress["partitions"] = tuple(
                PartitionProgress(**{**item, "status": PartitionStatus(item["status"])})
                for item in progress["partitions"]
            )
            for name in ("record_ages", "latencies"):
                progress[name] = Latencies.from_json(progress[name])
            return cls(LeaseProgress(**progress), str(values["attempt"]), bool(values["ended"]))
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise ValueError(f"not a lease's report: {error!r}") from error


@dataclass(slots=True)
class _Total:
    """A counter that goes on where each lease begins again at 0."""

    before: int = 0
    current: int = 0

    @property
    def value(self) -> int:
        return self.before + self.current

    def next_lease(self) -> None:
        self.before, self.current = self.value, 0


@dataclass(slots=True)
class _LatencyTotal:
    """The same for latencies."""

    before: Latencies = NO_LATENCIES
    current: Latencies = NO_LATENCIES

    @property
    def value(self) -> Latencies:
        return self.before + self.current

    def next_lease(self) -> None:
        self.before, self.current = self.value, NO_LATENCIES


@dataclass(slots=True)
class PartitionTotals:
    """One partition over all its leases."""

    records: _Total = field(default_factory=_Total)
    bytes: _Total = field(default_factory=_Total)
    lag_records: int = 0
    latency_ms: float | None = None
    record_age_ms: float | None = None
    status: PartitionStatus = PartitionStatus.WAITING
    reason: str = ""
    source_next: int = 0
    watermark_age_ms: float | None = None
    told_stop: str | None = None
    """The reason that the log has for the stop that lasts; None: there is none."""

    @property
    def stopped(self) -> bool:
        """Whether the partition can't go on; ``reason`` says why."""
        return self.status is PartitionStatus.STOPPED


@dataclass(slots=True)
class LeaseTotals:
    """One shard over all its leases."""

    report: LeaseReport
    heard_at_s: float
    transactions: _Total = field(default_factory=_Total)
    transaction_aborts: _Total = field(default_factory=_Total)
    survey_failures: _Total = field(default_factory=_Total)
    source_wait_ms: _Total = field(default_factory=_Total)
    target_wait_ms: _Total = field(default_factory=_Total)
    record_ages: _LatencyTotal = field(default_factory=_LatencyTotal)
    latencies: _LatencyTotal = field(default_factory=_LatencyTotal)
    partitions: dict[TopicPartition, PartitionTotals] = field(default_factory=dict)
    replaced_attempts: set[str] = field(default_factory=set)

    @property
    def epoch(self) -> int:
        """The epoch of the newest report."""
        return self.report.progress.lease.epoch


@dataclass(frozen=True, slots=True)
class RouteSummary:
    """One route, as a line of a live view shows it."""

    route: Route
    records: int
    bytes: int
    lag_records: int
    latency_ms: float | None
    index_lag_ms: float
    stopped_partitions: int
    waiting_for: str


class ProgressBoard:
    """The newest report of every lease, and totals that only grow. Safe to use from several threads.

    Attributes:
        expected: every lease that shall run, in order.

    Args:
        expected: every lease that shall run.
        clock: seconds, monotonic.
        heard: hears of each report that counts.
    """

    def __init__(
        self,
        expected: Collection[LeaseKey],
        clock: Callable[[], float] = time.monotonic,
        heard: Callable[[LeaseProgress], None] = lambda _progress: None,
    ) -> None:
        self._heard = heard
        self.expected = tuple(sorted(expected))
        self._clock = clock
        self._lock = threading.Lock()
        self._leases: dict[LeaseKey, LeaseTotals] = {}
        self._began_s = clock()

    def record(self, report: LeaseReport) -> None:
        """Take a report in. One of a holder that another has replaced since is ignored."""
        held = report.progress.lease
        key = LeaseKey.of(held)
        with self._lock:
            lease = self._leases.get(key)
            if lease is None:
                lease = self._leases[key] = LeaseTotals(report, self._clock())
            elif lease.epoch > held.epoch or report.attempt in lease.replaced_attempts:
                return
            elif lease.report.attempt != report.attempt:
                _begin_anew(lease, same_epoch=lease.epoch == held.epoch)
            lease.report, lease.heard_at_s = report, self._clock()
            _take_over(lease, report.progress)
        self._heard(report.progress)

    def leases(self) -> Mapping[LeaseKey, LeaseTotals]:
        """A copy of the newest state by lease; the totals are live."""
        with self._lock:
            return dict(self._leases)

    def partitions(self) -> Mapping[RoutePartition, PartitionTotals]:
        """Every partition that a lease has reported."""
        return {
            RoutePartition(key.route, partition): totals
            for key, lease in sorted(self.leases().items())
            for partition, totals in sorted(lease.partitions.items())
        }

    def missing(self) -> Mapping[LeaseKey, str]:
        """The leases that are not running, each with why we think so; empty when all are.

        A lease counts once it has reported since its epoch began: one that still reports for an earlier epoch than
        its route's others has not taken up its work again.
        """
        leases = self.leases()
        newest: dict[Route, int] = {}
        for key, totals in leases.items():
            newest[key.route] = max(newest.get(key.route, 0), totals.epoch)
        problems = {}
        for key in self.expected:
            lease = leases.get(key)
            if lease is None:
                problems[key] = "has not reported yet"
            elif (silent_ms := self.silent_ms(lease)) > SILENT_AFTER_MS:
                problems[key] = f"has been silent for {silent_ms / 1_000:.0f} s"
            elif lease.epoch < newest[key.route]:
                problems[key] = f"has not reported since epoch {newest[key.route]} began"
        return problems

    @property
    def starting(self) -> bool:
        """Whether leases that never reported may still do so by themselves."""
        return (self._clock() - self._began_s) * 1_000 < STARTS_WITHIN_MS

    def silent_ms(self, lease: LeaseTotals) -> float:
        """How long ago the lease reported last."""
        return (self._clock() - lease.heard_at_s) * 1_000

    def active(self) -> list[LeaseKey]:
        """The leases whose newest report was not their last."""
        return [key for key, lease in self.leases().items() if not lease.report.ended]

    def routes(self) -> list[RouteSummary]:
        """One summary per route, in order."""
        leases = self.leases()
        return [
            _summary(route, [lease for key, lease in leases.items() if key.route == route])
            for route in sorted({key.route for key in (*leases, *self.expected)})
        ]


def _begin_anew(lease: LeaseTotals, *, same_epoch: bool) -> None:
    # Holders of earlier epochs are told by the epoch alone.
    before = lease.replaced_attempts if same_epoch else set()
    lease.replaced_attempts = {*before, lease.report.attempt}
    lease.transactions.next_lease()
    lease.transaction_aborts.next_lease()
    lease.survey_failures.next_lease()
    lease.source_wait_ms.next_lease()
    lease.target_wait_ms.next_lease()
    lease.record_ages.next_lease()
    lease.latencies.next_lease()
    for totals in lease.partitions.values():
        totals.records.next_lease()
        totals.bytes.next_lease()


def _take_over(lease: LeaseTotals, report: LeaseProgress) -> None:
    lease.transactions.current = report.transactions
    lease.transaction_aborts.current = report.aborts
    lease.survey_failures.current = report.survey_failures
    lease.source_wait_ms.current = report.source_wait_ms
    lease.target_wait_ms.current = report.target_wait_ms
    lease.record_ages.current = report.record_ages
    lease.latencies.current = report.latencies
    for item in report.partitions:
        partition = TopicPartition(TopicName(item.topic), item.partition)
        totals = lease.partitions.setdefault(partition, PartitionTotals())
        totals.records.current = item.records
        totals.bytes.current = item.size_bytes
        totals.lag_records = item.lag_records
        _log_change(report.lease.route, partition, totals, item)
        totals.status, totals.reason = item.status, item.reason
        totals.source_next, totals.watermark_age_ms = item.source_next, item.watermark_age_ms
        if item.replication_latency_ms is not None:
            totals.latency_ms = item.replication_latency_ms
        if item.record_age_ms is not None:
            totals.record_age_ms = item.record_age_ms


def _log_change(
    route: Route, partition: TopicPartition, before: PartitionTotals, now: PartitionProgress
) -> None:
    """Say once why a partition has stopped, and once that it goes on; a lease that has just begun does not know yet."""
    stopped = now.status is PartitionStatus.STOPPED
    if stopped and before.told_stop != now.reason:
        before.told_stop = now.reason
        _log.warning(
            "partition_stopped",
            route=str(route),
            partition=str(partition),
            reason=now.reason,
            lag_records=now.lag_records,
        )
    elif before.told_stop is not None and now.status is PartitionStatus.COPYING:
        before.told_stop = None
        _log.info(
            "partition_goes_on", route=str(route), partition=str(partition), lag_records=now.lag_records
        )


def _summary(route: Route, leases: Collection[LeaseTotals]) -> RouteSummary:
    # A copy of each: reports come in meanwhile, and may bring new partitions.
    partitions = [totals for lease in leases for totals in list(lease.partitions.values())]
    latencies = [totals.latency_ms for totals in partitions if totals.latency_ms is not None]
    return RouteSummary(
        route=route,
        records=sum(totals.records.value for totals in partitions),
        bytes=sum(totals.bytes.value for totals in partitions),
        lag_records=sum(totals.lag_records for totals in partitions),
        latency_ms=max(latencies, default=None),
        index_lag_ms=max((lease.report.progress.index_lag_ms for lease in leases), default=0.0),
        stopped_partitions=sum(totals.stopped for totals in partitions),
        waiting_for=next(filter(None, (lease.report.progress.waiting_for for lease in leases)), ""),
    )
