"""Reads processes and the store now and then, from a thread of its own, while a soak goes on."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil
from cassandra import DriverException
from cassandra.cluster import Cluster, NoHostAvailable, Session
from cassandra.policies import WhiteListRoundRobinPolicy

from lab.soak.logs import NewLeases
from lab.soak.readings import TABLE_FILES, Reading, RowsReading
from lab.stack.errors import StackError

_JOIN_S = 60.0
_COUNT_S = 30.0
_ROLES = (("pyspark.worker", "worker"), ("python_streaming_source_runner", "planner"), ("java", "jvm"))
_OF_TABLES = re.compile(r"-(?:big|bti)-\w+\.db$")
"""A component of a table of Cassandra's. One that is deleted, and still open, is a file as any other."""
_NUMBER = re.compile(r"[-_:#]?\d+$")
_NO_FILE_BACKS = frozenset({"Anonymous", "Pss_Shmem"})


class Watch:
    """Readings from entering to leaving.

    Args:
        roots: the processes by name, as they are at the moment; all of their session is read.
        cassandra: host and port of the store.
        keyspace: whose tables are counted.
        clock: seconds since the soak's beginning.
        leases: tells which processes have taken a lease over; None: none does.
        every_s: between two readings of processes.
        rows_every_s: between two countings of tables.
    """

    def __init__(
        self,
        roots: Callable[[], Mapping[str, int]],
        cassandra: str,
        keyspace: str,
        clock: Callable[[], float],
        *,
        leases: NewLeases | None = None,
        every_s: float = 15.0,
        rows_every_s: float = 60.0,
    ) -> None:
        self.processes: dict[str, list[Reading]] = {}
        self.tables: dict[str, list[RowsReading]] = {}
        self.begun: dict[int, list[float]] = {}
        """By process id, when it was found to have begun a lease that it had not held before."""
        self._leases = leases
        self._roots, self._clock = roots, clock
        self._cassandra, self._keyspace = cassandra, keyspace
        self._every_s, self._rows_every_s = every_s, rows_every_s
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._read_processes, name="soak-processes", daemon=True),
            threading.Thread(target=self._count_rows, name="soak-rows", daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join(_JOIN_S)

    def _read_processes(self) -> None:
        while not self._closing.wait(self._every_s):
            for pid in self._leases.read() if self._leases is not None else ():
                self.begun.setdefault(pid, []).append(self._clock())
            with suppress(StackError):  # the stack is just starting or ending something
                for name, reading in read_sessions(self._roots(), self._clock):
                    self.processes.setdefault(name, []).append(reading)

    def _count_rows(self) -> None:
        host, _, port = self._cassandra.partition(":")
        cluster = Cluster([host], port=int(port), load_balancing_policy=WhiteListRoundRobinPolicy([host]))
        try:
            session = cluster.connect(self._keyspace)
            session.default_timeout = _COUNT_S
            while not self._closing.wait(self._rows_every_s):
                with suppress(DriverException, NoHostAvailable):  # it is counted again
                    for table, rows in self._rows(session):
                        self.tables.setdefault(table, []).append(RowsReading(self._clock(), rows))
        finally:
            cluster.shutdown()

    def _rows(self, session: Session) -> Iterator[tuple[str, int]]:
        for table in sorted(session.cluster.metadata.keyspaces[self._keyspace].tables):
            yield table, session.execute(f"SELECT count(*) FROM {table}").one()[0]  # noqa: S608 - names of our own schema


def read_sessions(
    roots: Mapping[str, int], clock: Callable[[], float] = time.monotonic
) -> Iterable[tuple[str, Reading]]:
    """Each process of each root's session: ``name`` for the root itself, ``name role pid`` for others."""
    names = {pid: name for name, pid in roots.items()}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            name = names.get(os.getsid(process.pid))
            if name is None:
                continue
            label = f"{name} {process.pid}"
            if process.pid not in names:
                command = " ".join(process.cmdline())
                role = next((role for word, role in _ROLES if word in command), None)
                if role is None:
                    continue
                label = f"{name} {role} {process.pid}"
            pid = process.pid
            yield label, Reading(clock(), memory_of(pid), threads_of(pid), handles_of(pid))


def memory_of(pid: int) -> int:
    """How many bytes a process has in memory that no file backs.

    What it maps of files is left out: its share of a library grows when another process ends that maps the same file, of this stack
    or of any other (installers link one file into many environments). So does, in a fork, the share of what its parent
    had, which is counted whole therefore: a page that is written to becomes the fork's own, and nothing is added.

    Raises:
        OSError: it is gone.
    """
    lines = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines())
    return sum(int(words[1]) for words in lines if words[0].rstrip(":") in _NO_FILE_BACKS) * 1024


def threads_of(pid: int) -> Counter[str]:
    """How many threads of each name a process has.

    Raises:
        OSError: it is gone.
    """
    found: Counter[str] = Counter()
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # this one has just ended
            found[pool_name((thread / "comm").read_text(errors="replace").strip())] += 1
    return found


def pool_name(thread: str) -> str:
    """A thread's name without the number at its end, which those of a pool have; the name itself if it is nothing else."""
    return _NUMBER.sub("", thread) or thread


def handles_of(pid: int) -> Counter[str]:
    """How many file descriptors of each kind a process has open.

    Raises:
        OSError: it is gone.
    """
    found: Counter[str] = Counter()
    for handle in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # this one has just been closed
            found[kind_of(str(handle.readlink()))] += 1
    return found


def kind_of(opened: str) -> str:
    """The kind of what a file descriptor has open, by what the kernel calls that."""
    if opened.startswith("/"):
        return TABLE_FILES if _OF_TABLES.search(opened) else "files"
    word = re.search(
        r"\w+", opened.removeprefix("anon_inode:")
    )  # socket:[7], anon_inode:[eventpoll], anon_inode:inotify
    return f"{word[0]}s" if word else opened
