"""Groups that are gone cost nothing, and are forgotten after some days; what comes back then is a new group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from parallax.domain.audit import AuditStage
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import GroupName, RegionName, TargetOffset, aggregate_cluster
from parallax.domain.primary import Change, Mode
from parallax.errors import StoreUnavailableError
from parallax.runtime.deadline import Deadline
from syncjob import dormant as dormant_module
from syncjob.idle import HOLDS_ALONE_MS
from tests.support import poll_until
from tests.worlds.offset_world import GROUP, TOPIC
from tests.worlds.sync_bench import DAY_MS, P0, Bench, report, two_sources

A, B = (aggregate_cluster(RegionName(name)) for name in "ab")
DEAD = 200


def later(it: Bench, days: float) -> None:
    """Time passes, and the sync job looks again."""
    it.world.now_ms += int(days * DAY_MS)
    it.cycle()


def delete(it: Bench, *groups: GroupName) -> None:
    for region in "ab":
        for group in groups:
            it.writer(region).commits.pop(group, None)
    for _ in range(3):
        it.world.now_ms += HOLDS_ALONE_MS
        it.cycle()


def with_a_group(bench: Callable[..., Bench]) -> Bench:
    it = bench(timeout_ms=10_000)
    two_sources(it.world)
    it.world.commit("a", 15)
    it.cycle()
    it.cycle()
    return it


def set_primary(it: Bench, **change: Any) -> int:
    made = it.service.primaries.set(Change(GROUP, **change), Deadline.after_ms(1_000))
    return made.decision.fencing_number


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, calls: list[str]) -> None:
    right = getattr(owner, name)

    def counting(*args: Any, **named: Any) -> Any:
        calls.append(name)
        return right(*args, **named)

    monkeypatch.setattr(owner, name, counting)


def test_dead_groups_cost_nothing(bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch) -> None:
    it = with_a_group(bench)
    dead = [GroupName(f"job-{number}") for number in range(DEAD)]
    for group in dead:
        it.writer("a").commits[group] = {P0: GroupCommit(TargetOffset(5), -1, "")}
    it.cycle()
    it.cycle()
    delete(it, *dead)
    calls: list[str] = []
    for region in "ab":
        counted(monkeypatch, it.writer(region), "committed", calls)
    for name in ("progress", "observed", "published", "note_empty", "note_alive"):
        counted(monkeypatch, it.world.groups, name, calls)
    asked_about: list[int] = []
    right = it.world.primaries.decisions

    def decisions(groups: Any) -> Any:
        asked_about.append(len(groups))
        return right(groups)

    monkeypatch.setattr(it.world.primaries, "decisions", decisions)

    it.world.now_ms += HOLDS_ALONE_MS  # the other group is looked at anew
    it.cycle()

    assert len(calls) < 20
    assert asked_about == [1]
    assert len(it.syncer._changes._told) == 1
    assert {key[0] for key in it.syncer._gathering._commits} == {GROUP}
    later(it, 7)
    for _ in range(DEAD // dormant_module._FORGOTTEN_AT_ONCE):
        it.cycle()
    assert it.world.groups.groups() == [GROUP]
    assert it.world.groups.empty_since() == {}


def test_a_group_is_forgotten_after_so_many_days_and_not_before(bench: Callable[..., Bench]) -> None:
    it = with_a_group(bench)
    delete(it, GROUP)
    later(it, 6.9)
    assert it.world.groups.groups() == [GROUP]
    later(it, 0.2)
    assert it.world.groups.groups() == []
    assert it.world.groups.progress(GROUP, TOPIC) == {}


def test_so_is_one_that_was_only_decided_about(bench: Callable[..., Bench]) -> None:
    it = with_a_group(bench)
    made_up = [GroupName(f"made-up-{number}") for number in range(2 * dormant_module._FORGOTTEN_AT_ONCE)]
    for group in made_up:
        it.service.primaries.set(Change(group, RegionName("b")), Deadline.after_ms(5_000))
    later(it, 1)
    later(it, 6.9)
    assert it.world.primaries.assigned_groups() == sorted(made_up)
    later(it, 0.2)
    it.cycle()
    assert it.world.primaries.assigned_groups() == []
    for _ in range(3):
        later(it, 1)
    assert it.world.groups.empty_since() == {}
    forgotten = [entry.group for entry in it.world.audit.entries() if entry.call == "forget"]
    assert set(forgotten) == set(made_up)


def test_another_sync_job_counts_on(bench: Callable[..., Bench]) -> None:
    """Each lease has one of its own."""
    it = with_a_group(bench)
    delete(it, GROUP)
    it.world.now_ms += 7 * DAY_MS
    other = it.another(dry_run=False)
    other.cycle()
    it.world.now_ms += 1_000
    other.cycle()
    other.close()
    assert it.world.groups.groups() == []


def test_a_commit_in_between_begins_the_days_anew(bench: Callable[..., Bench]) -> None:
    it = with_a_group(bench)
    delete(it, GROUP)
    later(it, 5)
    it.world.commit("b", 3)
    it.cycle()
    assert it.world.groups.empty_since() == {}
    delete(it, GROUP)
    later(it, 5)
    assert it.world.groups.groups() == [GROUP]
    later(it, 2.1)
    assert it.world.groups.groups() == []


def test_nothing_is_forgotten_while_a_cluster_does_not_answer(bench: Callable[..., Bench]) -> None:
    it = with_a_group(bench)
    delete(it, GROUP)
    it.writer("b").away = True
    later(it, 10)
    assert it.world.groups.groups() == [GROUP]
    it.writer("b").away = False
    poll_until(lambda: not it.cycle().away, 10, "the cluster answers again")
    it.cycle()
    assert it.world.groups.groups() == []


def test_nor_what_was_seen_on_a_cluster_that_is_away(bench: Callable[..., Bench]) -> None:
    it = with_a_group(bench)
    it.writer("a").away = True
    it.writer("b").commits.clear()
    for _ in range(3):
        later(it, 10)
    assert it.world.groups.groups() == [GROUP]
    assert it.world.groups.observed(GROUP, A) != []


def test_a_group_that_only_reports_is_no_dead_one(bench: Callable[..., Bench]) -> None:
    it = bench(timeout_ms=10_000)
    two_sources(it.world)
    report(it, 12)
    for _ in range(3):
        later(it, 3)
    assert it.world.groups.observed(GROUP, A) != []
    for _ in range(3):
        later(it, 7.1)
    assert it.world.groups.groups() == []


def test_its_primary_is_forgotten_with_it_but_no_number_comes_again(bench: Callable[..., Bench]) -> None:
    it = with_a_group(bench)
    number = set_primary(it, primary=RegionName("a"))
    it.cycle()
    delete(it, GROUP)
    later(it, 7.1)

    assert it.service.primaries.get(GROUP) is None
    forgotten = [entry for entry in it.world.audit.entries() if entry.call == "forget"]
    assert [entry.stage for entry in forgotten] == [AuditStage.INTENDED, AuditStage.DONE]
    assert forgotten[0].principal == dormant_module.SYNC_JOB
    it.world.commit("b", 5)  # months later: another application, in another region
    for _ in range(3):
        it.cycle()
    assert it.decision("a").origin == B
    assert set_primary(it, primary=RegionName("b")) > number


@pytest.mark.parametrize("mode", list(Mode))
def test_a_primary_that_may_be_needed_stays(bench: Callable[..., Bench], mode: Mode) -> None:
    """Decided for what is to come; or active/active, whose numbers are for what it publishes."""
    it = with_a_group(bench)
    if mode is Mode.ACTIVE_ACTIVE:
        number = set_primary(it, primary=RegionName("a"), mode=mode)
    delete(it, GROUP)
    later(it, 5)
    if mode is Mode.ACTIVE_PASSIVE:
        number = set_primary(it, primary=RegionName("a"))
    later(it, 2.1)

    assert it.world.groups.groups() == []
    found = it.service.primaries.get(GROUP)
    assert found is not None
    assert found.decision.fencing_number == number


def test_a_store_that_does_not_answer_delays_it(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = with_a_group(bench)
    delete(it, GROUP)

    def fail(*_: object, **__: object) -> None:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patched:
        patched.setattr(it.world.groups, "forget", fail)
        later(it, 8)
    assert it.world.groups.groups() == [GROUP]
    it.cycle()
    assert it.world.groups.groups() == []


def test_since_when_it_is_dormant_is_noted_once_the_store_answers(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = with_a_group(bench)

    def fail(*_: object) -> None:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patched:
        patched.setattr(it.world.groups, "note_empty", fail)
        with pytest.raises(StoreUnavailableError):
            delete(it, GROUP)
    assert GROUP not in it.syncer._dormant.names
    delete(it, GROUP)
    assert list(it.world.groups.empty_since()) == [GROUP]
    later(it, 7.1)
    assert it.world.groups.groups() == []


def test_a_dry_run_forgets_nothing(bench: Callable[..., Bench]) -> None:
    it = with_a_group(bench)
    delete(it, GROUP)
    it.world.now_ms += 8 * DAY_MS
    other = it.another(dry_run=True)
    other.cycle()
    other.cycle()
    other.close()
    assert it.world.groups.groups() == [GROUP]
