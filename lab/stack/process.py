"""One child process: started, watched, stopped; never outliving its parent."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import psutil

from lab.stack.errors import ProcessDiedError, ReadinessTimeoutError, StackStateError
from lab.stack.probes import Probe

_GUARD = Path(__file__).with_name("guard.py")
_PROBE_EVERY_S = 0.2
_KILL_WAIT_S = 60.0
_TAIL_LINES = 30
_TAIL_LINE_CHARACTERS = 500


class ProcessState(StrEnum):
    """Where a process stands. `died` is an end that nobody asked for."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    FROZEN = "frozen"
    KILLED = "killed"
    DIED = "died"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """How to run one process.

    Attributes:
        name: Unique in the stack.
        command: Program and arguments.
        log: Its output goes here; a restart appends.
        probe: Tells when it is ready.
        environment: The whole environment of the process.
        prepare: Runs before each start (writes settings, formats storage).
        ready_within_s: A process that has not answered by then has failed.
        stop_within_s: After this long it is killed.
    """

    name: str
    command: Sequence[str]
    log: Path
    probe: Probe
    environment: Mapping[str, str]
    prepare: Callable[[], None] = field(default=lambda: None)
    ready_within_s: float = 300.0
    stop_within_s: float = 15.0


class Launcher:
    """The thread that all children of a stack are forked from.

    The kernel ties the parent-death signal to the forking *thread*: a child started from a short-lived thread
    would be killed when that thread ends. This one lives until `close`, or until the program ends.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stack-launcher")

    def launch(self, spec: ProcessSpec) -> subprocess.Popen[bytes]:
        """Start a process with its own session (a Ctrl-C in the terminal reaches only the parent)."""

        def start() -> subprocess.Popen[bytes]:
            spec.log.parent.mkdir(parents=True, exist_ok=True)
            with spec.log.open("ab") as output:
                return subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), *spec.command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(spec.environment),
                    start_new_session=True,
                )

        return self._executor.submit(start).result()

    def close(self) -> None:
        """End the thread; children that still run die with it."""
        self._executor.shutdown()


class ManagedProcess:
    """A process that can be started, killed and started again.

    Thread-safe: one operation at a time; `state` and `pid` may be read at any moment.
    """

    def __init__(self, spec: ProcessSpec, launcher: Launcher) -> None:
        self.spec = spec
        self._launcher = launcher
        self._lock = threading.RLock()
        self._cancelled = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._state = ProcessState.STOPPED
        # Leaders of the sessions that its lives ran in; orphans of a leader that died stay findable by them.
        self._sessions: set[int] = set()

    @property
    def name(self) -> str:
        """Its name in the stack."""
        return self.spec.name

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        child = self._child
        return child.pid if child is not None and child.poll() is None else None

    @property
    def state(self) -> ProcessState:
        """Where it stands now."""
        running = (ProcessState.STARTING, ProcessState.READY, ProcessState.FROZEN)
        if self._state in running and self._child and self.pid is None:
            return ProcessState.DIED
        return self._state

    def start(self) -> None:
        """Start and wait until it answers; one that is frozen is thawed, one that runs is left alone.

        Raises:
            ProcessDiedError: It ended first.
            ReadinessTimeoutError: It did not answer in time, and was killed.
            StackStateError: `kill` or `stop` was called meanwhile.
        """
        with self._lock:
            if self.pid is not None:
                self.thaw()
                return
            self._cancelled.clear()
            self._child = None
            self._state = ProcessState.STARTING
            try:
                self.spec.prepare()
                self._give_up_if_cancelled()
            except BaseException:
                self._state = ProcessState.STOPPED
                raise
            self._child = self._launcher.launch(self.spec)
            self._sessions.add(self._child.pid)
            self._await_ready(self._child)
            self._state = ProcessState.READY

    def kill(self) -> None:
        """SIGKILL, for it and all its descendants, as if the machine had lost power."""
        self._end(ProcessState.KILLED, graceful=False)

    def stop(self) -> None:
        """SIGTERM, a bounded wait, then SIGKILL for whatever is left."""
        self._end(ProcessState.STOPPED, graceful=True)

    def freeze(self) -> None:
        """SIGSTOP, for it and all its descendants, as a machine that is out of memory or breath: it keeps its connections.

        Raises:
            StackStateError: It does not run.
        """
        with self._lock:
            self._need_running("frozen")
            _freeze(self._sessions)
            self._state = ProcessState.FROZEN

    def thaw(self) -> None:
        """SIGCONT: it goes on where it was; nothing happens if it is not frozen."""
        with self._lock:
            if self.state is ProcessState.FROZEN:
                _thaw(self._sessions)
                self._state = ProcessState.READY

    def fill_disk(self) -> None:
        """Let every write fail that would make a file longer, for as long as it runs, as on a disk without room.

        Raises:
            StackStateError: It does not run.
        """
        with self._lock:
            self._need_running("left without room")
            for processes in _members(self._sessions).values():
                for process in processes:
                    with suppress(psutil.NoSuchProcess):
                        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, 0))

    def _need_running(self, done: str) -> None:
        if self.pid is None:
            raise StackStateError(f"{self.name} does not run: it can't be {done}.")

    def log_tail(self) -> str:
        """The last lines of its log."""
        if not self.spec.log.exists():
            return "(no log was written)"
        with self.spec.log.open(encoding="utf-8", errors="replace") as log:
            lines = deque((line.rstrip("\n")[:_TAIL_LINE_CHARACTERS] for line in log), maxlen=_TAIL_LINES)
        return "\n".join(lines) or "(its log is empty)"

    def _await_ready(self, child: subprocess.Popen[bytes]) -> None:
        started = time.monotonic()
        while True:
            problem = self.spec.probe() if child.poll() is None else None
            if child.poll() is not None:
                self._state = ProcessState.DIED
                raise ProcessDiedError(self.name, child.returncode, self.spec.log, self.log_tail())
            if problem is None:
                return
            self._give_up_if_cancelled()
            if time.monotonic() - started > self.spec.ready_within_s:
                tail = self.log_tail()
                self._end(ProcessState.KILLED, graceful=False)
                raise ReadinessTimeoutError(self.name, self.spec.ready_within_s, problem, self.spec.log, tail)
            time.sleep(_PROBE_EVERY_S)

    def _give_up_if_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise StackStateError(f"{self.name} was told to end while it started.")

    def _end(self, state: ProcessState, *, graceful: bool) -> None:
        self._cancelled.set()
        with self._lock:
            child = self._child
            if child is not None and child.poll() is None:
                if graceful:
                    self.thaw()  # frozen, it would not hear
                    child.terminate()
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(timeout=self.spec.stop_within_s)
                if child.poll() is None:
                    _freeze(self._sessions)
                    child.kill()
                    child.wait(timeout=_KILL_WAIT_S)
                self._state = state
            elif not (self._state is ProcessState.KILLED and state is ProcessState.STOPPED):
                self._state = state
            _kill_orphans(self._sessions)
            self._sessions.clear()


def _members(sessions: set[int]) -> dict[int, list[psutil.Process]]:
    members: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with suppress(ProcessLookupError, PermissionError):
            session = os.getsid(process.pid)
            if session in sessions:
                members.setdefault(session, []).append(process)
    return members


def _freeze(sessions: set[int]) -> None:
    """Stop everything at once: a worker whose driver dies before it would leave in good order, and commit."""
    for processes in _members(sessions).values():
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.suspend()


def _thaw(sessions: set[int]) -> None:
    for processes in _members(sessions).values():
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def _kill_orphans(sessions: set[int]) -> None:
    """Kill what is left in sessions whose leaders have ended (Spark's JVM and Python workers)."""
    for session, processes in _members(sessions).items():
        if any(process.pid == session for process in processes):
            # A leader with this number lives: the id was used again by someone else.
            continue
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=_KILL_WAIT_S)
