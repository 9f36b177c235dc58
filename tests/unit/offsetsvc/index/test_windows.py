from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from offsetsvc.index.memory import FORGET_AFTER_S, SETTLED_AFTER_S, IndexMemory
from parallax.domain.ids import (
    Lineage,
    RegionName,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import RowBatch
from tests.worlds.counting_index import CountingIndex
from tests.worlds.histories import random_batches

ROUTE = Route(RegionName("a"), RegionName("b"))
TOPIC = TopicName("trips")
PARTITION = RoutePartition(ROUTE, TopicPartition(TOPIC, 0))
LINEAGE = Lineage(TopicId("source"), TopicId("target"))


class World:
    """An index, a memory of it, and a clock."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.index = CountingIndex()
        self.memory = IndexMemory(self.index, clock=lambda: self.now_s)

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        self.memory.newest(ROUTE, TOPIC)

    def write(self, batches: Sequence[RowBatch]) -> int:
        """Write; returns the target's end."""
        self.index.write_rows(batches)
        return max(row.target_end for batch in batches for row in batch.rows)

    def settle(self) -> None:
        self.later(0)
        self.later(SETTLED_AFTER_S)


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("seed", range(8))
def test_every_look_up_is_answered_as_by_the_index_while_it_grows(world: World, seed: int) -> None:
    draw = random.Random(seed)
    for batch in random_batches(seed, PARTITION, LINEAGE, batches=150, longest_pause_ms=1_000):
        end = world.write([batch])
        world.later(draw.choice([0.1, 1.0, SETTLED_AFTER_S, FORGET_AFTER_S]))
        for _ in range(10):
            offset = draw.randrange(end + 20)
            target, source = TargetOffset(offset), SourceOffset(offset)
            expected_at_target = world.index.rows_at_target(PARTITION, LINEAGE, target)
            assert world.memory.rows_at_target(PARTITION, LINEAGE, target) == expected_at_target
            expected_at_source = world.index.rows_at_source(PARTITION, LINEAGE, source)
            assert world.memory.rows_at_source(PARTITION, LINEAGE, source) == expected_at_source
            page = world.memory.rows_from_target(PARTITION, LINEAGE, target, 10)
            whole = world.index.rows_from_target(PARTITION, LINEAGE, target, 100_000)
            assert page.rows == whole.rows[: len(page.rows)]
            assert all(row.target_start >= page.complete_to for row in whole.rows[len(page.rows) :])
            assert page.complete_to > target or whole.complete_to <= target


def test_a_settled_stretch_is_read_once(world: World) -> None:
    end = world.write(random_batches(1, PARTITION, LINEAGE, batches=300, longest_pause_ms=1_000))
    world.settle()
    offsets = range(end // 4, end // 2)
    for offset in offsets:
        world.memory.rows_at_target(PARTITION, LINEAGE, TargetOffset(offset))
        world.memory.rows_from_target(PARTITION, LINEAGE, TargetOffset(offset), 50)
    assert len(offsets) > 100
    assert world.index.reads < 10


def test_what_is_young_is_read_anew(world: World) -> None:
    *early, late, overtaking = random_batches(3, PARTITION, LINEAGE, batches=100, longest_pause_ms=1_000)
    world.write(early)
    world.settle()
    world.write([overtaking])
    world.later(SETTLED_AFTER_S)
    target = TargetOffset(late.rows[-1].target_start)
    world.memory.rows_at_target(PARTITION, LINEAGE, target)
    world.later(SETTLED_AFTER_S / 2)
    world.write([late])
    rows = world.memory.rows_at_target(PARTITION, LINEAGE, target)
    assert rows == world.index.rows_at_target(PARTITION, LINEAGE, target)
    assert set(rows) & set(late.rows)


def test_a_stretch_is_forgotten_after_a_while(world: World) -> None:
    end = world.write(random_batches(2, PARTITION, LINEAGE, batches=200, longest_pause_ms=1_000))
    world.settle()
    target = TargetOffset(end // 2)
    for _ in range(3):
        world.memory.rows_at_target(PARTITION, LINEAGE, target)
    reads = world.index.reads
    world.memory.rows_at_target(PARTITION, LINEAGE, target)
    assert world.index.reads == reads
    world.later(FORGET_AFTER_S + 1)
    world.memory.rows_at_target(PARTITION, LINEAGE, target)
    assert world.index.reads > reads


def test_a_stretch_is_not_read_for_two_look_ups_alone(world: World) -> None:
    end = world.write(random_batches(4, PARTITION, LINEAGE, batches=2_000, longest_pause_ms=1_000))
    world.settle()
    far_apart = range(0, end * 3 // 4, end // 8)
    for offset in far_apart:
        world.memory.rows_at_source(PARTITION, LINEAGE, SourceOffset(offset))
    assert world.index.reads == len(far_apart)
    world.memory.rows_at_source(PARTITION, LINEAGE, SourceOffset(far_apart[-1] + 1))
    assert world.index.reads == len(far_apart) + 1
    world.memory.rows_at_source(PARTITION, LINEAGE, SourceOffset(far_apart[-1]))
    assert world.index.reads > len(far_apart) + 2
