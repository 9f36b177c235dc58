"""What a process is given by whoever starts it: logs, an end by signals, a collector that does not stop it, threads that wait briefly."""

from __future__ import annotations

import gc
import getpass
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

import structlog
from structlog.typing import Processor

from parallax.runtime.tracing import add_trace_ids

_ENDING = (signal.SIGINT, signal.SIGTERM)
_CIRCLES_LOOKED_FOR = (50_000, 20, 20)
"""As `gc.set_threshold` takes it."""
_ONE_TURN_S = 0.001
"""Python's default is five times that."""


def configure_logging(*, json: bool = False, level: int = logging.INFO) -> None:
    """Set up what a process logs, to standard error. Called by composition roots, before anything is logged.

    Libraries log through the standard library: their warnings and errors, and Python's own warnings, become lines of the same
    form, with the library's logger under ``logger``.

    Args:
        json: one JSON object a line; otherwise only if standard error is not a terminal.
        level: the least severe level to show of ours.
    """
    as_json = json or not sys.stderr.isatty()
    told: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        add_trace_ids,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # Tracebacks without the variables of their frames: passwords and tokens are among these.
    written: list[Processor] = (
        [
            structlog.processors.ExceptionRenderer(
                structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
            ),
            structlog.processors.JSONRenderer(),
        ]
        if as_json
        else [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    )
    structlog.configure(
        processors=[*told, *written],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    root = logging.getLogger()
    for handler in [item for item in root.handlers if isinstance(item, _OfLibraries)]:
        root.removeHandler(handler)
    root.addHandler(_OfLibraries(told, written))
    logging.captureWarnings(capture=True)


class _OfLibraries(logging.Handler):
    """Writes what libraries log as our own lines are written.

    Args:
        told: what a line is given.
        written: makes text of it.
    """

    def __init__(self, told: Sequence[Processor], written: Sequence[Processor]) -> None:
        super().__init__(logging.WARNING)
        formatter = structlog.stdlib.ProcessorFormatter
        self.setFormatter(
            formatter(
                foreign_pre_chain=[structlog.stdlib.add_logger_name, *told],
                processors=[formatter.remove_processors_meta, *written],
            )
        )

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        try:
            sys.stderr.write(f"{self.format(record)}\n")
        except Exception:  # noqa: BLE001 - as every handler of the standard library: who logs is not disturbed
            self.handleError(record)


def process_name(kind: str) -> str:
    """What this process is called in records that outlive it: its kind, machine and process id."""
    return f"{kind}@{socket.gethostname()}:{os.getpid()}"


def account_name() -> str:
    """The account that this process runs under, and the machine: ``user@host``."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no entry for its user
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def stop_on_signals(stop: threading.Event) -> None:
    """Set ``stop`` at each SIGINT or SIGTERM, for as long as the process lives: a service ends in good order."""
    for number in _ENDING:
        signal.signal(number, lambda *_: stop.set())


@contextmanager
def stopping(stop: threading.Event) -> Iterator[None]:
    """Set ``stop`` at the first SIGINT or SIGTERM; the second one does what it would have done before.

    A command that moves groups ends between two steps, so that it can be run again.
    """
    before = {number: signal.getsignal(number) for number in _ENDING}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def first(_number: int, _frame: FrameType | None) -> None:
        restore()
        stop.set()
        sys.stderr.write("stopping after the present step; once more to end at once\n")

    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        restore()


def spare_present_objects() -> None:
    """Let the collector pass over everything that there is by now, for good; for once imports and wiring are done.

    Modules, classes and functions never become garbage, yet each full collection looks through all of them: 20 to 60 ms
    in which no thread of the process does anything, every few seconds under load.
    """
    gc.collect()
    gc.freeze()


def take_short_turns() -> None:
    """Let a thread that could go on wait for another one's computing for a millisecond, for good; for once imports and wiring are done.

    Many wait for brokers, stores and callers most of the time: whoever has got an answer would stand still for as long as another
    computes, and those who wait longest are what the 99th percentile tells.
    """
    sys.setswitchinterval(_ONE_TURN_S)


@contextmanager
def made_for_good() -> Iterator[None]:
    """Let the collector pass over what is made meanwhile, for imports: it would look through it again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def circles_seldom_looked_for() -> Iterator[None]:
    """Let the collector look for circles of objects less often, for work that makes and keeps many objects and none in circles.

    By default that took a sixth of the time in which the sync job decided about 500 groups.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_CIRCLES_LOOKED_FOR)
    try:
        yield
    finally:
        gc.set_threshold(*before)
