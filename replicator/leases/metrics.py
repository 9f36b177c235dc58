"""The leases' metrics, declared once: by route, by lease, and of as many partitions as are asked for.

What a dashboard or a rule needs is there by route, whatever the number of partitions; single partitions are for finding
out which one it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Generic, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from parallax.config.config import MetricsSettings
from parallax.domain.ids import Route, TopicPartition
from parallax.domain.latencies import NO_LATENCIES, Latencies
from replicator.lease import LeaseKey, PartitionStatus
from replicator.leases.board import LeaseTotals, PartitionTotals, ProgressBoard

PREFIX = "parallax_replicator_"
ROUTE_LABELS = ("source", "target")

Totals = TypeVar("Totals", LeaseTotals, PartitionTotals)
Partitions = Sequence[tuple[TopicPartition, PartitionTotals]]


@dataclass(frozen=True, slots=True)
class TotalsMetric(Generic[Totals]):
    """A metric of each lease or partition; a counter if its name ends in ``_total``. None leaves the sample out.

    Attributes:
        old: whether it is one of those that go with the next release.
    """

    name: str
    description: str
    value: Callable[[Totals], float | None]
    old: bool = False


PARTITION_METRICS: tuple[TotalsMetric[PartitionTotals], ...] = (
    TotalsMetric("records_total", "Records copied and committed.", lambda p: p.records.value),
    TotalsMetric("bytes_total", "Bytes of keys and values copied and committed.", lambda p: p.bytes.value),
    TotalsMetric("lag_records", "Source offsets not yet copied, as last seen.", lambda p: p.lag_records),
    TotalsMetric(
        "partition_latency_seconds",
        "From a record's timestamp to the commit of its copy, for the newest record copied.",
        lambda p: _seconds(p.latency_ms),
    ),
    TotalsMetric("partition_stopped", "1 while the partition can't go on.", lambda p: int(p.stopped)),
    TotalsMetric(
        "replication_latency_ms",
        "Old name of partition_latency_seconds, in milliseconds.",
        lambda p: p.latency_ms,
        old=True,
    ),
)

LEASE_METRICS: tuple[TotalsMetric[LeaseTotals], ...] = (
    TotalsMetric("transactions_total", "Transactions committed.", lambda lease: lease.transactions.value),
    TotalsMetric(
        "transaction_aborts_total",
        "Transactions given up and started again from the committed position.",
        lambda lease: lease.transaction_aborts.value,
    ),
    TotalsMetric(
        "survey_failures_total",
        "Looks at the topics of both clusters that ended with a defect; the log has it.",
        lambda lease: lease.survey_failures.value,
    ),
    TotalsMetric(
        "index_lag_seconds",
        "Age of the oldest committed run-log entry that is not indexed yet; 0 if all are.",
        lambda lease: _seconds(lease.report.progress.index_lag_ms),
    ),
    TotalsMetric(
        "index_lag_ms",
        "Old name of index_lag_seconds, in milliseconds.",
        lambda lease: lease.report.progress.index_lag_ms,
        old=True,
    ),
    TotalsMetric(
        "index_gap_offsets",
        "Run-log offsets that retention took before they were indexed, as found since the lease began.",
        lambda lease: lease.report.progress.index_gap_offsets,
    ),
    TotalsMetric(
        "waiting",
        "1 while the lease waits for a cluster that does not answer, or for its run log to be mended.",
        lambda lease: int(bool(lease.report.progress.waiting_for)),
    ),
    TotalsMetric("epoch", "The epoch that the lease belongs to.", lambda lease: lease.epoch),
)

WAITS: Mapping[str, Callable[[LeaseTotals], int]] = {
    "source": lambda lease: lease.source_wait_ms.value,
    "target": lambda lease: lease.target_wait_ms.value,
}
"""For which side a copier waited: where lag grows, the one that it waits for most is what limits it."""

MIRROR_MAKER_PREFIX = "kafka_connect_mirror_mirrorsourceconnector_"
MIRROR_MAKER_METRICS: tuple[TotalsMetric[PartitionTotals], ...] = (
    TotalsMetric("record_count", "Records copied and committed.", lambda p: p.records.value),
    TotalsMetric("byte_count", "Bytes of keys and values copied and committed.", lambda p: p.bytes.value),
    TotalsMetric(
        "record_age_ms",
        "From a record's timestamp to its being sent to the target, for the newest record copied.",
        lambda p: p.record_age_ms,
    ),
    TotalsMetric(
        "replication_latency_ms",
        "From a record's timestamp to the commit of its copy, for the newest record copied.",
        lambda p: p.latency_ms,
    ),
)
"""As the usual rules of the JMX exporter name what MirrorMaker 2 tells of a partition; gauges there, whatever they count."""

HISTOGRAMS: Mapping[str, tuple[str, Callable[[LeaseTotals], Latencies]]] = {
    "record_age_seconds": (
        "From a record's timestamp to its being sent to the target, of records copied and committed.",
        lambda lease: lease.record_ages.value,
    ),
    "replication_latency_seconds": (
        "From a record's timestamp to the commit of its copy.",
        lambda lease: lease.latencies.value,
    ),
}


class ReplicationMetrics:
    """What a scrape shows of the leases. Used from several threads.

    Args:
        board: what they have reported.
        settings: how much of it.
    """

    def __init__(self, board: ProgressBoard, settings: MetricsSettings) -> None:
        self._board = board
        self._settings = settings

    def collect(self) -> Iterator[Metric]:
        """Every metric with its samples."""
        leases = sorted(self._board.leases().items())
        routes = _by_route(leases)
        partitions = _partitions_of(routes)
        yield from _of_routes(routes, partitions)
        yield from self._of_leases(leases)
        shown = {route: self._shown(items) for route, items in partitions.items()}
        yield from self._of_partitions(shown)
        missing = GaugeMetricFamily(f"{PREFIX}leases_missing", "Leases that are not running.")
        missing.add_metric((), len(self._board.missing()))
        yield missing

    def mirror_maker(self) -> Iterator[Metric]:
        """The partitions that are shown, under MirrorMaker 2's names."""
        partitions = _partitions_of(_by_route(sorted(self._board.leases().items())))
        shown = {route: self._shown(items) for route, items in partitions.items()}
        for metric in MIRROR_MAKER_METRICS:
            family = GaugeMetricFamily(
                f"{MIRROR_MAKER_PREFIX}{metric.name}",
                metric.description,
                labels=(*ROUTE_LABELS, "topic", "partition"),
            )
            for route, items in shown.items():
                for place, totals in items:
                    if (value := metric.value(totals)) is not None:
                        family.add_metric((*_route_values(route), place.topic, str(place.partition)), value)
            yield family

    def _shown(self, partitions: Partitions) -> Partitions:
        """Those of a route that have samples of their own, in order."""
        most = self._settings.most_shown
        if most is not None and len(partitions) > most:
            partitions = nlargest(most, partitions, key=_badness)
        return sorted(partitions, key=lambda item: item[0])

    def _of_leases(self, leases: Sequence[tuple[LeaseKey, LeaseTotals]]) -> Iterator[Metric]:
        for metric in self._wanted(LEASE_METRICS):
            family = _family(metric.name, metric.description, (*self._route_labels, "shard"))
            for key, lease in leases:
                if (value := metric.value(lease)) is not None:
                    family.add_metric((*self._named(key.route), str(key.shard)), value)
            yield family
        waited = CounterMetricFamily(
            f"{PREFIX}waited_seconds_total",
            "Spent by the copier waiting for one side: the source to have something, the target to take it in and commit it.",
            labels=(*ROUTE_LABELS, "shard", "side"),
        )
        for key, lease in leases:
            for side, waited_ms in WAITS.items():
                waited.add_metric((*_route_values(key.route), str(key.shard), side), waited_ms(lease) / 1_000)
        yield waited

    def _of_partitions(self, shown: Mapping[Route, Partitions]) -> Iterator[Metric]:
        labels = (*self._route_labels, "topic", "partition")
        for metric in self._wanted(PARTITION_METRICS):
            family = _family(metric.name, metric.description, labels)
            for route, partitions in shown.items():
                named = self._named(route)
                for place, totals in partitions:
                    if (value := metric.value(totals)) is not None:
                        family.add_metric((*named, place.topic, str(place.partition)), value)
            yield family
        stops = GaugeMetricFamily(
            f"{PREFIX}stop_reason",
            "1 while the partition can't go on for this reason; no sample else.",
            labels=(*labels, "reason"),
        )
        for route, partitions in shown.items():
            for place, totals in partitions:
                if totals.stopped:
                    stops.add_metric(
                        (*self._named(route), place.topic, str(place.partition), totals.reason), 1
                    )
        yield stops

    def _wanted(self, metrics: Sequence[TotalsMetric[Totals]]) -> Iterator[TotalsMetric[Totals]]:
        return (metric for metric in metrics if self._settings.old_names or not metric.old)

    @property
    def _route_labels(self) -> tuple[str, ...]:
        return ("route", *ROUTE_LABELS) if self._settings.old_names else ROUTE_LABELS

    def _named(self, route: Route) -> tuple[str, ...]:
        named = _route_values(route)
        return (str(route), *named) if self._settings.old_names else named


