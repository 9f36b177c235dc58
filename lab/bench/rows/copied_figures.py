"""What a window of a copier that catches up shows of one data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lab.bench.data.copied import CopiedLog
from lab.bench.data.loading import Segment
from lab.bench.rows.watch import Window


@dataclass(frozen=True, slots=True)
class CopyFigures:
    """What one life of a copier showed of one data set.

    Attributes:
        window_s: how long the warm window was.
        records_per_s: committed records a second in it.
        mb_per_s: the same in 10^6 bytes of records before compression.
        copier_cpu, broker_cpu, cassandra_cpu: CPU seconds per million records: of the copier's whole process tree, of
            all brokers, of Cassandra.
    """

    window_s: float
    records_per_s: float
    mb_per_s: float
    copier_cpu: float
    broker_cpu: float
    cassandra_cpu: float


def figures(
    window: Window, segment: Segment, logs: Mapping[tuple[str, int], CopiedLog]
) -> CopyFigures | None:
    """What a window shows of a data set.

    Args:
        window: the window.
        segment: the data set.
        logs: what was committed, by target and partition.

    Returns:
        The figures, or None if nothing was committed in the window.
    """
    records = sum(
        log.records_below(window.end.ends[place]) - log.records_below(window.start.ends[place])
        for place, log in logs.items()
    )
    if records <= 0:
        return None
    millions = records / 1e6
    return CopyFigures(
        window_s=window.seconds,
        records_per_s=records / window.seconds,
        mb_per_s=records * segment.record_bytes / window.seconds / 1e6,
        copier_cpu=window.cpu_s("copier") / millions,
        broker_cpu=window.cpu_s("brokers") / millions,
        cassandra_cpu=window.cpu_s("cassandra") / millions,
    )
