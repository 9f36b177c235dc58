from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from parallax.domain.ids import TopicName, TopicPartition, aggregate_cluster
from replicator import shard as shard_module
from replicator.copying import session_end
from replicator.copying.ports import RecordRefusedError, TargetLog
from replicator.copying.session_end import Stops
from tests.worlds.sim import doors
from tests.worlds.sim.doors import Faults
from tests.worlds.sim.kafka import COMMITTED, Stretch, Transaction
from tests.worlds.sim.route import RouteLife
from tests.worlds.sim.run import play, problem_of, world_of
from tests.worlds.sim.sides import TOPIC, SourceRecord
from tests.worlds.sim.world import World

SEEDS = 160  # `make simulate` plays more


@pytest.mark.parametrize("block", range(8))
def test_whatever_happens_every_record_is_copied_once_and_its_mapping_is_true(block: int) -> None:
    failed = [outcome for seed in range(block, SEEDS, 8) if (outcome := play(seed)).problem]
    assert not failed, f"make simulate SEED={failed[0].seed}: {failed[0].problem}"


def first_red_seed(faults: Faults, seeds: Iterable[int]) -> int | None:
    return next((seed for seed in seeds if play(seed, faults).problem), None)


def test_the_same_seed_is_the_same_life() -> None:
    def told(seed: int) -> list[str]:
        lines: list[str] = []
        world = world_of(seed, tell=lines.append)
        world.live()
        return lines

    assert told(5) == told(5) != told(6)


def test_a_world_whose_readers_wait_for_ever_is_no_good_one() -> None:
    """Such a transaction was left once where a world ended while one of its routes stood still, and looked like a loss of another's."""
    world = World(1, only=())
    world.live()
    world.check()
    log = world.aggregates[0].cluster.topics[TOPIC].logs[0]
    log.append("copied by an owner that died", Transaction(owner="parallax.a.b.1.0.record"))
    with pytest.raises(AssertionError, match="trips-0: readers wait for transactions that never end"):
        world.check()


def test_a_lease_does_not_believe_that_its_run_log_has_become_empty() -> None:
    faults = Faults(fail=0.03)
    faults.empty_run_log = 0.5
    assert first_red_seed(faults, range(60)) is None


def test_rights_that_come_and_go_on_both_sides_lose_and_repeat_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shard_module, "Stops", lambda clock, _again_after_ms: Stops(clock, 5_000))
    faults = Faults(fail=0.01)
    faults.forbid = 0.05
    assert first_red_seed(faults, range(100)) is None


