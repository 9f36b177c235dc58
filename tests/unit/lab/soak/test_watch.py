"""What a soak reads of a process, of real ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.soak.__main__ import pools_of
from lab.soak.readings import MIB, TABLE_FILES
from lab.soak.watch import handles_of, kind_of, memory_of, pool_name, read_sessions, threads_of
from offsetsvc.transport.grpc_server import CALL_POOL
from parallax.config.config import Config

_SHARED_MIB = 48


@contextmanager
def doing(*steps: str, given: str = "") -> Iterator[subprocess.Popen[str]]:
    """A Python that does the steps, one each time it is told to, and is up once it has done the first."""
    script = "\nprint(flush=True); input()\n".join([f"given = {given!r}\n{steps[0]}", *steps[1:], ""])
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            await_step(child)
            yield child
        finally:
            os.killpg(child.pid, signal.SIGKILL)


def await_step(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline()
    assert line, "it has ended"
    return line.strip()


def go_on(child: subprocess.Popen[str]) -> str:
    """Let it do the next step; returns what it has printed."""
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return await_step(child)


def test_processes_are_read_by_their_session() -> None:
    with doing("pass") as child:
        ((name, reading),) = read_sessions({"sleeper": child.pid})
    assert name == f"sleeper {child.pid}"
    assert reading.memory_bytes > MIB
    assert sum(reading.threads.values()) == 1
    assert reading.handles["pipes"] == 2


MAPPED = """
import mmap
with open(given, "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sum(mapped[::4096])
"""


def proportional_size(pid: int) -> int:
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
        if line.startswith("Pss:")
    )
    return int(line.split()[1]) * 1024


def test_memory_does_not_grow_where_another_process_ends_that_maps_the_same_file(tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(b"x" * _SHARED_MIB * MIB)
    with doing(MAPPED, given=str(library)) as one:
        with doing(MAPPED, given=str(library)):
            before, share = memory_of(one.pid), proportional_size(one.pid)
        assert proportional_size(one.pid) - share > _SHARED_MIB // 3 * MIB, "the file is not shared"
        assert abs(memory_of(one.pid) - before) < MIB


FORKED = f"""
import os, time
inherited = bytearray(b"x") * {_SHARED_MIB * MIB}
forks = []
while len(forks) < 2 and (fork := os.fork()):
    forks.append(fork)
if len(forks) < 2:
    time.sleep(600)
print(forks[0], end="")
"""


def test_nor_does_a_fork_s_where_another_fork_ends() -> None:
    """Workers of Spark are forks of one process, and are killed one by one."""
    ended = "os.kill(forks[1], 9); os.waitpid(forks[1], 0)"
    with doing("pass", FORKED, ended) as parent:
        fork = int(go_on(parent))
        before, share = memory_of(fork), proportional_size(fork)
        go_on(parent)
        assert proportional_size(fork) - share > _SHARED_MIB // 8 * MIB, "the memory is not shared"
        assert abs(memory_of(fork) - before) < MIB


@pytest.mark.parametrize(
    "taken",
    ["bytearray(b'x') * given_bytes", "mmap.mmap(-1, given_bytes); more.write(b'x' * given_bytes)"],
    ids=["private", "shared"],
)
def test_memory_that_a_process_takes_is_counted(taken: str) -> None:
    with doing("import mmap", f"given_bytes = {_SHARED_MIB * MIB}; more = {taken}") as child:
        before = memory_of(child.pid)
        go_on(child)
        assert memory_of(child.pid) - before > (_SHARED_MIB - 2) * MIB


NAMED_THREADS = """
import threading
def named(name):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(name)
    ready.wait()
    over.wait()
ready, over = threading.Barrier(5), threading.Event()
for name in ("ReadStage-7", "ReadStage-36", "Native-Transpor", "offsetsvc-grpc"):
    threading.Thread(target=named, args=(name,), daemon=True).start()
ready.wait()
"""


def test_threads_of_a_pool_have_one_name() -> None:
    with doing(NAMED_THREADS) as child:
        found = threads_of(child.pid)
    assert {name: found[name] for name in ("ReadStage", "Native-Transpor", "offsetsvc-grpc")} == {
        "ReadStage": 2,
        "Native-Transpor": 1,
        "offsetsvc-grpc": 1,
    }
    assert sum(found.values()) == 5


@pytest.mark.parametrize(
    ("thread", "name"),
    [("GossipTasks:1", "GossipTasks"), ("rdk:broker12", "rdk:broker"), ("java", "java"), ("17", "17")],
)
def test_a_number_at_the_end_is_no_part_of_the_name(thread: str, name: str) -> None:
    assert pool_name(thread) == name


def test_pools_are_named_as_they_are_read() -> None:
    pools = pools_of(Config.model_validate({"regions": {}, "cassandra": {"contact_points": ["127.0.0.1:1"]}}))
    assert {CALL_POOL, "ReadStage", "Native-Transpor"} < pools.keys()
    for name, threads in pools.items():
        assert pool_name(name[:15]) == name
        assert threads > 0


OPENED = """
import pathlib, select, socket
folder = pathlib.Path(given)
kept = [socket.socket(), select.epoll()]
for name in ("nb-53-big-Data.db", "da-7-bti-Rows.db", "nb-54-big-Index.db", "CommitLog-7.log"):
    kept.append((folder / name).open("w"))
(folder / "nb-54-big-Index.db").unlink()
"""


def test_what_is_open_is_counted_by_its_kind(tmp_path: Path) -> None:
    with doing("pass", OPENED, given=str(tmp_path)) as child:
        before = handles_of(child.pid)
        go_on(child)
        after = handles_of(child.pid)
    # What is deleted, and still open, is no table any more.
    assert after - before == {"sockets": 1, "eventpolls": 1, TABLE_FILES: 2, "files": 2}


@pytest.mark.parametrize(
    ("opened", "kind"),
    [
        ("socket:[288239]", "sockets"),
        ("anon_inode:inotify", "inotifys"),
        ("anon_inode:[eventfd]", "eventfds"),
        ("/dev/null", "files"),
    ],
)
def test_what_the_kernel_calls_it_is_its_kind(opened: str, kind: str) -> None:
    assert kind_of(opened) == kind
