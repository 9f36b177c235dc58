"""What a process logs: one form for our lines and those of libraries, and no secret that a frame of a traceback holds."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest

_PROGRAM = """
import logging, warnings
import structlog
from parallax.runtime.process import configure_logging

configure_logging()
configure_logging()  # a command and the program that calls it: still each line once
library = logging.getLogger("cassandra.pool")
library.info("too much to be told")
library.warning("%s is\\ndown", "cassandra-1")

def log_in(password):
    raise OSError("refused")

for log in (library, structlog.get_logger()):
    try:
        log_in("-".join(["hun", "ter", "2"]))
    except OSError:
        log.error("it failed", exc_info=True)
warnings.warn("old thing")
"""


def _lines() -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stdout == ""
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_what_libraries_log_is_a_line_of_the_same_form() -> None:
    told, failed, own, warned = _lines()
    assert (told["event"], told["level"], told["logger"]) == (
        "cassandra-1 is\ndown",
        "warning",
        "cassandra.pool",
    )
    assert (failed["event"], failed["level"]) == (own["event"], own["level"]) == ("it failed", "error")
    assert failed["exception"] == own["exception"]
    assert set(told) == {"event", "level", "logger", "timestamp"}
    assert (warned["logger"], "old thing" in warned["event"]) == ("py.warnings", True)


def test_a_traceback_shows_no_variable() -> None:
    for line in _lines():
        assert "hunter2" not in json.dumps(line).replace("-", "")
    _, failed, *_ = _lines()
    frames = [frame for item in failed["exception"] for frame in item["frames"]]
    assert [frame["name"] for frame in frames] == ["<module>", "log_in"]
    assert all(not frame.get("locals") for frame in frames)


def test_on_a_terminal_nothing_of_it_is_output_and_no_variable_is_shown() -> None:
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM], check=True, timeout=60, stdout=subprocess.PIPE, stderr=theirs
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65_536)
            except OSError:  # the end of a terminal that nobody has open any more
                break
            if not part:
                break
            shown += part
    finally:
        os.close(ours)
    assert done.stdout == b""
    text = shown.decode()
    assert text.count("OSError: refused") == 2
    assert "hunter2" not in text.replace("-", "")


@pytest.mark.parametrize("name", ["kafka", "uvicorn.error"])
def test_loud_libraries_stay_as_quiet_as_they_were(name: str) -> None:
    program = (
        "import logging, parallax.adapters.kafka.wire, parallax.adapters.http.server\n"
        "from parallax.runtime.process import configure_logging\n"
        "from starlette.applications import Starlette\n"
        "parallax.adapters.http.server.HttpServer(Starlette(), address='127.0.0.1:0')\n"
        "configure_logging()\n"
        f"logging.getLogger({name!r}).warning('a caller sent nonsense')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True
    )
    assert done.stderr == ""


@pytest.mark.parametrize(("output", "told"), [("the terminal", 0), ("a pipe", 1)])
def test_no_line_of_the_log_tears_a_result_apart_before_somebody_who_sees_both(
    output: str, told: int
) -> None:
    program = (
        "import structlog\n"
        "from parallax.cli.output import log_beside_result\n"
        "log_beside_result(json=False)\n"
        "structlog.get_logger().info('it is done')\n"
        "structlog.get_logger().warning('take care')\n"
    )
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            timeout=60,
            stdout=theirs if output == "the terminal" else subprocess.PIPE,
            stderr=theirs,
        )
        shown = os.read(ours, 65_536).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    assert not done.stdout
    assert "take care" in shown
    assert shown.count("it is done") == told