def test_a_target_that_stands_still_amid_commits_loses_and_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some are answered late, and some only when another owner has taken over."""
    commit, held = doors.SimTarget.commit, set[str]()

    def watched(target: doors.SimTarget, *arguments: Any) -> Sequence[int]:
        began_ms, became = target._schedule.now_ms, "fenced"
        try:
            offsets = commit(target, *arguments)
            became = "answered"
        finally:
            frozen_until_ms = target._cluster.frozen_until_ms
            assert became == "fenced" or frozen_until_ms <= target._schedule.now_ms, (
                "nothing is answered until then"
            )
            held.update([became] if began_ms < frozen_until_ms else [])
        return offsets

    monkeypatch.setattr(doors.SimTarget, "commit", watched)
    worlds = (World(seed, Faults(0.0), only=("target_frozen",)) for seed in range(60))
    assert [problem for world in worlds if (problem := problem_of(world))] == []
    assert held == {"answered", "fenced"}


def test_a_partition_that_the_target_refused_is_tried_again_by_the_same_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused, fixed, settle = TopicPartition(TopicName(TOPIC), 0), False, doors.SimTarget.settle

    def refuse(target: doors.SimTarget, logs: Mapping[TopicPartition, TargetLog]) -> object:
        found = settle(target, logs)
        if not fixed and found.get(refused):
            raise RecordRefusedError(refused, 0, "allow the replicator to write to the target's topic")
        return found

    monkeypatch.setattr(doors.SimTarget, "settle", refuse)
    world = World(1, Faults(0.0), only=())
    world.lease_ms = 10**12
    regional, target = world.regionals[0], world.aggregates[0].cluster
    epoch_ms = world.config.replicator.lease_epoch_s * 1_000
    regional.create()
    if TOPIC not in target.topics:
        target.create(TOPIC, 2)
    for _ in range(10):
        regional.produce()

    def copied() -> int:
        log = target.topics[TOPIC].logs[0]
        return sum(isinstance(slot.value, SourceRecord) for slot in log.committed())

    def go(until_ms: float) -> None:
        world.schedule.run(lambda: world.schedule.now_ms >= until_ms, at_most_steps=1_000_000)

    with world.in_memory():
        world.schedule.calm = True
        world.lives[0].plan(1)
        go(world.schedule.now_ms + epoch_ms / 10)
        assert copied() == 0
        fixed = True
        go(world.schedule.now_ms + epoch_ms)
        assert copied() == regional.cluster.topics[TOPIC].logs[0].end > 0
        assert len(world.lives[0].owners) == 1
        world.finish = True
        world.schedule.run(
            lambda: all(actor.over for actor in world.schedule.actors), at_most_steps=1_000_000
        )


@pytest.mark.parametrize("who_copied", ["a", "a and b"])
def test_a_group_passes_what_one_target_alone_copied_before_its_source_undid_the_transaction(
    who_copied: str,
) -> None:
    world = World(1, Faults(0.0), sources=("b",), targets=("a", "b"), only=(), group="skips")
    world.lease_ms = 10**12
    regional, group, (to_a, to_b) = world.regionals[0], world.group, world.lives
    assert group is not None
    for cluster in (regional.cluster, *(item.cluster for item in world.aggregates)):
        cluster.topics.pop(TOPIC, None)
        cluster.create(TOPIC, 2)
    log, transaction = regional.cluster.topics[TOPIC].logs[0], Transaction(owner="application")

    def copy(*lives: RouteLife) -> None:
        for life in lives:
            if not life.owners:
                life.plan(1)
            world.schedule.run(life.caught_up, at_most_steps=100_000)

    with world.in_memory():
        world.schedule.calm = True
        for within in (None, transaction, transaction, None):
            regional._write(log, within)
        transaction.decide(COMMITTED)
        undone = regional.records[-3:-1]
        copy(to_a, *([to_b] if who_copied == "a and b" else []))
        log.elect_unclean(log.end - 1)
        regional._abort_hanging(log)
        copy(to_b)
        assert regional.undone == {record.serial for record in undone}
        assert all(group._had(record) == (who_copied == "a") for record in undone)
        held_back = to_a.aggregate.cluster.topics[TOPIC].logs[0]
        held_back._open["another's, from before"] = Stretch("another's, from before", 0)
        assert all(group._had(record) == (who_copied == "a") for record in undone)
        held_back._open.clear()
        group.cluster = aggregate_cluster(to_b.regional.region)
        group.consume()
        assert (undone[0].serial in group.consumed) == (who_copied != "a")
        assert "moves to aggregate-a" in group.move()
        world.finish = True
        world.schedule.run(lambda: all(actor.over for actor in world.schedule.actors), at_most_steps=100_000)
    world.close()
    passed = to_a.aggregate.cluster.topics[TOPIC].logs[0].slots[: group._places[0].next_offset]
    assert undone[-1] in [slot.value for slot in passed], "nothing is to be excused any more"


def test_a_topic_long_gone_from_both_sides_leaves_the_snapshots_and_is_another_when_it_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_end, "FORGOTTEN_AFTER_MS", 5_000)
    world = World(1, Faults(0.0), only=())
    world.lease_ms = 10**12
    regional, life = world.regionals[0], world.lives[0]
    target = life.aggregate.cluster
    regional.create()
    regional.produce()

    def go(condition: Callable[[], bool]) -> None:
        world.schedule.run(condition, at_most_steps=100_000)

    def snapshot_names() -> set[int]:
        snapshots = [entry for _, _, entry in life.entries() if entry.snapshot]
        return {part.partition for part in snapshots[-1].partitions if not part.closed}

    with world.in_memory():
        world.schedule.calm = True
        life.plan(1)
        go(life.caught_up)
        go(lambda: snapshot_names() == {0, 1})
        for cluster in (regional.cluster, target):
            del cluster.topics[TOPIC]
        gone_at_ms = world.schedule.now_ms
        go(lambda: world.schedule.now_ms > gone_at_ms + 3_000)
        assert snapshot_names() == {0, 1}, "it might still come back as it was"
        go(lambda: world.schedule.now_ms > gone_at_ms + 8_000)
        assert snapshot_names() == set()
        regional.create()
        before = len(regional.records)
        regional.produce()
        go(life.caught_up)
        world.finish = True
        go(lambda: all(actor.over for actor in world.schedule.actors))
    copied = [
        slot.value.serial
        for log in target.topics[TOPIC].logs
        for slot in log.committed()
        if isinstance(slot.value, SourceRecord)
    ]
    assert sorted(copied) == [record.serial for record in regional.records[before:]]
    lineages = world.index.lineages(life.route, TopicName(TOPIC))
    assert len({item.lineage for item in lineages}) == 2
    assert len({item.lineage for item in lineages if item.closed_at is None}) == 1
