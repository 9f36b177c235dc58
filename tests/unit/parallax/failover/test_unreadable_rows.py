"""Moves where a newer release has left what this one can't read: of its group alone, and left as it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import Change
from parallax.errors import UnreadableRowError
from parallax.failover.drill.history import DRILLS, DrillRecord, keep, kept
from parallax.failover.facts import MoveKind
from parallax.failover.plan import Ending
from parallax.failover.rollback import plan_rollback
from parallax.failover.selection import groups_on, region_moves, ways_back
from parallax.v1 import primaries_pb2
from tests.memory.cql import MemoryKeyspace
from tests.unit.parallax.cli.test_failover import first_and_last, not_asked, run
from tests.worlds.failover_bench import BILLING, FRAUD, MAPS, Bench, region_bench
from tests.worlds.newer_release import of_group, rewrite_all, worlds_on
from tests.worlds.offset_world import TOPIC

__all__ = ["first_and_last", "not_asked", "run"]

Run = Callable[..., Any]
ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")
TABLES = ("group_progress", "primary_decisions", "operations")


@pytest.fixture
def keyspace(monkeypatch: pytest.MonkeyPatch) -> MemoryKeyspace:
    return worlds_on(monkeypatch)


@pytest.fixture
def bench(keyspace: MemoryKeyspace) -> Iterator[Bench]:
    assert not keyspace.bodies("group_progress")
    with region_bench() as made:
        yield made


def everything(_group: GroupName) -> bool:
    return True


@pytest.fixture
def moved(bench: Bench) -> Bench:
    """The three groups were moved to b by this release."""
    for move in region_moves(bench.outside, "a", "b", everything, MoveKind.PLANNED).values():
        assert bench.mover(drain_ms=1_000).move(move).ending is Ending.MOVED
    return bench


NEWER = [
    pytest.param("group_progress", {"format": 2}, id="progress"),
    pytest.param("primary_decisions", {"mode": "active_everywhere"}, id="mode"),
    pytest.param("primary_decisions", {"stage": "resting"}, id="stage"),
    pytest.param("primary_decisions", {"format": 2}, id="decision"),
    pytest.param("operations", {"format": 2}, id="operation"),
    pytest.param("operations", {"step": "verified"}, id="step"),
]


@pytest.mark.parametrize(("table", "values"), NEWER)
def test_a_groups_way_back_is_refused_and_all_others_go(
    moved: Bench, keyspace: MemoryKeyspace, table: str, values: dict[str, Any]
) -> None:
    rewrite_all(keyspace, table, FRAUD, **values)
    before = _stored(keyspace)
    untold: dict[GroupName, str] = {}

    back = ways_back(moved.outside, "a", everything, MoveKind.PLANNED, untold.__setitem__)

    endings = {group: moved.mover(drain_ms=1_000).move(move) for group, move in back.items()}
    problems = untold | {group: result.problem for group, result in endings.items() if result.problem}
    assert problems.keys() == {FRAUD}
    assert "[UNREADABLE_ROW] " in problems[FRAUD] or "[INVARIANT] " in problems[FRAUD]
    assert f"{table} of group 'fraud', " in problems[FRAUD]
    assert {group: result.ending for group, result in endings.items() if group != FRAUD} == {
        BILLING: Ending.MOVED,
        MAPS: Ending.MOVED,
    }
    assert (
        _stored(keyspace) == before
    )  # nothing was written for the group, nor in the place of what can't be read


def _stored(keyspace: MemoryKeyspace) -> dict[str, dict[Any, str]]:
    return {
        name: {key: body for key, body in keyspace.bodies(name).items() if key[0] == FRAUD} for name in TABLES
    }


@pytest.mark.parametrize(("table", "values"), NEWER)
def test_names_that_were_added_hold_up_nothing(
    moved: Bench, keyspace: MemoryKeyspace, table: str, values: dict[str, Any]
) -> None:
    rewrite_all(keyspace, table, FRAUD, **{f"new_{name}": value for name, value in values.items()})
    back = ways_back(moved.outside, "a", everything, MoveKind.PLANNED, lambda *said: pytest.fail(str(said)))
    assert {
        group: moved.mover(drain_ms=1_000).move(move).ending for group, move in back.items()
    } == dict.fromkeys((BILLING, FRAUD, MAPS), Ending.MOVED)


def test_a_mode_that_only_the_service_knows_holds_up_no_other_group(
    moved: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = moved.client.list_primaries

    def of_a_newer_service() -> primaries_pb2.ListPrimariesResponse:
        response = whole()
        for item in response.primaries:
            if item.group == FRAUD:
                item.decision.mode = 17  # type: ignore[assignment]
        return response

    monkeypatch.setattr(moved.client, "list_primaries", of_a_newer_service)
    back = ways_back(moved.outside, "a", everything, MoveKind.PLANNED, lambda *said: pytest.fail(str(said)))
    assert list(back) == [BILLING, FRAUD, MAPS]
    # A group that nothing but a decision knows is not forgotten either.
    moved.decide(Change(GroupName("new"), RegionName("b")))
    assert groups_on(moved.outside, ON_B, everything, to=ON_A)[-2:] == ["maps", "new"]


def test_an_older_move_that_cant_be_read_is_none_to_go_back_from(
    moved: Bench, keyspace: MemoryKeyspace
) -> None:
    """The newest one counts, and what lies behind it is not looked at."""
    for origin, target in (("b", "a"), ("a", "b")):
        assert moved.move(origin, target, group=FRAUD, drain_ms=1_000).ending is Ending.MOVED
    oldest = of_group(keyspace, "operations", FRAUD)[0]
    keyspace.rewrite("operations", oldest, '{"format": 2}')
    back = ways_back(moved.outside, "a", everything, MoveKind.PLANNED, lambda *said: pytest.fail(str(said)))
    assert FRAUD in back


@pytest.mark.usefixtures("moved")
def test_the_command_names_what_it_left_out(keyspace: MemoryKeyspace, run: Run) -> None:
    rewrite_all(keyspace, "operations", FRAUD, format=2)
    plain = run("failback", "--region", "a")
    assert plain.exit_code == 1
    assert "group fraud was left out: [UNREADABLE_ROW] operations of group 'fraud'" in plain.stdout.replace(
        "\n", " "
    )

    result = run("failback", "--region", "a", "--execute", "--json")
    assert result.exit_code == 1
    told = {item["group"]: item.get("ending") or item["problem"] for item in json.loads(result.stdout)}
    assert {told[BILLING], told[MAPS]} == {"moved"}
    assert "format 2, and this release reads formats up to 1" in told[FRAUD]


def test_nothing_is_decided_after_a_decision_that_cant_be_read(
    moved: Bench, keyspace: MemoryKeyspace
) -> None:
    before = rewrite_all(keyspace, "primary_decisions", FRAUD, mode="active_everywhere")
    with pytest.raises(UnreadableRowError, match=r"primary_decisions of group 'fraud'.*active_everywhere"):
        moved.decide(Change(FRAUD, RegionName("a")))
    with pytest.raises(UnreadableRowError):
        moved.decide(Change(FRAUD, RegionName("a"), disaster=True))
    assert {
        key: body for key, body in keyspace.bodies("primary_decisions").items() if key[0] == FRAUD
    } == before


@pytest.mark.parametrize("table", ["group_progress", "operations"])
def test_a_rollback_is_refused_before_anything_is_changed(
    moved: Bench, keyspace: MemoryKeyspace, table: str
) -> None:
    rewrite_all(keyspace, table, FRAUD, format=2)
    calls = len(moved.client.calls)
    with pytest.raises(UnreadableRowError, match=f"{table} of group 'fraud'"):
        plan_rollback(moved.outside, FRAUD, disaster=False)
    assert moved.client.calls[calls:] == []
    assert plan_rollback(moved.outside, MAPS, disaster=False).obstacles == ()


def test_verify_says_of_which_partition_it_can_say_nothing(moved: Bench, keyspace: MemoryKeyspace) -> None:
    rewrite_all(keyspace, "group_progress", FRAUD, format=2)
    (partition,) = (
        item for item in moved.verifier().verify(FRAUD).partitions if item.topic_partition == (TOPIC, 0)
    )
    assert "group_progress of group 'fraud', trips-0" in " ".join(partition.unknown)
    assert not any(
        "group_progress" in words
        for item in moved.verifier().verify(MAPS).partitions
        for words in item.unknown
    )


def test_a_drill_of_a_newer_release_is_left_out_of_the_history(
    bench: Bench, keyspace: MemoryKeyspace
) -> None:
    notes = bench.outside.journal.notes
    for number in (1, 2):
        keep(notes, DrillRecord(f"drill-{number}", GroupName("g"), "t", "a", "b", number, number))
    rewrite_all(keyspace, "operations", DRILLS)
    assert [record.drill_id for record in kept(notes)] == ["drill-2", "drill-1"]
    newest = of_group(keyspace, "operations", DRILLS)[-1]
    keyspace.rewrite("operations", newest, '{"format": 2}')
    assert [record.drill_id for record in kept(notes)] == ["drill-1"]
