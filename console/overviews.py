"""The overview: the regions, their routes as arrows, and whether it is safe to fail over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from console.groups import optional
from console.listing import age, link
from console.lists import OLD_MS, ROUTE_STATES
from console.reads import Reads
from console.safety import FailoverWay, Findings, ways
from parallax.domain.ids import Route
from parallax.errors import ParallaxError
from parallax.v1 import overview_pb2 as pb
from parallax.v1 import primaries_pb2

_MOST = 1_000
"""Routes, moves and drills that are looked at: a page of the service's at most."""
_HEALTH = {
    primaries_pb2.UP: ("up", "good"),
    primaries_pb2.AWAY: ("away", "bad"),
    primaries_pb2.NOT_ASKED: ("not asked", "dim"),
}

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClusterFace:
    """A cluster of a region: its name, whether it answers, and why not."""

    name: str
    word: str
    tone: str
    problem: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """A route into a region."""

    source: str
    target: str
    word: str
    tone: str
    link: str
    told: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """A region: its clusters, its service, and the routes that lead into it."""

    region: str
    answers: bool
    clusters: tuple[ClusterFace, ...]
    arrows: tuple[Arrow, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """All of it; ``missing`` tells what could not be asked, and why."""

    cards: tuple[Card, ...]
    ways: tuple[FailoverWay, ...]
    missing: tuple[str, ...]


def overview(reads: Reads, now_ms: int) -> Overview:
    """What the services tell; a part that can't be had is named, and the others stand.

    Raises:
        ParallaxError: not even the regions can be told.
    """
    regions = reads.describe_regions()
    missing: list[str] = []

    def part(what: str, ask: Callable[[], T]) -> T | None:
        try:
            return ask()
        except ParallaxError as error:
            missing.append(f"{what}: {error.code}: {error}")
            return None

    routes = part("replication", lambda: list(reads.list_replication(limit=_MOST).routes))
    seen = Findings(
        regions,
        routes,
        part("primaries", lambda: list(reads.list_primaries(attention=True).primaries)),
        part("moves", lambda: list(reads.list_moves(limit=_MOST).moves)),
        part("drills", lambda: list(reads.list_drills(limit=_MOST).drills)),
        part("sync", lambda: reads.list_sync_problems(limit=1)),
    )
    cards = tuple(_card(item, routes or (), regions.answered_in) for item in regions.regions)
    return Overview(cards, ways(seen, now_ms), tuple(missing))


def _card(
    item: primaries_pb2.RegionDescription,
    routes: tuple[pb.RouteReplication, ...] | list[pb.RouteReplication],
    answered_in: str,
) -> Card:
    clusters = [getattr(item, kind) for kind in ("aggregate", "regional") if item.HasField(kind)]
    return Card(
        item.region,
        item.region == answered_in,
        tuple(
            ClusterFace(each.cluster, *_HEALTH.get(each.health, ("unknown", "dim")), each.problem)
            for each in clusters
        ),
        tuple(_arrow(each) for each in routes if Route.parse(each.route).target == item.region),
    )


def _arrow(item: pb.RouteReplication) -> Arrow:
    route = Route.parse(item.route)
    word, tone = ROUTE_STATES.get(item.state, ("unknown", "dim"))
    lag, told_ms = optional(item, "lag_records"), optional(item, "age_ms")
    told = [] if lag is None else [f"lag {lag:,}"]
    if (latency := optional(item, "latency_ms")) is not None:
        told.append(f"latency {age(latency)}")
    if told_ms is not None and told_ms > OLD_MS:
        told.append(f"told {age(told_ms)} ago")
    return Arrow(
        str(route.source),
        str(route.target),
        word,
        tone,
        link("/route", route=item.route),
        ", ".join(told),
        tuple(item.problems),
    )
