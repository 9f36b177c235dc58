"""Groups that stand still are looked at in turn, however many they are."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parallax.domain.ids import ClusterName, GroupName
from syncjob import idle
from syncjob.idle import (
    HOLDS_ALONE_MS,
    LATELY_MS,
    LOOKS_PER_S,
    MOST_READS_PER_S,
    READS_PER_S,
    Sight,
    Standing,
)

SIGHT = Sight(None, {}, {}, {}, frozenset(), complete=True)
STEP_MS = 1_000


def looks(groups: int, steps: int) -> list[list[GroupName]]:
    """Which groups are looked at in each cycle of one second; all of them before the first."""
    standing = Standing()
    names = [GroupName(f"group-{number:05}") for number in range(groups)]
    standing.begin(0)
    for name in names:
        standing.keep(name, SIGHT, [], 0)
    found = []
    for step in range(1, steps + 1):
        now_ms = step * STEP_MS
        turn = standing.begin(now_ms)
        looked = [name for name in turn.order if standing.get(name, SIGHT, now_ms) is None]
        for name in looked:
            standing.keep(name, SIGHT, [], now_ms)
        found.append(looked)
    return found


def test_few_groups_are_looked_at_when_it_is_time() -> None:
    cycles = looks(LOOKS_PER_S, 2 * HOLDS_ALONE_MS // STEP_MS)
    assert [len(looked) for looked in cycles if looked] == [LOOKS_PER_S] * 2
    assert cycles[HOLDS_ALONE_MS // STEP_MS - 1]


def test_many_groups_take_turns_and_none_is_left_out() -> None:
    groups, began = 40 * LOOKS_PER_S, HOLDS_ALONE_MS // STEP_MS - 1
    cycles = looks(groups, began + 120)
    assert {len(looked) for looked in cycles[began:]} == {LOOKS_PER_S}
    for turn in range(3):  # each of them once in every forty seconds
        begin = began + 40 * turn
        assert len({name for looked in cycles[begin : begin + 40] for name in looked}) == groups


def test_a_group_that_waits_for_its_turn_and_looks_different_is_looked_at() -> None:
    standing, late_ms = Standing(), HOLDS_ALONE_MS + STEP_MS
    names = [GroupName(f"group-{number}") for number in range(LOOKS_PER_S + 1)]
    standing.begin(HOLDS_ALONE_MS)
    for name in names:
        standing.keep(name, SIGHT, [], 0)
    standing.begin(late_ms)
    changed = Sight(None, {}, {}, {}, frozenset(), complete=False)
    waiting = names[-1]
    assert standing.get(waiting, SIGHT, late_ms) is not None
    assert standing.get(waiting, changed, late_ms) is None


def reads(groups: int, steps: int) -> list[set[GroupName]]:
    """Which groups are read in each cycle of one second."""
    standing = Standing()
    names = {GroupName(f"group-{number:05}") for number in range(groups)}
    standing.begin(0)
    for name in names:
        standing.keep(name, SIGHT, [], 0)
    found = []
    for step in range(1, steps + 1):
        now_ms = step * STEP_MS
        read = set(standing.begin(now_ms).order)
        for name in read:
            if standing.get(name, SIGHT, now_ms) is None:
                standing.keep(name, SIGHT, [], now_ms)
        found.append(read)
    return found


def test_few_groups_are_read_in_every_cycle() -> None:
    assert {len(read) for read in reads(READS_PER_S, 10)} == {READS_PER_S}


def test_many_groups_are_read_in_turn_and_none_is_left_out() -> None:
    turns, groups = 5, 5 * READS_PER_S
    cycles = reads(groups, 4 * turns)
    assert {len(read) for read in cycles} == {READS_PER_S}
    for begin in range(len(cycles) - turns + 1):
        assert len(set().union(*cycles[begin : begin + turns])) == groups


@pytest.mark.parametrize(
    ("groups", "a_cycle", "turns"),
    [(10_000, READS_PER_S, 10), (15_000, 1_500, 10), (20_000, MOST_READS_PER_S, 10), (30_000, 2_000, 15)],
)
def test_of_very_many_more_are_read_and_each_within_a_bounded_time(
    groups: int, a_cycle: int, turns: int
) -> None:
    cycles = reads(groups, turns)
    assert {len(read) for read in cycles} == {a_cycle}
    assert len(set().union(*cycles)) == groups


def read_after(took_ms: int, *, interval_ms: int = STEP_MS) -> int:
    """How many of 10,000 groups that stand are read in a cycle that begins so long after the last one."""
    standing = Standing(interval_ms)
    standing.begin(0)
    for number in range(10_000):
        standing.keep(GroupName(f"group-{number:05}"), SIGHT, [], 0)
    return len(standing.begin(took_ms).order)


def test_a_late_cycle_reads_little_more_so_that_the_next_one_is_not_later() -> None:
    assert read_after(1_500) == 1.5 * READS_PER_S
    assert read_after(2_000) == read_after(60_000) == 2 * READS_PER_S


def test_where_cycles_are_far_apart_each_reads_as_many_as_it_has_been_time_for() -> None:
    assert read_after(5_000, interval_ms=5_000) == 5 * READS_PER_S
    assert read_after(1, interval_ms=100) == 200


def a_thousand_wait(standing: Standing) -> list[GroupName]:
    """Twice as many groups as are read in a cycle stand."""
    names = [GroupName(f"group-{number:05}") for number in range(2 * READS_PER_S)]
    standing.begin(0)
    for name in names:
        standing.keep(name, SIGHT, [], 0)
    return names


def test_a_group_that_has_moved_is_read_in_every_cycle_for_a_while_though_it_stands_again() -> None:
    standing, moving = Standing(), GroupName("moving")
    a_thousand_wait(standing)
    standing.looked(moving, 0)
    standing.moved(moving, 0)
    rested = []
    for step in range(1, 2 * LATELY_MS // STEP_MS):
        now_ms = step * STEP_MS
        turn = standing.begin(now_ms)
        if moving in turn.resting:
            rested.append(now_ms)
        for name in turn.order:
            if standing.get(name, SIGHT, now_ms) is None:
                standing.keep(name, SIGHT, [], now_ms)
        assert len(turn.order) <= READS_PER_S + 1
    assert min(rested) >= LATELY_MS
    assert len(rested) >= LATELY_MS // STEP_MS // 2 - 1, "then in turn as any other"


def test_those_that_have_moved_lately_take_no_time_from_the_others_and_are_not_without_bound() -> None:
    standing = Standing()
    names = a_thousand_wait(standing)
    others = [GroupName(f"other-{number:05}") for number in range(3 * READS_PER_S)]
    for name in others:
        standing.keep(name, SIGHT, [], 0)
        standing.moved(name, 0)
    turn = standing.begin(STEP_MS)
    read = set(turn.order)
    assert len(read) == 2 * READS_PER_S
    assert len(read & set(names)) == READS_PER_S
    assert sorted([*turn.order, *turn.resting]) == sorted([*names, *others])


def test_a_group_that_is_found_to_move_rests_no_more() -> None:
    standing, moving = Standing(), GroupName("moving")
    standing.begin(0)
    for number in range(2 * READS_PER_S):
        standing.keep(GroupName(f"group-{number:05}"), SIGHT, [], 0)
    standing.keep(moving, SIGHT, [], 0)
    assert moving in standing.begin(STEP_MS).resting
    changed = Sight(None, {}, {}, {}, frozenset(), complete=False)
    assert standing.get(moving, changed, STEP_MS) is None
    standing.looked(moving, STEP_MS)
    assert all(moving in standing.begin(step * STEP_MS).order for step in range(2, 9))


@given(st.integers(1, 40), st.integers(8, 12), st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_no_group_is_forgotten_however_reading_is_cut_short(count: int, time_for: int, drawn: Random) -> None:
    """Each is read, or rests, in every cycle; and of those that rest, or that there is no time to read, none waits for ever."""
    standing = Standing()
    names = [GroupName(f"group-{number:02}") for number in range(count)]
    last_read = dict.fromkeys(names, 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(idle, "READS_PER_S", 10)
        patched.setattr(idle, "_LEAST_READS", 10)
        for step in range(1, 60):
            turn = standing.begin(step * STEP_MS, names)
            assert sorted([*turn.order, *turn.resting]) == names
            read = turn.order[:time_for]
            for group in read:
                last_read[group] = step
                if standing.get(group, SIGHT, step * STEP_MS) is None:
                    match drawn.choice(["moves", "stands", "no time"]):
                        case "moves":
                            standing.looked(group, step * STEP_MS)
                        case "stands":
                            standing.keep(group, SIGHT, [], step * STEP_MS)
                        case _:
                            standing.put_off(group, SIGHT)
            # Two of eight are others than those that move, and six of eight move.
            assert all(step - at <= 2 * len(names) for at in last_read.values())


@pytest.mark.parametrize("moving", [0, 1, 3, 4, 9, 100])
def test_those_that_move_are_read_before_most_others_and_not_before_all(moving: int) -> None:
    standing = Standing()
    names = [GroupName(f"group-{number:03}") for number in range(moving + 20)]
    standing.begin(0, names)
    for name in names[20:]:
        standing.looked(name, 0)
    order = standing.begin(STEP_MS).order
    others = [place for place, name in enumerate(order) if name in names[:20]]
    assert sorted(order) == names
    assert others[0] == min(moving, 4)
    assert len([place for place in others if place < moving]) <= moving // 4


def test_what_was_decided_stands_while_a_look_is_put_off_unless_the_group_has_changed() -> None:
    standing, group = Standing(), GroupName("group")
    a, b = ClusterName("aggregate-a"), ClusterName("aggregate-b")
    both = Sight(
        None, {a: {}, b: {}}, {a: {}, b: {}}, {a: frozenset(), b: frozenset()}, frozenset(), complete=True
    )
    without_b = Sight(None, {a: {}}, {a: {}}, {a: frozenset()}, frozenset(), complete=False)
    standing.keep(group, both, [], 0)
    assert standing.get(group, without_b, 1) is None
    assert standing.put_off(group, without_b) is not None
    assert standing.get(group, both, 2) is not None
    joined = replace(without_b, with_members=frozenset({a}))
    assert standing.put_off(group, joined) is None
    assert standing.get(group, both, 3) is None  # what was seen between counts


def test_groups_for_whose_looks_there_is_no_time_are_read_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "READS_PER_S", 10)
    monkeypatch.setattr(idle, "_LEAST_READS", 10)
    standing, names = Standing(), [GroupName(f"group-{number:02}") for number in range(30)]
    read = set[GroupName]()
    for step in range(1, 4):
        turn = standing.begin(step * STEP_MS, names)
        read.update(turn.order)
        for group in turn.order:
            standing.put_off(group, SIGHT)
    assert read == set(names)
