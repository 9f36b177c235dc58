from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from parallax.domain.block_rows import encode_turn
from parallax.domain.history import History
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
from parallax.domain.index_rows import LineageRecord, RowBatch, StampedRow, index_version, layout_of
from parallax.domain.runs import LostRange, Run
from parallax.ports.index import MappingIndex
from tests.support import unique_name
from tests.worlds.histories import HOUR_MS, MINUTE_MS, START_MS, Naive, batch, mark, random_batches, run
from tests.worlds.row_owner import RowOwner


def floor(rows: Sequence[Run], target: int) -> Run | None:
    return Naive(rows).floor_by_target(target)


def by_target(index: MappingIndex, partition: RoutePartition, lineage: Lineage, target: int) -> Sequence[Run]:
    return index.rows_at_target(partition, lineage, TargetOffset(target))


def by_source(index: MappingIndex, partition: RoutePartition, lineage: Lineage, source: int) -> Sequence[Run]:
    return index.rows_at_source(partition, lineage, SourceOffset(source))


def all_rows(
    index: MappingIndex, partition: RoutePartition, lineage: Lineage, start: int, limit: int
) -> tuple[list[Run], int, int]:
    """Every row from `start` on by pages, where they end, and how many pages it took."""
    rows: list[Run] = []
    pages = 0
    at = TargetOffset(start)
    while True:
        page = index.rows_from_target(partition, lineage, at, limit)
        pages += 1
        assert list(page.rows) == sorted(page.rows, key=lambda row: (row.target_start, row.source_start))
        assert all(row.target_end > at for row in page.rows)
        rows += [row for row in page.rows if row not in rows[-1:]]
        if page.complete_to <= at:
            return rows, at, pages
        at = page.complete_to


class TestLookups:
    @pytest.fixture(autouse=True)
    def _written(self, owner: RowOwner, partition: RoutePartition, lineage: Lineage) -> None:
        self.rows = [run(100, 10, 5), run(105, 20, 10, 105), mark(118, 45, 115), run(120, 50, 1, 115)]
        owner.write_rows(
            [
                batch(partition, lineage, self.rows[:2], version=1),
                batch(partition, lineage, self.rows[2:3], at_ms=START_MS + 1_000, version=2),
                batch(partition, lineage, self.rows[3:], at_ms=START_MS + 2_000, version=3),
            ]
        )

    @pytest.mark.parametrize(
        ("target", "expected"),
        [(10, 0), (14, 0), (19, 0), (20, 1), (44, 1), (45, 2), (49, 2), (50, 3), (10_000, 3)],
    )
    def test_the_floor_by_target_is_among_the_rows(
        self, index: MappingIndex, partition: RoutePartition, lineage: Lineage, target: int, expected: int
    ) -> None:
        assert floor(by_target(index, partition, lineage, target), target) == self.rows[expected]

    def test_before_the_first_row_there_is_no_floor_but_the_successor(
        self, index: MappingIndex, partition: RoutePartition, lineage: Lineage
    ) -> None:
        rows = by_target(index, partition, lineage, 9)
        assert floor(rows, 9) is None
        assert rows[0] == self.rows[0]

    @pytest.mark.parametrize(
        ("source", "expected", "following"),
        [(100, 0, 1), (104, 0, 1), (105, 1, 2), (117, 1, 2), (118, 2, 3), (119, 2, 3), (120, 3, None)],
    )
    def test_the_floor_and_successor_by_source_are_among_the_rows(
        self,
        index: MappingIndex,
        partition: RoutePartition,
        lineage: Lineage,
        source: int,
        expected: int,
        following: int | None,
    ) -> None:
        found = Naive(by_source(index, partition, lineage, source))
        assert found.floor_by_source(source) == self.rows[expected]
        assert found.successor_by_source(source) == (None if following is None else self.rows[following])

    def test_before_the_first_source_offset_there_is_the_successor(
        self, index: MappingIndex, partition: RoutePartition, lineage: Lineage
    ) -> None:
        found = Naive(by_source(index, partition, lineage, 99))
        assert found.floor_by_source(99) is None
        assert found.successor_by_source(99) == self.rows[0]

    def test_rows_of_another_lineage_stay_apart(
        self, index: MappingIndex, owner: RowOwner, partition: RoutePartition, lineage: Lineage
    ) -> None:
        later = Lineage(lineage.source_topic_id, lineage.target_topic_id, 1)
        owner.write_rows([batch(partition, later, [run(7, 60, 1)], version=4)])
        assert by_target(index, partition, later, 100) == [run(7, 60, 1)]
        assert floor(by_target(index, partition, lineage, 100), 100) == self.rows[3]

    def test_rows_of_another_partition_stay_apart(
        self, index: MappingIndex, partition: RoutePartition, lineage: Lineage
    ) -> None:
        other = RoutePartition(partition.route, TopicPartition(partition.topic_partition.topic, 1))
        assert not by_target(index, other, lineage, 100)
        assert not by_source(index, other, lineage, 200)

    def test_the_newest_row_is_the_last_of_the_greatest_version(
        self, index: MappingIndex, owner: RowOwner, partition: RoutePartition, lineage: Lineage
    ) -> None:
        owner.write_rows([batch(partition, lineage, self.rows[:1], version=1)])
        newest = index.newest(partition.route, partition.topic_partition.topic)
        assert newest == {(0, lineage): StampedRow(self.rows[3], START_MS + 2_000)}

    def test_pages_hold_every_row_beyond_the_start(
        self, index: MappingIndex, partition: RoutePartition, lineage: Lineage
    ) -> None:
        page = index.rows_from_target(partition, lineage, TargetOffset(15), 100)
        assert [row for row in page.rows if row.count] == [self.rows[1], self.rows[3]]
        assert page.complete_to == 51


