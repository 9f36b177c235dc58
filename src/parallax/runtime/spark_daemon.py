"""PySpark's own daemon, with what leases need imported before it forks.

Every Python worker of Spark is a fork of this process. Importing the Kafka and Cassandra clients once, instead of
once in each of them, makes leases begin sooner and share the memory. Nothing but imports may happen here: a
client, a thread or a socket would not survive the fork.
"""

from __future__ import annotations

import importlib
import os
import sys

from pyspark import daemon

PRELOAD_VARIABLE = "PARALLAX_PRELOAD"
"""Names the modules, separated by commas."""

_TASK_WORKER = "pyspark.worker"
"""Spark starts a daemon for each kind of worker; only this one runs tasks."""


def preload() -> None:
    """Import what the environment names."""
    for name in filter(None, os.environ.get(PRELOAD_VARIABLE, "").split(",")):
        importlib.import_module(name)


if __name__ == "__main__":
    if sys.argv[1] == _TASK_WORKER:
        preload()
    daemon.manager()
