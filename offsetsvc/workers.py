"""Further processes that answer at the address of this one: started, started again when they end, and ended with it.

Each is a Python of its own (`offsetsvc.worker`) and no fork: gRPC, Kafka's client and Cassandra's driver have threads. It gets the configuration
as this process has read it, so that none answers by another one, and ends when the pipe by which that came is closed, however this process
ends.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import BinaryIO, cast

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from parallax.errors import ConfigError
from parallax.runtime.deadline import Deadline
from parallax.runtime.retry import RetryPolicy

READY = b"ready\n"
"""What a worker writes once it answers."""
WORKER = (sys.executable, "-m", "offsetsvc.worker")

_READY_WITHIN_MS = 120_000.0
_ENDS_WITHIN_MS = 15_000.0
_HEALTHY_AFTER_S = 60.0
"""Who has lived so long is started again at once when it ends."""
_AGAIN = RetryPolicy(first_wait_ms=1_000, longest_wait_ms=30_000)

_log = structlog.get_logger(__name__)


class Workers(Collector):
    """Keeps workers at work, and shows how many are. Used from several threads.

    Args:
        order: what each is told; it is pickled.
        count: how many.
        command: starts one.
        again: how long it is waited before one is started again.
    """

    def __init__(
        self,
        order: object,
        count: int,
        *,
        command: tuple[str, ...] = WORKER,
        again: RetryPolicy = _AGAIN,
    ) -> None:
        self._again = again
        self._stopping = threading.Event()
        told = pickle.dumps(order)
        self._workers = [_Worker(number, (*command, str(number)), told) for number in range(2, count + 2)]
        self._threads = [
            threading.Thread(target=self._keep, args=(worker,), name=f"worker-{worker.number}", daemon=True)
            for worker in self._workers
        ]

    def start(self) -> None:
        """Start all, and wait until they answer.

        Raises:
            ConfigError: one ended without an answer, or did not answer in time. Who answers and ends later is started again.
        """
        for thread in self._threads:
            thread.start()
        deadline = Deadline.after_ms(_READY_WITHIN_MS)
        for worker in self._workers:
            if not worker.tried.wait(deadline.remaining_s):
                raise ConfigError(f"server process {worker.number} does not answer; its log may say why")
            if not worker.has_answered:
                raise ConfigError(f"server process {worker.number} {worker.problem}; its log says why")

    def stop(self) -> None:
        """Let them end: calls under way are answered first."""
        self._stopping.set()
        for worker in self._workers:
            worker.close()
        deadline = Deadline.after_ms(_ENDS_WITHIN_MS)
        for worker, thread in zip(self._workers, self._threads, strict=True):
            if thread.ident is None:
                continue
            thread.join(deadline.remaining_s)
            if thread.is_alive():
                _log.warning("worker_killed", worker=worker.number, not_ended_after_ms=_ENDS_WITHIN_MS)
                worker.kill()
                thread.join()

    def collect(self) -> list[Metric]:
        """How many server processes answer, this one included, and how often one was started again."""
        answering = GaugeMetricFamily(
            "parallax_offsetsvc_processes", "Server processes that answer gRPC, this one included."
        )
        answering.add_metric([], 1 + sum(worker.is_ready for worker in self._workers))
        again = CounterMetricFamily(
            "parallax_offsetsvc_processes_started_again",
            "Server processes that ended and were started again.",
        )
        again.add_metric([], sum(max(0, worker.starts - 1) for worker in self._workers))
        return [answering, again]

    def _keep(self, worker: _Worker) -> None:
        waits_ms = self._again.waits_ms()
        while not self._stopping.is_set():
            began_s = time.monotonic()
            worker.run()
            if self._stopping.is_set():
                return
            if time.monotonic() - began_s >= _HEALTHY_AFTER_S:
                waits_ms = self._again.waits_ms()
            # Who was told to end together with this process, as by systemd, is not missed.
            if not self._stopping.wait(next(waits_ms) / 1_000):
                _log.error("worker_ended", worker=worker.number, problem=worker.problem, now="started again")


class _Worker:
    """One worker's process, and its next one.

    Attributes:
        number: from 2 on: the first process is the one that starts it.
        tried: set once it has answered, or has ended without.
        has_answered: whether it ever did.
        is_ready: whether it answers.
        problem: how it ended last; empty: it has not.
        starts: how often it was started.
    """

    def __init__(self, number: int, command: tuple[str, ...], told: bytes) -> None:
        self.number = number
        self.tried = threading.Event()
        self.has_answered = False
        self.is_ready = False
        self.problem = ""
        self.starts = 0
        self._command = command
        self._told = told
        self._lock = threading.Lock()
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start it, and wait until it has ended."""
        process = self._begin()
        if process is None:
            return
        pipe, told = cast("BinaryIO", process.stdin), cast("BinaryIO", process.stdout)
        with told:
            with suppress(OSError, ValueError):  # it has ended, or shall, before it was told
                pipe.write(self._told)
                pipe.flush()
            self.is_ready = told.readline() == READY
            if self.is_ready:
                self.has_answered = True
                self.tried.set()
            process.wait()
        self.is_ready, self.problem = False, _words(process.returncode)
        self._close_pipe()
        self.tried.set()

    def close(self) -> None:
        """Let it end in good order, and start no other one."""
        with self._lock:
            self._closed = True
        self._close_pipe()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()

    def _close_pipe(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # what was not written before it ended
                self._process.stdin.close()

    def _begin(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._closed:
                return None
            self.starts += 1
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            return self._process


def _words(status: int) -> str:
    return f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
