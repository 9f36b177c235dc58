"""What a move's id says, and what is agreed to with a plan."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import Change
from parallax.errors import NotFoundError
from parallax.failover.facts import Move, MoveKind
from parallax.failover.orders import MoveOrder, digest_of, order_of
from parallax.failover.plan import GapKind, MoveGap
from tests.worlds.failover_bench import P0, Bench, a_move, failover_bench, two_sources
from tests.worlds.offset_world import GROUP

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


@given(NAMES, NAMES, NAMES, NAMES, st.sampled_from(MoveKind), st.booleans(), st.integers(0, 2**62))
def test_an_id_says_all_of_its_move(
    group: str,
    origin: str,
    target: str,
    region: str,
    kind: MoveKind,
    gaps: bool,  # noqa: FBT001 - drawn
    at_ms: int,
) -> None:
    move = Move(GroupName(group), ClusterName(origin), ClusterName(target), RegionName(region), kind)
    order = MoveOrder(move, gaps, at_ms)
    assert order_of(order.move_id) == order
    assert set(order.move_id) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def written(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "move_id",
    [
        "",
        "x",
        "é",
        written("{}"),
        written('["g","a","b","b","planned",false]'),
        written('["g","a","b","b","later",false,1]'),
        written('["g","a","b","b","planned",0,1]'),
        written('["g","a","b","b","planned",false,true]'),
        written('["g", "a","b","b","planned",false,1]'),
        written('["\\ud800","a","b","b","planned",false,1]'),
        written("[" * 3_000),
        "A" * 5_000,
    ],
)
def test_other_text_is_no_id(move_id: str) -> None:
    with pytest.raises(NotFoundError, match="no move has the id"):
        order_of(move_id)


CHANGES: Mapping[str, tuple[bool, Callable[[Bench], object]]] = {
    "the group goes on": (False, lambda bench: bench.put("a", 17, GROUP)),
    "more is copied": (False, lambda bench: bench.world.copy("a", "b", 5)),
    "somebody decides": (True, lambda bench: bench.decide(Change(GROUP, RegionName("a")))),
    "retention takes what is not consumed": (True, lambda bench: bench.world.trim("b", 19)),
    "it consumes another partition": (True, lambda bench: bench.put("a", 3, GROUP, 1)),
    "it has members at the target": (True, lambda bench: _members(bench, 2)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_agreed_to_changes_with_what_matters(name: str) -> None:
    changed, change = CHANGES[name]
    with failover_bench(partitions=2) as bench:
        two_sources(bench.world, (0, 1))
        bench.put("a", 15, GROUP)
        mover, move = bench.mover(), a_move("a", "b")
        before = digest_of(mover.plan(move), accept_gaps=False)
        bench.world.now_ms += 5_000
        change(bench)
        assert (digest_of(mover.plan(move), accept_gaps=False) != before) is changed


def test_another_way_is_another_digest() -> None:
    with failover_bench() as bench:
        two_sources(bench.world)
        bench.put("a", 15, GROUP)
        plan, move = bench.mover().plan(a_move("a", "b")), a_move("a", "b")
        other = replace(plan, facts=replace(plan.facts, move=replace(move, kind=MoveKind.DISASTER)))
        found = {digest_of(item, accept_gaps=gaps) for item in (plan, other) for gaps in (True, False)}
        assert len(found) == 4


def test_why_records_would_be_left_out_is_agreed_to_and_how_it_is_said_is_not() -> None:
    with failover_bench() as bench:
        two_sources(bench.world)
        bench.put("a", 15, GROUP)
        plan = bench.mover().plan(a_move("a", "b"))
        gaps = [
            (),
            *((MoveGap(P0, kind, "gone"),) for kind in GapKind),
            tuple(MoveGap(P0, kind, "gone") for kind in GapKind),
        ]
        found = {digest_of(replace(plan, gaps=item), accept_gaps=True) for item in gaps}
        assert len(found) == len(gaps)
        again = {
            digest_of(replace(plan, gaps=(MoveGap(P0, kind, "gone by now"),)), accept_gaps=True)
            for kind in GapKind
        }
        assert again < found


def _members(bench: Bench, count: int) -> None:
    bench.put("b", 1, GROUP)
    bench.writer("b").members[GROUP] = count
