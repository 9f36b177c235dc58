"""The demonstration itself, small: what `make demo` runs, judged by its report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RECORDS = 12_000


@pytest.mark.stack
@pytest.mark.heavy
@pytest.mark.timeout(420)
def test_a_small_demonstration_succeeds(tmp_path: Path) -> None:
    arguments = ["--records", str(RECORDS), "--per-s", "200", "--busy-s", "6", "--directory", str(tmp_path)]
    # How fast it is depends on what else the machine does; `make demo` has a bound.
    arguments += ["--failover-within-ms", "60000"]
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
    groups = report["groups"]
    for move in ("failover", "failback"):
        for group in ("failover", "failover_three_members"):
            once = groups[group][move]
            assert (once["lost_records"], once["redelivered_records"]) == (0, 0)
        assert groups["plain"][move]["lost_records"] == 0
    assert report["pending_records"] > 0
    assert report["rpo_arrived_records"] == report["rpo_records"] > 0
    assert report["skipped_records"] > 0
    assert report["inversions"] > 0
    # The far simpler rules pay with loss or with reading again.
    assert report["alternatives"]["latest"]["lost_records"] > 0
    assert report["alternatives"]["earliest"]["redelivered_records"] > 0
    assert "stack is still up" not in played.stdout
