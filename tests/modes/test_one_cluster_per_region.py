"""Two-way and active/standby with one Kafka in each region: a region is lost under load, and a drill goes there and back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.stack.services import PARALLAX

RECORDS = 12_000
DRILL_WITHIN_S = 150


def parallax(*arguments: str | Path, config: Path) -> Any:
    done = subprocess.run(
        [*PARALLAX, *map(str, arguments), "--config", str(config), "--json"],
        capture_output=True,
        text=True,
        timeout=DRILL_WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, (arguments, done.stdout[-4_000:], done.stderr[-4_000:])
    return json.loads(done.stdout)


@pytest.mark.stack
@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["two-way", "active-standby"])
def test_groups_leave_a_cluster_that_died_and_come_back(tmp_path: Path, mode: str) -> None:
    """As `make demo MODE=...`, small, with its oracle; then `parallax drill` on the same stack."""
    arguments = ["--mode", mode, "--keep", "--records", str(RECORDS), "--per-s", "200", "--busy-s", "6"]
    # How fast it is depends on what else the machine does; `make demo` has a bound.
    arguments += ["--failover-within-ms", "60000", "--directory", str(tmp_path)]
    stack = tmp_path / "stack"
    try:
        played = subprocess.run(
            [sys.executable, "-m", "lab.demo", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        assert played.returncode == 0, played.stdout[-6_000:] + played.stderr[-2_000:]
        report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        assert report["failures"] == []
        assert report["produced_records"] >= RECORDS * 3 // 4
        for move in ("failover", "failback"):
            for group in ("failover", "failover_three_members"):
                once = report["groups"][group][move]
                assert (once["lost_records"], once["redelivered_records"]) == (0, 0)
            assert report["groups"]["plain"][move]["lost_records"] == 0

        drill = ["drill", "--from", "a", "--to", "b", "--directory", tmp_path]
        found = parallax(*drill, config=stack / "parallax.yaml")
        assert (found["ending"], found["problem"], found["proof"]) == ("passed", "", "once")
        figures = found["figures"]
        assert (figures["lost"], figures["redelivered"]) == (0, 0)
        assert figures["delivered"] == figures["acknowledged"] > 0
    finally:
        subprocess.run(
            [*PARALLAX, "stack", "down", "--dir", str(stack)], check=False, timeout=60, capture_output=True
        )
