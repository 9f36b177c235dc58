"""What a soak reads of processes and of the store, and whether it grows. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean, median, variance
from typing import NamedTuple

MIB = 1024 * 1024
_HOUR_S = 3_600.0
_LEAST_READINGS = 12
_LATEST_COUNT_S = 300.0
_SURE = 2.0
"""Rows that come by the dozen now and then differ from half to half by chance: so many standard errors are allowed for that."""

TABLE_FILES = "table files"
"""The kind of handles that are not judged: Cassandra has as many files of its tables open as its compaction leaves it."""


class Reading(NamedTuple):
    """A process at one moment.

    Attributes:
        at_s: seconds since the soak's beginning.
        memory_bytes: in memory, of what no file backs.
        threads: how many of each name, as the kernel knows it, without the numbers at their ends.
        handles: open file descriptors of each kind.
    """

    at_s: float
    memory_bytes: int
    threads: Mapping[str, int]
    handles: Mapping[str, int]


class RowsReading(NamedTuple):
    """How many rows a table has at one moment; ``at_s`` as in `Reading`."""

    at_s: float
    rows: int


@dataclass(frozen=True, slots=True)
class GrowthLimits:
    """What may grow by how much.

    Attributes:
        warm_up_s: of a process's life; what it takes in that time is not looked at.
        least_s: a process is judged if it was read for so long after that.
        pools: names of threads of which a process makes one whenever more calls than ever are under way, and how many it makes
            at most. Up to that they are no growth.
        memory_mib_per_h, threads, handles: growth that is still called flat: of memory an hour, of the others in all.
        rows_factor: how many times the rows a minute of a table's first half its second half may have, and what chance may add.
    """

    warm_up_s: float = 600.0
    least_s: float = 900.0
    pools: Mapping[str, int] = field(default_factory=dict)
    memory_mib_per_h: float = 10.0
    threads: float = 3.0
    handles: float = 8.0
    rows_factor: float = 1.25


@dataclass(frozen=True, slots=True)
class ProcessTrend:
    """How one process developed after its warm-up.

    Attributes:
        minutes: for which it was looked at.
        memory_mib: at the end of that time.
        memory_mib_per_h, more_threads, more_handles: between the medians of its first and of its last quarter.
        threads_by_name: of those that there are more of, how many more; those of pools too, which ``more_threads`` leaves out.
        pooled: threads of each pool, at the most.
        handles_by_kind: of those that there are more of, how many more; files of tables too, which ``more_handles`` leaves out.
    """

    minutes: float
    memory_mib: float
    memory_mib_per_h: float
    more_threads: float
    more_handles: float
    threads_by_name: Mapping[str, float] = field(default_factory=dict)
    pooled: Mapping[str, int] = field(default_factory=dict)
    handles_by_kind: Mapping[str, float] = field(default_factory=dict)

    def wrong(self, limits: GrowthLimits) -> Iterator[str]:
        """What is not flat."""
        if self.memory_mib_per_h > limits.memory_mib_per_h:
            yield f"grows by {self.memory_mib_per_h:.1f} MiB an hour"
        if self.more_threads > limits.threads:
            yield f"has {self.more_threads:.0f} threads more than at first ({_listed(self.threads_by_name)})"
        for name, threads in self.pooled.items():
            if threads > limits.pools[name]:
                yield f"has {threads} threads of {name}, which is a pool of {limits.pools[name]}"
        if self.more_handles > limits.handles:
            yield f"has {self.more_handles:.0f} open files more than at first ({_listed(self.handles_by_kind)})"


def _listed(more: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {count:+.0f}" for name, count in more.items())


def trend(
    readings: Sequence[Reading], limits: GrowthLimits, anew_at_s: Iterable[float] = ()
) -> ProcessTrend | None:
    """How a process developed; None if it did not live long enough to tell.

    Args:
        readings: one at least, in order.
        limits: what its warm-up is.
        anew_at_s: when it took something over that it had not done before: its warm-up began anew. The longest time between
            two of them is looked at.
    """
    begins = sorted({readings[0].at_s, *anew_at_s})
    spans = [
        [item for item in readings if begin + limits.warm_up_s <= item.at_s < end]
        for begin, end in pairwise([*begins, math.inf])
    ]
    return _trend(max(spans, key=len), limits)


def _trend(settled: Sequence[Reading], limits: GrowthLimits) -> ProcessTrend | None:
    if len(settled) < _LEAST_READINGS or settled[-1].at_s - settled[0].at_s < limits.least_s:
        return None
    quarter = len(settled) // 4
    first, last = settled[:quarter], settled[-quarter:]
    apart_s = median(item.at_s for item in last) - median(item.at_s for item in first)

    def more(value: Callable[[Reading], int]) -> float:
        return median(map(value, last)) - median(map(value, first))

    def more_by_name(counted: Callable[[Reading], Mapping[str, int]]) -> Mapping[str, float]:
        def more_of(name: str) -> float:
            return more(lambda item: counted(item).get(name, 0))

        names = sorted({name for item in (*first, *last) for name in counted(item)})
        return {name: count for name in names if (count := more_of(name)) > 0}

    return ProcessTrend(
        minutes=(settled[-1].at_s - settled[0].at_s) / 60,
        memory_mib=median(item.memory_bytes for item in last) / MIB,
        memory_mib_per_h=more(lambda item: item.memory_bytes) / MIB * _HOUR_S / apart_s,
        more_threads=more(
            lambda item: sum(count for name, count in item.threads.items() if name not in limits.pools)
        ),
        more_handles=more(
            lambda item: sum(count for kind, count in item.handles.items() if kind != TABLE_FILES)
        ),
        threads_by_name=more_by_name(lambda item: item.threads),
        pooled={
            name: max(item.threads[name] for item in settled if name in item.threads)
            for name in sorted(limits.pools)
            if any(name in item.threads for item in settled)
        },
        handles_by_kind=more_by_name(lambda item: item.handles),
    )


def rows_per_minute(readings: Sequence[RowsReading]) -> list[float]:
    """By how many rows a table grew in each minute that was read."""
    return [
        (after.rows - before.rows) * 60 / (after.at_s - before.at_s)
        for before, after in pairwise(readings)
        if after.at_s > before.at_s
    ]


def swelling_tables(tables: Mapping[str, Sequence[RowsReading]], limits: GrowthLimits) -> Iterator[str]:
    """The tables that grow faster and faster, while the load is steady."""
    for name, readings in tables.items():
        rates = rows_per_minute([item for item in readings if item.at_s >= limits.warm_up_s])
        half = len(rates) // 2
        if not half:
            continue
        earlier, later = rates[:half], rates[-half:]
        first, second = mean(earlier), mean(later)
        if second > limits.rows_factor * max(first, 1.0) + _SURE * _standard_error(earlier, later):
            yield f"{name} grew by {first:.1f} rows a minute at first, and by {second:.1f} later"


def _standard_error(earlier: Sequence[float], later: Sequence[float]) -> float:
    """Of the difference of two means, as far as the values themselves tell."""
    if min(len(earlier), len(later)) < 2:  # noqa: PLR2004 - one value varies in nothing
        return 0.0
    return math.sqrt(variance(earlier) / len(earlier) + variance(later) / len(later))


def growing_processes(
    trends: Iterable[tuple[str, ProcessTrend | None]], limits: GrowthLimits
) -> Iterator[str]:
    """The processes that are not flat, each with what grows."""
    for name, found in trends:
        if found is not None:
            yield from (f"{name} {what}" for what in found.wrong(limits))


def unjudged(
    always: Iterable[str],
    trends: Mapping[str, ProcessTrend | None],
    tables: Mapping[str, Sequence[RowsReading]],
    until_s: float,
) -> Iterator[str]:
    """What was not looked at for long enough: a soak that does not look finds nothing.

    Args:
        always: processes that are never killed.
        trends: by process; of those above the name is followed by the process id alone.
        tables: their readings.
        until_s: when the soak ended.
    """
    judged = [name.split() for name, found in trends.items() if found is not None]
    for name in sorted(set(always) - {words[0] for words in judged if words[1:] == words[-1:]}):
        yield f"{name} was not read for long enough to tell whether it grows"
    counted = max((readings[-1].at_s for readings in tables.values() if readings), default=None)
    if counted is None or until_s - counted > _LATEST_COUNT_S:
        last = "never" if counted is None else f"last after {counted:.0f} s of {until_s:.0f} s"
        yield f"the rows of the store were {last} counted"
