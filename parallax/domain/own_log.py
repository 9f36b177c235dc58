"""What was produced where a group reads: the records of a cluster's own log, which are not copies of anything there.

A cluster that producers write to holds its own records at their own source offsets, between the copies that routes bring. Which of
its offsets are its own is told by a route that reads it: the source's side of that route's rows. So the rows that tell where
the copies lie on another cluster tell where the originals lie on this one, and the resume rule needs no other kind of history.
Nothing is taken for an own record because no row says otherwise: rows that are missing make an answer earlier, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from parallax.domain.ids import UNKNOWN_EPOCH, Lineage, SourceId, SourceOffset, TargetOffset
from parallax.domain.lineage_history import EpochRows, LineageHistory, epochs_of
from parallax.domain.progress import SourceHistory, TargetTruncation
from parallax.domain.runs import LostRange, Run

_BEYOND_ALL = TargetOffset(2**62)

_LATER_THAN_ALL = 2**31 - 1
"""The leader epoch of a log of which nothing was copied yet: a group may have read epochs that no route has."""


class OwnLog(LineageHistory):
    """The own records of a cluster as a lineage of itself: every row begins at one offset on both sides.

    Args:
        lineage: what it is called in messages.
        copied: a lineage of a route that reads the cluster; None: none is known.
        end: the cluster's log was cut here, so that what the route had read from here on is there no more; None: it was not.
        reach: a watermark that stands above all that the route's rows tell of: nothing is said of what lies between. None: none.
        lost_epoch: the cluster lost its tail there, and goes on in this leader epoch or a later one; None: it did not.
    """

    __slots__ = ("_copied", "_end", "_lost_epoch", "_reach", "lineage")

    def __init__(
        self,
        lineage: Lineage,
        copied: LineageHistory | None,
        end: SourceOffset | None = None,
        reach: Run | None = None,
        lost_epoch: int | None = None,
    ) -> None:
        self.lineage = lineage
        self._copied = copied
        self._end = end
        self._reach = reach
        self._lost_epoch = lost_epoch

    @property
    def rows(self) -> Sequence[Run]:
        """Runs and watermarks, in order."""
        return list(self._among(() if self._copied is None else self._copied.rows))

    @property
    def lost(self) -> Sequence[LostRange]:
        """Nothing: what retention took before it was copied was in this log, and could be read until then."""
        return ()

    @property
    def first(self) -> Run | None:
        """The first row."""
        first = None if self._copied is None else self._copied.first
        return next(self._among(() if first is None else [first]), None)

    @property
    def newest(self) -> Run | None:
        """The last row."""
        if self._reach is not None or self._copied is None:
            return self._reach
        newest = self._copied.newest
        if newest is None or self._end is None:
            return newest and _own(newest)
        return self._told_below(self._end)

    @property
    def epochs(self) -> Mapping[int, EpochRows]:
        """What the rows tell of each leader epoch of the cluster, `UNKNOWN_EPOCH` included."""
        told = {} if self._copied is None else dict(self._copied.epochs)
        if self._end is not None:
            end = self._end
            told = {
                epoch: EpochRows(known.first, min(known.run_end, end), min(known.watermark_end, end))
                for epoch, known in told.items()
                if known.first <= end
            }
        if self._reach is None:
            return told
        told |= epochs_of([self._reach], told)
        if self._lost_epoch is not None:
            told.setdefault(
                self._lost_epoch, EpochRows(self._reach.source_start, -1, self._reach.source_start)
            )
        return told

    @property
    def epoch_ends(self) -> Sequence[tuple[int, SourceOffset]]:
        """Pairs (leader epoch, next offset after its last known record), ascending."""
        return tuple(sorted((epoch, it.end) for epoch, it in self.epochs.items() if epoch != UNKNOWN_EPOCH))

    def floor_by_target(self, target: TargetOffset) -> Run | None:
        """The last row with ``target_start <= target``."""
        return self.floor_by_source(SourceOffset(target))

    def floor_by_source(self, source: SourceOffset) -> Run | None:
        """The last row with ``source_start <= source``."""
        if self._reach is not None and source >= self._reach.source_start:
            return self._reach
        return self._told_below(source)

    def last_proven_by(self, source: SourceOffset) -> Run | None:
        """The last row before whose start no record at or above ``source`` lies, but perhaps in the row's run."""
        if self._reach is not None and source >= self._reach.source_start:
            return self._reach
        row = None if self._copied is None else self._copied.last_proven_by(source)
        if row is None:
            return None
        if self._end is None or row.source_start < self._end:
            return self._cut(_own(row))
        # What it proves to be empty up to a place that is there no more is empty up to the cut.
        return Run(
            self._end,
            TargetOffset(self._end),
            0,
            min(row.previous_source_end, self._end),
            row.source_leader_epoch,
        )

    def between_targets(self, start: TargetOffset, end: TargetOffset) -> Iterator[Run]:
        """The rows that may hold records of the range ``[start, end)``, in order."""
        for row in self._from(SourceOffset(start)):
            if row.target_start >= end:
                return
            yield row

    def cut_at(self, target_end: TargetOffset) -> OwnLog:
        """The log without what lay from an offset on."""
        end = SourceOffset(target_end) if self._end is None else min(self._end, SourceOffset(target_end))
        kept = self._reach is not None and self._reach.source_start <= target_end
        return OwnLog(self.lineage, self._copied, end, self._reach if kept else None)

    def _told_below(self, source: SourceOffset) -> Run | None:
        """The last of the route's rows that begins at or below an offset."""
        if self._copied is None:
            return None
        if self._end is not None:
            source = min(source, SourceOffset(max(self._end - 1, 0)))
        row = self._copied.floor_by_source(source)
        return None if row is None else self._cut(_own(row))

    def _from(self, start: SourceOffset) -> Iterator[Run]:
        if self._copied is None:
            return self._among(())
        floor = self._copied.floor_by_source(start)
        first = TargetOffset(0) if floor is None else floor.target_start
        return self._among(self._copied.between_targets(first, _BEYOND_ALL))

    def _among(self, rows: Iterable[Run]) -> Iterator[Run]:
        """What the route's rows are here, and what follows them."""
        for row in rows:
            if self._end is not None and row.source_start >= self._end:
                break
            yield self._cut(_own(row))
        if self._reach is not None:
            yield self._reach

    def _cut(self, row: Run) -> Run:
        if self._end is None or row.source_end <= self._end:
            return row
        return replace(row, count=self._end - row.source_start)


