"""The rows of one answer: what was read for one question about a lineage serves the next ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from offsetsvc.index.rows import LineageRows
from offsetsvc.resume.skips import Limits, collect_skips
from parallax.domain.ids import (
    Lineage,
    RegionName,
    Route,
    RoutePartition,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.index_rows import LineageRecord, RowBatch, StampedRow
from parallax.domain.lineages import LineageView
from parallax.domain.place import LogRange
from parallax.domain.progress import Progress, SourcePosition
from parallax.domain.resume import Resume, resume
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


def a_later_row_is_there_first() -> Resume:
    """Runs 0 to 2 are indexed; of the write under way run 4 is there, run 3 is not. Run 4's first record was consumed."""
    source = SourceId(PARTITION.route.source, TopicId("source"))
    index = CountingIndex()
    index.write_rows(
        [RowBatch(PARTITION, LINEAGE, tuple(run(number) for number in (0, 1, 2, 4)), (), 1_000, 1)]
    )
    record = LineageRecord(PARTITION, LINEAGE, 0, SourceOffset(0), TargetOffset(0), None, 1)
    rows = LineageRows(index, LineageView(record, None, StampedRow(run(2), 1_000)))
    consumed = SourcePosition(0, SourceOffset(4 * STEP + 1), ((0, SourceOffset(4 * STEP + 1)),))
    rows.at_source(consumed.source_next)
    collect_skips(
        positions={source: consumed},
        origin=[],
        destination=[rows],
        start=TargetOffset(1_000),
        limits=Limits(1_000, 1_000),
    )
    return resume(
        commit=TargetOffset(0),
        regions=[source.region],
        origin=[],
        destination=[rows.history()],
        destination_log=LogRange(TargetOffset(0), TargetOffset(0)),
        progress=Progress(
            aggregate_cluster(RegionName("b")), TopicId("target"), TargetOffset(0), {source: consumed}
        ),
    )


def test_what_lies_before_a_row_that_is_there_too_early_is_pending() -> None:
    answer = a_later_row_is_there_first()
    assert answer.complete_to == run(2).target_end
    assert answer.sources[0].pending == (run(2).source_end, SourceOffset(4 * STEP + 1))


def test_a_row_beyond_the_newest_one_would_hide_the_hole_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(self: LineageRows, rows: Sequence[Run]) -> None:
        self._rows.update(rows)
        self._history = None

    monkeypatch.setattr(LineageRows, "_add", add)
    assert a_later_row_is_there_first().complete_to is None
