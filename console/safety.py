"""Is it safe to fail over from a region to another one now? What speaks against it, each with what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from console.groups import optional
from console.listing import age
from console.lists import OLD_MS, ROUTE_STATES
from parallax.client.pages import NewestMoves
from parallax.domain.ids import RegionName, Route, aggregate_cluster
from parallax.v1 import overview_pb2 as pb
from parallax.v1 import primaries_pb2

LATE_MS = 60_000
"""A route or an index that is further behind than this is felt at a failover."""
DRILLED_WITHIN_MS = 31 * 86_400_000
"""A way that was last practised longer ago counts as not practised."""


class Safety(IntEnum):
    """The gravest of the reasons decides."""

    YES = 0
    """What is told all the same is what a failover costs in the best of cases."""
    CARE = 1
    """Groups lose nothing, but something will be late, read again or left to do by hand."""
    UNKNOWN = 2
    """What would tell is not there."""
    NO = 3


WORDS = {
    Safety.YES: ("safe", "good"),
    Safety.CARE: ("with care", "warn"),
    Safety.UNKNOWN: ("not known", "warn"),
    Safety.NO: ("not safe", "bad"),
}


@dataclass(frozen=True, slots=True)
class Objection:
    """Something that speaks against a failover, and what follows from it."""

    verdict: Safety
    text: str


@dataclass(frozen=True, slots=True)
class FailoverWay:
    """From a region to another one."""

    origin: str
    target: str
    reasons: tuple[Objection, ...]

    @property
    def verdict(self) -> Safety:
        """The gravest."""
        return max((reason.verdict for reason in self.reasons), default=Safety.YES)

    @property
    def words(self) -> tuple[str, str]:
        """The verdict for people, and its tone."""
        return WORDS[self.verdict]


@dataclass(frozen=True, slots=True)
class Findings:
    """What the services tell; None: it could not be had.

    Attributes:
        regions: the regions and their clusters.
        routes: how replication is.
        primaries: what was decided of groups.
        moves: the newest moves.
        drills: the newest drills.
        sync: how the sync job is.
    """

    regions: primaries_pb2.DescribeRegionsResponse
    routes: Sequence[pb.RouteReplication] | None
    primaries: Sequence[primaries_pb2.Primary] | None
    moves: NewestMoves | None
    drills: Sequence[pb.DrillSummary] | None
    sync: pb.ListSyncProblemsResponse | None


def ways(seen: Findings, now_ms: int) -> tuple[FailoverWay, ...]:
    """Every way between two regions that have aggregate clusters."""
    names = [item.region for item in seen.regions.regions if item.HasField("aggregate")]
    return tuple(
        FailoverWay(
            origin,
            target,
            tuple(sorted(_reasons(seen, origin, target, now_ms), key=lambda item: -item.verdict)),
        )
        for origin in names
        for target in names
        if origin != target
    )


def _reasons(seen: Findings, origin: str, target: str, now_ms: int) -> Iterator[Objection]:
    (region,) = (item for item in seen.regions.regions if item.region == target)
    cluster = aggregate_cluster(RegionName(target))
    if region.aggregate.health == primaries_pb2.AWAY:
        yield Objection(Safety.NO, f"{cluster} does not answer: no group can go on there.")
    yield from _of_routes(seen.routes, origin, target)
    yield from _of_groups(seen.primaries)
    yield from _of_moves(seen.moves)
    yield from _of_sync(seen.sync, cluster)
    yield from _of_drills(seen.drills, origin, target, now_ms)


def _of_routes(routes: Sequence[pb.RouteReplication] | None, origin: str, target: str) -> Iterator[Objection]:
    if routes is None:
        yield Objection(Safety.UNKNOWN, "How replication is could not be asked.")
        return
    into = [item for item in routes if Route.parse(item.route).target == target]
    if not into:
        yield Objection(Safety.NO, f"No route leads into region {target}.")
    for item in into:
        word, _ = ROUTE_STATES.get(item.state, ("unknown", ""))
        if item.state == pb.ROUTE_STATE_UNKNOWN:
            yield Objection(Safety.UNKNOWN, f"Nothing is told of route {item.route}: is its replicator up?")
        elif item.state == pb.ROUTE_PARTLY_STOPPED:
            yield Objection(
                Safety.CARE,
                f"{optional(item, 'partitions_stopped') or 'Some'} partitions of route {item.route} are stopped: groups wait there "
                "for what is not copied.",
            )
        elif item.state != pb.ROUTE_COPYING:
            yield Objection(
                Safety.CARE,
                f"Route {item.route} is {word}: what it has not copied and indexed is read again, or comes later.",
            )
        lag = optional(item, "lag_records")
        if lag and Route.parse(item.route).source == origin:
            yield Objection(
                Safety.YES,
                f"Records of region {origin} that are not in region {target} yet: {lag:,}. If {origin} is gone, they come when it is back.",
            )
        latency = optional(item, "latency_ms")
        if latency is not None and latency > LATE_MS:
            yield Objection(
                Safety.CARE, f"Route {item.route} is late: its newest records took {age(latency)}."
            )
        behind = optional(item, "index_lag_ms")
        if behind is not None and behind > LATE_MS:
            yield Objection(
                Safety.CARE,
                f"The index of route {item.route} is {age(behind)} behind: so much may be read again.",
            )


def _of_groups(primaries: Sequence[primaries_pb2.Primary] | None) -> Iterator[Objection]:
    if primaries is None:
        yield Objection(Safety.UNKNOWN, "Where groups are primary could not be asked.")
        return
    dual = [item.group for item in primaries if item.dual_active]
    if dual:
        yield Objection(
            Safety.NO, f"Regions decided differently on {_some(dual)}: decide first (`parallax primary`)."
        )
    unread = [item.group for item in primaries if item.problem]
    if unread:
        yield Objection(Safety.UNKNOWN, f"What was decided on {_some(unread)} can't be read by this release.")
    moving = [
        item.group
        for item in primaries
        if item.HasField("decision") and item.decision.stage == primaries_pb2.MOVING and not item.dual_active
    ]
    if moving:
        yield Objection(Safety.CARE, f"{_some(moving)} is on the move, and nobody consumes: see its move.")


def _of_moves(found: NewestMoves | None) -> Iterator[Objection]:
    if found is None:
        yield Objection(Safety.UNKNOWN, "Which moves are open could not be asked.")
        return
    if found.more:
        yield Objection(
            Safety.YES, f"The newest {len(found.moves):,} moves were looked at: older ones may be open, too."
        )
    running = [item.group for item in found.moves if item.state == "running"]
    if running:
        yield Objection(Safety.CARE, f"A move of {_some(running)} is under way.")
    opened = [item.group for item in found.moves if not item.ended and item.state != "running"]
    if opened:
        yield Objection(
            Safety.CARE,
            f"A move of {_some(opened)} was interrupted: run it again to go on with it, or roll it back.",
        )


def _of_sync(sync: pb.ListSyncProblemsResponse | None, cluster: str) -> Iterator[Objection]:
    if sync is None or not sync.HasField("job"):
        yield Objection(
            Safety.UNKNOWN,
            "The sync job has told nothing: plain consumers may find no offsets, or old ones.",
        )
        return
    job = sync.job
    if job.age_ms > OLD_MS:
        yield Objection(
            Safety.CARE,
            f"The sync job told nothing for {age(job.age_ms)}: plain consumers would resume at offsets as old as that.",
        )
    elif job.problem:
        yield Objection(Safety.CARE, f"The sync job's last cycle failed: {job.problem}")
    if cluster in job.away:
        yield Objection(Safety.CARE, f"The sync job can't reach {cluster}: offsets published there are old.")
    if job.groups_with_problems:
        yield Objection(
            Safety.CARE,
            f"Offsets of {job.groups_with_problems:,} groups can't be published: see the sync problems.",
        )


def _of_drills(
    drills: Sequence[pb.DrillSummary] | None, origin: str, target: str, now_ms: int
) -> Iterator[Objection]:
    if drills is None:
        yield Objection(Safety.UNKNOWN, "When it was last practised could not be asked.")
        return
    there = {aggregate_cluster(RegionName(origin)), origin}, {aggregate_cluster(RegionName(target)), target}
    own = [item for item in drills if {item.origin, item.to} & there[0] and {item.origin, item.to} & there[1]]
    newest = max(own, key=lambda item: item.started_at_ms, default=None)
    if newest is None:
        yield Objection(Safety.CARE, "Nobody has practised it: `parallax drill` does.")
    elif newest.ending in ("failed", "interrupted"):
        yield Objection(Safety.CARE, f"The last drill {newest.ending}: {newest.problem or 'see the drills'}")
    elif now_ms - newest.started_at_ms > DRILLED_WITHIN_MS:
        yield Objection(Safety.CARE, f"It was last practised {age(now_ms - newest.started_at_ms)} ago.")


def _some(groups: Iterable[str], most: int = 3) -> str:
    names = list(dict.fromkeys(groups))
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")