def test_an_empty_index_answers_with_nothing(
    index: MappingIndex, partition: RoutePartition, lineage: Lineage
) -> None:
    topic = partition.topic_partition.topic
    assert not by_target(index, partition, lineage, 0)
    assert not by_source(index, partition, lineage, 0)
    assert not index.newest(partition.route, topic)
    assert not index.lineages(partition.route, topic)
    assert not index.lost_ranges([(partition, lineage)])[partition, lineage]
    page = index.rows_from_target(partition, lineage, TargetOffset(5), 10)
    assert (page.rows, page.complete_to) == ((), 5)


def test_floors_cross_the_border_of_an_hour(
    index: MappingIndex, owner: RowOwner, partition: RoutePartition, lineage: Lineage
) -> None:
    before, after = run(0, 0, 10), run(10, 30, 10, 10)
    owner.write_rows([batch(partition, lineage, [before], at_ms=START_MS + HOUR_MS - 1, version=1)])
    owner.write_rows([batch(partition, lineage, [after], at_ms=START_MS + HOUR_MS, version=2)])
    assert floor(by_target(index, partition, lineage, 29), 29) == before
    assert floor(by_target(index, partition, lineage, 30), 30) == after
    found = Naive(by_source(index, partition, lineage, 9))
    assert (found.floor_by_source(9), found.successor_by_source(9)) == (before, after)


def test_floors_cross_days_without_rows(
    index: MappingIndex, owner: RowOwner, partition: RoutePartition, lineage: Lineage
) -> None:
    rows = [run(0, 0, 10), run(10, 30, 10, 10), run(20, 70, 10, 20)]
    for day, row in enumerate(rows):
        owner.write_rows(
            [batch(partition, lineage, [row], at_ms=START_MS + day * 72 * HOUR_MS, version=day + 1)]
        )
    assert [floor(by_target(index, partition, lineage, at), at) for at in (29, 69, 71)] == rows
    found = Naive(by_source(index, partition, lineage, 15))
    assert (found.floor_by_source(15), found.successor_by_source(15)) == (rows[1], rows[2])


def test_a_later_watermark_stands_for_an_earlier_one_at_the_same_place(
    index: MappingIndex, owner: RowOwner, partition: RoutePartition, lineage: Lineage
) -> None:
    for second in range(3):
        owner.write_rows(
            [
                batch(
                    partition,
                    lineage,
                    [mark(5, 9, 5, epoch=second)],
                    at_ms=START_MS + 1_000 * second,
                    version=second + 1,
                )
            ]
        )
    assert floor(by_target(index, partition, lineage, 9), 9) == mark(5, 9, 5, epoch=2)
    owner.write_rows([batch(partition, lineage, [run(5, 9, 2, 5, epoch=2)], version=4)])
    assert floor(by_target(index, partition, lineage, 9), 9) == run(5, 9, 2, 5, epoch=2)


