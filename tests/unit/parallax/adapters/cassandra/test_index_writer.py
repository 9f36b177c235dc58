"""The order of a write: readers must find nothing whose predecessors are still on their way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from parallax.adapters.cassandra.connection import CassandraConnection
from parallax.adapters.cassandra.index_writer import IndexWriter
from parallax.config.config import Index
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
from parallax.domain.runs import Run

PARTITION = RoutePartition(Route(RegionName("a"), RegionName("b")), TopicPartition(TopicName("trips"), 0))


class Recorder:
    """Takes statements and names the tables of those that ran side by side."""

    def __init__(self) -> None:
        self.stages: list[set[str]] = []

    def prepare(self, cql: str) -> str:
        return cql

    def run_all(self, requests: Iterable[tuple[Any, Any]]) -> list[Any]:
        tables = {str(statement).split("INTO keys.")[1].split(" ")[0] for statement, _ in requests}
        if tables:
            self.stages.append(tables)
        return []


def test_coarse_rows_follow_the_fine_ones_and_the_newest_follows_all(monkeypatch: Any) -> None:
    connection = Recorder()
    monkeypatch.setattr(
        "parallax.adapters.cassandra.index_writer.together", lambda statement, _rows: (statement, ())
    )
    writer = IndexWriter(cast("CassandraConnection", connection), "keys", Index())
    rows = tuple(
        Run(SourceOffset(10 * n), TargetOffset(10 * n), 3, SourceOffset(max(0, 10 * n - 7)), 0)
        for n in range(600)
    )
    lineage = Lineage(TopicId("source"), TopicId("target"))

    writer.write_rows([RowBatch(PARTITION, lineage, rows, (), 1_000, 1)])

    assert connection.stages == [
        {"fine_rows"},
        {"coarse_rows_by_target", "coarse_rows_by_source", "coarse_days"},
        {"newest_rows"},
    ]
