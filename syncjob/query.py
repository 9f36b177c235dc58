"""The syncjob on Spark: one lease, whose holder syncs every second until its deadline."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from parallax.adapters.spark.leases import LeaseQuery
from parallax.adapters.spark.reporting import HolderReporter, StatusTarget
from parallax.config.config import Config
from parallax.runtime.deadline import Deadline
from parallax.runtime.logs import configure_logging
from syncjob.status import REPORTS_PATH, SyncReport

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SyncPlan:
    """Plans epochs (`parallax.adapters.spark.leases.LeasePlanner`).

    Attributes:
        epoch_ms: how long an epoch lasts.
    """

    epoch_ms: int

    def plan(self, epoch: int) -> Sequence[str]:
        """The only lease of an epoch that begins now."""
        deadline_unix_ms = time.time_ns() // 1_000_000 + self.epoch_ms
        return [json.dumps({"epoch": epoch, "deadline_unix_ms": deadline_unix_ms})]


@dataclass(frozen=True)
class SyncHolder:
    """Syncs until the lease ends (`parallax.adapters.spark.leases.LeaseHolder`).

    A lease that is killed in the middle does no harm: whatever it wrote is safe, and the next one goes on.

    Attributes:
        config: everything, passwords included: pickled with the data source, never written anywhere.
        status: where each cycle is reported.
        json_logs: how to log on executors.
    """

    config: Config
    status: StatusTarget
    json_logs: bool | None = None

    def __repr__(self) -> str:
        return "SyncHolder()"

    def hold(self, lease: str) -> Mapping[str, int]:
        """Sync until the lease's deadline; what was done, counted by reason."""
        # The driver hears of an epoch's end in a process of its own, which need not wait for the clients' imports.
        from syncjob.run import run_until  # noqa: PLC0415

        configure_logging(json=self.json_logs)
        remaining_ms = json.loads(lease)["deadline_unix_ms"] - time.time_ns() // 1_000_000
        reporter = HolderReporter(self.status, REPORTS_PATH)

        def report(counts: Mapping[str, int], problem: str) -> None:
            reporter.put(SyncReport(reporter.attempt, dict(counts), problem))

        try:
            return run_until(self.config, Deadline.after_ms(remaining_ms), threading.Event(), report)
        finally:
            reporter.close()

    def epoch_ended(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        """One event with the epoch's sums."""
        configure_logging(json=self.json_logs)
        for item in counts:
            _log.info("sync_epoch_ended", epoch=epoch, **item)

    def epoch_failed(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        """One event; Spark has said why."""
        configure_logging(json=self.json_logs)
        _log.warning("sync_epoch_failed", epoch=epoch, leases_that_ended_well=len(counts))


def sync_query(config: Config, *, json_logs: bool | None = None) -> LeaseQuery:
    """Publishes resume offsets: one lease serves all groups of a configuration.

    Args:
        config: everything.
        json_logs: how to log on executors; None: by whether their standard error is a terminal.
    """
    plan = SyncPlan(config.replicator.lease_epoch_s * 1_000)
    return LeaseQuery(
        "sync",
        1,
        lambda status: (plan, SyncHolder(config, status, json_logs)),
        preload=("syncjob.query",),
        task_preload=("syncjob.run",),
    )