def test_lineages_come_by_partition_and_sequence_and_the_greater_version_stays(index: MappingIndex) -> None:
    route = Route(RegionName("a"), RegionName(unique_name("b")))
    topic = TopicName("trips")

    def record(
        partition: int, sequence: int, closed_at: int | None, version: int, lost_epoch: int = -1
    ) -> LineageRecord:
        return LineageRecord(
            RoutePartition(route, TopicPartition(topic, partition)),
            Lineage(TopicId("s"), TopicId("t"), sequence),
            sequence,
            SourceOffset(3),
            TargetOffset(4),
            None if closed_at is None else SourceOffset(closed_at),
            version,
            lost_epoch,
        )

    index.write_lineages([record(1, 0, None, 5), record(0, 1, None, 7, 3)])
    index.write_lineages([record(0, 0, 90, 7), record(0, 0, None, 6)])
    index.write_lineages([record(1, 0, 40, 4)])
    assert index.lineages(route, topic) == [
        record(0, 0, 90, 7),
        record(0, 1, None, 7, 3),
        record(1, 0, None, 5),
    ]
    assert index.topics(route) == [topic]
    assert not index.topics(Route(RegionName("b"), route.target))


def test_lost_ranges_are_kept_in_order_and_once(
    index: MappingIndex, owner: RowOwner, partition: RoutePartition, lineage: Lineage
) -> None:
    later = LostRange(SourceOffset(50), SourceOffset(60), TargetOffset(9))
    earlier = LostRange(SourceOffset(10), SourceOffset(12), TargetOffset(3))
    batches = [RowBatch(partition, lineage, (), (later, earlier), START_MS, 3)]
    owner.write_rows(batches)
    owner.write_rows(batches)
    other = (partition, Lineage(TopicId("another"), lineage.target_topic_id))
    assert index.lost_ranges([(partition, lineage), other]) == {
        (partition, lineage): [earlier, later],
        other: [],
    }
    assert index.lost_ranges([]) == {}


def test_indexed_is_what_turns_tell_and_what_blocks_have(index: MappingIndex) -> None:
    route = Route(RegionName("a"), RegionName(unique_name("b")))
    assert index.indexed_up_to(route, 1, 0) == 0
    index.save_blocks_to(route, 1, 0, 0, 50)
    assert index.indexed_up_to(route, 1, 0) == 50
    for run_log_next in (60, 70):
        index.write_turn(route, 1, 0, run_log_next, encode_turn(50, START_MS, {}))
    assert index.indexed_up_to(route, 1, 0) == 70
    index.save_blocks_to(route, 1, 0, 0, 70)
    assert index.indexed_up_to(route, 1, 0) == 70
    assert index.indexed_up_to(route, 1, 1) == index.indexed_up_to(route, 2, 0) == 0


def test_the_newest_row_lasts_though_no_block_does(
    index: MappingIndex, partition: RoutePartition, lineage: Lineage
) -> None:
    index.write_lineages([LineageRecord(partition, lineage, 0, SourceOffset(0), TargetOffset(0), None, 1)])
    index.write_newest([batch(partition, lineage, [run(100, 10, 5)], version=1)])
    index.write_newest([batch(partition, lineage, [run(105, 20, 10, 105)], at_ms=START_MS + 1, version=3)])
    index.write_newest([batch(partition, lineage, [mark(105, 17, 105)], version=2)])
    newest = index.newest(partition.route, partition.topic_partition.topic)
    assert newest == {(0, lineage): StampedRow(run(105, 20, 10, 105), START_MS + 1)}
    history = index.histories({(partition, lineage): newest[0, lineage]})[partition, lineage]
    assert list(history.rows) == [run(105, 20, 10, 105)]


def test_ten_thousand_runs_are_paged_completely(
    index: MappingIndex, owner: RowOwner, partition: RoutePartition, lineage: Lineage
) -> None:
    rows = [run(10 * i, 20 * i, 10, 10 * i) for i in range(10_000)]
    owner.write_rows(
        [
            batch(partition, lineage, rows[i : i + 5], at_ms=START_MS + 200 * i, version=i + 5)
            for i in range(0, len(rows), 5)
        ]
    )
    found, end, pages = all_rows(index, partition, lineage, 0, 3_000)
    assert found == rows
    assert end == rows[-1].target_end
    assert pages > 2
    for i in (0, 1, 777, 5_000, 9_999):
        assert floor(by_target(index, partition, lineage, 20 * i + 19), 20 * i + 19) == rows[i]
        assert Naive(by_source(index, partition, lineage, 10 * i)).floor_by_source(10 * i) == rows[i]


