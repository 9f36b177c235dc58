"""Tails of lineages: how long they are remembered, and that look-ups in them are those of the index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from offsetsvc.index.memory import IndexMemory
from offsetsvc.index.window import RowWindow
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
from parallax.domain.index_rows import LineageRecord, LineageTail, StampedRow
from parallax.domain.lineages import LineageView
from tests.memory.index import MemoryMappingIndex
from tests.worlds.histories import START_MS, batch, mark, random_batches, run

PARTITION = RoutePartition(Route(RegionName("a"), RegionName("b")), TopicPartition(TopicName("trips"), 0))
LINEAGE = Lineage(TopicId("source"), TopicId("target"))
KEY = (PARTITION, LINEAGE)
MAX_AGE_MS = 100


class CountingIndex(MemoryMappingIndex):
    """Counts the reads of tails."""

    reads = 0

    def tails(
        self, newest: Mapping[tuple[RoutePartition, Lineage], StampedRow]
    ) -> Mapping[tuple[RoutePartition, Lineage], LineageTail]:
        self.reads += 1
        return super().tails(newest)


class World:
    """An index, its tails, and a clock."""

    def __init__(self, tail_rows: int) -> None:
        self.now_s = 100.0
        self.index = CountingIndex(tail_rows)
        self.memory = IndexMemory(self.index, max_age_ms=MAX_AGE_MS, clock=lambda: self.now_s)

    def view(self, source_first: int = 0) -> LineageView:
        newest = self.index.newest(PARTITION.route, PARTITION.topic_partition.topic).get((0, LINEAGE))
        record = LineageRecord(PARTITION, LINEAGE, 0, SourceOffset(source_first), TargetOffset(0), None, 1)
        return LineageView(record, None, newest)

    def stretch(self, source_first: int = 0) -> RowWindow:
        found = self.memory.tails_of([self.view(source_first)])[KEY].window
        assert found is not None
        return found


def test_a_tail_is_read_again_when_it_is_old_or_ends_below_the_newest_row() -> None:
    world = World(10)
    world.index.write_rows([batch(PARTITION, LINEAGE, [run(0, 0, 5)], version=1)])
    first = world.stretch()
    assert world.stretch() == first
    assert world.index.reads == 1
    world.index.write_rows([batch(PARTITION, LINEAGE, [run(5, 5, 5, 5)], version=2)])
    assert world.stretch().rows[-1] == run(5, 5, 5, 5)
    assert world.index.reads == 2
    # Nothing is newer: there is nothing to read, but what a replay may write late.
    world.now_s += MAX_AGE_MS / 1_000 + 0.001
    world.stretch()
    assert world.index.reads == 2
    world.now_s += 1
    world.stretch()
    assert world.index.reads == 3
    world.index.write_rows([batch(PARTITION, LINEAGE, [mark(10, 10, 10)], version=3)])
    world.stretch()
    assert world.index.reads == 3
    world.now_s += MAX_AGE_MS / 1_000 + 0.001
    assert world.stretch().rows[-1] == mark(10, 10, 10)


def test_the_tail_of_an_idle_lineage_is_left_alone_once_it_has_settled() -> None:
    world = World(10)
    world.index.write_rows([batch(PARTITION, LINEAGE, [run(0, 0, 5), mark(5, 5, 5)], version=1)])
    world.stretch()
    world.now_s += 1
    settled = world.stretch()
    assert world.index.reads == 2
    for version in range(2, 30):
        world.now_s += 1
        stamped = replace(
            batch(PARTITION, LINEAGE, [mark(5, 5, 5)], version=version), committed_at_ms=START_MS + version
        )
        world.index.write_rows([stamped])
        assert world.stretch() == settled
    assert world.index.reads == 2
    world.now_s += 2
    world.stretch()
    assert world.index.reads == 3


def test_a_lineage_without_rows_has_no_tail_and_one_whose_rows_are_gone_no_stretch() -> None:
    world = World(10)
    assert world.memory.tails_of([world.view()]) == {}
    gone = LineageView(world.view().record, None, StampedRow(run(0, 0, 5), START_MS))
    assert world.memory.tails_of([gone])[KEY].window is None


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("tail_rows", [1, 5, 30, 1_000])
def test_what_a_tail_answers_is_what_the_index_answers(seed: int, tail_rows: int) -> None:
    world = World(tail_rows)
    world.index.write_rows(random_batches(seed, PARTITION, LINEAGE, batches=40, longest_pause_ms=1_000))
    stretch = world.stretch()
    end = stretch.rows[-1].target_end if stretch.rows else 0
    answered = 0
    for offset in range(end + 5):
        target, source = TargetOffset(offset), SourceOffset(offset)
        for found, expected in (
            (stretch.around_target(target), world.index.rows_at_target(*KEY, target)),
            (stretch.around_source(source), world.index.rows_at_source(*KEY, source)),
        ):
            assert found is None or found == expected
            answered += found is not None
        for limit in (1, 4, 1_000):
            page, whole = stretch.page(target, limit), world.index.rows_from_target(*KEY, target, 10_000)
            if page is not None:
                assert page.complete_to > target or page.complete_to >= end
                below = [row for row in whole.rows if row.target_start < page.complete_to]
                assert [row for row in page.rows if row.count] == [row for row in below if row.count]
    assert answered > 0 or tail_rows < 5
    if tail_rows == 1_000:
        assert answered == 2 * (end + 5)


def test_the_beginning_of_a_lineage_is_known_as_such() -> None:
    world = World(1_000)
    world.index.write_rows([batch(PARTITION, LINEAGE, [run(50, 3, 5, 50)], version=1)])
    assert world.stretch(source_first=50).around_target(TargetOffset(0)) is not None
    world.memory = IndexMemory(world.index, max_age_ms=0)
    assert world.stretch(source_first=10).low == 0
