"""Objects that are there for good are not looked through again and again."""

from __future__ import annotations

import gc
import subprocess
import sys

from parallax.runtime.process import made_for_good

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


def test_the_collector_rests_while_what_stays_is_made_and_goes_on_if_it_did() -> None:
    assert gc.isenabled()
    before = gc.get_freeze_count()
    try:
        with made_for_good():
            assert not gc.isenabled()
            kept = [[] for _ in range(10_000)]
        assert gc.isenabled()
        assert gc.get_freeze_count() - before >= len(kept)
        gc.disable()
        with made_for_good():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
        gc.unfreeze()


_TURNS = """
import sys, threading, time
from parallax.adapters.spark import daemon
if sys.argv[1] == "short":
    daemon.preload("pyspark.worker")
over = threading.Event()

def compute():
    while not over.is_set():
        pass

threads = [threading.Thread(target=compute, daemon=True) for _ in range(2)]
for thread in threads:
    thread.start()
took_s = []
for _ in range(10):
    began = time.monotonic()
    for _ in range(20):
        time.sleep(0.0001)
    took_s.append(time.monotonic() - began)
print(min(took_s) * 1_000 / 20)
over.set()
"""
"""Prints how many ms a thread that waits and computes nothing takes for a turn, beside two that compute; the least of ten tries."""


def test_a_thread_that_has_waited_goes_on_soon_beside_those_that_compute() -> None:
    took_ms = [
        float(
            subprocess.run(
                [sys.executable, "-c", _TURNS, turns],
                check=True,
                timeout=120,
                stdout=subprocess.PIPE,
                encoding="utf-8",
            ).stdout
        )
        for turns in ("short", "as Python's")
    ]
    assert took_ms[0] < took_ms[1] / 2, took_ms
