from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.sim.doors import Faults
from tests.sim.world import World

from parallax.domain.errors import InvariantError

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
