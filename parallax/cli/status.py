"""`parallax status`: one screen that says whether all is well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import IntEnum

import typer
from rich.console import Console
from rich.text import Text

from parallax.cli.connecting import connect
from parallax.cli.lists import sync_job_line
from parallax.cli.options import (
    TIMEOUT_MS,
    AuthorityOption,
    JsonOption,
    ServiceOption,
    ServicesConfigOption,
    TimeoutOption,
)
from parallax.cli.output import console, print_json, table
from parallax.cli.rows import WatchOption, seconds, watched
from parallax.client.client import OffsetClient
from parallax.client.pages import newest_moves
from parallax.errors import ParallaxError
from parallax.picture.text import name_of
from parallax.v1 import overview_pb2 as pb
from parallax.v1 import primaries_pb2

_LATE_LAG_MS = 60_000
_SYNC_LATE_MS = 60_000
"""The sync job tells every five seconds, and a cluster that is away costs a cycle some more."""


class Health(IntEnum):
    """How something is; the gravest is the exit code."""

    WELL = 0
    LOOK = 1
    """It works, and somebody should look at it."""
    BROKEN = 2


_STYLES = {Health.WELL: "green", Health.LOOK: "yellow", Health.BROKEN: "bold red"}
_WORDS = {Health.WELL: "well", Health.LOOK: "look", Health.BROKEN: "broken"}
_ROUTE_HEALTH = {
    pb.ROUTE_COPYING: Health.WELL,
    pb.ROUTE_WAITING: Health.LOOK,
    pb.ROUTE_STARTING: Health.LOOK,
    pb.ROUTE_STATE_UNKNOWN: Health.LOOK,
}


@dataclass(frozen=True, slots=True)
class StatusLine:
    """One line.

    Attributes:
        what: it is about.
        says: how that is.
        do: what to do, or which command tells more; empty: nothing.
    """

    health: Health
    what: str
    says: str
    do: str = ""


def status(
    config: ServicesConfigOption = None,
    service: ServiceOption = None,
    tls_ca: AuthorityOption = None,
    timeout_ms: TimeoutOption = TIMEOUT_MS,
    watch: WatchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show on one screen whether all is well: clusters, routes, the sync job, moves, drills.

    Exit code 0: all is well; 1: somebody should look at something; 2: something is broken, or nobody answers.
    """
    worst = Health.WELL

    def show() -> None:
        nonlocal worst
        found = looked(lambda: connect(config, service, tls_ca, timeout_ms))
        worst = max((item.health for item in found), default=Health.WELL)
        show_findings(found, console(), as_json=as_json)

    watched(watch, show)
    raise typer.Exit(int(worst))


def looked(opened: Callable[[], OffsetClient]) -> list[StatusLine]:
    """Everything that there is to say; nobody who answers is something to say, too."""
    found: list[StatusLine] = []
    with opened() as client:
        for what, look in (
            ("offset services", _regions),
            ("replication", _replication),
            ("sync job", _sync),
            ("moves", _moves),
            ("drills", _drills),
        ):
            try:
                found += look(client)
            except ParallaxError as error:
                found.append(StatusLine(Health.BROKEN, what, f"[{error.code}] {error}", "parallax doctor"))
    return found


def show_findings(found: list[StatusLine], out: Console, *, as_json: bool) -> None:
    """Write them, the gravest word last."""
    worst = max((item.health for item in found), default=Health.WELL)
    if as_json:
        values = [{**asdict(item), "health": _WORDS[item.health]} for item in found]
        print_json({"health": _WORDS[worst], "findings": values})
        return
    rows = table(" | ~what | ~how it is | ~what to do")
    for item in found:
        rows.add_row(Text(_WORDS[item.health], _STYLES[item.health]), item.what, item.says, item.do)
    out.print(rows)


def _regions(client: OffsetClient) -> Iterator[StatusLine]:
    answer = client.describe_regions()
    yield StatusLine(Health.WELL, "offset service", f"that of region {answer.answered_in} answers")
    for region in answer.regions:
        cluster = region.aggregate
        if region.HasField("aggregate") and cluster.health == primaries_pb2.AWAY:
            yield StatusLine(
                Health.BROKEN, cluster.cluster, f"is away: {cluster.problem}", "look at its brokers"
            )


