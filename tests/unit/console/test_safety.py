"""Whether it is safe to fail over: each thing that speaks against it, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.safety import DRILLED_WITHIN_MS, LATE_MS, FailoverWay, Findings, Safety, ways
from parallax.client.pages import NewestMoves
from parallax.v1 import overview_pb2 as pb
from parallax.v1 import primaries_pb2
from tests.worlds.console_reads import NOW_MS, decided, lists_of, two_regions


def healthy() -> Findings:
    told: dict[str, Any] = lists_of("billing")
    job = pb.SyncJob(groups=3, age_ms=500)
    drills = [
        pb.DrillSummary(
            origin="aggregate-a", to="aggregate-b", ending="passed", started_at_ms=NOW_MS - 3_600_000
        )
    ]
    return Findings(
        regions=two_regions(),
        routes=list(told["list_replication"].routes),
        primaries=[decided("billing")],
        moves=NewestMoves(list(told["list_moves"].moves), more=False),
        drills=drills,
        sync=pb.ListSyncProblemsResponse(job=job),
    )


def way(seen: Findings, origin: str = "a", target: str = "b") -> FailoverWay:
    (found,) = [each for each in ways(seen, NOW_MS) if (each.origin, each.target) == (origin, target)]
    return found


def with_route(route: str, **changes: Any) -> Findings:
    seen = healthy()
    for item in seen.routes or ():
        if item.route == route:
            for name, value in changes.items():
                setattr(item, name, value)
    return seen


def open_move(state: str) -> NewestMoves:
    return NewestMoves([pb.MoveSummary(group="late", step="fenced", state=state)], more=False)


def dual() -> primaries_pb2.Primary:
    return decided("billing", dual_active=True)


def moving() -> primaries_pb2.Primary:
    found = decided("billing")
    found.decision.stage = primaries_pb2.MOVING
    return found


def away() -> Findings:
    seen = healthy()
    seen.regions.regions[1].aggregate.health = primaries_pb2.AWAY
    return seen


def with_job(**fields: Any) -> Findings:
    return replace(healthy(), sync=pb.ListSyncProblemsResponse(job=pb.SyncJob(**fields)))


def with_drill(**fields: Any) -> Findings:
    made = {"origin": "aggregate-b", "to": "aggregate-a", "started_at_ms": NOW_MS, "ending": "passed"}
    return replace(healthy(), drills=[pb.DrillSummary(**(made | fields))])


def test_where_all_is_well_there_is_no_reason() -> None:
    found = ways(healthy(), NOW_MS)
    assert [(each.origin, each.target, each.verdict, each.reasons) for each in found] == [
        ("a", "b", Safety.YES, ()),
        ("b", "a", Safety.YES, ()),
    ]
    assert found[0].words == ("safe", "good")


CASES: list[tuple[Findings, Safety, str]] = [
    (away(), Safety.NO, "aggregate-b does not answer"),
    (replace(healthy(), routes=[]), Safety.NO, "No route leads into region b"),
    (replace(healthy(), primaries=[dual()]), Safety.NO, "decided differently on billing"),
    (replace(healthy(), routes=None), Safety.UNKNOWN, "replication"),
    (replace(healthy(), primaries=None), Safety.UNKNOWN, "primary"),
    (replace(healthy(), moves=None), Safety.UNKNOWN, "moves"),
    (replace(healthy(), drills=None), Safety.UNKNOWN, "practised"),
    (replace(healthy(), sync=None), Safety.UNKNOWN, "told nothing"),
    (replace(healthy(), sync=pb.ListSyncProblemsResponse()), Safety.UNKNOWN, "told nothing"),
    (
        replace(healthy(), primaries=[primaries_pb2.Primary(group="x", problem="newer")]),
        Safety.UNKNOWN,
        "can't be read",
    ),
    (with_route("a->b", state=pb.ROUTE_STATE_UNKNOWN), Safety.UNKNOWN, "Nothing is told of route a->b"),
    (with_route("b->b", state=pb.ROUTE_SILENT), Safety.CARE, "Route b->b is silent"),
    (with_route("a->b", state=pb.ROUTE_NOT_RUNNING), Safety.CARE, "Route a->b is not running"),
    (
        with_route("a->b", state=pb.ROUTE_PARTLY_STOPPED, partitions_stopped=2),
        Safety.CARE,
        "2 partitions of route a->b",
    ),
    (
        with_route("a->b", lag_records=1_500),
        Safety.YES,
        "Records of region a that are not in region b yet: 1,500.",
    ),
    (with_route("a->b", index_lag_ms=LATE_MS + 1), Safety.CARE, "index of route a->b is 1 min behind"),
    (with_route("b->b", latency_ms=LATE_MS + 1), Safety.CARE, "Route b->b is late"),
    (replace(healthy(), primaries=[moving()]), Safety.CARE, "billing is on the move"),
    (
        replace(healthy(), moves=open_move("interrupted")),
        Safety.CARE,
        "A move of late was interrupted",
    ),
    (
        replace(healthy(), moves=open_move("running")),
        Safety.CARE,
        "A move of late is under way",
    ),
    (replace(healthy(), moves=NewestMoves([], more=True)), Safety.YES, "older ones may be open"),
    (with_job(age_ms=90_000), Safety.CARE, "told nothing for 1 min 30 s"),
    (with_job(problem="no host"), Safety.CARE, "last cycle failed: no host"),
    (with_job(away=["aggregate-b"]), Safety.CARE, "can't reach aggregate-b"),
    (with_job(groups_with_problems=4), Safety.CARE, "4 groups can't be published"),
    (replace(healthy(), drills=[]), Safety.CARE, "Nobody has practised it"),
    (with_drill(ending="failed", problem="2 lost"), Safety.CARE, "last drill failed: 2 lost"),
    (with_drill(started_at_ms=NOW_MS - DRILLED_WITHIN_MS - 1), Safety.CARE, "last practised 31 d ago"),
]


@pytest.mark.parametrize(("seen", "verdict", "words"), CASES)
def test_each_thing_speaks_against_it_once(seen: Findings, verdict: Safety, words: str) -> None:
    found = way(seen)
    assert len(found.reasons) == 1
    assert words in found.reasons[0].text
    assert found.verdict is found.reasons[0].verdict is verdict


@pytest.mark.parametrize(
    "seen",
    [
        away(),
        with_route("a->b", latency_ms=2 * LATE_MS),
        with_route("a->b", state=pb.ROUTE_SILENT),
        with_job(away=["aggregate-b"]),
    ],
)
def test_the_other_way_is_another_matter(seen: Findings) -> None:
    assert way(seen, "b", "a").verdict is Safety.YES


@pytest.mark.parametrize(
    "seen",
    [
        with_route("b->b", lag_records=1_500),  # region b's own records do not get lost with region a
        with_route("a->b", index_lag_ms=LATE_MS),
        with_route("a->b", latency_ms=LATE_MS),
        with_job(age_ms=30_000),
        with_drill(),  # a drill goes there and back
        with_drill(started_at_ms=NOW_MS - DRILLED_WITHIN_MS),
    ],
)
def test_what_is_within_its_bound_says_nothing(seen: Findings) -> None:
    assert way(seen).reasons == ()


def test_the_gravest_comes_first_and_decides() -> None:
    seen = replace(away(), primaries=[moving()], sync=None)
    found = way(seen)
    assert [reason.verdict for reason in found.reasons] == [Safety.NO, Safety.UNKNOWN, Safety.CARE]
    assert found.words == ("not safe", "bad")


def test_a_region_alone_has_no_way() -> None:
    seen = healthy()
    del seen.regions.regions[1]
    assert ways(seen, NOW_MS) == ()