def _own(row: Run) -> Run:
    """The row with the originals' place for that of the copies."""
    return replace(row, target_start=TargetOffset(row.source_start))


def own_log(
    source: SourceId,
    told: Sequence[tuple[SourceOffset, SourceHistory]],
    reach: tuple[SourceOffset, int] | None = None,
    lost_epoch: int | None = None,
) -> list[SourceHistory]:
    """The lineages of a cluster's own records there, oldest first: none if nothing is known of them.

    Args:
        source: the cluster's topic as a source of others.
        told: the lineages of a route that reads it, oldest first, each with the first source offset that it covers. Those of other
            incarnations of the topic are left out: their log is there no more.
        reach: a next offset of the cluster's log, and the leader epoch of the last record below, up to which it is known
            to have been read, whatever the route's rows tell; UNKNOWN_EPOCH: that of the newest record that they tell of,
            and if they tell of none, it counts for nothing.
        lost_epoch: as for `OwnLog`, of ``reach``.
    """
    ours = [(first, item) for first, item in told if item.source == source]
    logs: list[SourceHistory] = []
    for place, (_, item) in enumerate(ours):
        later = [first for first, _ in ours[place + 1 :]]
        end = min(later, default=None)
        log = OwnLog(item.history.lineage, item.history, end)
        newest = log.newest
        closed_at = None if end is None or newest is None else newest.source_end
        logs.append(SourceHistory(source, log, closed_at))
    if reach is None:
        return logs
    newest = logs[-1].history.newest if logs else None
    if newest is not None and newest.source_end >= reach[0]:
        return logs
    known = logs[-1].history.epoch_ends if logs else ()
    epoch = known[-1][0] if reach[1] == UNKNOWN_EPOCH and known else reach[1]
    if epoch == UNKNOWN_EPOCH:
        return logs  # offsets alone name no records: others may come to lie at them
    row = Run(reach[0], TargetOffset(reach[0]), 0, reach[0], epoch)
    copied = ours[-1][1].history if ours else None
    lineage = Lineage(source.topic_id, source.topic_id) if copied is None else copied.lineage
    return [*logs[:-1], SourceHistory(source, OwnLog(lineage, copied, None, row, lost_epoch))]


def own_truncations(
    source: SourceId, told: Sequence[tuple[SourceOffset, SourceHistory]]
) -> list[TargetTruncation]:
    """Where a cluster's log lost its tail, as far as a route that reads it saw it.

    Args:
        source: as for `own_log`.
        told: likewise.
    """
    ours = [(first, item.history) for first, item in told if item.source == source]
    lost: list[TargetTruncation] = []
    for (_, older), (cut, newer) in pairwise(ours):
        newest = older.newest
        if newest is None or newest.source_end <= cut:
            continue
        before, after = _epochs_of_records(older), _epochs_of_records(newer)
        if before and before[-1] in after:
            continue  # the copies were lost, not the originals: the same records were read again
        # Watermarks tell of epochs, too. Nothing of the newer log may have been copied yet.
        known = max((epoch for epoch, _ in older.epoch_ends), default=UNKNOWN_EPOCH)
        began = min((epoch for epoch in after if epoch > known), default=_LATER_THAN_ALL)
        lost.append(TargetTruncation(TargetOffset(cut), TargetOffset(newest.source_end), began))
    return lost


def own_loss(
    source: SourceId, told: Sequence[tuple[SourceOffset, SourceHistory]], read: tuple[SourceOffset, int]
) -> TargetTruncation | None:
    """That a cluster's log lost what was read there: a record of a later leader epoch lies below where the reader stood.

    What the log has kept goes to the last record of the reader's own epoch that rows tell of, and further perhaps, but of what
    lies between nothing says which epoch wrote it.

    Args:
        source: as for `own_log`.
        told: likewise.
        read: a next offset of the cluster's log, and the leader epoch in which it was read up to there.
    """
    read_to, epoch = read
    for _, item in reversed(told):
        if item.source != source or epoch == UNKNOWN_EPOCH or not read_to:
            continue
        row = item.history.floor_by_source(SourceOffset(read_to - 1))
        if row is not None and row.is_watermark and row.previous_source_end:
            row = item.history.floor_by_source(SourceOffset(row.previous_source_end - 1))
        if row is None or row.is_watermark or row.source_leader_epoch <= epoch:
            continue
        kept = [known.run_end for it, known in item.history.epochs.items() if UNKNOWN_EPOCH < it <= epoch]
        return TargetTruncation(TargetOffset(max([0, *kept])), TargetOffset(read_to), row.source_leader_epoch)
    return None


def _epochs_of_records(history: LineageHistory) -> list[int]:
    return sorted(
        epoch for epoch, known in history.epochs.items() if known.run_end > 0 and epoch != UNKNOWN_EPOCH
    )
