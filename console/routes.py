"""Routes as they are drawn: the picture of all of them, and what stands above the partitions of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from console.groups import optional
from console.listing import Cell, age, drawn_history, link
from console.lists import OLD_MS, ROUTE_STATES
from console.reads import Reads
from parallax.errors import ParallaxError
from parallax.picture.ways import MOST, End, RouteWay, draw_ways
from parallax.v1 import overview_pb2 as pb
from parallax.v1 import primaries_pb2

HEALTH = {
    primaries_pb2.UP: ("up", "good"),
    primaries_pb2.AWAY: ("away", "bad"),
    primaries_pb2.NOT_ASKED: ("not asked", "dim"),
}
"""Words for a cluster as the service that answers sees it, and their tones."""


@dataclass(frozen=True, slots=True)
class RouteHead:
    """What stands above a route's partitions.

    Attributes:
        way: from where to where; empty: not known.
        facts: labels and values.
        problems: what is wrong, each said once.
        drawing: how its lag went; None: nothing is known of that.
        missing: why none of it is known; empty: it is.
    """

    way: str = ""
    facts: tuple[tuple[str, Cell], ...] = ()
    problems: tuple[str, ...] = ()
    drawing: Markup | None = None
    missing: str = ""


def head(reads: Reads, route: str) -> RouteHead:
    """How a route is; where that can't be had, why."""
    try:
        routes = reads.list_replication(
            prefix=route, limit=1
        ).routes  # by name: those that it begins come after it
    except ParallaxError as error:
        return RouteHead(missing=f"How the route is, is not known: {error.code}: {error}")
    found = next((item for item in routes if item.route == route), None)
    if found is None:
        return RouteHead(missing="No route of the configuration is called so.")
    word, tone = ROUTE_STATES.get(found.state, ("unknown", "dim"))
    stopped, running = optional(found, "partitions_stopped"), optional(found, "shards_running")
    told, rate = optional(found, "age_ms"), rate_of(found)
    facts = (
        ("State", Cell(word, tone=tone)),
        ("Records a second", Cell(rate, text=None if rate is None else rate_words(rate))),
        ("Lag, records", Cell(optional(found, "lag_records"))),
        ("Latency", Cell(optional(found, "latency_ms"), text=age(optional(found, "latency_ms")))),
        ("Index behind", Cell(optional(found, "index_lag_ms"), text=age(optional(found, "index_lag_ms")))),
        ("Partitions stopped", Cell(stopped, tone="bad" if stopped else "")),
        ("Shards running", Cell(running, text=None if running is None else f"{running} of {found.shards}")),
        (
            "Told",
            Cell(
                told,
                text=None if told is None else f"{age(told)} ago",
                tone="warn" if told is not None and told > OLD_MS else "",
            ),
        ),
    )
    return RouteHead(
        f"{found.source_cluster} to {found.target_cluster}",
        facts,
        tuple(found.problems),
        drawn_history(
            [optional(sample, "lag_records") for sample in found.lag_history], f"Lag of {route} until now"
        ),
    )


def rate_of(item: pb.RouteReplication) -> float | None:
    """Records copied in a second; None: not known."""
    return item.records_per_s if item.HasField("records_per_s") else None


def rate_words(rate: float) -> str:
    """A rate, as exactly as people want it."""
    return f"{rate:,.1f}" if rate < 100 else f"{rate:,.0f}"  # noqa: PLR2004 - three figures


def drawn(
    regions: Iterable[primaries_pb2.RegionDescription], routes: Sequence[pb.RouteReplication]
) -> Markup | None:
    """All routes as one picture; None: there is none, or there are more than a picture can show."""
    if not 0 < len(routes) <= MOST:
        return None
    ends = [
        End(cluster.cluster, *HEALTH.get(cluster.health, ("unknown", "dim")))
        for kind in ("regional", "aggregate")
        for region in regions
        if region.HasField(kind)
        for cluster in [getattr(region, kind)]
    ]
    return Markup(draw_ways(ends, [_way(item) for item in routes]))  # noqa: S704 - names within are escaped


def _way(item: pb.RouteReplication) -> RouteWay:
    word, tone = ROUTE_STATES.get(item.state, ("unknown", "dim"))
    rate = rate_of(item)
    return RouteWay(
        item.route,
        item.source_cluster,
        item.target_cluster,
        word,
        tone,
        told_of(item, ([] if rate is None else [f"{rate_words(rate)} records/s"])),
        rate,
        tuple(optional(sample, "lag_records") for sample in item.lag_history),
    )


def told_of(item: pb.RouteReplication, first: Sequence[str] = ()) -> str:
    """A route's numbers in a line, as far as they are known."""
    lag, told_ms = optional(item, "lag_records"), optional(item, "age_ms")
    told = [*first] + ([] if lag is None else [f"lag {lag:,}"])
    if (latency := optional(item, "latency_ms")) is not None:
        told.append(f"latency {age(latency)}")
    if told_ms is not None and told_ms > OLD_MS:
        told.append(f"told {age(told_ms)} ago")
    return ", ".join(told)


def address(route: str) -> str:
    """A route's page."""
    return link("/route", route=route)
