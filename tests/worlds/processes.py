"""Processes as tests see them: every question has an answer while they die.

psutil raises when a process ends between two calls (NoSuchProcess) or waits for its parent (ZombieProcess); to a
test both mean that it has ended.
"""

from __future__ import annotations

import signal
from collections.abc import Collection

import psutil


def descendants(pid: int) -> list[psutil.Process]:
    """Every process below `pid`, as of now."""
    return psutil.Process(pid).children(recursive=True)


def family(pid: int) -> list[psutil.Process]:
    """The process and every process below it, as of now."""
    return [psutil.Process(pid), *descendants(pid)]


def has_ended(process: psutil.Process) -> bool:
    """Whether it runs no more; one that its parent has not asked about yet has ended, too."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def still_running(processes: Collection[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended."""
    return [process for process in processes if not has_ended(process)]


def memory_bytes(pid: int) -> int:
    """Resident memory of the process and every process below it; what they share counts once."""
    total = 0
    for process in family(pid):
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total


def command_line(process: psutil.Process) -> str:
    """Its command and arguments; empty once it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # ZombieProcess is one of these
        return ""


def signal_all(processes: Collection[psutil.Process], number: signal.Signals) -> None:
    """Send a signal to those that run."""
    for process in still_running(processes):
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def kill_all(processes: Collection[psutil.Process]) -> None:
    """Stop all of them before any can react, then SIGKILL them and wait."""
    signal_all(processes, signal.SIGSTOP)
    signal_all(processes, signal.SIGKILL)
    left = psutil.wait_procs(processes, timeout=30)[1]
    assert not left, left
