"""The demonstration itself, small: what `make demo KEEP=1` runs, judged by its report, and the stack that it leaves up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.stack.control import StackClient, is_running
from lab.stack.services import PARALLAX
from tests.support import poll_until
from tests.worlds.processes import family, still_running

RECORDS = 12_000

pytestmark = [pytest.mark.stack, pytest.mark.heavy, pytest.mark.timeout(480)]


@dataclass(frozen=True)
class Played:
    """A demonstration that has been played, and the folder of the stack that is still up."""

    ended: subprocess.CompletedProcess[str]
    directory: Path

    @property
    def stack(self) -> Path:
        return self.directory / "stack"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    directory = tmp_path_factory.mktemp("demo")
    arguments = ["--records", str(RECORDS), "--per-s", "200", "--busy-s", "6", "--directory", str(directory)]
    # How fast it is depends on what else the machine does; `make demo` has a bound.
    arguments += ["--failover-within-ms", "60000", "--keep"]
    ended = subprocess.run(
        [sys.executable, "-m", "lab.demo", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    found = Played(ended, directory)
    yield found
    if is_running(found.stack):
        StackClient(found.stack).down()


def test_a_small_demonstration_succeeds(played: Played) -> None:
    said = played.ended.stdout
    assert played.ended.returncode == 0, said[-6_000:] + played.ended.stderr[-2_000:]
    report = json.loads((played.directory / "report.json").read_text(encoding="utf-8"))
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
    assert "stack is still up" in said


def test_what_it_leaves_up_proves_the_moves(played: Played) -> None:
    arguments = ["verify", "failover", "--moves", "2", "--consumers", "failover", "-o", "json"]
    proof = subprocess.run(
        [*PARALLAX, *arguments, "--config", str(played.stack / "parallax.yaml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert proof.returncode == 0, proof.stdout[-4_000:] + proof.stderr[-2_000:]
    assert json.loads(proof.stdout)["verdict"] == "once"


def test_no_process_outlives_a_killed_supervisor(played: Played) -> None:
    names = {process["name"] for process in StackClient(played.stack).status()["processes"]}
    assert names >= {"regional-a", "aggregate-b", "cassandra", "offsetsvc-a", "console-b", "spark"}
    supervisor = int(json.loads((played.stack / "stack.json").read_text(encoding="utf-8"))["pid"])
    processes = family(supervisor)
    assert len(processes) > len(names)
    os.kill(supervisor, signal.SIGKILL)
    poll_until(lambda: not still_running(processes), 30, "all processes of the stack are gone")
