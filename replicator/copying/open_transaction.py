"""A transaction while it is open: what was sent, and what its acknowledgements make of it."""

from __future__ import annotations

from collections.abc import Sequence

from parallax.domain.ids import SourceOffset, TopicPartition
from parallax.domain.runs import Run
from parallax.errors import InvariantError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.offset_ranges import OffsetRanges, runs_of
from replicator.copying.ports import RecordBlock
from replicator.copying.state import PartitionChange, PartitionState


class OpenTransaction:
    """What was sent, by partition and leader epoch, and the runs that its acknowledgements make of it.

    Args:
        began_at_ms: monotonic.
        opening: what the run log is given before the commit, if anything is.
    """

    __slots__ = (
        "_ends",
        "_newest",
        "_sent",
        "began_at_ms",
        "most_runs",
        "opening",
        "records",
        "size_bytes",
        "times",
    )

    def __init__(self, began_at_ms: float, opening: Entry | None = None) -> None:
        self.began_at_ms = began_at_ms
        self.opening = opening
        self.records = 0
        self.size_bytes = 0
        self.most_runs = 0
        """No more runs than these can come of it."""
        self._sent: dict[TopicPartition, list[tuple[int, OffsetRanges]]] = {}
        self._ends: dict[TopicPartition, SourceOffset] = {}
        self._newest: dict[TopicPartition, tuple[int, int]] = {}
        self.times: list[tuple[int, int, int]] = []
        """Of each block that has one, its timestamp, when it was sent (Unix epoch), and how many records it has."""

    def __contains__(self, item: TopicPartition) -> bool:
        return item in self._sent

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """The partitions with records."""
        return list(self._sent)

    def add(self, block: RecordBlock, sent_at_ms: int) -> None:
        """Take note of records sent."""
        by_epoch = self._sent.setdefault(block.topic_partition, [])
        if by_epoch and by_epoch[-1][0] == block.leader_epoch:
            by_epoch[-1][1].extend(block.offsets)
        else:
            by_epoch.append((block.leader_epoch, OffsetRanges(block.offsets)))
        self._ends.pop(block.topic_partition, None)
        self._newest[block.topic_partition] = block.newest_timestamp_ms, sent_at_ms
        if block.newest_timestamp_ms > 0:
            self.times.append((block.newest_timestamp_ms, sent_at_ms, len(block.offsets)))
        self.records += len(block.offsets)
        self.most_runs += block.most_runs
        self.size_bytes += block.size_bytes

    def reached_end(self, item: TopicPartition, source_next: SourceOffset) -> None:
        """Nothing visible lies between the partition's last record and ``source_next``."""
        self._ends[item] = source_next

    def source_next(self, item: TopicPartition) -> SourceOffset:
        """The partition's position once this is committed."""
        last = SourceOffset(self._sent[item][-1][1][-1] + 1)
        return max(last, self._ends.get(item, last))

    def record_offset(self, item: TopicPartition, index: int) -> int:
        """The source offset of the partition's record number ``index`` in this transaction."""
        for _, offsets in self._sent[item]:
            if index < len(offsets):
                return offsets[index]
            index -= len(offsets)
        raise InvariantError(f"A: {item}: the target refused a record that was not sent")

    def newest_ms(self, item: TopicPartition) -> tuple[int, int]:
        """The timestamp of the partition's last record, or -1, and when it was sent (Unix epoch)."""
        return self._newest[item]

    def count(self, item: TopicPartition) -> int:
        """How many records of the partition were sent."""
        return sum(len(offsets) for _, offsets in self._sent[item])

    def change(self, state: PartitionState, targets: Sequence[int]) -> PartitionChange:
        """What the transaction says of a partition, given the target offset of each of its records.

        Raises:
            InvariantError: the acknowledgements contradict what was sent or committed before.
        """
        item = state.topic_partition
        by_epoch = self._sent[item]
        if self.count(item) != len(targets):
            raise InvariantError(f"A: {item}: {self.count(item)} records sent, {len(targets)} acknowledged")
        acknowledged = targets if isinstance(targets, OffsetRanges) else OffsetRanges(targets)
        rows: list[Run] = []
        begin = 0
        previous = state.last_run_end
        for epoch, offsets in by_epoch:
            end = begin + len(offsets)
            rows += runs_of(
                offsets, acknowledged[begin:end], previous_source_end=previous, source_leader_epoch=epoch
            )
            previous = SourceOffset(offsets[-1] + 1)
            begin = end
        return PartitionChange(state.after(rows, self.source_next(item)), tuple(rows))
