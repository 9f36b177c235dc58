"""What is played by `make`, small, and commands of its stack: as processes of their own, judged by what they report."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.worlds.replication import parallax

PLAYED_WITHIN_S = 400
_COMMAND_WITHIN_S = 150


def play(module: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a play of `lab` to its end; its files go to the folder."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments, "--directory", str(directory)],
        capture_output=True,
        text=True,
        check=False,
        timeout=PLAYED_WITHIN_S,
    )


def report_of(played: subprocess.CompletedProcess[str], directory: Path) -> Any:
    """The report of a play that has found nothing wrong."""
    assert played.returncode == 0, played.stdout[-6_000:] + played.stderr[-2_000:]
    report = json.loads((directory / "report.json").read_text(encoding="utf-8"))
    assert report["failures"] == []
    return report


def check_moves(report: Any) -> None:
    """Groups of a demonstration went there and back: nothing is lost, and nothing is read twice by who follows."""
    for move in ("failover", "failback"):
        for group in ("failover", "failover_three_members"):
            once = report["groups"][group][move]
            assert (once["lost_records"], once["redelivered_records"]) == (0, 0)
        assert report["groups"]["plain"][move]["lost_records"] == 0


def told(*arguments: str, config: Path) -> Any:
    """What a command that succeeds tells programs."""
    done = parallax(*arguments, "--config", str(config), "--json", within_s=_COMMAND_WITHIN_S)
    assert done.returncode == 0, (arguments, done.stdout[-4_000:], done.stderr[-4_000:])
    return json.loads(done.stdout)
