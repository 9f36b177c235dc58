"""Groups that stand still are looked at in turn, however many they are."""

from __future__ import annotations

from parallax.domain.ids import GroupName
from syncjob.idle import HOLDS_ALONE_MS, LOOKS_PER_S, READS_PER_S, Sight, Standing

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
        standing.begin(now_ms)
        looked = [name for name in names if standing.get(name, SIGHT, now_ms) is None]
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


def reads(groups: int, steps: int, *, away_at: int = -1) -> list[set[GroupName]]:
    """Which groups are read in each cycle of one second."""
    standing = Standing()
    names = {GroupName(f"group-{number:05}") for number in range(groups)}
    standing.begin(0)
    for name in names:
        standing.keep(name, SIGHT, [], 0)
    found = []
    for step in range(1, steps + 1):
        now_ms = step * STEP_MS
        read = names - standing.begin(now_ms, read_all=step == away_at).keys()
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


def test_all_are_read_where_a_cluster_is_away() -> None:
    groups = 3 * READS_PER_S
    assert [len(read) for read in reads(groups, 3, away_at=2)] == [READS_PER_S, groups, READS_PER_S]


def test_a_group_that_is_found_to_move_rests_no_more() -> None:
    standing, moving = Standing(), GroupName("moving")
    standing.begin(0)
    for number in range(2 * READS_PER_S):
        standing.keep(GroupName(f"group-{number:05}"), SIGHT, [], 0)
    standing.keep(moving, SIGHT, [], 0)
    assert moving in standing.begin(STEP_MS)
    changed = Sight(None, {}, {}, {}, frozenset(), complete=False)
    assert standing.get(moving, changed, STEP_MS) is None
    assert all(moving not in standing.begin(step * STEP_MS) for step in range(2, 9))
