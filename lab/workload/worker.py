"""A parent's side: one child process of the workload, watched, told what to do, never left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import lab.stack.guard
from lab.stack.errors import StackError
from lab.workload.channel import STOP, TELL_STACKS, Message
from lab.workload.plan import Plan

_GUARD = Path(lab.stack.guard.__file__)
_POLL_S = 0.05
_TAIL_CHARACTERS = 2_000


class WorkerError(StackError):
    """A process of the workload ended or fell silent when it should not have."""


class Worker:
    """A `python -m lab.workload` process.

    Start it from a thread that lives as long as it shall: the kernel ties a child to the thread that forked it.

    Args:
        name: for people.
        arguments: what follows `python -m lab.workload`.
        log: gets its standard error.
    """

    def __init__(self, name: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self._arguments = list(arguments)
        self._log = log
        self._child: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._status: Mapping[str, Any] = {}
        self._events: list[Message] = []

    def start(self) -> Worker:
        """Start it; returns itself."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            guard = [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid())]
            self._child = subprocess.Popen(
                [*guard, sys.executable, "-m", "lab.workload", *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, name=f"reads {self.name}", daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        child = self._child
        if child is None or child.stdout is None:
            return
        for line in child.stdout:
            message = json.loads(line)
            if "status" in message:
                self._status = message["status"]
            else:
                self._events.append(message)

    @property
    def status(self) -> Mapping[str, Any]:
        """What it last said of itself; empty before its first word."""
        return self._status

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return None if self._child is None or self._child.poll() is not None else self._child.pid

    @property
    def running(self) -> bool:
        """Whether the process is there."""
        return self._child is not None and self._child.poll() is None

    def events(self, name: str) -> list[Message]:
        """The events of that name so far, in order."""
        return [event for event in self._events if event["event"] == name]

    def send(self, do: str, **fields: Any) -> None:
        """Give it a command.

        Raises:
            WorkerError: it is gone.
        """
        self._write({"do": do, **fields})

    def wait_for(self, name: str, within_s: float) -> Message:
        """Wait for an event.

        Raises:
            WorkerError: the process ended first, or said nothing of the kind in time.
        """
        wait_until(
            lambda: bool(self.events(name)) or not self.running,
            within_s,
            f"{self.name} did not report {name!r} within {within_s:.0f} s{self._tail()}",
        )
        self._join_reader()
        found = self.events(name)
        if not found:
            raise WorkerError(f"{self.name} ended before {name!r}{self._tail()}")
        return found[-1]

    def tell_stacks(self) -> None:
        """Let it write what each of its threads is at into its log; nothing happens if it has ended."""
        if (pid := self.pid) is not None:
            os.kill(pid, TELL_STACKS)

    def join(self, within_s: float) -> None:
        """Wait until it has ended by itself.

        Raises:
            WorkerError: it did not, or it failed.
        """
        child = self._child
        if child is None:
            return
        try:
            code = child.wait(timeout=within_s)
        except subprocess.TimeoutExpired as error:
            raise WorkerError(f"{self.name} still runs after {within_s:.0f} s{self._tail()}") from error
        self._join_reader()
        if code != 0:
            raise WorkerError(f"{self.name} failed with exit code {code}{self._tail()}")

    def stop(self, within_s: float = 10.0) -> None:
        """Tell it to finish; kill it if it does not in time."""
        if self.running:
            with suppress(WorkerError):
                self._write(STOP)
            with suppress(WorkerError):
                self.join(within_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL; nothing happens if it has ended."""
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            child.kill()
        child.wait()
        self._join_reader()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def check(self) -> None:
        """Make sure that it has not failed.

        Raises:
            WorkerError: it has.
        """
        if self._child is not None and self._child.poll() not in (None, 0):
            raise WorkerError(f"{self.name} failed with exit code {self._child.returncode}{self._tail()}")

    def _join_reader(self) -> None:
        if self._reader is not None and not self.running:
            self._reader.join(timeout=5)

    def _write(self, message: Message) -> None:
        child = self._child
        if child is None or child.stdin is None or not self.running:
            raise WorkerError(f"{self.name} is not running{self._tail()}")
        try:
            child.stdin.write(json.dumps(message) + "\n")
            child.stdin.flush()
        except OSError as error:
            raise WorkerError(f"{self.name} takes no commands any more{self._tail()}") from error

    def _tail(self) -> str:
        if not self._log.exists():
            return ""
        tail = self._log.read_text(encoding="utf-8", errors="replace")[-_TAIL_CHARACTERS:].strip()
        return f"; its log ({self._log}) ends:\n{tail}" if tail else f"; its log ({self._log}) is empty"


def wait_until(reached: Callable[[], bool], within_s: float, otherwise: str) -> float:
    """Wait for a condition, looking often.

    Returns:
        How long it took, in seconds.

    Raises:
        WorkerError: it was not reached in time; ``otherwise`` says what is missing.
    """
    started = time.monotonic()
    while not reached():
        if time.monotonic() - started > within_s:
            raise WorkerError(otherwise)
        time.sleep(_POLL_S)
    return time.monotonic() - started


def producer_of(
    region: str,
    bootstrap_servers: str,
    topic: str,
    plan: Plan,
    directory: Path,
    *,
    acknowledged: Path | None = None,
) -> Worker:
    """The process that produces a region's records; not started.

    Args:
        region: whose records they are.
        bootstrap_servers: of its regional cluster.
        topic: where they go.
        plan: how many, and when.
        directory: gets its standard error.
        acknowledged: the file that gets what was acknowledged, and when.
    """
    arguments = ["produce", "--bootstrap-servers", bootstrap_servers, "--topic", topic]
    arguments += ["--region", region, "--plan", plan.to_json()]
    if acknowledged is not None:
        arguments += ["--acked", str(acknowledged)]
    return Worker(f"producer-{region}", arguments, directory / f"producer-{region}.err")
