"""The regions with their clusters and services, and where groups are primary."""

from __future__ import annotations

from console.groups import MODES
from console.listing import Cell, Choice, Column, Listing, age, columns, link, moment
from console.lists import PAGE, Asked, none_of
from console.reads import Reads
from parallax.errors import ParallaxError
from parallax.v1 import primaries_pb2 as pb

_HEALTH = {pb.UP: ("up", "good"), pb.AWAY: ("away", "bad"), pb.NOT_ASKED: ("not asked", "dim")}
_STAGES = {pb.SETTLED: "settled", pb.MOVING: "moving"}
PRIMARY_COLUMNS: tuple[Column, ...] = columns(
    "group Group | region Region | =cluster Cluster | mode Mode | stage Stage | >fencing_number Fencing number"
    " | =decided_at Decided at | decided_in Decided in | reason Reason | state State"
)


def regions(reads: Reads) -> Listing:
    """Every region's clusters and services, and whether they answer the service that was asked."""
    answer = reads.describe_regions()
    return Listing(
        columns=columns(
            "region Region | aggregate Aggregate | aggregate_servers Servers | regional Regional | regional_servers Servers"
            " | service Offset service"
        ),
        rows=tuple(_region(item, answer.answered_in) for item in answer.regions),
        empty="The configuration has no region.",
        path="/regions",
        notes=(f"Told by the service of region {answer.answered_in}.",) if answer.answered_in else (),
    )


def able(reads: Reads) -> list[str]:
    """The regions that groups can move between; none where nobody answers."""
    try:
        described = reads.describe_regions()
    except ParallaxError:
        return []
    return [item.region for item in described.regions if item.HasField("aggregate")]


def _region(item: pb.RegionDescription, answered_in: str) -> tuple[Cell, ...]:
    return (
        Cell(item.region, note="answers" if item.region == answered_in else ""),
        *_cluster(item.aggregate if item.HasField("aggregate") else None),
        *_cluster(item.regional if item.HasField("regional") else None),
        Cell(item.service_grpc if item.HasField("service_grpc") else None),
    )


def _cluster(item: pb.ClusterDescription | None) -> tuple[Cell, Cell]:
    if item is None:
        return Cell(None), Cell(None)
    word, tone = _HEALTH.get(item.health, ("unknown", "dim"))
    return Cell(word, tone=tone, note=item.problem), Cell(item.bootstrap_servers)


def primaries(reads: Reads, asked: Asked) -> Listing:
    """Every group with a decision."""
    answer = reads.list_primaries(prefix=asked.prefix, after=asked.after, limit=PAGE)
    return Listing(
        columns=PRIMARY_COLUMNS,
        rows=tuple(primary_cells(item, asked.now_ms) for item in answer.primaries),
        empty=none_of(
            asked.prefix,
            "group with a decision",
            "Nothing was ever decided: groups' offsets follow where they make progress.",
        ),
        command="" if asked.prefix else "parallax primary GROUP --set REGION",
        path="/primaries",
        parameters=asked.parameters("prefix"),
        next_after=answer.next_after,
        choices=(Choice("prefix", "Names that begin with", asked.prefix),),
    )


def primary_cells(item: pb.Primary, now_ms: int) -> tuple[Cell, ...]:
    """A group's decision, as `PRIMARY_COLUMNS` say; without one all is unknown."""
    group = Cell(item.group, link=link("/group", name=item.group))
    if not item.HasField("decision"):
        unreadable = Cell(item.problem or "no decision", tone="bad" if item.problem else "dim")
        return (group, *(Cell(None) for _ in PRIMARY_COLUMNS[2:]), unreadable)
    made = item.decision
    state = (
        Cell("dual active", tone="bad")
        if item.dual_active
        else Cell("disaster" if made.disaster else "agreed")
    )
    return (
        group,
        Cell(made.region),
        Cell(made.cluster if made.HasField("cluster") else None),
        Cell(MODES.get(made.mode)),
        Cell(_STAGES.get(made.stage), tone="warn" if made.stage == pb.MOVING else ""),
        Cell(made.fencing_number, text=str(made.fencing_number)),
        Cell(
            made.decided_at_ms,
            text=moment(made.decided_at_ms),
            note=f"{age(max(0, now_ms - made.decided_at_ms))} ago",
        ),
        Cell(made.decided_in),
        Cell(made.reason),
        Cell(item.problem, tone="bad") if item.problem else state,
    )
