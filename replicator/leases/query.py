"""Starts the query that replicates into one region."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from parallax.adapters.spark.leases import start_lease_query
from parallax.config.config import Config
from parallax.domain.ids import RegionName, Route
from replicator.kafka.layout import ensure_layout
from replicator.leases.holder import AggregateHolder
from replicator.leases.planning import LeasePlan
from replicator.leases.reporter import StatusTarget

_MS = 1_000


def start_replication(
    session: SparkSession,
    config: Config,
    region: RegionName,
    status: StatusTarget,
    *,
    checkpoint: str,
    available_now: bool = False,
    json_logs: bool | None = None,
) -> StreamingQuery:
    """Start replicating every route into a region.

    Creates the routes' run logs and layouts on the region's aggregate cluster where they are missing, and changes
    the layout where ``replicator.shards_per_route`` has changed.

    Args:
        session: where the query runs.
        config: everything.
        region: the target region.
        status: where leases report.
        checkpoint: a folder for Spark's bookkeeping, of this query alone.
        available_now: copy what the sources hold now, then stop.
        json_logs: how to log on executors; None: by whether their standard error is a terminal.

    Raises:
        ClusterUnavailableError: the aggregate cluster did not answer in time; try again later.
        FencedError: another process is changing a layout.
    """
    shards = config.replicator.shards_per_route
    routes = config.routes_into(region)
    layouts = {route: ensure_layout(config, route, shards).layout for route in routes}
    plan = LeasePlan(layouts, shards, config.replicator.lease_epoch_s * _MS, available_now)
    holder = AggregateHolder(config, status, region, layouts, json_logs)
    return start_lease_query(
        session, query_name(region), plan, holder, checkpoint=checkpoint, available_now=available_now
    )


def query_name(region: RegionName) -> str:
    """The query's name in Spark."""
    return f"replicate-{region}"


def routes_of(config: Config, regions: Collection[RegionName]) -> Sequence[Route]:
    """Every route into the regions, each once.

    Raises:
        UnknownRegionError: a region is not configured.
        UnknownRouteError: nothing is replicated into a region.
    """
    return list(dict.fromkeys(route for region in regions for route in config.routes_into(region)))
