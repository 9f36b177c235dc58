"""Whether a target still holds the records that the index has rows of: a rebuild of the run log must not build on others.

Nobody who copies has told by then what was lost: one lost disk may take the ends of the run log and of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from parallax.domain.ids import Route, SourceOffset, TargetOffset, TopicPartition
from parallax.domain.index_rows import LineageRecord
from parallax.domain.runs import Run
from parallax.ports.index import MappingIndex
from replicator.copying.rebuild import PartitionSide
from replicator.kafka.spans import Span

_ROWS_PER_PAGE = 10_000
_LOOKED_BACK_OFFSETS = 10_000
"""Of the target, below the newest record that is indexed; further back as long as something is found."""

RecordOffsets = Callable[[TopicPartition, Span], Iterable[int]]
"""The offsets of the records that a `read_committed` reader is given of a span of a partition of the target."""


class KeptRecords:
    """Compares a route's rows with the target, and with the rows of the other routes into it.

    Args:
        index: where rows are.
        record_offsets: reads the target.
        others: the other routes.
    """

    def __init__(
        self, index: MappingIndex, record_offsets: RecordOffsets, others: Callable[[], Iterable[Route]]
    ) -> None:
        self._index = index
        self._record_offsets = record_offsets
        self._others = others

    def kept_to(
        self,
        last: LineageRecord,
        row: Run | None,
        target: PartitionSide,
        unindexed: Mapping[TopicPartition, Collection[Span]],
        *,
        compacted: bool,
    ) -> TargetOffset | None:
        """Up to where the target holds the records of the lineage's rows; None: nothing says that any are missing.

        Some are if their transaction hung, and was aborted as its entry is lost. Or the target has lost its tail, and was
        written to again before anybody could notice: other routes have rows in the place of this one's.
        """
        item = last.partition.topic_partition
        lowest = max(last.target_first, TargetOffset(target.log.low_watermark))
        end = self._records_end(last, row)
        if end is None or end <= lowest:
            return None
        stop, reach = self._visible_end(last, lowest, end), _LOOKED_BACK_OFFSETS
        found = None if stop == end else stop
        while stop > lowest:
            start = TargetOffset(max(lowest, stop - reach))
            ours = [*self._spans_of(last, start, stop)]
            theirs = sorted([*unindexed.get(item, ()), *self.spans_of_others(item, target, start, stop)])
            common = _first_common(ours, theirs)
            if common is None:
                break
            if not compacted:  # before those records there may be some that were aborted, and markers
                there = set(self._record_offsets(item, (start, common)))
                gone = (at for span in ours for at in range(span[0], min(span[1], common)) if at not in there)
                common = next(gone, common)
            found, stop, reach = TargetOffset(common), start, 4 * reach
        return found

    def _records_end(self, last: LineageRecord, row: Run | None) -> TargetOffset | None:
        """Where the lineage's newest indexed record ends on the target; None: it has none."""
        if row is None or row.count:
            return None if row is None else row.target_end
        before = SourceOffset(row.previous_source_end - 1)
        around = self._index.rows_at_source(last.partition, last.lineage, before) if before >= 0 else ()
        ends = [item.target_end for item in around if item.count and item.target_end <= row.target_end]
        return max(ends, default=None)

    def _visible_end(self, last: LineageRecord, lowest: TargetOffset, end: TargetOffset) -> TargetOffset:
        """Where the lineage's records end that a `read_committed` reader is given."""
        stop, reach = end, 1
        while stop > lowest:
            start = TargetOffset(max(lowest, stop - reach))
            there = set(self._record_offsets(last.partition.topic_partition, (start, stop)))
            rows = [offset for span in self._spans_of(last, start, stop) for offset in range(*span)]
            newest = max(there.intersection(rows), default=None)
            if newest is not None:
                return TargetOffset(newest + 1)
            stop, reach = start, max(4 * reach, 1_000)
        return lowest

    def spans_of_others(
        self, item: TopicPartition, target: PartitionSide, start: TargetOffset, end: int
    ) -> Iterator[Span]:
        """The target offsets of ``[start, end)`` that rows of other routes hold, as far as those are not void."""
        for route in self._others():
            records = [
                record
                for record in self._index.lineages(route, item.topic)
                if record.partition.topic_partition == item
                and record.lineage.target_topic_id == target.topic_id
            ]
            for place, record in enumerate(records):
                void_from = min((later.target_first for later in records[place + 1 :]), default=end)
                yield from self._spans_of(record, start, TargetOffset(min(end, void_from)))

    def _spans_of(self, record: LineageRecord, start: TargetOffset, end: TargetOffset) -> Iterator[Span]:
        """The target offsets of ``[start, end)`` that the lineage's rows hold."""
        while start < end:
            page = self._index.rows_from_target(record.partition, record.lineage, start, _ROWS_PER_PAGE, end)
            for row in page.rows:
                span = max(row.target_start, start), min(row.target_end, end)
                if row.count and span[0] < span[1]:
                    yield span
            if page.complete_to <= start:
                break
            start = page.complete_to


def _first_common(ours: Sequence[Span], theirs: Sequence[Span]) -> int | None:
    """The lowest offset in both of two ordered lists of spans; None: there is none."""
    place = 0
    for start, end in ours:
        while place < len(theirs) and theirs[place][1] <= start:
            place += 1
        if place < len(theirs) and theirs[place][0] < end:
            return max(start, theirs[place][0])
    return None
