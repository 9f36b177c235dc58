"""How often an answer asks the store for blocks: once for each side, however many sources there are."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

import pytest

from offsetsvc.resume.ahead import AT_ONCE
from offsetsvc.resume.call import FailoverRequest
from parallax.domain.ids import ClusterName, TargetOffset, TopicPartition
from parallax.errors import DeadlineError
from parallax.index.directory import Blocks
from parallax.ports.blocks import BlockName
from parallax.runtime.deadline import Deadline
from tests.worlds.offset_world import GROUP, TOPIC, World

REGIONS = ("a", "b", "c")
RUNS = 300
PARTITIONS = 3


@pytest.fixture
def world() -> World:
    """Some forty blocks of each source in each partition."""
    return merged(PARTITIONS, RUNS)


def merged(partitions: int, runs: int) -> World:
    """Three sources merged record by record, in another order at each target."""
    world = World(REGIONS, partitions=partitions, rows_per_block=8)
    draw = random.Random(1)
    for partition in range(partitions):
        for target in ("a", "b"):
            order = [source for source in REGIONS for _ in range(runs)]
            draw.shuffle(order)
            for source in order:
                world.copy(source, target, 2, partition)
                world.marker(target, partition)
        world.watermarks(partition)
        world.trim("b", 100, partition)
    return world


class Counted:
    """Counts the requests for blocks that a world's index makes; it remembers no block beyond the last ones that were read."""

    def __init__(self, world: World) -> None:
        self.requests: list[int] = []
        index = world.index
        index._blocks = Blocks(index, memory_bytes=1)
        read = index.blocks

        def counted(names: Collection[BlockName]) -> Mapping[BlockName, bytes]:
            self.requests.append(len(names))
            return read(names)

        index.blocks = counted  # type: ignore[method-assign]

    def taken(self) -> list[int]:
        """The blocks of each request since the last time."""
        taken, self.requests = self.requests, []
        return taken


@pytest.mark.parametrize("partitions", [1, PARTITIONS])
def test_blocks_of_all_sources_and_partitions_come_together(world: World, partitions: int) -> None:
    counted = Counted(world)
    with world.service(cache=True) as service:
        for place, tenths in enumerate((2, 5, 8)):
            request = asked_at(world, tenths, partitions)
            answers = service.failover.answers(request, Deadline.after_ms(5_000))
            assert len(answers) == partitions
            taken = counted.taken()
            # The first time the plans' last blocks come before them, and those of the log start with them.
            asked, of_each = (taken, 1) if place else (taken[1:], 2)
            assert asked[:2] == [of_each * len(REGIONS) * partitions, len(REGIONS) * partitions]
            # Skip ranges may reach into the block before or after.
            assert len(asked) <= 2 + 2 * len(REGIONS) * partitions


def test_of_many_partitions_some_at_a_time_share_what_they_read() -> None:
    partitions = AT_ONCE + 3
    world = merged(partitions, 40)
    counted = Counted(world)
    with world.service(cache=True) as service:
        service.failover.answers(asked_at(world, 2, partitions), Deadline.after_ms(60_000))
        counted.taken()
        answers = service.failover.answers(asked_at(world, 5, partitions), Deadline.after_ms(60_000))
    assert len(answers) == partitions
    together = [blocks for blocks in counted.taken() if blocks > 1]
    assert together == [len(REGIONS) * AT_ONCE] * 2 + [len(REGIONS) * 3] * 2


def asked_at(world: World, tenths: int, partitions: int) -> FailoverRequest:
    """A group that has read so much of each partition, of the first by itself or of all."""
    positions = {
        TopicPartition(TOPIC, number): TargetOffset(len(world.records("a", number)) * tenths // 10)
        for number in range(partitions)
    }
    only = TopicPartition(TOPIC, 0) if partitions == 1 else None
    return FailoverRequest(
        GROUP, ClusterName("aggregate-a"), ClusterName("aggregate-b"), positions, only=only
    )


def test_a_deadline_that_passes_between_both_sides_ends_it(world: World) -> None:
    counted, now_s = Counted(world), [0.0]
    with world.service(cache=True) as service:
        service.failover.answers(asked_at(world, 2, PARTITIONS), Deadline.after_ms(5_000))
        counted.taken()
        read = world.index.blocks

        def slow(names: Collection[BlockName]) -> Mapping[BlockName, bytes]:
            now_s[0] = 2.0
            return read(names)

        world.index.blocks = slow  # type: ignore[method-assign]
        with pytest.raises(DeadlineError, match="reading the index"):
            service.failover.answers(asked_at(world, 5, PARTITIONS), Deadline(1.0, clock=lambda: now_s[0]))
    assert counted.taken() == [len(REGIONS) * PARTITIONS]
