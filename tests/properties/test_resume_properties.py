"""The resume rule, skip ranges and progress against the brute-force model (tests/worlds/model.py).

Every move in every world checks: no unconsumed record lies below the resume offset or in a skip range; with all
rows nothing is read twice, also while the destination grows, through further moves, straight back and with
recreated topics; with all rows and current watermarks the record at the resume offset is an unconsumed one; and
the production code raises on nothing that can happen. With truncated logs or missing rows, nothing is lost.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.worlds.model import Options, World, options_of, run_long_world, run_world

WORLDS = 500
LONG_WORLDS = 40
"""A part takes seconds, and minutes beside tests that keep the machine busy; `make worlds` plays as many as are asked for."""


@pytest.mark.parametrize("part", range(4))
def test_worlds_from_seeds(part: int) -> None:
    worlds = [run_world(seed, options_of(seed)) for seed in range(part * WORLDS, (part + 1) * WORLDS)]
    # A model in which nothing happens proves nothing.
    assert sum(world.group.moves for world in worlds) > WORLDS
    assert sum(world.group.pending_moves for world in worlds) > WORLDS // 10
    assert sum(world.group.skipped for world in worlds) > WORLDS // 2


@pytest.mark.parametrize("part", range(4))
def test_long_worlds_in_which_something_happens(part: int) -> None:
    seeds = range(part * LONG_WORLDS, (part + 1) * LONG_WORLDS)
    worlds = [run_long_world(seed) for seed in seeds]
    assert max(world.group.moves for world in worlds) > 10
    assert sum(bool(world.unknowable) for world in worlds) < LONG_WORLDS // 10


@given(
    seed=st.integers(0, 2**32),
    steps=st.integers(1, 150),
    options=st.builds(
        Options,
        regions=st.integers(1, 4),
        clusters=st.integers(2, 3),
        complete=st.booleans(),
        truncation=st.booleans(),
        retention=st.booleans(),
        recreation=st.booleans(),
        rewinds=st.booleans(),
        compaction=st.booleans(),
        epochs=st.booleans(),
        hidden=st.booleans(),
        short_run_logs=st.booleans(),
    ),
)
def test_worlds_of_any_kind(seed: int, steps: int, options: Options) -> None:
    run_world(seed, options, steps)


def test_straight_back_after_a_move() -> None:
    """There and back again, at once: what is pending there is known here, and nothing is read twice."""
    pending = 0
    for seed in range(1_000):
        world = World(seed, Options(regions=1 + seed % 4, epochs=bool(seed % 2)))
        first, second = world.clusters
        for _ in range(25):
            world.step()
        home, away = (first, second) if world.group.cluster is first else (second, first)
        whole = world.group.complete_to is None
        world.group.move(away)
        pending += world.group.complete_to is not None
        world.group.move(home)
        assert not whole or world.group.complete_to is None, f"seed {seed}: all was consumed here"
        world.finish()
        assert world.group.redelivered == 0
    assert pending > 100


def test_through_three_regions() -> None:
    """Progress crosses a region that has not seen all of it."""
    for seed in range(500):
        world = World(seed, Options(regions=3, clusters=3, epochs=bool(seed % 2)))
        for _ in range(20):
            world.step()
        for _ in range(2):
            for cluster in world.clusters:
                world.group.move(cluster)
                world.step()
        world.finish()
        assert world.group.redelivered == 0
