"""Losing Cassandra with everything in it: the index is filled again from the run logs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

from lab.stack.errors import StackError
from lab.stack.services import PARALLAX
from lab.workload.playing import Stack

_APPLY_S = 120.0


def lose_store(stack: Stack, remark: Callable[[str], None]) -> None:
    """Kill Cassandra, delete its files, start it empty and make its tables; replicators live on meanwhile.

    Region b's offset service begins anew, and knows only what is in those tables; region a's has what it remembers.

    Raises:
        StackError: it did not come up again, or the tables could not be made.
    """
    layout = stack.layout
    for node in layout.spec.cassandra_nodes:
        stack.kill(node)
        shutil.rmtree(layout.directory / "data" / node / "storage")
        stack.start(node)
    done = subprocess.run(
        [*PARALLAX, "schema", "apply", "--config", str(layout.config_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_APPLY_S,
    )
    if done.returncode != 0:
        raise StackError(
            f"`parallax schema apply` failed (exit code {done.returncode}):\n{done.stdout}{done.stderr}"
        )
    stack.kill("offsetsvc-b")
    stack.start("offsetsvc-b")
    remark("Cassandra was lost with all that it held, and its tables were made anew")
