from __future__ import annotations

from lab.bench.rows.history import RECORDS_PER_RUN, HistorySize, batches, merged
from parallax.domain.ids import Lineage, Route, TopicId, TopicName, TopicPartition

SIZE = HistorySize(runs=50, runs_per_row=20, seconds=300)


def test_a_history_merges_sources_without_gaps_but_markers() -> None:
    found = merged(SIZE, sources=3, seed=1)
    assert [len(runs) for runs in found] == [50, 50, 50]
    starts = sorted(run.target_start for runs in found for run in runs)
    assert starts == list(range(0, SIZE.end(3), RECORDS_PER_RUN + 1))
    for runs in found:
        assert [run.source_start for run in runs] == [number * RECORDS_PER_RUN for number in range(50)]
        assert [run.target_start for run in runs] == sorted(run.target_start for run in runs)


def test_each_target_has_an_order_of_its_own() -> None:
    assert merged(SIZE, sources=2, seed=1) == merged(SIZE, sources=2, seed=1)
    assert merged(SIZE, sources=2, seed=1) != merged(SIZE, sources=2, seed=2)


def test_runs_are_written_in_rows_over_the_whole_time() -> None:
    (runs,) = merged(SIZE, sources=1, seed=1)
    place = TopicPartition(TopicName("trips"), 3)
    lineage = Lineage(TopicId("s"), TopicId("t"))
    rows = list(batches(Route.parse("a->b"), place, lineage, runs, SIZE, end_ms=1_000_000))
    assert [len(row.rows) for row in rows] == [20, 20, 10]
    assert [run for row in rows for run in row.rows] == runs
    assert [row.committed_at_ms for row in rows] == [800_000, 900_000, 1_000_000]
    assert [row.version for row in rows] == [1, 2, 3]
