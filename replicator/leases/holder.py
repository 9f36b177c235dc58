"""The sink's side: holds leases on executors, and hears on the driver how an epoch ended."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from parallax.adapters.spark.reporting import NOT_DELIVERED, HolderReporter, StatusTarget
from parallax.config.config import Config
from parallax.domain.ids import Route
from parallax.runtime.logs import configure_logging
from replicator.lease import Lease, LeaseKey, lease_from_json
from replicator.leases.board import LeaseReport
from replicator.leases.claims import claim
from replicator.leases.holding import Holding
from replicator.leases.status import REPORTS_PATH

_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class AggregateHolder:
    """Copies one shard per lease (`parallax.adapters.spark.leases.LeaseHolder`).

    Attributes:
        config: everything, passwords included: pickled with the data source, never written anywhere.
        status: where leases report.
        region: the target region, for logs.
        layouts: the number of each route's layout, as the leases have it.
        json_logs: how to log on executors.
    """

    config: Config
    status: StatusTarget
    region: str
    layouts: Mapping[Route, int]
    json_logs: bool | None = None

    def __repr__(self) -> str:
        return f"AggregateHolder({self.region})"

    def hold(self, lease: str) -> Mapping[str, int]:
        """Copy until the lease ends, and a little longer (`replicator.leases.holding`); what it counted.

        Raises:
            FencedError: another application holds the same shard, or has changed the route's layout.
        """
        configure_logging(json=self.json_logs)
        held = self._claimed(lease_from_json(json.loads(lease)))
        key = LeaseKey.of(held)
        holder, holding = _holdings.get(key, (None, None))
        if holding is None or holder != self or not holding.goes_on(held):
            if self.status.application_ends():
                return {}
            holding = Holding(held, self._copy)
            _holdings[key] = (self, holding)
        counts = holding.wait()
        _log.info("lease_ended", lease=str(held), **counts)
        return counts

    def _claimed(self, given: Lease) -> Lease:
        """The lease to hold: that of what this process copies already, if no other task of the epoch has it."""
        copied = [key for key, (holder, holding) in _holdings.items() if holder == self and holding.lasts]
        try:
            granted = claim(self.status, given, copied)
            return replace(
                given, route=granted.route, shard=granted.shard, layout=self.layouts[granted.route]
            )
        except (*NOT_DELIVERED, KeyError) as error:
            _log.warning("lease_not_claimed", lease=str(given), problem=repr(error))
            return given

    def _copy(self, lease: Lease, holding: Holding) -> None:
        # The driver hears of an epoch's end in a process of its own, which need not wait for the clients' imports.
        from parallax.adapters.cassandra.stores import CassandraStores  # noqa: PLC0415
        from replicator.shard import hold_lease  # noqa: PLC0415

        reporter = HolderReporter(self.status, REPORTS_PATH)
        try:
            with CassandraStores(self.config.cassandra, self.config.index) as stores:
                hold_lease(
                    lease,
                    self.config,
                    index=stores.index,
                    report=lambda progress: reporter.put(
                        LeaseReport(holding.report(progress), reporter.attempt)
                    ),
                    end_asked=lambda: reporter.end_asked.is_set() or holding.over(),
                    overtime=holding.in_overtime,
                )
        finally:
            newest = holding.newest
            reporter.close(None if newest is None else LeaseReport(newest, reporter.attempt, ended=True))

    def epoch_ended(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        """One event with the sums of the epoch's leases."""
        configure_logging(json=self.json_logs)
        _log.info("epoch_ended", region=self.region, epoch=epoch, leases=len(counts), **summed(counts))

    def epoch_failed(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        """One event with the sums of the leases that ended well."""
        configure_logging(json=self.json_logs)
        _log.warning("epoch_failed", region=self.region, epoch=epoch, leases=len(counts), **summed(counts))


_holdings: dict[LeaseKey, tuple[AggregateHolder, Holding]] = {}
"""What this process copies, and for whom. Spark hands it one task after another, never two at once."""


def summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The sum of each count."""
    names = dict.fromkeys(name for item in counts for name in item)
    return {name: sum(item.get(name, 0) for item in counts) for name in names}
