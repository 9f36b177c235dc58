"""The sink's side: holds leases on executors, and hears on the driver how an epoch ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from parallax.runtime.config import Config
from parallax.runtime.logs import configure_logging
from replicator.lease import LeaseProgress, LeaseResult
from replicator.lease_source import lease_from_json
from replicator.reporter import Reporter, StatusTarget

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class AggregateHolder:
    """Copies one shard per lease (`parallax.runtime.spark_leases.LeaseHolder`).

    Attributes:
        config: everything, passwords included: pickled with the data source, never written anywhere.
        status: where leases report.
        region: the target region, for logs.
        json_logs: how to log on executors.
    """

    config: Config
    status: StatusTarget
    region: str
    json_logs: bool | None = None

    def __repr__(self) -> str:
        return f"AggregateHolder({self.region})"

    def hold(self, lease: str) -> Mapping[str, int]:
        """Copy until the lease ends; what it counted.

        Raises:
            FencedError: another application holds the same shard, or has changed the route's layout.
        """
        # The driver hears of an epoch's end in a process of its own, which need not wait for the clients' imports.
        from parallax.adapters.cassandra.stores import CassandraStores  # noqa: PLC0415
        from replicator.shard import hold_lease  # noqa: PLC0415

        configure_logging(json=self.json_logs)
        held = lease_from_json(json.loads(lease))
        reporter = Reporter(self.status)
        if reporter.application_ends():
            return {}
        newest: list[LeaseProgress] = []

        def report(progress: LeaseProgress) -> None:
            newest[:] = [progress]
            reporter(progress)

        try:
            with CassandraStores(self.config.cassandra, self.config.index) as stores:
                result = hold_lease(
                    held, self.config, index=stores.index, report=report, end_asked=reporter.end_asked.is_set
                )
        finally:
            reporter.close(newest[0] if newest else None)
        for partition, reason in result.stopped.items():
            _log.warning("partition_stopped", lease=str(held), partition=partition, reason=reason)
        _log.info("lease_ended", lease=str(held), **counts_of(result))
        return counts_of(result)

    def epoch_ended(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        """One event with the sums of the epoch's leases."""
        configure_logging(json=self.json_logs)
        _log.info("epoch_ended", region=self.region, epoch=epoch, leases=len(counts), **summed(counts))

    def epoch_failed(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        """One event with the sums of the leases that ended well."""
        configure_logging(json=self.json_logs)
        _log.warning("epoch_failed", region=self.region, epoch=epoch, leases=len(counts), **summed(counts))


def counts_of(result: LeaseResult) -> dict[str, int]:
    """What a lease counted, by name."""
    return {
        "records": result.records,
        "bytes": result.size_bytes,
        "transactions": result.transactions,
        "transaction_aborts": result.aborts,
        "watermarks": result.watermarks,
        "stopped_partitions": len(result.stopped),
    }


def summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The sum of each count."""
    names = dict.fromkeys(name for item in counts for name in item)
    return {name: sum(item.get(name, 0) for item in counts) for name in names}
