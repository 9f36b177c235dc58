"""The query that replicates into a region: plans leases on the driver, holds them on executors.

There is one lease for each route into the region and each shard of the route.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog

from parallax.adapters.spark.leases import LeaseQuery
from parallax.adapters.spark.reporting import NOT_DELIVERED, HolderReporter, StatusTarget
from parallax.config.config import Config
from parallax.domain.ids import RegionName, Route
from replicator.lease import Lease, LeaseKey
from replicator.leases.board import LeaseReport
from replicator.leases.claims import claim
from replicator.leases.holding import Holding
from replicator.leases.status import REPORTS_PATH

_log = structlog.get_logger(__name__)

AVAILABLE_NOW_DEADLINE_MS = 7 * 86_400_000
"""A lease that ends by itself, at the end as of its beginning, gets a deadline that it never meets."""


def routes_of(config: Config, regions: Collection[RegionName]) -> Sequence[Route]:
    """Every route into the regions, each once.

    Raises:
        UnknownRegionError: a region is not configured.
        UnknownRouteError: nothing is replicated into a region.
    """
    return list(dict.fromkeys(route for region in regions for route in config.routes_into(region)))


def lease_keys(config: Config, routes: Sequence[Route]) -> list[LeaseKey]:
    """Every lease that the routes need."""
    return [LeaseKey(route, shard) for route in routes for shard in range(config.replicator.shards_per_route)]


def replication_query(config: Config, region: RegionName, *, available_now: bool = False) -> LeaseQuery:
    """Replicates every route into a region.

    Each start creates the routes' run logs and layouts on the region's aggregate cluster where they are missing, and
    changes the layout where ``replicator.shards_per_route`` has changed. A route whose run log is refused then gets no
    lease, and the others go on. A cluster that does not answer is waited for;
    another process that is changing a layout ends the application (`FencedError`), and so does another replicator that copies
    a route with other topics (`RefusedError`).

    Args:
        config: everything.
        region: the target region.
        available_now: copy what the sources hold now, then stop.

    Raises:
        UnknownRegionError: the region is not configured.
        UnknownRouteError: nothing is replicated into the region.
    """
    routes = config.routes_into(region)
    shards = config.replicator.shards_per_route

    def parts(status: StatusTarget) -> tuple[LeasePlan, AggregateHolder]:
        # Spark's workers import this module too, and need plan and holder alone.
        from replicator.kafka.layout import ensure_layouts  # noqa: PLC0415

        layouts = ensure_layouts(config, routes, shards)
        plan = LeasePlan(layouts, shards, config.replicator.lease_epoch_s * 1_000, available_now)
        return plan, AggregateHolder(config, status, region, layouts)

    return LeaseQuery(
        f"replicate-{region}",
        len(lease_keys(config, routes)),
        parts,
        preload=(__name__,),
        task_preload=("replicator.shard", "parallax.adapters.cassandra.stores"),
        available_now=available_now,
    )


@dataclass(frozen=True, slots=True)
class LeasePlan:
    """Plans epochs (`parallax.adapters.spark.leases.LeasePlanner`).

    Attributes:
        layouts: the number of each route's layout.
        shard_count: shards of each route.
        epoch_ms: how long an epoch lasts, from when its batch starts.
        available_now: leases end by themselves instead.
    """

    layouts: Mapping[Route, int]
    shard_count: int
    epoch_ms: int
    available_now: bool = False

    def plan(self, epoch: int) -> Sequence[Mapping[str, Any]]:
        """The leases of an epoch that begins now."""
        span_ms = AVAILABLE_NOW_DEADLINE_MS if self.available_now else self.epoch_ms
        deadline_unix_ms = time.time_ns() // 1_000_000 + span_ms
        leases = (
            Lease(route, shard, self.shard_count, layout, epoch, deadline_unix_ms, self.available_now)
            for route, layout in sorted(self.layouts.items())
            for shard in range(self.shard_count)
        )
        return [lease.to_json() for lease in leases]


@dataclass(frozen=True)
class AggregateHolder:
    """Copies one shard per lease (`parallax.adapters.spark.leases.LeaseHolder`).

    Attributes:
        config: everything; pickled with the data source, with where secrets stand in place of them.
        status: where leases report.
        region: the target region.
        layouts: the number of each route's layout, as the leases have it.
    """

    config: Config
    status: StatusTarget
    region: str
    layouts: Mapping[Route, int]

    def __repr__(self) -> str:
        return f"AggregateHolder({self.region})"

    def hold(self, lease: Mapping[str, Any]) -> Mapping[str, int]:
        """Copy until the lease ends, and a little longer (`replicator.leases.holding`); what it counted.

        Raises:
            FencedError: another application holds the same shard, or has changed the route's layout.
        """
        held = self._claimed(Lease.from_json(lease))
        key = LeaseKey.of(held)
        holder, holding = _holdings.get(key, (None, None))
        if holding is None or holder != self or not holding.goes_on(held):
            if self.status.application_ends():
                return {}
            epoch_ms = self.config.replicator.lease_epoch_s * 1_000
            longest_ms = AVAILABLE_NOW_DEADLINE_MS if held.available_now else epoch_ms
            _log.info("lease_begun", lease=str(held), process=os.getpid())
            holding = Holding(held, self._copy, longest_ms)
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


_holdings: dict[LeaseKey, tuple[AggregateHolder, Holding]] = {}
"""What this process copies, and for whom. Spark hands it one task after another, never two at once."""
