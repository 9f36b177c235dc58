"""The overview: the regions, their routes as arrows, and whether it is safe to fail over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from markupsafe import Markup

from console import routes as route_faces
from console.listing import Cell, age
from console.lists import OLD_MS, ROUTE_STATES
from console.moving import STATES
from console.reads import Reads
from console.safety import FailoverWay, Findings, ways
from parallax.client.pages import newest_moves
from parallax.domain.ids import Route
from parallax.errors import ParallaxError
from parallax.v1 import overview_pb2 as pb
from parallax.v1 import primaries_pb2

_MOST = 1_000
"""Routes and drills that are looked at: a page of the service's at most."""

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
    """All of it.

    Attributes:
        facts: what an operator asks first: labels and values, which lead to their lists.
        cards: the regions.
        ways: from each region to each other one, whether it is safe.
        drawing: the routes as a picture; None: there are none, or too many.
        missing: what could not be asked, and why.
    """

    facts: tuple[tuple[str, Cell], ...]
    cards: tuple[Card, ...]
    ways: tuple[FailoverWay, ...]
    drawing: Markup | None
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
        part("moves", lambda: newest_moves(reads.list_moves)),
        part("drills", lambda: list(reads.list_drills(limit=_MOST).drills)),
        part("sync", lambda: reads.list_sync_problems(limit=1)),
    )
    cards = tuple(_card(item, routes or (), regions.answered_in) for item in regions.regions)
    return Overview(
        tuple(_facts(seen, now_ms)),
        cards,
        ways(seen, now_ms),
        route_faces.drawn(regions.regions, routes or ()),
        tuple(missing),
    )


def _facts(seen: Findings, now_ms: int) -> Iterator[tuple[str, Cell]]:
    """What could not be asked is a dash."""
    moves = Cell(None)
    if seen.moves is not None:
        opened = [item for item in seen.moves.moves if not item.ended]
        states = Counter(STATES.get(item.state, (item.state, ""))[0] for item in opened)
        told = ", ".join(f"{count:,} {word}" for word, count in states.items())
        told = (told or "none") + (f", of the newest {len(seen.moves.moves):,}" if seen.moves.more else "")
        moves = Cell(len(opened), text=told, tone="warn" if opened else "", link="/moves")
    yield "Open moves", moves
    dual = None if seen.primaries is None else sum(item.dual_active for item in seen.primaries)
    yield (
        "Groups that are dual active",
        Cell(dual, text="none" if dual == 0 else None, tone="bad" if dual else "", link="/primaries"),
    )
    yield "Groups with sync problems", _sync_fact(seen.sync)
    drill = Cell(None)
    if seen.drills is not None:
        newest = max(seen.drills, key=lambda item: item.started_at_ms, default=None)
        drill = (
            Cell("never", tone="warn", link="/drills")
            if newest is None
            else Cell(
                newest.ending,
                text=f"{newest.ending}, {age(max(0, now_ms - newest.started_at_ms))} ago",
                tone="" if newest.ending in ("passed", "running") else "bad",
                link="/drills",
            )
        )
    yield "Last drill", drill


def _sync_fact(sync: pb.ListSyncProblemsResponse | None) -> Cell:
    if sync is None or not sync.HasField("job"):
        return Cell(None, link="/sync-problems")
    count, old = sync.job.groups_with_problems, sync.job.age_ms > OLD_MS
    words = f"{count:,} of {sync.job.groups:,}" + (f", told {age(sync.job.age_ms)} ago" if old else "")
    return Cell(count, text=words, tone="warn" if count or old else "", link="/sync-problems")


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
            ClusterFace(each.cluster, *route_faces.HEALTH.get(each.health, ("unknown", "dim")), each.problem)
            for each in clusters
        ),
        tuple(_arrow(each) for each in routes if Route.parse(each.route).target == item.region),
    )


def _arrow(item: pb.RouteReplication) -> Arrow:
    route = Route.parse(item.route)
    word, tone = ROUTE_STATES.get(item.state, ("unknown", "dim"))
    return Arrow(
        str(route.source),
        str(route.target),
        word,
        tone,
        route_faces.address(item.route),
        route_faces.told_of(item),
        tuple(item.problems),
    )
