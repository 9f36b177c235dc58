"""The proof itself, small: what `make prove` runs, judged by its report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RECORDS = 2_400
PARTITIONS = 2


@pytest.mark.stack
@pytest.mark.heavy
@pytest.mark.timeout(420)
def test_a_small_proof_succeeds(tmp_path: Path) -> None:
    arguments = ["--records", str(RECORDS), "--partitions", str(PARTITIONS), "--flow-s", "8"]
    arguments += ["--directory", str(tmp_path)]
    made = subprocess.run(
        [sys.executable, "-m", "lab.prove", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert made.returncode == 0, made.stdout[-6_000:] + made.stderr[-2_000:]
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["failures"] == []
    assert report["records"] == RECORDS
    # Every next offset from 0 to the end of each partition; control records take offsets too.
    assert report["offsets_asked"] >= RECORDS + PARTITIONS
    assert (report["violations"], report["lost_records"], report["duplicates"]) == (0, 0, 0)
    assert report["skip_ranges"] > 0
    assert report["inversions"] > 1_000
    assert report["stalled_s"] > 0
