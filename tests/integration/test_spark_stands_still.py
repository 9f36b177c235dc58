"""A JVM of Spark's that has stood still, as where a machine is paused, moved, or sleeps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

PROGRAM = """
import os, signal, sys, time
from parallax.adapters.spark import session as module

right = module.session_options

def sooner(settings):
    # What would take forty seconds, and five minutes more, takes two and eight.
    options = right(settings) | {
        "spark.executor.heartbeatInterval": "1900ms",
        "spark.network.timeout": "2s",
        "spark.network.timeoutInterval": "100ms",
        "spark.executor.heartbeat.maxFailures": "4",
    }
    if sys.argv[1] == "as Spark does":
        del options["spark.storage.blockManagerHeartbeatTimeoutMs"]
    return options

module.session_options = sooner
starting = module.StartingSession(module.SessionSettings(leases=1))
session = starting.session()
jvm = session.sparkContext._gateway.proc.pid
print("begun", flush=True)
# Which comes first afterwards, the heartbeat or the look for lost executors, is a toss-up each time.
for _ in range(14):
    os.kill(jvm, signal.SIGSTOP)
    time.sleep(2.1)
    os.kill(jvm, signal.SIGCONT)
    time.sleep(0.4)
time.sleep(10)
print(session.range(3).count(), flush=True)
starting.close()
"""


def standing_still(how: str) -> subprocess.CompletedProcess[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    try:
        told, said = process.communicate(timeout=200)
    finally:
        for number in (signal.SIGCONT, signal.SIGKILL):  # a JVM that is left over
            try:
                os.killpg(process.pid, number)
            except ProcessLookupError:
                break
    return subprocess.CompletedProcess(process.args, process.returncode, told, said)


@pytest.mark.stack
def test_a_local_spark_that_stood_still_goes_on() -> None:
    """With Spark's own options it takes itself for a lost executor, can't come back, and ends after some heartbeats."""
    with ThreadPoolExecutor(2) as both:
        ours, sparks = both.map(standing_still, ("as it is configured", "as Spark does"))
    assert ours.stdout.split() == ["begun", "3"], ours.stderr[-2_000:]
    assert ours.returncode == 0
    assert sparks.stdout.split() == ["begun"], "the test sees nothing"
    assert "unable to send heartbeats to driver" in sparks.stderr
