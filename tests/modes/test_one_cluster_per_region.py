"""Two-way and active/standby with one Kafka in each region: a region is lost under load, and a drill goes there and back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds.plays import check_moves, play, report_of, told
from tests.worlds.replication import parallax

RECORDS = 12_000


@pytest.mark.stack
@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["two-way", "active-standby"])
def test_groups_leave_a_cluster_that_died_and_come_back(tmp_path: Path, mode: str) -> None:
    """As `make demo MODE=...`, small, with its oracle; then `parallax drill` on the same stack."""
    arguments = ["--mode", mode, "--keep", "--records", str(RECORDS), "--per-s", "200", "--busy-s", "6"]
    # How fast it is depends on what else the machine does; `make demo` has a bound.
    arguments += ["--failover-within-ms", "60000"]
    stack = tmp_path / "stack"
    try:
        report = report_of(play("lab.demo", tmp_path, *arguments), tmp_path)
        assert report["produced_records"] >= RECORDS * 3 // 4
        check_moves(report)

        drill = ["drill", "--from", "a", "--to", "b", "--directory", str(tmp_path)]
        found = told(*drill, config=stack / "parallax.yaml")
        assert (found["ending"], found["problem"], found["proof"]) == ("passed", "", "once")
        figures = found["figures"]
        assert (figures["lost"], figures["redelivered"]) == (0, 0)
        assert figures["delivered"] == figures["acknowledged"] > 0
    finally:
        parallax("stack", "down", "--dir", str(stack))