def test_many_rows_at_one_target_offset_do_not_stop_the_pages(
    index: MappingIndex, owner: RowOwner, partition: RoutePartition, lineage: Lineage
) -> None:
    marks = [mark(5 + i, 9, 5) for i in range(1_200)]
    rows = [run(0, 0, 5), *marks, run(2_000, 9, 4, 5)]
    owner.write_rows([batch(partition, lineage, [row], version=i + 1) for i, row in enumerate(rows)])
    found, end, _ = all_rows(index, partition, lineage, 0, 50)
    assert [row for row in found if row.count] == [rows[0], rows[-1]]
    assert end == 13
    assert Naive(by_source(index, partition, lineage, 600)).floor_by_source(600) == mark(600, 9, 5)


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # shrinking over a real store takes many minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_any_history_is_found_as_a_naive_search_finds_it(
    index: MappingIndex, lineage: Lineage, seed: int, data: st.DataObject
) -> None:
    route = Route(RegionName(unique_name("a")), RegionName("b"))
    partition = RoutePartition(route, TopicPartition(TopicName(unique_name("random")), 3))
    pause_ms = data.draw(st.sampled_from([2_000, 5 * MINUTE_MS, 3 * HOUR_MS]))
    batches = random_batches(seed, partition, lineage, batches=40, longest_pause_ms=pause_ms)
    owner = RowOwner(index)
    for start in range(0, len(batches), 7):
        owner.write_rows(batches[start : start + 7], all_in_blocks=data.draw(st.booleans()))
    naive = Naive.of(batches)
    # A watermark that others follow says less than they do, and blocks may lack it.
    lasting = Naive([row for row in naive.rows if row.count or row == naive.rows[-1]])
    end = max(row.target_end for row in naive.rows)
    source_end = max(row.source_end for row in naive.rows)
    for target in data.draw(st.lists(st.integers(0, end + 5), min_size=3, max_size=6)):
        rows = by_target(index, partition, lineage, target)
        found = Naive(rows)
        assert _says_as_much(
            found.floor_by_target(target), naive.floor_by_target(target), lasting.floor_by_target(target)
        )
        History(lineage, rows)
    for source in data.draw(st.lists(st.integers(0, source_end + 5), min_size=3, max_size=6)):
        rows = by_source(index, partition, lineage, source)
        found = Naive(rows)
        assert _says_as_much(
            found.floor_by_source(source), naive.floor_by_source(source), lasting.floor_by_source(source)
        )
        assert _says_as_much(
            found.successor_by_source(source),
            naive.successor_by_source(source),
            lasting.successor_by_source(source),
        )
        History(lineage, rows)
    start = data.draw(st.integers(0, end))
    rows, complete_to, _ = all_rows(index, partition, lineage, start, data.draw(st.sampled_from([5, 1_000])))
    assert [row for row in rows if row.count] == naive.runs_beyond(start)
    assert complete_to == max(end, start)
    bound = data.draw(st.integers(start + 1, end + 10))
    page = index.rows_from_target(partition, lineage, TargetOffset(start), 1_000, TargetOffset(bound))
    assert page.complete_to >= min(bound, end)
    assert page.complete_to <= max(end, start)
    assert [row for row in page.rows if row.count and row.target_start < bound] == [
        row for row in naive.runs_beyond(start) if row.target_start < bound
    ]
    newest = index.newest(route, partition.topic_partition.topic)[3, lineage]
    assert newest == StampedRow(batches[-1].rows[-1], batches[-1].committed_at_ms)


def _says_as_much(found: Run | None, *expected: Run | None) -> bool:
    """Equal to one of them, but for watermarks at one place, of which one may stand for the others."""
    return any(
        found == row
        or (
            found is not None
            and row is not None
            and (found.source_start, found.target_start) == (row.source_start, row.target_start)
            and found.count >= row.count
        )
        for row in expected
    )


def test_versions_grow_with_the_run_log_and_with_the_layout() -> None:
    assert index_version(layout=0, run_log_offset=8) > index_version(layout=0, run_log_offset=7)
    assert index_version(layout=1, run_log_offset=0) > index_version(layout=0, run_log_offset=2**40)
    assert layout_of(index_version(layout=7, run_log_offset=2**40)) == 7


def test_stops_are_told_by_route_until_they_are_gone(index: MappingIndex) -> None:
    route, other = (Route(RegionName(unique_name("r")), RegionName("b")) for _ in range(2))
    first, second = (TopicPartition(TopicName("trips"), number) for number in (0, 3))
    assert index.stops(route) == {}
    index.write_stops(route, {first: "too large", second: "damaged"}, ())
    index.write_stops(other, {first: "elsewhere"}, ())
    assert index.stops(route) == {first: "too large", second: "damaged"}
    index.write_stops(route, {second: "still damaged"}, {first})
    assert index.stops(route) == {second: "still damaged"}
    assert index.stops(other) == {first: "elsewhere"}
