"""Owns a stack for as long as it lives: in the foreground, or as a process of its own (`--detach`).

Run as `python -m lab.stack.supervisor DIRECTORY EVENTS_FD`. The starter reads JSON lines from the pipe:
progress, then one `ready` or `failed`; if the starter goes away earlier, the supervisor ends with its children.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, NoReturn

from lab.stack.artifacts import Report
from lab.stack.control import ControlServer, StackClient, is_running
from lab.stack.errors import ProcessDiedError, StackError, StackStateError
from lab.stack.layout import write_json
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack

_LOG_TAIL_CHARACTERS = 4000


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into KeyboardInterrupt; later ones don't disturb the clean-up."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        for name in before:
            signal.signal(name, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {name: signal.getsignal(name) for name in (signal.SIGINT, signal.SIGTERM)}
    for name in before:
        signal.signal(name, interrupt)
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def run_stack(
    spec: StackSpec, directory: Path, report: Report, while_up: Callable[[LocalStack, threading.Event], None]
) -> None:
    """Run a stack until `while_up` returns, `down` is asked for in it, or SIGINT or SIGTERM arrives.

    Args:
        spec: What to run.
        directory: The stack's folder.
        report: Gets progress lines.
        while_up: Called when everything is ready, with the event that a `down` command sets.

    Raises:
        StackError: The stack did not come up.
    """
    with interruptible(), suppress(KeyboardInterrupt), LocalStack(spec, directory, report) as stack:
        with ControlServer(stack, directory) as server:
            while_up(stack, server.down_requested)
        report("stopping")


def start_detached(spec: StackSpec, directory: Path, report: Report) -> StackClient:
    """Start a stack under a supervisor of its own and return once everything is ready.

    Raises:
        StackStateError: A stack runs in this folder already.
        StackError: It did not come up; nothing is left running.
    """
    directory = directory.absolute()
    if is_running(directory):
        raise StackStateError(f"A stack already runs in {directory}: see `parallax stack status`.")
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "spec.json", spec.to_json())
    log = directory / "supervisor.log"
    log.touch()
    events, events_of_supervisor = os.pipe()
    pid = _spawn(directory, log, events_of_supervisor)
    os.close(events_of_supervisor)
    try:
        with os.fdopen(events, encoding="utf-8") as stream:
            _follow(stream, report, pid, log)
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        raise
    return StackClient(directory)


def _spawn(directory: Path, log: Path, events: int) -> int:
    os.set_inheritable(events, True)  # noqa: FBT003 - the parameter is positional only
    redirect = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    arguments = [sys.executable, "-m", "lab.stack.supervisor", str(directory), str(events)]
    return os.posix_spawn(sys.executable, arguments, os.environ, file_actions=redirect, setsid=True)


def _follow(stream: IO[str], report: Report, pid: int, log: Path) -> None:
    for line in stream:
        event = json.loads(line)
        if event["event"] == "ready":
            return
        if event["event"] == "failed":
            os.waitpid(pid, 0)
            raise StackError(event["text"])
        report(event["text"])
    _, status = os.waitpid(pid, 0)
    tail = log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL_CHARACTERS:]
    raise ProcessDiedError("supervisor", os.waitstatus_to_exitcode(status), log, tail)


class _Starter:
    """The process that waits at the other end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        self._stream = os.fdopen(descriptor, "w", encoding="utf-8")
        self._lock = threading.Lock()
        self._served = threading.Event()
        threading.Thread(target=self._watch, daemon=True, name="stack-starter").start()

    def tell(self, event: str, text: str = "") -> None:
        """Send one event; once `ready` is said, lines go to the log alone."""
        with self._lock:
            sys.stdout.write(f"{event} {text}\n")
            sys.stdout.flush()
            if not self._served.is_set():
                if event in ("ready", "failed"):
                    self._served.set()
                # Nobody listens any more: `_watch` is about to end this process.
                with suppress(BrokenPipeError):
                    self._stream.write(json.dumps({"event": event, "text": text}) + "\n")
                    self._stream.flush()

    def _watch(self) -> None:
        """End this process if the starter goes away before the stack is ready."""
        poller = select.poll()
        poller.register(self._stream.fileno(), 0)
        poller.poll()
        if not self._served.is_set():
            os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    """Be the supervisor of a detached stack."""
    directory, starter = Path(sys.argv[1]), _Starter(int(sys.argv[2]))
    spec = StackSpec.from_json(json.loads((directory / "spec.json").read_text(encoding="utf-8")))

    def while_up(_stack: LocalStack, down_requested: threading.Event) -> None:
        starter.tell("ready")
        down_requested.wait()

    try:
        run_stack(spec, directory, lambda text: starter.tell("progress", text), while_up)
    except StackError as error:
        starter.tell("failed", str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
