"""What the batch path hands from source to target: one batch of one partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from replicator.copying.offset_ranges import OffsetRanges
from replicator.copying.ports import RecordBlock, SourceEvent
from replicator.format.batch import Batch, BatchPlace, make_batch, read_records, split

Of = TypeVar("Of")


@dataclass(frozen=True, slots=True)
class BatchBlock(RecordBlock):
    """One batch. ``records`` holds its bytes alone; ``offsets`` are those of its records at the source."""

    place: BatchPlace = None  # type: ignore[assignment] # always given; a default only because the fields before have one

    @property
    def raw(self) -> memoryview:
        """The batch."""
        raw: memoryview = self.records[0]
        return raw

    @property
    def most_runs(self) -> int:
        """On the target its records follow one another."""
        return len(self.offsets.ranges) if isinstance(self.offsets, OffsetRanges) else 1

    def detached(self) -> BatchBlock:
        """The same with a copy of the bytes, which no longer keeps the answer that they came in.

        A batch that was made here keeps nothing but itself.
        """
        if len(self.raw) == len(self.raw.obj):  # type: ignore[arg-type] # bytes of some kind
            return self
        return replace(self, records=(memoryview(bytes(self.raw)),))

    def part(self, begin: int, end: int) -> BatchBlock:
        """The records with these numbers, in a batch of their own."""
        if (begin, end) == (0, len(self.offsets)):
            return self
        (batch,) = split(self.raw, self.place)
        inside = read_records(batch, self.place)[begin:end]
        offsets = self.offsets[begin:end]
        if not inside:
            return BatchBlock(
                self.topic_partition, self.leader_epoch, (), (), 0, self.newest_timestamp_ms, self.place
            )
        raw = make_batch(inside, batch.compression)
        return BatchBlock(
            self.topic_partition,
            self.leader_epoch,
            offsets,
            (memoryview(raw),),
            len(raw),
            inside[-1].timestamp,
            self.place,
        )

    def within(self, largest_bytes: int) -> Iterator[BatchBlock]:
        """The same records in batches that are not larger, as far as single records allow."""
        count = len(self.offsets)
        if len(self.raw) <= largest_bytes or count == 1:
            yield self
            return
        for begin, end in ((0, count // 2), (count // 2, count)):
            yield from self.part(begin, end).within(largest_bytes)


def detach_from_answer(
    turns: Sequence[Sequence[tuple[Of, SourceEvent]]], answer_bytes: int
) -> Sequence[Sequence[tuple[Of, SourceEvent]]]:
    """The events of one answer, each with what it is of; batches that are less than half of the answer are copied.

    A batch that passes as it is keeps all of the answer that it came in.
    """
    batches = [event for turn in turns for _, event in turn if isinstance(event, BatchBlock)]
    if sum(len(batch.raw) for batch in batches) >= answer_bytes / 2:
        return turns
    return [
        [(of, event.detached() if isinstance(event, BatchBlock) else event) for of, event in turn]
        for turn in turns
    ]


def whole_block(batch: Batch, place: BatchPlace) -> BatchBlock:
    """A batch that passes as it is."""
    return BatchBlock(
        place.topic_partition,
        batch.leader_epoch,
        range(batch.base_offset, batch.next_offset),
        (batch.raw,),
        len(batch.raw),
        batch.max_timestamp,
        place,
    )
