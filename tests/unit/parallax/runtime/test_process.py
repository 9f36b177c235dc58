"""Objects that are there for good are not looked through again and again."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc
from parallax.runtime.process import spare_present_objects
kept = [[] for _ in range(10_000)]
spare_present_objects()
assert gc.get_freeze_count() > 10_000
left = len(gc.get_objects())
assert left < 1_000, left
cycle = []
cycle.append(cycle)
del cycle
assert gc.collect() == 1
"""


def test_present_objects_are_spared_and_later_garbage_is_found() -> None:
    # In a process of its own: what is frozen stays so.
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=60)
