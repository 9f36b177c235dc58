"""Where the first unconsumed record of a source can lie at the destination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.lineage_history import LineageHistory
from parallax.domain.progress import SourceHistory, SourcePosition, consumed_end, records_below
from parallax.domain.runs import Run


@dataclass(frozen=True, slots=True)
class LogRange:
    """The offsets that a partition holds: ``[low_watermark, high_watermark)``."""

    low_watermark: TargetOffset
    high_watermark: TargetOffset


class KeptEpoch(NamedTuple):
    """What a log has of a leader epoch: the newest epoch up to that one, and where it ends (OffsetForLeaderEpoch, KIP-320).

    Who has read the log beyond ``end`` in the epoch asked for has read what is there no more.
    """

    leader_epoch: int
    end: TargetOffset


class Via(Enum):
    """How a position at the destination was found, the strongest first."""

    EXACT = "exact"
    """A run holds the offset."""
    AFTER = "after"
    """The end of the last row that is wholly consumed."""
    BEFORE = "before"
    """The start of the first row that is not, nothing lying between."""
    CONSUMED = "consumed"
    """A lineage that has ended and was consumed to its end: it holds nothing back."""
    TIMESTAMP = "timestamp"
    """No row proves anything; the caller asked for record timestamps (docs/decisions/0011-by-timestamp.md)."""
    LOG_START = "log_start"
    """No row proves anything better."""


@dataclass(frozen=True, slots=True)
class Place:
    """A place at the destination below which no unconsumed record of a source lies.

    Attributes:
        offset: None when the source holds nothing back.
        via: how it was found.
        row: the row that proves it, if one does.
        lineage_matters: an older lineage decided, or the position had to be cut to what both logs share.
    """

    offset: TargetOffset | None
    via: Via
    row: Run | None = None
    lineage_matters: bool = False


_CONSUMED = Place(None, Via.CONSUMED)


def position_of(
    source_next: SourceOffset, history: LineageHistory
) -> tuple[TargetOffset | None, Via, Run | None]:
    """The largest place that provably has no record of the source at or above ``source_next`` below it.

    Returns:
        The place (None: nothing is proven), how it was found, and the row that proves it.
    """
    floor = history.floor_by_source(source_next)
    if floor is not None and source_next < floor.source_end:
        return floor.to_target(source_next), Via.EXACT, floor
    row = history.last_proven_by(source_next)
    if row is None:
        return None, Via.LOG_START, None
    if row.source_start > source_next:
        return row.target_start, Via.BEFORE, row
    return row.target_end, Via.AFTER, row


def rows_end(items: Iterable[SourceHistory]) -> TargetOffset:
    """The target offset up to which the rows reach; -1 without rows."""
    ends = [newest.target_end for item in items if (newest := item.history.newest) is not None]
    return max(ends, default=TargetOffset(-1))


def place_of(
    consumed: SourcePosition,
    lineages: Sequence[SourceHistory],
    older: Sequence[SourceHistory],
    newer: Sequence[SourceHistory],
    low_watermark: TargetOffset,
) -> Place:
    """The smallest place over a source's lineages.

    One fenced writer copies a region's lineages one after the other, and the index holds an unbroken prefix of
    what it wrote. So a lineage lies wholly between the rows of older and newer ones, and one without rows that
    no newer one follows is still to come.

    Args:
        consumed: how far the source was consumed.
        lineages: the source's lineages at the destination, oldest first; none: it may have been there unseen.
        older: the destination's lineages of incarnations of the region's topic that are known to be older.
        newer: likewise newer. Of others it is not known on which side of the source they lie.
        low_watermark: the destination's log start.
    """
    best = _CONSUMED
    candidates: Sequence[SourceHistory | None] = lineages or [None]
    for index, item in enumerate(candidates):
        following = [*lineages[index + 1 :], *newer]
        starts = [first.target_start for later in following if (first := later.history.first) is not None]
        if starts and min(starts) <= low_watermark:
            continue  # all that the lineage ever had lies below the log start
        before = [*older, *lineages[:index]] if item is not None or not newer else []
        place = _place_in(consumed, item, low_watermark)
        if place.via is Via.CONSUMED and not following:
            place = _behind(item)
        if place.via is Via.CONSUMED:
            continue
        older_end = rows_end(before)
        if older_end > (TargetOffset(-1) if place.offset is None else place.offset):
            place = Place(older_end, Via.AFTER)
        offset = TargetOffset(0) if place.offset is None else place.offset
        matters = best.lineage_matters or place.lineage_matters or bool(following)
        if best.offset is not None and best.offset <= offset:
            best = Place(best.offset, best.via, best.row, matters)
        else:
            best = Place(offset, place.via, place.row, matters)
    return best


def _behind(item: SourceHistory | None) -> Place:
    """The place in the lineage that followed one which has ended, where the index does not have it yet."""
    newest = None if item is None else item.history.newest
    return _CONSUMED if newest is None else Place(newest.target_end, Via.AFTER, newest)


def _place_in(consumed: SourcePosition, item: SourceHistory | None, low_watermark: TargetOffset) -> Place:
    """The place in one lineage, from its own rows alone."""
    newest = None if item is None else item.history.newest
    if item is None or newest is None:
        return Place(None, Via.LOG_START)
    here = consumed_end(consumed, item.history)
    diverged = here < min(consumed.source_next, newest.last_record_end)
    below = records_below(low_watermark, item.history)
    if below is not None:
        here = max(here, below[0])  # what lay below the log start is gone
    if item.record_end is not None and here >= item.record_end:
        return _CONSUMED
    place, via, row = position_of(here, item.history)
    return Place(place, via, row, diverged)
