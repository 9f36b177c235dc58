"""A real process that tells what time it is, and how long a name takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.stack.steering import Steering

HOUR_MS = 3_600_000
TELLER = """
import json, socket, sys, time
from time import time_ns
for _ in sys.stdin:
    began = time.monotonic()
    socket.getaddrinfo("127.0.0.1", 1)
    took = time.monotonic() - began
    print(json.dumps([time.time(), time_ns(), took]), flush=True)
"""
Tell = Callable[[], tuple[float, int, float]]


@pytest.fixture
def steering(tmp_path: Path) -> Steering:
    return Steering(tmp_path / "steering" / "teller")


@pytest.fixture
def tell(steering: Steering) -> Iterator[Tell]:
    child = subprocess.Popen(
        [sys.executable, "-c", TELLER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | steering.environment(),
    )

    def ask() -> tuple[float, int, float]:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write("\n")
        child.stdin.flush()
        now_s, now_ns, took_s = json.loads(child.stdout.readline())
        return now_s - time.time(), now_ns // 1_000_000 - time.time_ns() // 1_000_000, took_s

    with child:
        yield ask
        child.kill()


def test_a_process_is_left_alone_until_it_is_steered(tell: Tell) -> None:
    off_s, off_ms, took_s = tell()
    assert abs(off_s) < 5
    assert abs(off_ms) < 5_000
    assert took_s < 1


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -15 * 24 * HOUR_MS])
def test_its_clock_steps_while_it_runs_and_back(tell: Tell, steering: Steering, ahead_ms: int) -> None:
    tell()
    steering.set(clock_ahead_ms=ahead_ms)
    off_s, off_ms, took_s = tell()
    assert abs(off_s - ahead_ms / 1_000) < 5
    assert abs(off_ms - ahead_ms) < 5_000
    assert took_s < 1
    steering.set()
    assert abs(tell()[0]) < 5


def test_its_names_take_longer(tell: Tell, steering: Steering) -> None:
    steering.set(resolver_late_ms=400)
    off_s, _, took_s = tell()
    assert took_s >= 0.4
    assert abs(off_s) < 5
