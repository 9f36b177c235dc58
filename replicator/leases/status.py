"""What the status server shows of the leases (metrics, readiness, JSON), and takes from them: reports and claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import Metric

from parallax.config.config import MetricsSettings
from replicator.lease import Lease, LeaseKey
from replicator.leases.board import LeaseReport, LeaseTotals, ProgressBoard
from replicator.leases.claims import CLAIMS_PATH, Claims
from replicator.leases.metrics import ReplicationMetrics

REPORTS_PATH = "/reports"


class ReplicationStatus:
    """The leases' part of the status (`parallax.adapters.spark.status_part.StatusPart`).

    Args:
        board: what they have reported.
        claims: tells tasks which lease to hold.
        metrics: how much of it a scrape shows.
    """

    name = "lease"

    def __init__(self, board: ProgressBoard, claims: Claims, metrics: MetricsSettings | None = None) -> None:
        self._board = board
        self._metrics = ReplicationMetrics(board, metrics or MetricsSettings())
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
        return self._metrics.collect()

    def mirror_maker(self) -> Iterator[Metric]:
        """The partitions' metrics under MirrorMaker 2's names."""
        return self._metrics.mirror_maker()

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
            "survey_failures": lease.survey_failures.value,
            "source_wait_ms": lease.source_wait_ms.value,
            "target_wait_ms": lease.target_wait_ms.value,
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
