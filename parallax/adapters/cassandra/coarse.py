"""Which rows are kept long: the coarse ones. Pure.

Fine rows expire after a day; coarse ones live as long as the topic's records. They also point to the hours that
hold fine rows, so the choice keeps two promises:

* the first batch of every coarse interval **and of every hour** leaves a coarse row: its newest run, or its
  watermark if nothing ran. So between two neighbouring coarse rows there are fine rows of their two hours only.
* the last run before that batch is kept too: where a partition fell idle, its last run stays exact.

The interval is told by the time at which a batch was committed, never by the clock of the one who writes, so a
replay of the run log makes the same rows again, or a few more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from parallax.domain.ids import Lineage, RoutePartition
from parallax.domain.runs import Run
from parallax.ports.index import RowBatch

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class CoarseRow:
    """A row to keep long."""

    partition: RoutePartition
    lineage: Lineage
    row: Run
    committed_at_ms: int
    version: int

    @property
    def day(self) -> int:
        """The bucket that holds it."""
        return self.committed_at_ms // DAY_MS

    @property
    def hour(self) -> int:
        """The bucket that holds its fine neighbours."""
        return self.committed_at_ms // HOUR_MS


@dataclass(frozen=True, slots=True)
class _State:
    bucket: tuple[int, int]
    unsaved_run: CoarseRow | None


_Key = tuple[RoutePartition, Lineage]


@dataclass(frozen=True, slots=True)
class CoarsePlan:
    """Rows to write, and what to remember once they are written."""

    rows: tuple[CoarseRow, ...]
    states: dict[_Key, _State]


class CoarseChooser:
    """Chooses coarse rows as batches pass by; a plan counts only once it is `done`."""

    def __init__(self, interval_s: int) -> None:
        """Choose one row in each interval of ``interval_s`` seconds."""
        self._interval_ms = interval_s * 1_000
        self._states: dict[_Key, _State] = {}

    def plan(self, batches: Iterable[RowBatch]) -> CoarsePlan:
        """The coarse rows that these batches make due."""
        states: dict[_Key, _State] = {}
        rows: list[CoarseRow] = []
        for batch in batches:
            if not batch.rows:
                continue
            key = (batch.partition, batch.lineage)
            state = states.get(key) or self._states.get(key)
            bucket = (batch.committed_at_ms // self._interval_ms, batch.committed_at_ms // HOUR_MS)
            run = next((row for row in reversed(batch.rows) if not row.is_watermark), None)
            newest = CoarseRow(*key, run or batch.rows[-1], batch.committed_at_ms, batch.version)
            if state is None or state.bucket != bucket:
                if state is not None and state.unsaved_run is not None:
                    rows.append(state.unsaved_run)
                rows.append(newest)
                states[key] = _State(bucket, None)
            elif run is not None:
                states[key] = replace(state, unsaved_run=newest)
        return CoarsePlan(tuple(rows), states)

    def done(self, plan: CoarsePlan) -> None:
        """The plan's rows are written."""
        self._states.update(plan.states)
