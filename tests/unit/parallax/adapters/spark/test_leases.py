"""Epochs and leases in the terms of Spark's data sources; none of it needs Spark to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.streaming.datasource import ReadAllAvailable

from parallax.adapters.spark.leases import LeaseMessage, LeaseReader, LeaseRow, LeaseWriter


class Planner:
    def plan(self, epoch: int) -> Sequence[str]:
        return [f"{epoch}/0", f"{epoch}/1"]


class Holder:
    def __init__(self) -> None:
        self.ended: list[tuple[int, Sequence[Mapping[str, int]]]] = []
        self.failed: list[tuple[int, Sequence[Mapping[str, int]]]] = []

    def hold(self, lease: str) -> Mapping[str, int]:
        return {"records": len(lease)}

    def epoch_ended(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        self.ended.append((epoch, counts))

    def epoch_failed(self, epoch: int, counts: Sequence[Mapping[str, int]]) -> None:
        self.failed.append((epoch, counts))


def test_there_is_always_a_next_epoch() -> None:
    reader, offset = LeaseReader(Planner()), LeaseReader(Planner()).initialOffset()
    for epoch in (1, 2, 3):
        offset = reader.latestOffset(offset, ReadAllAvailable())
        assert offset == {"epoch": epoch}


def test_available_now_is_one_epoch_and_no_more() -> None:
    reader = LeaseReader(Planner())
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset({"epoch": 4}, ReadAllAvailable())
    assert first == {"epoch": 5}
    assert reader.latestOffset(first, ReadAllAvailable()) == first


def test_a_task_reads_its_lease_as_one_row() -> None:
    reader = LeaseReader(Planner())
    rows = reader.partitions({"epoch": 1}, {"epoch": 2})
    assert [list(reader.read(row)) for row in rows] == [[("2/0",)], [("2/1",)]]
    assert rows[0] == LeaseRow("2/0")


def test_a_task_says_what_its_lease_counted() -> None:
    writer = LeaseWriter(Holder())
    assert writer.write(iter([("2/0",)])) == LeaseMessage(({"records": 3},))


def test_the_driver_hears_of_the_epoch_that_spark_calls_a_batch() -> None:
    holder = Holder()
    writer = LeaseWriter(holder)
    writer.commit([LeaseMessage(({"records": 1},)), LeaseMessage(({"records": 2},))], 0)
    writer.abort([LeaseMessage(({"records": 1},)), None], 1)
    assert holder.ended == [(1, [{"records": 1}, {"records": 2}])]
    assert holder.failed == [(2, [{"records": 1}])]
