"""The board in Prometheus' terms: every metric declared once, with its unit and its labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from replicator.leases.board import LeaseTotals, PartitionTotals, ProgressBoard

PREFIX = "parallax_replicator_"
PARTITION_LABELS = ("route", "topic", "partition")
LEASE_LABELS = ("route", "shard")


@dataclass(frozen=True, slots=True)
class PartitionMetric:
    """A metric of each partition; a counter if its name ends in ``_total``. None leaves the sample out."""

    name: str
    description: str
    value: Callable[[PartitionTotals], float | None]


@dataclass(frozen=True, slots=True)
class LeaseMetric:
    """A metric of each lease; a counter if its name ends in ``_total``."""

    name: str
    description: str
    value: Callable[[LeaseTotals], float]


PARTITION_METRICS = (
    PartitionMetric("records_total", "Records copied and committed.", lambda p: p.records.value),
    PartitionMetric("bytes_total", "Bytes of keys and values copied and committed.", lambda p: p.bytes.value),
    PartitionMetric("lag_records", "Source offsets not yet copied, as last seen.", lambda p: p.lag_records),
    PartitionMetric(
        "replication_latency_ms",
        "From a record's timestamp to the commit of its copy, for the newest record copied.",
        lambda p: p.latency_ms,
    ),
    PartitionMetric("partition_stopped", "1 while the partition can't go on.", lambda p: int(p.stopped)),
)
LEASE_METRICS = (
    LeaseMetric("transactions_total", "Transactions committed.", lambda lease: lease.transactions.value),
    LeaseMetric(
        "transaction_aborts_total",
        "Transactions given up and started again from the committed position.",
        lambda lease: lease.transaction_aborts.value,
    ),
    LeaseMetric(
        "index_lag_ms",
        "Age of the oldest committed run-log entry that is not indexed yet; 0 if all are.",
        lambda lease: lease.report.progress.index_lag_ms,
    ),
    LeaseMetric(
        "waiting",
        "1 while the lease waits for a cluster that does not answer.",
        lambda lease: int(bool(lease.report.progress.waiting_for)),
    ),
    LeaseMetric("epoch", "The epoch that the lease belongs to.", lambda lease: lease.epoch),
)


class BoardCollector(Collector):
    """Reads the board at each scrape."""

    def __init__(self, board: ProgressBoard) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        """Every metric with its samples."""
        partitions = self._board.partitions()
        for metric in PARTITION_METRICS:
            family = _family(metric.name, metric.description, PARTITION_LABELS)
            for key, totals in partitions.items():
                if (value := metric.value(totals)) is not None:
                    place = key.topic_partition
                    family.add_metric((str(key.route), place.topic, str(place.partition)), value)
            yield family
        leases = self._board.leases()
        for lease_metric in LEASE_METRICS:
            family = _family(lease_metric.name, lease_metric.description, LEASE_LABELS)
            for lease_key, lease in leases.items():
                family.add_metric((str(lease_key.route), str(lease_key.shard)), lease_metric.value(lease))
            yield family
        ready = GaugeMetricFamily(f"{PREFIX}leases_missing", "Leases that are not running.")
        ready.add_metric((), len(self._board.missing()))
        yield ready


def _family(name: str, description: str, labels: tuple[str, ...]) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(PREFIX + name, description, labels=labels)
