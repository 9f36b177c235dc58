"""The rows of the mapping index, as they are written and read, and which of them a look-up hands out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, RoutePartition, SourceOffset, TargetOffset
from parallax.domain.runs import LostRange, Run

BEFORE = 2
"""How many rows before the floor a look-up hands out."""

AFTER = 3
"""How many rows after the floor."""

_OFFSET_BITS = 48
"""Of a version; the layout stands above them."""


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows of one partition and lineage that one run-log record (or several in a row) committed.

    Attributes:
        rows: runs in order, then at most one watermark.
        committed_at_ms: the latest of the records' timestamps, milliseconds since the Unix epoch.
        version: grows from one owner to the next (`index_version`); the greater wins where two rows meet.
    """

    partition: RoutePartition
    lineage: Lineage
    rows: tuple[Run, ...]
    lost: tuple[LostRange, ...]
    committed_at_ms: int
    version: int


def index_version(*, layout: int, run_log_offset: int) -> int:
    """The version of rows from the run-log record at ``run_log_offset``: greater for later owners and records."""
    return (layout << _OFFSET_BITS) | run_log_offset


def left_by(layout: int) -> int:
    """What stands for the term of rows that a layout has left to the one that follows: behind all its own, before all later ones."""
    return index_version(layout=layout, run_log_offset=(1 << _OFFSET_BITS) - 1)


def layout_of(version: int) -> int:
    """The layout that an `index_version` names."""
    return version >> _OFFSET_BITS


@dataclass(frozen=True, slots=True)
class LineageRecord:
    """One lineage of a partition, in the order in which they began.

    Attributes:
        sequence: 0 for the first lineage of the partition, then 1 more for each.
        source_first: the first source offset that the lineage covers.
        target_first: the target's end when it began; rows of earlier lineages at or above it are void.
        closed_at: the source's next offset when it ended; None while it goes on.
        lost_epoch: if it began because the target had lost its tail: what was written there afterwards has this leader
            epoch of the target or a later one, what was lost an earlier one. UNKNOWN_EPOCH: it did not, or nobody told.
    """

    partition: RoutePartition
    lineage: Lineage
    sequence: int
    source_first: SourceOffset
    target_first: TargetOffset
    closed_at: SourceOffset | None
    version: int
    lost_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class StampedRow:
    """A row and when it was committed, in milliseconds since the Unix epoch."""

    row: Run
    committed_at_ms: int


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows from some target offset on.

    Attributes:
        complete_to: the page holds every indexed row below this target offset.
    """

    rows: tuple[Run, ...]
    complete_to: TargetOffset


@dataclass(frozen=True, slots=True)
class RouteTopic:
    """What the index holds of a topic on one route.

    Attributes:
        records: its lineages, by partition and sequence.
        newest: the newest row of each partition and lineage; read after the lineages.
        unreadable: of partitions and lineages whose newest row can't be read, why.
    """

    records: Sequence[LineageRecord]
    newest: Mapping[tuple[int, Lineage], StampedRow]
    unreadable: Mapping[tuple[int, Lineage], str] = field(default_factory=dict)


# --- rows of one lineage in order ------------------------------------------------------------------------------


by_target: Callable[[Run], tuple[int, int, int]] = attrgetter("target_start", "source_start", "count")
"""Sort key: a watermark comes before the run that begins where it stands. By source the order is the same."""
