"""Runs a command on one core: `python -m bench.pinned CORE COMMAND...`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    os.sched_setaffinity(0, {int(sys.argv[1])})
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - becomes the command
