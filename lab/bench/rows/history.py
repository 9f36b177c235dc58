"""A replication history made up: several sources merged into one partition, in another order on each target. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from parallax.domain.ids import Lineage, Route, RoutePartition, SourceOffset, TargetOffset, TopicPartition
from parallax.domain.index_rows import RowBatch
from parallax.domain.runs import Run

RECORDS_PER_RUN = 3
_MARKER = 1


@dataclass(frozen=True, slots=True)
class HistorySize:
    """How much of it.

    Attributes:
        runs: of each source in each partition of each target.
        runs_per_row: rows of the index hold so many runs, as at about 100 transactions a second.
        seconds: the history's length.
    """

    runs: int
    runs_per_row: int = 20
    seconds: int = 6 * 3_600

    def end(self, sources: int) -> int:
        """The target's end: every run is followed by a transaction marker."""
        return sources * self.runs * (RECORDS_PER_RUN + _MARKER)


def merged(size: HistorySize, sources: int, seed: int) -> list[list[Run]]:
    """The runs of each source in one partition of one target; the seed decides their order among each other."""
    draw = Random(seed)  # noqa: S311 - an order, not a secret
    order = [source for source in range(sources) for _ in range(size.runs)]
    draw.shuffle(order)
    found: list[list[Run]] = [[] for _ in range(sources)]
    target = 0
    for source in order:
        start = len(found[source]) * RECORDS_PER_RUN
        found[source].append(
            Run(SourceOffset(start), TargetOffset(target), RECORDS_PER_RUN, SourceOffset(start), 0)
        )
        target += RECORDS_PER_RUN + _MARKER
    return found


def batches(
    route: Route,
    topic_partition: TopicPartition,
    lineage: Lineage,
    runs: Sequence[Run],
    size: HistorySize,
    end_ms: int,
) -> Iterator[RowBatch]:
    """Runs as the replicator would have written them, evenly over the history's length.

    Args:
        route: of the runs.
        topic_partition: the partition.
        lineage: what they hold for.
        runs: in order.
        size: says how many share a row.
        end_ms: when the last was committed, milliseconds since 1970.
    """
    rows = [
        tuple(runs[start : start + size.runs_per_row]) for start in range(0, len(runs), size.runs_per_row)
    ]
    step_ms = size.seconds * 1_000 // max(1, len(rows))
    for number, row in enumerate(rows):
        at_ms = end_ms - (len(rows) - 1 - number) * step_ms
        yield RowBatch(RoutePartition(route, topic_partition), lineage, row, (), at_ms, number + 1)
