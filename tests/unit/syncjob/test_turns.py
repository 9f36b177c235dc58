"""Groups that move are served first, and none of the others is forgotten, however little time there is for them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from parallax.domain.commits import Commits, GroupCommit
from parallax.domain.ids import GroupName, TargetOffset
from parallax.domain.outcome import Outcome
from parallax.errors import ConfigError
from syncjob import cycle as cycle_module
from syncjob import idle
from syncjob.decide import Reason
from syncjob.report import CycleReport
from tests.worlds.sync_bench import P0, Bench, consuming, only, two_sources

MOVING = GroupName("zz-moving")
COLD = [GroupName(f"group-{number:02}") for number in range(20)]
TOGETHER = 2


def commit(it: Bench, group: GroupName, next_offset: int) -> None:
    it.writer("a").commits[group] = {P0: GroupCommit(TargetOffset(next_offset), -1, "")}


@pytest.fixture
def hurried(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> Bench:
    """In each cycle there is time to look at two groups that have not moved."""
    monkeypatch.setattr(cycle_module, "_LOOKS_TOGETHER", TOGETHER)
    it = bench()
    monkeypatch.setattr(it.syncer, "_others_within_s", 0.0)
    two_sources(it.world)
    for group in COLD:
        commit(it, group, 10)
    return it


def cycle(it: Bench) -> CycleReport:
    """A cycle that has told of every group once, and of none that it did not look at."""
    report = it.cycle()
    made = {item.group for item in report.decided}
    assert not made & report.standing.keys()
    assert not report.waiting & (made | report.standing.keys() | report.failures.keys())
    assert made | report.standing.keys() | report.waiting == it.writer("a").commits.keys()
    return report


def published(it: Bench) -> set[GroupName]:
    return {group for group in it.writer("a").commits if it.commit("b", group=group) is not None}


def test_a_group_that_moves_does_not_wait_for_the_others(hurried: Bench) -> None:
    commit(hurried, MOVING, 1)
    assert len(cycle(hurried).waiting) == len(COLD) + 1 - TOGETHER
    for number, offset in enumerate(range(2, 12), start=2):
        commit(hurried, MOVING, offset)
        assert only(cycle(hurried), "b", group=MOVING).reason is Reason.PUBLISHED
        assert len(published(hurried) - {MOVING}) == min(TOGETHER * number, len(COLD))


def test_a_group_that_commits_now_and_then_does_not_wait_for_its_turn(
    hurried: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "READS_PER_S", 5)
    monkeypatch.setattr(idle, "_LEAST_READS", 5)
    commit(hurried, MOVING, 1)
    while MOVING not in published(hurried) or len(cycle(hurried).standing) < len(COLD):
        cycle(hurried)
    commit(hurried, MOVING, 2)
    while only(cycle(hurried), "b", group=MOVING).reason is not Reason.PUBLISHED:
        pass  # it stood, and is seen in turn
    for offset, pause in enumerate(range(2, 8), start=3):
        for _ in range(pause):
            cycle(hurried)
        commit(hurried, MOVING, offset)
        assert only(cycle(hurried), "b", group=MOVING).reason is Reason.PUBLISHED


def test_a_group_that_has_moved_does_not_wait_while_what_it_consumed_is_copied(hurried: Bench) -> None:
    cycle(hurried)
    late = COLD[0]
    hurried.world.copy("a", "a", 10)  # and not yet to b
    commit(hurried, late, 25)
    for _ in range(4):
        assert only(cycle(hurried), "b", group=late).outcome is Outcome.PENDING
    hurried.world.copy("a", "b", 10)
    hurried.world.watermarks()
    assert only(cycle(hurried), "b", group=late).reason is Reason.PUBLISHED


@pytest.mark.parametrize("seed", range(2))
def test_no_group_starves_however_the_others_move(
    hurried: Bench, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "READS_PER_S", 5)
    monkeypatch.setattr(idle, "_LEAST_READS", 5)
    looked: dict[GroupName, int] = {}
    look = hurried.syncer._look
    drawn, number = random.Random(seed), 0

    def looked_on(looks: Any) -> None:
        looked.update((it.group, number) for it in looks)
        look(looks)

    monkeypatch.setattr(hurried.syncer, "_look", looked_on)
    offsets = dict.fromkeys(COLD, 10)
    restless = drawn.sample(COLD, 8)
    for number in range(1, 61):
        for group in drawn.sample(restless, 4):
            offsets[group] = 10 + (offsets[group] + 1) % 10
            commit(hurried, group, offsets[group])
        cycle(hurried)
        if number > 20:
            assert all(number - looked.get(group, 0) <= 40 for group in COLD)
        if number == 20:
            assert looked.keys() == set(COLD)
            assert published(hurried) == set(COLD)


def test_a_group_that_was_not_read_in_one_cluster_is_left_alone(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is unknown is not taken for nothing: where the group has committed there, that would be overwritten."""
    it = bench(timeout_ms=800)
    two_sources(it.world)
    groups = [GroupName(f"group-{number:03}") for number in range(64)]
    for group in groups:
        commit(it, group, 10)
        it.writer("b").commits[group] = {}  # which nobody knows before it is read
    monkeypatch.setattr("syncjob.clusters.in_parts", lambda groups, _sizes: [[group] for group in groups])
    real = it.writer("b").committed_each
    reading, asked = True, set[GroupName]()

    def slowly(some: Collection[GroupName]) -> Mapping[GroupName, Commits | ConfigError]:
        if reading:
            asked.update(some)
            time.sleep(0.25)
        return real(some)

    look = it.syncer._look

    def quickly(looks: Any) -> None:
        nonlocal reading
        reading = False  # publishing reads, too
        try:
            look(looks)
        finally:
            reading = True

    monkeypatch.setattr(it.writer("b"), "committed_each", slowly)
    monkeypatch.setattr(it.syncer, "_look", quickly)
    report = cycle(it)
    assert report.away == ()
    assert report.waiting
    assert {item.group for item in report.decided} <= asked
    assert published(it) == asked == set(groups) - report.waiting
    for _ in range(10):
        cycle(it)
    assert published(it) == set(groups)


def test_a_cluster_that_goes_away_has_groups_that_stand_looked_at_in_turn(hurried: Bench) -> None:
    while len(cycle(hurried).standing) < len(COLD):
        pass
    hurried.writer("b").away = True
    report = cycle(hurried)
    assert report.away == ("aggregate-b",)
    assert len(report.standing) == len(COLD) - TOGETHER
    assert report.waiting == set()
    commit(hurried, MOVING, 3)
    cycle(hurried)
    commit(hurried, MOVING, 4)
    assert only(cycle(hurried), "b", group=MOVING).reason is Reason.TARGET_AWAY


def test_what_can_not_be_published_counts_while_its_group_waits(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = consuming(bench, 10)
    for group in COLD:
        commit(it, group, 10)
    del it.writer("b").infos[P0.topic]
    before = it.cycle().unpublished
    assert before[Reason.NO_ANSWER.value] == len(COLD) + 1
    monkeypatch.setattr(cycle_module, "_LOOKS_TOGETHER", TOGETHER)
    monkeypatch.setattr(it.syncer, "_others_within_s", 0.0)
    for _ in range(3):
        report = it.cycle()
        assert report.unpublished == before
    assert report.waiting
