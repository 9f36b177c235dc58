"""CPU seconds of process trees: what a copier costs, whatever it consists of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil


@dataclass(frozen=True, slots=True)
class ProcessTimes:
    """One process.

    Attributes:
        parent: its parent's id.
        own_s: CPU seconds of its own, user and system.
        reaped_s: CPU seconds of descendants that ended and were waited for.
    """

    parent: int
    own_s: float
    reaped_s: float


def tree_of(root: int, processes: Mapping[int, ProcessTimes]) -> set[int]:
    """A process and all its descendants that are alive."""
    children: dict[int, list[int]] = {}
    for pid, times in processes.items():
        children.setdefault(times.parent, []).append(pid)
    found: set[int] = set()
    left = [root] if root in processes else []
    while left:
        pid = left.pop()
        if pid not in found:
            found.add(pid)
            left += children.get(pid, ())
    return found


def tree_cpu_s(root: int, processes: Mapping[int, ProcessTimes]) -> float:
    """CPU seconds of a process tree since its root started, those of ended descendants included."""
    return sum(processes[pid].own_s + processes[pid].reaped_s for pid in tree_of(root, processes))


def processes_now() -> dict[int, ProcessTimes]:
    """Every process of the machine."""
    found = {}
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            times = process.cpu_times()
            found[process.pid] = ProcessTimes(
                process.ppid(), times.user + times.system, times.children_user + times.children_system
            )
    return found


def cpu_s(groups: Mapping[str, Iterable[int]]) -> dict[str, float]:
    """CPU seconds by group of process trees, all read at one moment."""
    processes = processes_now()
    return {name: sum(tree_cpu_s(root, processes) for root in roots) for name, roots in groups.items()}
