"""Epochs and leases in the terms of Spark's data sources; none of it needs Spark to run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable
from structlog.testing import capture_logs

from parallax.adapters.spark import leases
from parallax.adapters.spark.leases import LeaseMessage, LeaseReader, LeaseWriter, Sealed
from parallax.domain.ids import RegionName, Route
from replicator.leases.query import LeasePlan


class Planner:
    def plan(self, epoch: int) -> Sequence[Mapping[str, int]]:
        return [{"epoch": epoch, "shard": shard} for shard in (0, 1)]


class Holder:
    def hold(self, lease: Mapping[str, int]) -> Mapping[str, int]:
        return {"records": lease["epoch"] + lease["shard"]}


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> LeaseWriter:
    # It would change the logs of other tests.
    monkeypatch.setattr(leases, "configure_logging", lambda **_: None)
    return LeaseWriter("replicate-b", Sealed(Holder()), json_logs=False)


def test_there_is_always_a_next_epoch() -> None:
    reader, offset = LeaseReader(Sealed(Planner())), LeaseReader(Sealed(Planner())).initialOffset()
    for epoch in (1, 2, 3):
        offset = reader.latestOffset(offset, ReadAllAvailable())
        assert offset == {"epoch": epoch}


def test_available_now_is_one_epoch_and_no_more() -> None:
    reader = LeaseReader(Sealed(Planner()))
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset({"epoch": 4}, ReadAllAvailable())
    assert first == {"epoch": 5}
    assert reader.latestOffset(first, ReadAllAvailable()) == first


def test_a_task_reads_its_lease_as_one_row_and_says_what_it_counted(writer: LeaseWriter) -> None:
    reader = LeaseReader(Sealed(Planner()))
    partitions = reader.partitions({"epoch": 1}, {"epoch": 2})
    assert len(partitions) == 2
    for partition, records in zip(partitions, (2, 3), strict=True):
        (row,) = reader.read(partition)
        assert writer.write(iter([row])) == LeaseMessage(({"records": records},))


def test_the_driver_logs_the_sums_of_the_epoch_that_spark_calls_a_batch(writer: LeaseWriter) -> None:
    with capture_logs() as lines:
        writer.commit([LeaseMessage(({"a": 1},)), LeaseMessage(({"a": 2, "b": 3}, {}))], 0)
        writer.abort([LeaseMessage(({"records": 1},)), None], 1)
    ended, failed = lines
    assert ended == {
        "event": "epoch_ended",
        "log_level": "info",
        "query": "replicate-b",
        "epoch": 1,
        "leases": 3,
        "a": 3,
        "b": 3,
    }
    assert (failed["event"], failed["epoch"], failed["leases"], failed["records"]) == (
        "epoch_failed",
        2,
        1,
        1,
    )


def test_a_part_is_opened_by_who_uses_it_and_not_by_who_passes_it_on() -> None:
    # LeasePlan's module needs the whole configuration; Spark's processes hand a data source on, pickled, to one another.
    code = """
import pickle, sys
from pyspark import cloudpickle
sealed = pickle.loads(cloudpickle.dumps(pickle.loads(sys.stdin.buffer.read())))
assert "replicator.leases.query" not in sys.modules
print(len(sealed.open().plan(3)), "replicator.leases.query" in sys.modules)
"""
    route = Route(RegionName("a"), RegionName("b"))
    part = cloudpickle.dumps(Sealed(LeasePlan({route: 1}, 2, 1_000)))
    done = subprocess.run([sys.executable, "-c", code], input=part, capture_output=True, check=True)
    assert done.stdout.split() == [b"2", b"True"]
