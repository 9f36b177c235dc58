"""The rows of one answer: what was read for one question about a lineage serves the next ones."""

from __future__ import annotations

from collections.abc import Sequence

from offsetsvc.index.rows import LineageRows
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
from parallax.domain.index_rows import LineageRecord, RowBatch, StampedRow
from parallax.domain.lineages import LineageView
from parallax.domain.runs import Run
from tests.worlds.counting_index import CountingIndex

PARTITION = RoutePartition(Route(RegionName("a"), RegionName("b")), TopicPartition(TopicName("trips"), 0))
LINEAGE = Lineage(TopicId("source"), TopicId("target"))
STEP = 10


def run(number: int, *, previous_source_end: int | None = None) -> Run:
    """Three records of ten offsets each on both sides; the target is a thousand ahead."""
    start = STEP * number
    before = start - STEP + 3 if previous_source_end is None else previous_source_end
    return Run(SourceOffset(start), TargetOffset(1_000 + start), 3, SourceOffset(max(before, 0)), 0)


def rows_over(rows: Sequence[Run]) -> tuple[CountingIndex, LineageRows]:
    index = CountingIndex()
    index.write_rows([RowBatch(PARTITION, LINEAGE, tuple(rows), (), 1_000, 1)])
    record = LineageRecord(PARTITION, LINEAGE, 0, SourceOffset(0), TargetOffset(0), None, 1)
    return index, LineageRows(index, LineageView(record, None, StampedRow(rows[-1], 1_000)))


def test_neighbours_of_what_was_read_are_not_read_again() -> None:
    index, rows = rows_over([run(number) for number in range(100)])
    rows.at_target(TargetOffset(1_000 + 50 * STEP))
    assert index.reads == 1

    rows.run_before_target(TargetOffset(1_000 + 50 * STEP))
    rows.at_source(SourceOffset(51 * STEP + 1))
    floor = rows.row_before(SourceOffset(50 * STEP))

    assert index.reads == 1
    assert floor == run(49)
    rows.at_source(SourceOffset(80 * STEP))
    assert index.reads == 2
    assert rows.history().history.floor_by_source(SourceOffset(80 * STEP)) == run(80)


def test_the_ends_of_what_was_read_prove_nothing_of_what_lies_beyond() -> None:
    index, rows = rows_over([run(number) for number in range(100)])
    rows.at_target(TargetOffset(1_000 + 50 * STEP))
    last = max(row.target_start for row in rows.history().history.rows if row != run(99))
    rows.at_target(last)
    assert index.reads == 2


def test_rows_between_which_one_is_missing_are_asked_for_again() -> None:
    written = [run(number) for number in range(100)]
    index, rows = rows_over([row for row in written if row != written[51]])
    rows.at_target(TargetOffset(1_000 + 50 * STEP))
    index.write_rows([RowBatch(PARTITION, LINEAGE, (written[51],), (), 1_000, 2)])

    rows.at_target(TargetOffset(1_000 + 51 * STEP))

    assert index.reads == 2
    assert rows.history().history.floor_by_target(TargetOffset(1_000 + 51 * STEP)) == written[51]
