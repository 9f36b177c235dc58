"""The demonstration itself, small: what `make demo KEEP=1` runs, judged by its report, and the stack that it leaves up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab.stack.control import StackClient, is_running
from tests.support import poll_until
from tests.worlds.plays import check_moves, play, report_of, told
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
    arguments = ["--records", str(RECORDS), "--per-s", "200", "--busy-s", "6"]
    # How fast it is depends on what else the machine does; `make demo` has a bound.
    arguments += ["--failover-within-ms", "60000", "--keep"]
    ended = play("lab.demo", directory, *arguments)
    found = Played(ended, directory)
    yield found
    if is_running(found.stack):
        StackClient(found.stack).down()


def test_a_small_demonstration_succeeds(played: Played) -> None:
    report = report_of(played.ended, played.directory)
    assert report["produced_records"] >= RECORDS * 3 // 4
    check_moves(report)
    assert report["pending_records"] > 0
    assert report["rpo_arrived_records"] == report["rpo_records"] > 0
    assert report["skipped_records"] > 0
    assert report["inversions"] > 0
    # The far simpler rules pay with loss or with reading again.
    assert report["alternatives"]["latest"]["lost_records"] > 0
    assert report["alternatives"]["earliest"]["redelivered_records"] > 0
    assert "stack is still up" in played.ended.stdout


def test_what_it_leaves_up_proves_the_moves(played: Played) -> None:
    config = played.stack / "parallax.yaml"
    proof = told("verify", "failover", "--moves", "2", "--consumers", "failover", config=config)
    assert proof["verdict"] == "once"


def test_no_process_outlives_a_killed_supervisor(played: Played) -> None:
    names = {process["name"] for process in StackClient(played.stack).status()["processes"]}
    assert names >= {"regional-a", "aggregate-b", "cassandra", "offsetsvc-a", "console-b", "spark"}
    supervisor = int(json.loads((played.stack / "stack.json").read_text(encoding="utf-8"))["pid"])
    processes = family(supervisor)
    assert len(processes) > len(names)
    os.kill(supervisor, signal.SIGKILL)
    poll_until(lambda: not still_running(processes), 30, "all processes of the stack are gone")
