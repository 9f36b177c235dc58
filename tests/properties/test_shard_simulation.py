from __future__ import annotations

from collections.abc import Iterable

import pytest

from parallax.domain.ids import TopicName, TopicPartition
from parallax.errors import InvariantError
from replicator.copying.ports import RecordRefusedError
from tests.worlds.sim import doors
from tests.worlds.sim.doors import Faults
from tests.worlds.sim.world import TOPIC, SourceRecord, World

SEEDS = 400


@pytest.mark.parametrize("block", range(8))
def test_whatever_happens_to_a_shard_every_record_is_copied_once_and_its_mapping_is_true(block: int) -> None:
    for seed in range(block, SEEDS, 8):
        world = World(seed)
        try:
            world.live(400)
            world.check()
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


def first_red_seed(faults: Faults, seeds: Iterable[int]) -> int | None:
    for seed in seeds:
        world = World(seed, faults)
        try:
            world.live(400)
            world.check()
        except (AssertionError, InvariantError):
            return seed
    return None


def test_a_watermark_outside_of_the_fenced_transaction_turns_the_simulation_red() -> None:
    faults = Faults()
    faults.unfenced_watermarks = True
    assert first_red_seed(faults, range(60)) is not None


def test_the_last_stable_offset_in_place_of_the_high_watermark_turns_the_simulation_red() -> None:
    faults = Faults()
    faults.last_stable_offset = True
    assert first_red_seed(faults, range(60)) is not None


def test_a_lease_does_not_believe_that_its_run_log_has_become_empty() -> None:
    faults = Faults(fail=0.03)
    faults.empty_run_log = 0.5
    assert first_red_seed(faults, range(60)) is None


def test_a_partition_that_the_target_refused_is_tried_again_by_the_same_holder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused, fixed, settle = TopicPartition(TopicName(TOPIC), 0), False, doors.SimTarget.settle

    def refuse(target: doors.SimTarget) -> object:
        found = settle(target)
        if not fixed and found.get(refused):
            raise RecordRefusedError(refused, 0, "allow the replicator to write to the target's topic")
        return found

    def copied() -> int:
        log = world.target.topics[TOPIC].logs[0]
        return sum(isinstance(slot.value, SourceRecord) for slot in log.committed())

    def go(until: float) -> None:
        world.schedule.run(lambda: world.schedule.now_ms >= until, at_most_steps=1_000_000)

    monkeypatch.setattr(doors.SimTarget, "settle", refuse)
    world = World(1, Faults(0.0))
    world.schedule.calm = True
    for cluster in (world.source, world.target):
        if TOPIC not in cluster.topics:
            cluster.create(TOPIC, 2)
    for _ in range(10):
        world._produce()
    world._own()
    epoch_ms = world.config.replicator.lease_epoch_s * 1_000
    go(world.schedule.now_ms + epoch_ms / 10)
    assert copied() == 0
    fixed = True
    go(world.schedule.now_ms + epoch_ms)
    assert copied() == world.source.topics[TOPIC].logs[0].end > 0
    world.finish = True
    world.schedule.run(lambda: all(actor.over for actor in world.schedule.actors), at_most_steps=1_000_000)
