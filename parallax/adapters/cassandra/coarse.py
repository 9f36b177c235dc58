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
from typing import Literal

from parallax.domain.ids import Lineage, RoutePartition
from parallax.domain.index_rows import RowBatch, StampedRow
from parallax.domain.runs import Run

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
_Key = tuple[RoutePartition, Lineage]
Order = Literal["target", "source"]
HIGHEST = (1 << 63) - 1


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


@dataclass(frozen=True, slots=True)
class Way:
    """The coarse rows on both sides of an offset, and the hours that hold the fine rows between them.

    Attributes:
        newest: the lineage's newest row, where no coarse row follows.
    """

    floor: StampedRow | None
    successor: StampedRow | None
    newest: StampedRow | None

    @property
    def rows(self) -> list[Run]:
        """These rows."""
        return [item.row for item in (self.floor, self.successor, self.newest) if item is not None]

    @property
    def hours(self) -> list[int]:
        """Hours since the epoch."""
        ends = (self.floor, self.successor if self.successor is not None else self.newest)
        return sorted({item.committed_at_ms // HOUR_MS for item in ends if item is not None})

    @property
    def day(self) -> int | None:
        """The day of both coarse rows, in days since the epoch; None: they are not of one day."""
        if self.floor is None or self.successor is None:
            return None
        days = {self.floor.committed_at_ms // DAY_MS, self.successor.committed_at_ms // DAY_MS}
        return days.pop() if len(days) == 1 else None

    @property
    def lowest_target(self) -> int:
        """No fine row between them starts below it."""
        return self.floor.row.target_start if self.floor is not None else 0

    @property
    def highest_target(self) -> int:
        """No fine row between them starts above it."""
        return self.successor.row.target_start if self.successor is not None else HIGHEST

    def holds(self, order: Order, offset: int) -> bool:
        """Whether it is the way to this offset, too."""
        floor, successor = self.floor, self.successor
        return (floor is None or start_of(floor, order) <= offset) and (
            successor is None or offset < start_of(successor, order)
        )


def start_of(item: StampedRow, order: Order) -> int:
    """Where the row starts, by target or by source."""
    return int(item.row.target_start if order == "target" else item.row.source_start)
