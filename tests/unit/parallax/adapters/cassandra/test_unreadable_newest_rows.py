"""A newest row that can't be read concerns its own partition, and is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from parallax.adapters.cassandra.codec import lineage_body, newest_body
from parallax.adapters.cassandra.records import CassandraRecords
from parallax.config.config import Index
from parallax.domain.ids import (
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.index_rows import LineageRecord
from parallax.domain.runs import Run

ROUTE = Route.parse("a->b")
TOPIC = TopicName("trips")
LINEAGE = Lineage(TopicId("s"), TopicId("t"))


class TwoPartitions:
    """Answers of Cassandra: the newest row of partition 1 is of a later format."""

    def prepare(self, cql: str) -> str:
        return cql

    def run_all(self, requests: Sequence[tuple[str, Any]]) -> list[list[tuple[object, ...]]]:
        return [self._rows(cql) for cql, _ in requests]

    def _rows(self, cql: str) -> list[tuple[object, ...]]:
        if "newest_told" in cql:
            body = newest_body(Run(SourceOffset(0), TargetOffset(0), 3, SourceOffset(0)), 5)
            return [(0, str(LINEAGE), body), (1, str(LINEAGE), b"\x02" + body[1:])]
        return [(number, str(LINEAGE), lineage_body(self._record(number))) for number in range(2)]

    def _record(self, number: int) -> LineageRecord:
        partition = RoutePartition(ROUTE, TopicPartition(TOPIC, number))
        return LineageRecord(partition, LINEAGE, 0, SourceOffset(0), TargetOffset(0), None, 1)


def test_the_row_of_another_partition_is_told_and_what_is_wrong_is_named() -> None:
    records = CassandraRecords(TwoPartitions(), "k", Index())  # type: ignore[arg-type]
    for _ in range(2):  # also as it is remembered
        told = records.told_topics([ROUTE], TOPIC)[ROUTE]
        assert list(told.newest) == [(0, LINEAGE)]
        assert told.newest[0, LINEAGE].row.count == 3
        (problem,) = told.unreadable.values()
        assert list(told.unreadable) == [(1, LINEAGE)]
        assert problem.startswith(
            f"newest_told of a->b, trips-1, {LINEAGE}, can't be read (a block of format 02, "
        )
        assert "see docs/formats.md" in problem
