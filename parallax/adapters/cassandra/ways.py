"""Which coarse rows surround an offset, and so which hours hold the fine rows around it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from parallax.adapters.cassandra.coarse import DAY_MS, HOUR_MS
from parallax.domain.runs import Run
from parallax.ports.index import StampedRow

Order = Literal["target", "source"]

HIGHEST = (1 << 63) - 1


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