def _replication(client: OffsetClient) -> Iterator[StatusLine]:
    after = ""
    while True:
        answer = client.list_replication(after=after)
        for route in answer.routes:
            yield _route(route)
        after = answer.next_after
        if not after:
            return


def _route(route: pb.RouteReplication) -> StatusLine:
    what = f"route {route.route}"
    health = _ROUTE_HEALTH.get(route.state, Health.BROKEN)
    word = (
        name_of(pb.RouteState.Name, route.state)
        .removeprefix("ROUTE_")
        .removeprefix("STATE_")
        .lower()
        .replace("_", " ")
    )
    lag = f", lag {route.lag_records:,}" if route.HasField("lag_records") else ""
    age = f", told {seconds(route.age_ms)} ago" if route.HasField("age_ms") else ""
    problems = "".join(f"; {problem}" for problem in route.problems[:3])
    if route.state == pb.ROUTE_PARTLY_STOPPED:
        do = f"parallax partitions '{route.route}' --stopped"
    elif route.state == pb.ROUTE_STATE_UNKNOWN:
        do = "no replicator has told of it: parallax replicate"
    elif route.state == pb.ROUTE_STARTING:
        do = "wait a moment: its replicator has just begun"
    elif health is Health.WELL and route.index_lag_ms > _LATE_LAG_MS:
        health, do = Health.LOOK, "its index is late, so answers are early: look at the store"
    elif health is Health.WELL and route.canary_late:
        health, do = (
            Health.LOOK,
            "a record that is written now does not arrive: look at the source, and at the replicator's /readyz",
        )
    else:
        do = "" if health is Health.WELL else "look at the replicator's log"
    late = f", the canary is late: none for {seconds(route.canary_age_ms)}" if route.canary_late else ""
    return StatusLine(health, what, f"{word}{lag}{late}{age}{problems}", do)


def _sync(client: OffsetClient) -> Iterator[StatusLine]:
    answer = client.list_sync_problems(limit=1)
    says = sync_job_line(answer)
    if not answer.HasField("job"):
        yield StatusLine(Health.LOOK, "sync job", says)
    elif answer.job.problem or answer.job.age_ms > _SYNC_LATE_MS:
        yield StatusLine(Health.BROKEN, "sync job", says, "look at its log")
    elif answer.job.groups_with_problems or answer.job.away:
        yield StatusLine(Health.LOOK, "sync job", says, "parallax sync problems")
    else:
        yield StatusLine(Health.WELL, "sync job", says)


def _moves(client: OffsetClient) -> Iterator[StatusLine]:
    found = newest_moves(client.list_moves)
    still = [item for item in found.moves if not item.ended]
    if found.more:
        says = (
            f"the newest {len(found.moves):,} alone were looked at: {len(still) or 'none'} of them under way"
        )
        yield StatusLine(Health.WELL, "moves", says, "parallax moves --limit 0 --filter ended=false")
    elif not still:
        yield StatusLine(Health.WELL, "moves", "none is under way")
    for move in still:
        running = move.state == "running"
        problem = f": {move.problem}" if move.problem else ""
        yield StatusLine(
            Health.LOOK,
            "move",
            f"{move.group}: {move.origin} to {move.target} is {move.state or 'unreadable'}{problem}",
            f"parallax moves watch {move.group}" if running else "run its command again to go on",
        )


def _drills(client: OffsetClient) -> Iterator[StatusLine]:
    drills = client.list_drills(limit=1).drills
    if not drills:
        yield StatusLine(Health.LOOK, "drills", "moving was never practised", "parallax drill")
        return
    well = drills[0].ending in {"passed", "running"}
    yield StatusLine(
        Health.WELL if well else Health.LOOK,
        "last drill",
        f"{drills[0].ending or 'unreadable'}{': ' if drills[0].problem else ''}{drills[0].problem}",
        "" if well else "parallax drills",
    )
