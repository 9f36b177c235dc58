"""A cluster's own records: the source's side of the rows of a route that reads it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from parallax.domain.history import History
from parallax.domain.ids import Lineage, RegionName, SourceId, SourceOffset, TargetOffset, TopicId
from parallax.domain.own_log import OwnLog, own_log, own_loss, own_truncations
from parallax.domain.place import Via, position_of
from parallax.domain.progress import SourceHistory, TargetTruncation
from parallax.domain.runs import Run, watermark

HERE = SourceId(RegionName("x"), TopicId("x-1"))
LINEAGE = Lineage(TopicId("x-1"), TopicId("y-1"))


def run(source: int, target: int, count: int, before: int, epoch: int = 0) -> Run:
    return Run(SourceOffset(source), TargetOffset(target), count, SourceOffset(before), epoch)


def at(offset: int) -> Run:
    """A watermark above own records that end there."""
    return run(offset, offset, 0, offset)


def told(*rows: Run, first: int = 0, topic: SourceId = HERE) -> tuple[SourceOffset, SourceHistory]:
    return SourceOffset(first), SourceHistory(topic, History(LINEAGE, rows))


def some_rows(chance: Random) -> list[Run]:
    """Runs and watermarks with copies between the own records, and other records between those of the target."""
    rows: list[Run] = []
    source = target = before = 0
    for _ in range(chance.randint(0, 12)):
        source, target = source + chance.randint(0, 4), target + chance.randint(0, 4)
        count = chance.choice([0, 1, 3])
        rows.append(run(source, target, count, before))
        source, target = source + count, target + count
        before = source if count else before
    return rows


@pytest.mark.parametrize("seed", range(300))
def test_it_answers_as_the_same_rows_would_with_one_offset_on_both_sides(seed: int) -> None:
    chance = Random(seed)
    rows = some_rows(chance)
    end = chance.choice([None, SourceOffset(chance.randint(1, 40))])
    log = OwnLog(LINEAGE, History(LINEAGE, rows), end)
    own = [replace(row, target_start=TargetOffset(row.source_start)) for row in rows]
    if end is not None:
        kept = [row for row in own if row.source_start < end]
        own = [replace(row, count=min(row.count, end - row.source_start)) for row in kept]
    wanted = History(LINEAGE, own)
    # Watermarks that stood at several places of the target are one here.
    assert list(dict.fromkeys(log.rows)) == list(wanted.rows)
    assert (log.first, log.newest) == (wanted.first, wanted.newest)
    for offset in range(45):
        assert log.floor_by_source(SourceOffset(offset)) == wanted.floor_by_source(SourceOffset(offset))
        assert log.floor_by_target(TargetOffset(offset)) == wanted.floor_by_target(TargetOffset(offset))
        between = list(log.between_targets(TargetOffset(offset), TargetOffset(offset + 5)))
        assert set(wanted.between_targets(TargetOffset(offset), TargetOffset(offset + 5))) >= set(between)
        place = position_of(SourceOffset(offset), log)[0]
        assert (-1 if place is None else place) >= (position_of(SourceOffset(offset), wanted)[0] or -1)
        assert place is None or place <= max(offset, end or 0, *(row.source_start for row in rows))


def test_what_a_group_has_read_beyond_all_rows_counts_and_copies_between_own_records_are_none() -> None:
    (item,) = own_log(HERE, [told(run(0, 0, 3, 0), run(8, 3, 2, 3))], (SourceOffset(12), 4))
    assert [row.target_start for row in item.history.rows] == [0, 8, 12]
    assert item.history.newest == replace(at(12), source_leader_epoch=4)
    assert item.history.epoch_ends == ((0, 10), (4, 12))
    assert position_of(SourceOffset(3), item.history)[:2] == (8, Via.BEFORE)


def test_without_an_epoch_it_is_that_of_the_newest_record_known() -> None:
    (item,) = own_log(HERE, [told(run(0, 0, 3, 0, 2))], (SourceOffset(5), -1))
    assert item.history.epoch_ends == ((2, 5),)


def test_without_any_epoch_it_counts_for_nothing() -> None:
    assert own_log(HERE, [], (SourceOffset(5), -1)) == []
    mark = watermark(source_next=SourceOffset(0), target_end=TargetOffset(0), last_run_end=SourceOffset(0))
    (item,) = own_log(HERE, [told(mark)], (SourceOffset(5), -1))
    assert item.history.newest == mark


@pytest.mark.parametrize(
    ("rows", "read", "kept"),
    [
        ([run(0, 0, 3, 0, 0), run(5, 3, 2, 3, 1)], (6, 0), 3),
        ([run(0, 0, 3, 0, 0), run(5, 3, 2, 3, 1)], (5, 0), None),
        ([run(0, 0, 3, 0, 0), run(5, 3, 2, 3, 1)], (9, 1), None),
        ([run(5, 3, 2, 0, 1)], (6, 0), 0),
        # Confirmed in a later epoch, which may have begun above.
        ([run(0, 0, 3, 0, 0), run(5, 3, 0, 3, 1)], (9, 0), None),
        ([run(0, 0, 3, 0, 0), run(5, 3, 2, 3, 1), run(8, 9, 0, 7, 1)], (9, 0), 3),
        ([run(0, 0, 3, 0, 0)], (9, -1), None),
        ([], (9, 0), None),
    ],
)
def test_a_record_of_a_later_epoch_below_where_somebody_read_shows_a_loss(
    rows: list[Run], read: tuple[int, int], kept: int | None
) -> None:
    found = own_loss(HERE, [told(*rows)], (SourceOffset(read[0]), read[1]))
    assert found == (None if kept is None else TargetTruncation(TargetOffset(kept), TargetOffset(read[0]), 1))


def test_other_incarnations_of_the_topic_tell_nothing() -> None:
    other = SourceId(HERE.region, TopicId("x-0"))
    rows = [told(run(0, 0, 3, 0, 1), topic=other)]
    assert own_log(HERE, rows) == []
    assert own_loss(HERE, rows, (SourceOffset(9), 0)) is None


def test_where_the_log_was_cut_what_was_read_before_is_gone() -> None:
    older, newer = told(run(0, 0, 9, 0)), told(run(4, 9, 2, 4, 3), first=4)
    logs = own_log(HERE, [older, newer])
    assert [(item.history.newest, item.closed_at) for item in logs] == [
        (run(0, 0, 4, 0), 4),
        (run(4, 4, 2, 4, 3), None),
    ]
    assert own_truncations(HERE, [older, newer]) == [TargetTruncation(TargetOffset(4), TargetOffset(9), 3)]


def test_before_anything_was_copied_of_the_newer_log_a_commit_of_any_epoch_may_be_from_before() -> None:
    mark = watermark(source_next=SourceOffset(4), target_end=TargetOffset(9), last_run_end=SourceOffset(0))
    lost = own_truncations(HERE, [told(run(0, 0, 9, 0, 2)), told(mark, first=4)])
    assert lost == [TargetTruncation(TargetOffset(4), TargetOffset(9), 2**31 - 1)]


def test_copies_that_were_lost_are_read_again_from_a_log_that_lost_nothing() -> None:
    assert own_truncations(HERE, [told(run(0, 0, 9, 0)), told(run(4, 4, 5, 4), first=4)]) == []
