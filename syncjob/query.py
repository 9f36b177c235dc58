"""The syncjob on Spark: one lease, whose holder syncs every second until its deadline."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from parallax.adapters.spark.leases import start_lease_query
from parallax.config.config import Config
from parallax.runtime.deadline import Deadline
from parallax.runtime.logs import configure_logging
from syncjob.status import Driver, Teller

_log = structlog.get_logger(__name__)

QUERY_NAME = "sync"


def sync_leases(config: Config) -> int:
    """How many task slots the syncjob needs: one lease serves all groups of a configuration."""
    del config  # the signature leaves room for several
    return 1


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
        json_logs: how to log on executors.
        driver: who is told of each cycle; None: nobody.
    """

    config: Config
    json_logs: bool | None = None
    driver: Driver | None = None

    def __repr__(self) -> str:
        return "SyncHolder()"

    def hold(self, lease: str) -> Mapping[str, int]:
        """Sync until the lease's deadline; what was done, counted by reason."""
        # The driver hears of an epoch's end in a process of its own, which need not wait for the clients' imports.
        from syncjob.run import run_until  # noqa: PLC0415

        configure_logging(json=self.json_logs)
        remaining_ms = json.loads(lease)["deadline_unix_ms"] - time.time_ns() // 1_000_000
        teller = Teller(self.driver)
        try:
            return run_until(self.config, Deadline.after_ms(remaining_ms), threading.Event(), teller)
        finally:
            teller.close()

    def epoch_ended(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        """One event with the epoch's sums."""
        configure_logging(json=self.json_logs)
        for item in counts:
            _log.info("sync_epoch_ended", epoch=epoch, **item)

    def epoch_failed(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        """One event; Spark has said why."""
        configure_logging(json=self.json_logs)
        _log.warning("sync_epoch_failed", epoch=epoch, leases_that_ended_well=len(counts))


def start_sync_query(
    session: SparkSession, config: Config, *, json_logs: bool | None = None, driver: Driver | None = None
) -> StreamingQuery:
    """Start publishing on Spark.

    Args:
        session: where the query runs.
        config: everything.
        json_logs: how to log on executors; None: by whether their standard error is a terminal.
        driver: who is told of each cycle; None: nobody.
    """
    plan = SyncPlan(config.replicator.lease_epoch_s * 1_000)
    folder = _checkpoint(config.replicator.checkpoint_directory)
    query = start_lease_query(
        session, QUERY_NAME, plan, SyncHolder(config, json_logs, driver), checkpoint=str(folder)
    )
    weakref.finalize(query, shutil.rmtree, folder, ignore_errors=True)
    return query


def _checkpoint(directory: str | None) -> Path:
    """A new folder for Spark's bookkeeping, which holds no position."""
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="parallax-sync-"))
    folder = Path(directory) / QUERY_NAME
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
