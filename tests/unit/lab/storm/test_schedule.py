from __future__ import annotations

from collections import Counter

import pytest

from lab.storm.schedule import FAULTS, Act, ActKind, draw_schedule, parts_of

HOMES = {"pair-a": "a", "solo-a": "a", "solo-b": "b"}
SEEDS = range(300)
FAULT_COUNT = 30
KILLS = {
    ActKind.CLUSTER_LOST,
    ActKind.CLUSTER_FROZEN,
    ActKind.REGION_LOST,
    ActKind.REGIONAL_KILLED,
    ActKind.SPARK_KILLED,
    ActKind.SERVICE_KILLED,
}
ALL = {
    "spark",
    "cassandra",
    *(f"{kind}-{region}" for kind in ("regional", "aggregate", "offsetsvc") for region in "ab"),
}


def schedules() -> list[tuple[Act, ...]]:
    return [draw_schedule(seed, HOMES, FAULT_COUNT).acts for seed in SEEDS]


def test_a_seed_means_one_schedule() -> None:
    assert draw_schedule(7, HOMES, FAULT_COUNT) == draw_schedule(7, HOMES, FAULT_COUNT)
    assert len(set(schedules())) == len(SEEDS)


def test_the_schedule_of_a_seed_stays_what_it_was() -> None:
    """A seed that was told to somebody means the same storm tomorrow."""
    assert [act.told() for act in draw_schedule(5, HOMES, FAULT_COUNT).acts[:6]] == [
        "region-a is killed after 2.4 s of lag, the route a->b held back; failover --region a --to b --disaster (pair-a, solo-a)",
        "region-a is started",
        "spark stands still for 58.0 s",
        "a topic of region a is deleted, and created again",
        "failover pair-a --to a --disaster, though all lives, after 2.5 s of lag",
        "offsetsvc-a is stopped and started",
    ]


def test_every_schedule_has_every_kind() -> None:
    for acts in schedules():
        kinds = Counter(act.kind for act in acts)
        assert sum(kinds[kind] for kind in FAULTS) == FAULT_COUNT
        assert all(kinds[kind] for kind in FAULTS)


def test_too_few_faults_are_refused() -> None:
    with pytest.raises(ValueError, match="one of each kind"):
        draw_schedule(1, HOMES, len(FAULTS) - 1)


def test_something_always_lives_and_everything_does_in_the_end() -> None:
    for acts in schedules():
        down: set[str] = set()
        for act in acts:
            parts = set(parts_of(act.part)) if act.part else set()
            if act.kind is ActKind.START:
                assert parts <= down
                down -= parts
                continue
            assert not parts & down, f"{act} hits what is down already"
            struck = down | parts
            for kind in ("regional", "aggregate", "offsetsvc"):
                assert {f"{kind}-a", f"{kind}-b"} - struck, f"{act} leaves no {kind}"
            if act.kind in KILLS:
                down = struck
        assert not down


def test_what_is_killed_comes_back_before_the_third_fault_after() -> None:
    longest = 0
    for acts in schedules():
        since: dict[str, int] = {}
        for act in acts:
            if act.kind is ActKind.START:
                longest = max(longest, since.pop(act.part))
                continue
            since = {part: faults + 1 for part, faults in since.items()}
            if act.kind in KILLS:
                since[act.part] = 0
    assert longest == 2


def test_groups_move_from_where_they_are_to_what_lives() -> None:
    for acts in schedules():
        places, down = dict(HOMES), set[str]()
        for act in acts:
            if act.kind is ActKind.START:
                down -= set(parts_of(act.part))
            elif act.kind in KILLS:
                down |= set(parts_of(act.part))
            if not act.to:
                assert not act.groups
                continue
            assert act.groups
            assert {places[group] for group in act.groups} == {act.region}
            assert act.region != act.to
            assert not {f"aggregate-{act.to}", f"offsetsvc-{act.to}"} & (down if act.kind in KILLS else set())
            assert f"aggregate-{act.to}" not in down
            if act.kind in {ActKind.CLUSTER_LOST, ActKind.CLUSTER_FROZEN, ActKind.REGION_LOST}:
                assert set(act.groups) == {group for group, place in places.items() if place == act.region}
            if act.kind in {ActKind.PLANNED, ActKind.FAILBACK}:
                assert not down - {"offsetsvc-a", "offsetsvc-b"}, "a move on purpose waits for every cluster"
            places.update(dict.fromkeys(act.groups, act.to))


def test_a_failback_undoes_the_last_move() -> None:
    for acts in schedules():
        left: dict[str, str] = {}
        places = dict(HOMES)
        for act in acts:
            if act.kind is ActKind.FAILBACK:
                assert set(act.groups) == {group for group, region in left.items() if region == act.to}
            for group in act.groups:
                left[group], places[group] = places[group], act.to


def test_a_rewind_waits_for_clusters_and_spark() -> None:
    for acts in schedules():
        down: set[str] = set()
        for act in acts:
            if act.kind is ActKind.START:
                down -= set(parts_of(act.part))
            elif act.kind in KILLS:
                down |= set(parts_of(act.part))
            elif act.kind is ActKind.REWIND:
                assert act.group in HOMES
                assert act.records > 0
                assert not down - {"offsetsvc-a", "offsetsvc-b"}


def test_faults_overlap_and_every_part_is_hit() -> None:
    together, hit = 0, set[str]()
    for acts in schedules():
        down: set[str] = set()
        for act in acts:
            parts = set(parts_of(act.part)) if act.part else set()
            hit |= parts
            if act.kind is ActKind.START:
                down -= parts
            else:
                together += bool(down)
                down |= parts if act.kind in KILLS else set()
    assert hit == ALL
    assert together > len(SEEDS)
