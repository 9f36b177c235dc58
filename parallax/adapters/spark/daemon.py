"""PySpark's own daemon, with what leases need imported before it forks.

Every Python worker of Spark is a fork of such a process; Spark has one for tasks and some more for planning and
committing a batch. Importing once, instead of once in each fork, makes leases begin sooner, share memory, and
shortens the pause between two epochs. Nothing but imports may happen here: a client, a thread or a socket would not
survive the fork.
"""

from __future__ import annotations

import importlib
import os
import sys

from pyspark import daemon

from parallax.runtime.process import spare_present_objects, take_short_turns

PRELOAD_VARIABLE = "PARALLAX_PRELOAD"
"""Names modules that every kind of worker needs, separated by commas."""

TASK_PRELOAD_VARIABLE = "PARALLAX_TASK_PRELOAD"
"""Names modules that only tasks need."""

_TASK_WORKER = "pyspark.worker"


def preload(worker_module: str) -> None:
    """Import what the environment names for this kind of worker."""
    names = os.environ.get(PRELOAD_VARIABLE, "").split(",")
    if worker_module == _TASK_WORKER:
        names += os.environ.get(TASK_PRELOAD_VARIABLE, "").split(",")
    for name in filter(None, names):
        importlib.import_module(name)
    spare_present_objects()
    take_short_turns()


if __name__ == "__main__":
    preload(sys.argv[1])
    daemon.manager()
