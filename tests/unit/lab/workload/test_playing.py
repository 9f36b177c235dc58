from __future__ import annotations

import fcntl
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.workload.playing import STACK, play


@dataclass(frozen=True)
class Chosen:
    directory: Path


def test_a_play_whose_stack_still_runs_keeps_the_files_that_it_is_judged_by(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delivered = tmp_path / "group" / "delivered.log"
    delivered.parent.mkdir()
    delivered.write_text("1\n")
    (tmp_path / STACK).mkdir()

    def again() -> int:
        report = {"failures": [], "seconds": 1.0}
        return play(Chosen(tmp_path), ["group"], lambda *_: report, lambda *_: None)

    with (tmp_path / STACK / "stack.lock").open("w") as running:
        fcntl.flock(running, fcntl.LOCK_EX)
        assert again() == 1
        assert "is running: end it" in " ".join(capsys.readouterr().out.split())
        assert delivered.exists()
    assert again() == 0
    assert not delivered.exists()
    assert json.loads((tmp_path / "report.json").read_text())["failures"] == []
