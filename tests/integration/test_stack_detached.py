"""A second stack, under a supervisor of its own, beside the shared one: its life."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lab.stack.control import StackClient, is_running
from lab.stack.errors import StackStateError
from lab.stack.spec import StackSpec
from lab.stack.supervisor import start_detached
from tests.support import Stack, poll_until
from tests.worlds.processes import descendants, still_running

_OWN_STACK_TIMEOUT_S = 600


@pytest.fixture(scope="module")
def detached(tmp_path_factory: pytest.TempPathFactory) -> StackClient:
    """A second stack beside `infrastructure`, under a supervisor of its own; the last test ends it."""
    directory = tmp_path_factory.mktemp("detached")
    return start_detached(StackSpec(regions=("c",), services=False), directory, lambda _line: None)


@pytest.mark.timeout(_OWN_STACK_TIMEOUT_S)
@pytest.mark.stack("infrastructure")
class TestDetachedStack:
    """One stack through its life, in order; it runs beside the one of `infrastructure`."""

    def test_runs_beside_another_stack(self, infrastructure: Stack, detached: StackClient) -> None:
        assert {p["state"] for p in detached.status()["processes"]} == {"ready"}
        own, other = set(detached.layout.ports.values()), set(infrastructure.layout.ports.values())
        assert own.isdisjoint(other)

    def test_the_command_prints_its_addresses(self, detached: StackClient) -> None:
        answer = subprocess.run(
            [
                sys.executable,
                "-m",
                "parallax",
                "stack",
                "status",
                "--json",
                "--dir",
                detached.directory,
            ],
            capture_output=True,
            text=True,
            check=True,
        )
        state = json.loads(answer.stdout)
        assert state["regions"]["c"]["aggregate"] == detached.bootstrap("aggregate-c")
        assert set(state["regions"]["c"]) == {"regional", "aggregate", "grpc", "rest", "cassandra"}
        assert {p["name"] for p in state["processes"]} == {"regional-c", "aggregate-c", "cassandra"}
        assert all(psutil.pid_exists(p["pid"]) and Path(p["log"]).is_file() for p in state["processes"])

    def test_a_second_start_in_its_folder_is_refused(self, detached: StackClient) -> None:
        with pytest.raises(StackStateError, match="already runs"):
            start_detached(StackSpec(regions=("c",), services=False), detached.directory, lambda _line: None)

    def test_a_region_is_killed_as_one(self, detached: StackClient) -> None:
        detached.kill("region-c")
        states = {p["name"]: p["state"] for p in detached.status()["processes"]}
        assert states == {"regional-c": "killed", "aggregate-c": "killed", "cassandra": "ready"}

    def test_nothing_outlives_a_killed_supervisor(self, detached: StackClient) -> None:
        supervisor = int(json.loads((detached.directory / "stack.json").read_text(encoding="utf-8"))["pid"])
        children = descendants(supervisor)
        assert children
        os.kill(supervisor, signal.SIGKILL)
        poll_until(lambda: not still_running(children), 10, "children of the killed supervisor are gone")
        os.waitpid(supervisor, 0)
        assert not is_running(detached.directory)
        with pytest.raises(StackStateError, match="not running"):
            detached.status()
