from __future__ import annotations

from pathlib import Path

from lab.workload.delivered import DeliveredLog, read_deliveries, read_group
from lab.workload.events import RecordId


def test_deliveries_are_read_as_they_were_written(tmp_path: Path) -> None:
    with DeliveredLog(tmp_path / "one.log") as log:
        log.write(0, "aggregate-a", [(RecordId("a", 1), 2, 30), (RecordId("b", 9), 0, 4)])
        log.write(1, "aggregate-b", [(RecordId("a", 2), 2, 31)])
    found = list(read_deliveries(tmp_path / "one.log"))
    assert [
        (item.stage, item.record, item.cluster, item.partition, item.record_offset) for item in found
    ] == [
        (0, RecordId("a", 1), "aggregate-a", 2, 30),
        (0, RecordId("b", 9), "aggregate-a", 0, 4),
        (1, RecordId("a", 2), "aggregate-b", 2, 31),
    ]


def test_a_line_that_a_killed_process_left_unfinished_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "one.log"
    path.write_text("0 a 1 aggregate-a 0 0 1000\n0 a 2 aggregate-a 0 1 100", encoding="ascii")
    assert [item.record.seq for item in read_deliveries(path)] == [1]


def test_a_group_is_read_by_the_clock_across_its_processes(tmp_path: Path) -> None:
    (tmp_path / "one.log").write_text("0 a 1 c 0 0 1000\n0 a 3 c 0 2 3000\n", encoding="ascii")
    (tmp_path / "two.log").write_text("0 a 2 c 1 0 2000\n0 a 4 c 1 1 3000\n", encoding="ascii")
    assert [item.record.seq for item in read_group(tmp_path)] == [1, 2, 3, 4]
