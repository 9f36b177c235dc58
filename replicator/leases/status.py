"""What the status server shows of the leases (metrics, readiness, JSON), and takes from them: reports and claims."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from replicator.lease import Lease, LeaseKey
from replicator.leases.board import LeaseReport, LeaseTotals, PartitionTotals, ProgressBoard
from replicator.leases.claims import CLAIMS_PATH, Claims

REPORTS_PATH = "/reports"
PREFIX = "parallax_replicator_"
PARTITION_LABELS = ("route", "topic", "partition")
LEASE_LABELS = ("route", "shard")

Totals = TypeVar("Totals", LeaseTotals, PartitionTotals)


@dataclass(frozen=True, slots=True)
class TotalsMetric(Generic[Totals]):
    """A metric of each lease or partition; a counter if its name ends in ``_total``. None leaves the sample out."""

    name: str
    description: str
    value: Callable[[Totals], float | None]


PARTITION_METRICS: tuple[TotalsMetric[PartitionTotals], ...] = (
    TotalsMetric("records_total", "Records copied and committed.", lambda p: p.records.value),
    TotalsMetric("bytes_total", "Bytes of keys and values copied and committed.", lambda p: p.bytes.value),
    TotalsMetric("lag_records", "Source offsets not yet copied, as last seen.", lambda p: p.lag_records),
    TotalsMetric(
        "replication_latency_ms",
        "From a record's timestamp to the commit of its copy, for the newest record copied.",
        lambda p: p.latency_ms,
    ),
    TotalsMetric("partition_stopped", "1 while the partition can't go on.", lambda p: int(p.stopped)),
)

LEASE_METRICS: tuple[TotalsMetric[LeaseTotals], ...] = (
    TotalsMetric("transactions_total", "Transactions committed.", lambda lease: lease.transactions.value),
    TotalsMetric(
        "transaction_aborts_total",
        "Transactions given up and started again from the committed position.",
        lambda lease: lease.transaction_aborts.value,
    ),
    TotalsMetric(
        "index_lag_ms",
        "Age of the oldest committed run-log entry that is not indexed yet; 0 if all are.",
        lambda lease: lease.report.progress.index_lag_ms,
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


class ReplicationStatus:
    """The leases' part of the status (`parallax.adapters.spark.status_server.StatusPart`).

    Args:
        board: what they have reported.
        claims: tells tasks which lease to hold.
    """

    name = "lease"

    def __init__(self, board: ProgressBoard, claims: Claims) -> None:
        self._board = board
        self._claims = claims
        self.takers = {REPORTS_PATH: self._record, CLAIMS_PATH: self._grant}

    def missing(self) -> Sequence[str]:
        """The leases that are not running, each with why we think so."""
        return [f"{key} {problem}" for key, problem in self._board.missing().items()]

    def troubles(self) -> Sequence[str]:
        """The partitions that can't go on, each with its reason: all others do."""
        return [f"{place} is stopped: {reason}" for place, reason in self._stops().items()]

    def _stops(self) -> dict[str, str]:
        partitions = self._board.partitions().items()
        return {
            f"{key.route}/{key.topic_partition}": totals.reason
            for key, totals in partitions
            if totals.stopped
        }

    def active_leases(self) -> Sequence[str]:
        """The leases whose newest report was not their last."""
        return [str(key) for key in self._board.active()]

    def state(self) -> dict[str, Any]:
        """Every lease with its partitions, as JSON types."""
        return {
            "missing": {str(key): problem for key, problem in self._board.missing().items()},
            "stopped": self._stops(),
            "leases": [self._lease_state(key, lease) for key, lease in sorted(self._board.leases().items())],
        }

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
                if (value := lease_metric.value(lease)) is not None:
                    family.add_metric((str(lease_key.route), str(lease_key.shard)), value)
            yield family
        stops = GaugeMetricFamily(
            f"{PREFIX}stop_reason",
            "1 while the partition can't go on for this reason; no sample else.",
            labels=(*PARTITION_LABELS, "reason"),
        )
        for key, totals in partitions.items():
            if totals.stopped:
                place = key.topic_partition
                stops.add_metric((str(key.route), place.topic, str(place.partition), totals.reason), 1)
        yield stops
        missing = GaugeMetricFamily(f"{PREFIX}leases_missing", "Leases that are not running.")
        missing.add_metric((), len(self._board.missing()))
        yield missing

    def _record(self, values: Mapping[str, Any]) -> None:
        self._board.record(LeaseReport.from_json(values))

    def _grant(self, values: Mapping[str, Any]) -> dict[str, Any]:
        try:
            given, copied = values["given"], list(map(LeaseKey.from_json, values["copied"]))
        except (TypeError, KeyError) as error:
            raise ValueError(f"not a claim: {error!r}") from error
        return self._claims.grant(Lease.from_json(given), copied).to_json()

    def _lease_state(self, key: LeaseKey, lease: LeaseTotals) -> dict[str, Any]:
        progress = lease.report.progress
        return {
            "route": str(key.route),
            "shard": key.shard,
            "epoch": lease.epoch,
            "attempt": lease.report.attempt,
            "ended": lease.report.ended,
            "heard_ms_ago": round(self._board.silent_ms(lease)),
            "transactions": lease.transactions.value,
            "transaction_aborts": lease.transaction_aborts.value,
            "index_lag_ms": progress.index_lag_ms,
            "index_gap_offsets": progress.index_gap_offsets,
            "waiting_for": progress.waiting_for,
            "foreign_records": progress.foreign_records,
            "partitions": [
                {
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "status": totals.status.value,
                    "reason": totals.reason,
                    "records": totals.records.value,
                    "bytes": totals.bytes.value,
                    "lag_records": totals.lag_records,
                    "replication_latency_ms": totals.latency_ms,
                }
                for partition, totals in sorted(lease.partitions.items())
            ],
        }


def _family(name: str, description: str, labels: tuple[str, ...]) -> CounterMetricFamily | GaugeMetricFamily:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(PREFIX + name, description, labels=labels)
