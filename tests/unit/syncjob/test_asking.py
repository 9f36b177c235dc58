"""Groups that are asked for together get what each gets by itself, whatever happened to them before."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from parallax.domain.commits import GroupCommit
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, DeadlineError, ParallaxError, ServiceUnavailableError
from syncjob import asking
from syncjob import cycle as cycle_module
from syncjob.decide import Reason
from tests.worlds.offset_world import TOPIC
from tests.worlds.sync_bench import P0, Bench, consuming, sync_benches

GROUPS = [GroupName(name) for name in ("one", "two", "three")]
A, B = ClusterName("aggregate-a"), ClusterName("aggregate-b")


class _Life:
    """Groups that go on, are set back and go over, while routes copy; the same for a syncer that asks for them together and one that does not."""

    def __init__(self, make: Callable[..., Bench], seed: int) -> None:
        self._chance = Random(seed)
        self.both = [make(partitions=2, together=together, timeout_ms=60_000) for together in (True, False)]
        self.at = dict.fromkeys(GROUPS, "a")

    def play(self, cycles: int) -> Counter[Reason]:
        seen: Counter[Reason] = Counter()
        for _ in range(cycles):
            for _ in range(self._chance.randint(0, 6)):
                self._happens()
            reports = [bench.cycle() for bench in self.both]
            assert reports[0].decisions == reports[1].decisions
            assert (reports[0].moves, reports[0].rewinds) == (reports[1].moves, reports[1].rewinds)
            seen.update(item.reason for item in reports[0].made or ())
            for group in GROUPS:
                for cluster in (A, B):
                    stored = [bench.world.groups.observed(group, cluster) for bench in self.both]
                    assert stored[0] == stored[1]
        return seen

    def _happens(self) -> None:
        chance, partition = self._chance, self._chance.randrange(2)
        kind, count = chance.random(), chance.randint(1, 9)
        source, target = chance.choice("ab"), chance.choice("ab")
        if kind < 0.4:
            self._each(lambda world: world.copy(source, target, count, partition))
        elif kind < 0.5:
            self._each(lambda world: world.watermarks(partition))
        elif kind < 0.53:
            self._each(lambda world: world.new_leader(source))
        elif kind < 0.55:
            self._each(lambda world: world.lose(source, target, 2, partition))
        else:
            self._commit(chance.choice(GROUPS), TopicPartition(TOPIC, partition))

    def _commit(self, group: GroupName, item: TopicPartition) -> None:
        chance = self._chance
        if chance.random() < 0.1:
            self.at[group] = "b" if self.at[group] == "a" else "a"
        region = self.at[group]
        world = self.both[0].world
        end = len(world.records(region, item.partition))
        stands = world.cluster(region).commits.get(group, {}).get(item)
        low = 0 if stands is None or chance.random() < 0.05 else stands.next_offset
        commit = GroupCommit(TargetOffset(chance.randint(min(low, end), end)), -1, "")
        self._each(lambda world: world.cluster(region).commits.setdefault(group, {}).update({item: commit}))

    def _each(self, change: Callable[[Any], object]) -> None:
        for bench in self.both:
            change(bench.world)


def lives(seeds: range, cycles: int = 25) -> Counter[str]:
    """Plays lives; what the syncers decided, and which of them were asked for one by one."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        with sync_benches() as make:
            life = _Life(make, seed)
            seen.update({reason.value: count for reason, count in life.play(cycles).items()})
            seen["moved"] += sum(bool(life.both[0].world.groups.progress(group, TOPIC)) for group in GROUPS)
    return seen


def test_together_is_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: Counter[str] = Counter()
    right = asking._answers

    def answers(facts: Any, side: Any, positions: Any, mapped: Any) -> Any:
        found = right(facts, side, positions, mapped)
        kind = "moved" if any(it.cluster == side.cluster for it in facts.progress.values()) else "plain"
        counted[f"{kind}: {'one by one' if found is None else 'together'}"] += 1
        return found

    monkeypatch.setattr(asking, "_answers", answers)
    seen = lives(range(12))
    assert seen["published"] > 100
    assert seen["moved"] > 10
    assert (
        min(counted[f"{kind}: {how}"] for kind in ("moved", "plain") for how in ("together", "one by one"))
        > 20
    )


def _none(*_: Any) -> bool:
    return True


