"""The syncjob on Spark: one lease, whose holder syncs every second until its deadline."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import structlog

from parallax.adapters.spark.leases import LeaseQuery
from parallax.adapters.spark.reporting import HolderReporter, StatusTarget
from parallax.config.config import Config
from parallax.domain.latencies import NO_LATENCIES
from parallax.runtime.deadline import Deadline, lease_ms, wall_clock_ms

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class SyncPlan:
    """Plans epochs (`parallax.adapters.spark.leases.LeasePlanner`).

    Attributes:
        epoch_ms: how long an epoch lasts.
    """

    epoch_ms: int

    def plan(self, epoch: int) -> Sequence[Mapping[str, int]]:
        """The only lease of an epoch that begins now."""
        return [{"epoch": epoch, "deadline_unix_ms": wall_clock_ms() + self.epoch_ms}]


@dataclass(frozen=True)
class SyncHolder:
    """Syncs until the lease ends (`parallax.adapters.spark.leases.LeaseHolder`).

    A lease that is killed in the middle does no harm: whatever it wrote is safe, and the next one goes on.

    Attributes:
        config: everything; pickled with the data source, with where secrets stand in place of them.
        status: where each cycle is reported.
    """

    config: Config
    status: StatusTarget

    def __repr__(self) -> str:
        return "SyncHolder()"

    def hold(self, lease: Mapping[str, int]) -> Mapping[str, int]:
        """Sync until the lease's deadline; what was done, counted by reason."""
        # The driver hears of an epoch's end in a process of its own, which need not wait for the clients' imports.
        from syncjob.latency import CheckpointLatency  # noqa: PLC0415
        from syncjob.report import CycleReport  # noqa: PLC0415
        from syncjob.run import run_until  # noqa: PLC0415
        from syncjob.status import REPORTS_PATH, UNREADABLE_TOLD, SyncReport  # noqa: PLC0415

        epoch_ms = self.config.replicator.lease_epoch_s * 1_000
        remaining_ms = lease_ms(lease["deadline_unix_ms"], wall_clock_ms(), epoch_ms)
        _log.info("lease_begun", lease="sync", process=os.getpid())
        reporter = HolderReporter(self.status, REPORTS_PATH)

        latencies = NO_LATENCIES
        slowest: tuple[CheckpointLatency, ...] = ()

        def report(counts: Mapping[str, int], problem: str, cycle: CycleReport | None) -> None:
            nonlocal latencies, slowest
            if cycle is not None:
                latencies, slowest = cycle.latencies, cycle.slowest
            unreadable = [] if cycle is None else cycle.unreadable
            unpublished = {} if cycle is None else cycle.unpublished
            rows = tuple(unreadable[:UNREADABLE_TOLD])
            exported = "" if cycle is None else cycle.export_problem
            reporter.put(
                SyncReport(
                    reporter.attempt,
                    dict(counts),
                    problem,
                    rows,
                    len(unreadable),
                    unpublished,
                    exported,
                    latencies,
                    slowest,
                )
            )

        try:
            return run_until(self.config, Deadline.after_ms(remaining_ms), threading.Event(), report)
        finally:
            reporter.close()


def sync_query(config: Config) -> LeaseQuery:
    """Publishes resume offsets: one lease serves all groups of a configuration."""
    plan = SyncPlan(config.replicator.lease_epoch_s * 1_000)
    return LeaseQuery(
        "sync",
        1,
        lambda status: (plan, SyncHolder(config, status)),
        preload=(__name__,),
        task_preload=("syncjob.run",),
    )
