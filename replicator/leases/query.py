"""The query that replicates into one region."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from parallax.adapters.spark.leases import LeaseQuery
from parallax.adapters.spark.reporting import StatusTarget
from parallax.config.config import Config
from parallax.domain.ids import RegionName, Route
from replicator.kafka.layout import ensure_layout
from replicator.leases.holder import AggregateHolder
from replicator.leases.planning import LeasePlan, lease_keys

_MS = 1_000


def replication_query(
    config: Config, region: RegionName, *, available_now: bool = False, json_logs: bool | None = None
) -> LeaseQuery:
    """Replicates every route into a region.

    Each start creates the routes' run logs and layouts on the region's aggregate cluster where they are missing, and
    changes the layout where ``replicator.shards_per_route`` has changed. Where the aggregate cluster does not answer, or
    another process is changing a layout, it is tried again later.

    Args:
        config: everything.
        region: the target region.
        available_now: copy what the sources hold now, then stop.
        json_logs: how to log on executors; None: by whether their standard error is a terminal.

    Raises:
        UnknownRegionError: the region is not configured.
        UnknownRouteError: nothing is replicated into the region.
    """
    routes = config.routes_into(region)
    shards = config.replicator.shards_per_route

    def parts(status: StatusTarget) -> tuple[LeasePlan, AggregateHolder]:
        layouts = {route: ensure_layout(config, route, shards).layout for route in routes}
        plan = LeasePlan(layouts, shards, config.replicator.lease_epoch_s * _MS, available_now)
        return plan, AggregateHolder(config, status, region, layouts, json_logs)

    return LeaseQuery(
        f"replicate-{region}",
        len(lease_keys(config, routes)),
        parts,
        preload=("replicator.leases.holder",),
        task_preload=("replicator.shard", "parallax.adapters.cassandra.stores"),
        available_now=available_now,
    )


def routes_of(config: Config, regions: Collection[RegionName]) -> Sequence[Route]:
    """Every route into the regions, each once.

    Raises:
        UnknownRegionError: a region is not configured.
        UnknownRouteError: nothing is replicated into a region.
    """
    return list(dict.fromkeys(route for region in regions for route in config.routes_into(region)))