MUTANTS: dict[str, tuple[str, Any]] = {
    "moves are forgotten": ("_holds", _none),
    "what a move left is read": ("is_within", _none),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_dies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, wrong = MUTANTS[name]
    monkeypatch.setattr(asking, where, wrong)
    with pytest.raises(AssertionError):
        lives(range(12))


def test_a_service_that_does_not_answer_together_is_asked_one_by_one(bench: Callable[..., Bench]) -> None:
    it = consuming(bench, 15, cycles=1)

    def fail(*_: object) -> Any:
        raise ServiceUnavailableError("too many at once")

    it.syncer._ask_many = fail
    it.world.commit("a", 17)
    assert it.decision("b").reason is Reason.PUBLISHED
    assert it.asked == [(A, B)] * 2


def _many(bench: Callable[..., Bench], count: int = 40) -> Bench:
    it = consuming(bench, 15)
    for number in range(count):
        it.writer("a").commits[GroupName(f"group-{number}")] = {P0: GroupCommit(TargetOffset(number), -1, "")}
    return it


@pytest.mark.parametrize("error", [ServiceUnavailableError, DeadlineError])
@pytest.mark.parametrize("together", [True, False])
def test_where_no_service_answers_few_wait_for_it_and_what_was_seen_is_kept(
    bench: Callable[..., Bench],
    monkeypatch: pytest.MonkeyPatch,
    error: type[ParallaxError],
    *,
    together: bool,
) -> None:
    it = _many(bench)
    calls: list[object] = []

    def fail(*asked: object) -> Any:
        calls.append(asked)
        time.sleep(0.05)
        raise error("no offset service answered")

    monkeypatch.setattr(cycle_module, "_LOOKS_TOGETHER", 20)
    right = it.syncer._ask, it.syncer._ask_many
    it.syncer._ask, it.syncer._ask_many = fail, fail if together else None
    for _ in range(2):
        calls.clear()
        report = it.cycle()
        assert len(calls) <= 2 * cycle_module._GROUPS_AT_ONCE
        assert {item.reason for item in report.decisions} == {Reason.NO_ANSWER}
    for number in range(40):
        assert it.world.groups.observed(GroupName(f"group-{number}"), A)
    it.syncer._ask, it.syncer._ask_many = right
    assert Reason.NO_ANSWER not in {item.reason for item in it.cycle().decisions}


def test_a_question_that_fails_by_itself_keeps_no_other_from_being_asked() -> None:
    def late() -> None:
        raise DeadlineError("so many partitions")

    def late_while_others_are_answered() -> None:
        answering.to(int)
        late()

    def away() -> None:
        raise ClusterUnavailableError("aggregate-b is away")

    answering = asking.Answering()
    for question in [late_while_others_are_answered] * 3 + [late, away] * 3 + [late]:
        with pytest.raises(ParallaxError):
            answering.to(question)
        assert answering.to(int) == 0


def test_groups_are_asked_for_together(bench: Callable[..., Bench]) -> None:
    it = consuming(bench, 15)
    commits = it.writer("a").commits
    for number in range(20):
        commits[GroupName(f"group-{number}")] = {P0: GroupCommit(TargetOffset(number), -1, "")}
    report = it.cycle()
    assert len(report.decisions) == 21
    assert it.asked == [(A, B)]


def test_one_with_a_topic_that_is_not_there_is_asked_for_alone(bench: Callable[..., Bench]) -> None:
    it = consuming(bench, 15)
    other = TopicName("another")
    it.world.empty_topic(other)
    del it.writer("a").infos[other]
    it.writer("a").commits[GROUPS[0]] = {TopicPartition(other, 0): GroupCommit(TargetOffset(0), -1, "")}
    report = it.cycle()
    assert {item.group for item in report.decisions} >= {GROUPS[0]}
    assert len(it.asked) == 2


def test_so_many_are_looked_at_together_that_memory_is_bounded(
    bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = consuming(bench, 15)
    commits = it.writer("a").commits
    for number in range(9):
        commits[GroupName(f"group-{number}")] = {P0: GroupCommit(TargetOffset(number), -1, "")}
    monkeypatch.setattr(cycle_module, "_LOOKS_TOGETHER", 4)
    it.cycle()
    assert len(it.asked) == 3
    monkeypatch.setattr(cycle_module, "_PARTITIONS_TOGETHER", 2)
    for group, offsets in commits.items():
        commits[group] = {P0: GroupCommit(TargetOffset(offsets[P0].next_offset + 1), -1, "")}
    it.asked.clear()
    it.cycle()
    assert len(it.asked) == 5
