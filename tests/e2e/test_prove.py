"""The proof itself, small: what `make prove` runs, judged by its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds.plays import play, report_of

RECORDS = 2_400
PARTITIONS = 2


@pytest.mark.stack
@pytest.mark.heavy
@pytest.mark.timeout(420)
def test_a_small_proof_succeeds(tmp_path: Path) -> None:
    arguments = ["--records", str(RECORDS), "--partitions", str(PARTITIONS), "--flow-s", "8", "--store-lost"]
    report = report_of(play("lab.prove", tmp_path, *arguments), tmp_path)
    assert report["records"] == RECORDS
    # Every next offset from 0 to the end of each partition; control records take offsets too.
    assert report["offsets_asked"] >= RECORDS + PARTITIONS
    assert (report["violations"], report["lost_records"], report["duplicates"]) == (0, 0, 0)
    assert report["skip_ranges"] > 0
    assert report["inversions"] > 1_000
    assert report["stalled_s"] > 0
