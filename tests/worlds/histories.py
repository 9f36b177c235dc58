"""Histories for tests: rows of one lineage as a replicator would commit them, and a model that only looks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from parallax.domain.ids import Lineage, RoutePartition, SourceOffset, TargetOffset
from parallax.domain.index_rows import RowBatch
from parallax.domain.runs import Run, watermark

START_MS = 1_800_000_000_000 - 1_800_000_000_000 % 86_400_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def run(source: int, target: int, count: int, previous: int | None = None, epoch: int = 0) -> Run:
    before = source if previous is None else previous
    return Run(SourceOffset(source), TargetOffset(target), count, SourceOffset(before), epoch)


def mark(source: int, target: int, last_run_end: int, epoch: int = 0) -> Run:
    return watermark(
        source_next=SourceOffset(source),
        target_end=TargetOffset(target),
        last_run_end=SourceOffset(last_run_end),
        source_leader_epoch=epoch,
    )


def batch(
    partition: RoutePartition,
    lineage: Lineage,
    rows: Sequence[Run],
    *,
    at_ms: int = START_MS,
    version: int = 1,
) -> RowBatch:
    return RowBatch(partition, lineage, tuple(rows), (), at_ms, version)


def random_batches(
    seed: int, partition: RoutePartition, lineage: Lineage, *, batches: int, longest_pause_ms: int
) -> list[RowBatch]:
    """Runs with gaps on both sides, aborted ranges, idle stretches with watermarks; time goes on in pauses."""
    chance = random.Random(seed)
    made: list[RowBatch] = []
    source, target, last_run_end = 0, 0, 0
    at_ms = START_MS
    for version in range(1, batches + 1):
        at_ms += chance.choice([chance.randint(1, 500), chance.randint(1, longest_pause_ms)])
        rows: list[Run] = []
        for _ in range(chance.choice([0, 1, 1, 3])):
            source += chance.choice([0, 0, chance.randint(1, 5)])  # control records, aborted data
            target += chance.choice([0, chance.randint(1, 9)])  # another source's records
            count = chance.randint(1, 20)
            rows.append(run(source, target, count, last_run_end))
            source, target = source + count, target + count
            last_run_end = source
        if not rows or chance.random() < 0.3:
            source += chance.choice([0, 0, 2])
            target += chance.choice([0, 0, 7])
            rows.append(mark(source, target, last_run_end))
        made.append(batch(partition, lineage, rows, at_ms=at_ms, version=version))
    return made


@dataclass(frozen=True)
class Naive:
    """All rows in a list, searched from one end to the other."""

    rows: Sequence[Run]

    @classmethod
    def of(cls, batches: Sequence[RowBatch]) -> Naive:
        rows = {row for item in batches for row in item.rows}
        return cls(sorted(rows, key=lambda row: (row.target_start, row.source_start, row.count)))

    def floor_by_target(self, target: int) -> Run | None:
        return next((row for row in reversed(self.rows) if row.target_start <= target), None)

    def successor_by_target(self, target: int) -> Run | None:
        return next((row for row in self.rows if row.target_start > target), None)

    def floor_by_source(self, source: int) -> Run | None:
        return next((row for row in reversed(self.rows) if row.source_start <= source), None)

    def successor_by_source(self, source: int) -> Run | None:
        return next((row for row in self.rows if row.source_start > source), None)

    def runs_beyond(self, target: int) -> list[Run]:
        return [row for row in self.rows if row.count and row.target_end > target]