def _by_route(leases: Sequence[tuple[LeaseKey, LeaseTotals]]) -> Mapping[Route, Sequence[LeaseTotals]]:
    routes: dict[Route, list[LeaseTotals]] = {}
    for key, lease in leases:
        routes.setdefault(key.route, []).append(lease)
    return routes


def _partitions_of(routes: Mapping[Route, Sequence[LeaseTotals]]) -> Mapping[Route, Partitions]:
    # A copy of each: reports come in meanwhile, and may bring new partitions.
    return {
        route: [item for lease in held for item in list(lease.partitions.items())]
        for route, held in routes.items()
    }


def _of_routes(
    routes: Mapping[Route, Sequence[LeaseTotals]], partitions: Mapping[Route, Partitions]
) -> Iterator[Metric]:
    """What a dashboard or a rule needs, whatever the number of partitions."""
    records = CounterMetricFamily(
        f"{PREFIX}route_records_total", "Records copied and committed.", labels=ROUTE_LABELS
    )
    size = CounterMetricFamily(
        f"{PREFIX}route_bytes_total", "Bytes of keys and values copied and committed.", labels=ROUTE_LABELS
    )
    lag = GaugeMetricFamily(
        f"{PREFIX}route_lag_records", "Source offsets not yet copied, as last seen.", labels=ROUTE_LABELS
    )
    counts = GaugeMetricFamily(
        f"{PREFIX}route_partitions",
        "Partitions by what they are doing: waiting, copying, absent or stopped.",
        labels=(*ROUTE_LABELS, "status"),
    )
    for route, items in partitions.items():
        named = _route_values(route)
        records.add_metric(named, sum(totals.records.value for _, totals in items))
        size.add_metric(named, sum(totals.bytes.value for _, totals in items))
        lag.add_metric(named, sum(totals.lag_records for _, totals in items))
        found = Counter(totals.status for _, totals in items)
        for status in PartitionStatus:
            counts.add_metric((*named, status.value), found[status])
    yield from (records, size, lag, counts)
    for name, (description, latencies_of) in HISTOGRAMS.items():
        family = HistogramMetricFamily(f"{PREFIX}{name}", description, labels=ROUTE_LABELS)
        for route, leases in routes.items():
            total = sum((latencies_of(lease) for lease in leases), start=NO_LATENCIES)
            family.add_metric(_route_values(route), total.buckets(), total.sum_s)
        yield family


def _badness(item: tuple[TopicPartition, PartitionTotals]) -> tuple[bool, int, float]:
    """What is stopped comes first, then what lags most."""
    totals = item[1]
    return totals.stopped, totals.lag_records, totals.latency_ms or 0.0


def _route_values(route: Route) -> tuple[str, str]:
    return route.source, route.target


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1_000


def _family(name: str, description: str, labels: tuple[str, ...]) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(PREFIX + name, description, labels=labels)
