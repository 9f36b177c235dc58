"""What becomes of fetched batches: they pass whole, are opened, or are dropped; one is made of the records of several.

Several are those that can't pass whole, and small ones that follow one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from parallax.domain.ids import UNKNOWN_EPOCH
from replicator.copying.offset_ranges import OffsetRanges
from replicator.format.batch import (
    COMPRESSION,
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Batch,
    BatchPlace,
    CorruptBatchError,
    encode_record,
    finish_batch,
    read_varint,
    records_of,
    split,
)
from replicator.format.block import BatchBlock, whole_block
from replicator.format.compression import (
    LARGEST_RECORDS_BYTES,
    BadCompressionError,
    Compression,
    TooManyBytesError,
    decompress,
)
from replicator.format.merge import Merged, Unusual, merge_batches
from replicator.format.small_batches import (
    FULL_BYTES,
    MERGED_BYTES,
    WHOLE_FROM_BYTES,
    SmallBatches,
    batches_of,
    decompress_each,
    headers_of,
)

FEW_RECORDS = 64
"""Fewer are faster one by one than side by side."""
_ABORT = 0
_IN_TRANSACTION = TRANSACTIONAL | CONTROL


class ReadPosition(Protocol):
    """How far a partition has been read.

    Attributes:
        position: the next offset.
        epoch: of the record before it.
    """

    position: int
    epoch: int


def blocks_of(
    records: bytes | bytearray | memoryview,
    at: ReadPosition,
    place: BatchPlace,
    aborted: AbortedRanges,
    *,
    whole_from_records: int,
    merged_bytes: int = MERGED_BYTES,
) -> Iterator[BatchBlock]:
    """The blocks that come of a record set, in order.

    Args:
        records: the record set.
        at: what was asked for; moves along.
        place: where it came from.
        aborted: its aborted transactions.
        whole_from_records: batches of fewer records are made into larger ones, unless they have many bytes.
        merged_bytes: of what is decompressed for one of those.

    Raises:
        CorruptBatchError: a batch is damaged; what stands before it was handed out.
    """
    gathered, damage = Repacker(place, merged_bytes), None
    try:
        for batch in batches_of(records, place, at_offset=at.position, below_records=whole_from_records):
            if isinstance(batch, SmallBatches):
                yield from gathered.blocks()
                yield from gathered.side_by_side(batch)
            else:
                hidden = aborted.hides(batch, place)
                passage = Passage.DROPPED if hidden else passage_of(batch, at.position)
                if passage is Passage.WHOLE and not is_small(batch, whole_from_records):
                    yield from gathered.blocks()
                    yield whole_block(batch, place)
                elif passage is not Passage.DROPPED:
                    if not gathered.takes(batch):
                        yield from gathered.blocks()
                    gathered.add(batch, at.position, passage)
            at.position, at.epoch = batch.next_offset, batch.leader_epoch
    except CorruptBatchError as error:
        damage = error
    yield from gathered.blocks()
    if damage is not None:
        raise damage


class Passage(Enum):
    """What becomes of a batch."""

    WHOLE = "whole"
    OPENED = "opened"
    """Its records pass one by one: some are missing or not wanted, or their timestamps are the broker's."""
    DROPPED = "dropped"
    """A control batch, or one without records: the position moves beyond it."""


class AbortedRanges:
    """The aborted transactions of one fetch response; its batches must be asked about in order.

    Args:
        transactions: (producer id, first offset of the aborted transaction), as the response has them.
    """

    def __init__(self, transactions: Iterable[tuple[int, int]] = ()) -> None:
        self._coming = sorted(((first, producer) for producer, first in transactions), reverse=True)
        self._aborted: set[int] = set()

    def hides(self, batch: Batch, place: BatchPlace) -> bool:
        """Whether the batch belongs to an aborted transaction.

        Raises:
            CorruptBatchError: a control batch that does not say what it is.
        """
        if not batch.attributes & _IN_TRANSACTION:
            return False
        while self._coming and self._coming[-1][0] < batch.next_offset:
            self._aborted.add(self._coming.pop()[1])
        if batch.is_control:
            if batch.producer_id in self._aborted and _control_type(batch, place) == _ABORT:
                self._aborted.discard(batch.producer_id)
            return False
        return batch.is_transactional and batch.producer_id in self._aborted


def passage_of(batch: Batch, position: int) -> Passage:
    """What becomes of a batch that no aborted transaction hides, when everything below ``position`` is done.

    A broker takes a batch only if every one of its offsets holds a record (KIP-98), and none with LogAppendTime
    from a producer.
    """
    attributes, count = batch.attributes, batch.count
    if attributes & CONTROL or count == 0:
        return Passage.DROPPED
    if batch.base_offset < position or batch.last_offset_delta + 1 != count or attributes & LOG_APPEND_TIME:
        return Passage.OPENED
    return Passage.WHOLE


def is_small(batch: Batch, whole_from_records: int) -> bool:
    """Whether a batch that may pass whole costs less when it becomes part of a larger one."""
    return batch.count < whole_from_records and len(batch.raw) < WHOLE_FROM_BYTES


def _control_type(batch: Batch, place: BatchPlace) -> int:
    """Of the control record: 0 abort, 1 commit (its key is a version and the type, 16 bits each)."""
    try:
        data = batch.records
        _, at = read_varint(data, 0)
        _, at = read_varint(data, at + 1)
        _, at = read_varint(data, at)
        length, at = read_varint(data, at)
        key = bytes(data[at : at + 4])
    except (IndexError, ValueError) as error:
        raise place.corrupt(batch.base_offset, f"a control record that can't be read: {error}") from error
    if length < len(key) or len(key) < 4:  # noqa: PLR2004 - two 16-bit numbers
        raise place.corrupt(batch.base_offset, "a control record without a type")
    return int.from_bytes(key[2:], "big", signed=True)


class _Gathered(NamedTuple):
    """A batch, of which the records from a position on are wanted."""

    batch: Batch
    position: int
    may_pass_whole: bool


_Opened = tuple[_Gathered, bytes | memoryview]
"""A batch with its records, decompressed."""


class Repacker:
    """Gathers records of one partition, read under one leader epoch and compressed in one way or not at all.

    Args:
        place: where they come from.
        merged_bytes: no more than this is decompressed for one merge, unless a single batch that can't pass whole has more.
    """

    def __init__(self, place: BatchPlace, merged_bytes: int = MERGED_BYTES) -> None:
        self._place = place
        self._merged_bytes = merged_bytes
        self._batches: list[_Gathered] = []
        self._epoch = UNKNOWN_EPOCH
        self._compression = Compression.NONE
        self._size = 0

    def takes(self, batch: Batch) -> bool:
        """Whether the batch may join those that are here."""
        if not self._batches:
            return True
        compression = batch.attributes & COMPRESSION
        return (
            self._size < FULL_BYTES
            and batch.leader_epoch == self._epoch
            and (compression == self._compression or not compression or not self._compression)
        )

    def add(self, batch: Batch, position: int, passage: Passage) -> None:
        """Take a batch; of its records those from ``position`` on. One that may pass whole and stays alone does."""
        if not self._batches:
            self._epoch, self._compression = batch.leader_epoch, batch.compression
        elif not self._compression:
            self._compression = batch.compression  # producers leave out what would not make a batch smaller
        self._batches.append(_Gathered(batch, position, passage is Passage.WHOLE))
        self._size += len(batch.raw)

    def blocks(self) -> Iterator[BatchBlock]:
        """One batch of everything gathered, which is forgotten; none if nothing of it is wanted.

        They are several, in order, if more comes out of it than may become one: each gets as much as goes into it, and a batch
        that has more than that alone passes whole if it may.

        Raises:
            CorruptBatchError: a batch does not hold what its header says.
        """
        batches, self._batches, self._size = self._batches, [], 0
        if len(batches) == 1 and batches[0].may_pass_whole:
            yield whole_block(batches[0].batch, self._place)
            return
        opened: list[_Opened] = []
        size = 0
        for gathered in batches:
            content = self._content(gathered, self._merged_bytes - size) if opened else None
            if content is None:
                yield from self._merged(opened)
                opened, size = [], 0
                limit = self._merged_bytes if gathered.may_pass_whole else LARGEST_RECORDS_BYTES
                content = self._content(gathered, limit)
            if content is None:
                yield self._unopened(gathered)
            else:
                opened.append((gathered, content))
                size += len(content)
        yield from self._merged(opened)

    def side_by_side(self, small: SmallBatches) -> Iterator[BatchBlock]:
        """One batch of small ones, or several as `blocks`; nothing else may be gathered here.

        Raises:
            CorruptBatchError: a batch does not hold what its header says.
        """
        compressions = small.compressions
        try:
            contents = decompress_each(small.raw, small.begins, small.ends, compressions, self._merged_bytes)
            together = merge_batches(small.headers, contents)
        except (Unusual, BadCompressionError):
            position = small.base_offset
            for batch in split(small.raw, self._place, at_offset=position):
                self.add(batch, position, passage_of(batch, position))
            yield from self.blocks()
            return
        if together is not None:
            yield self._finished(together, max(compressions), small.leader_epoch)

    def _unopened(self, gathered: _Gathered) -> BatchBlock:
        """A batch of which too much comes out."""
        if gathered.may_pass_whole:
            return whole_block(gathered.batch, self._place)
        raise self._place.corrupt(gathered.batch.base_offset, str(TooManyBytesError(LARGEST_RECORDS_BYTES)))

    def _content(self, gathered: _Gathered, limit: int) -> bytes | memoryview | None:
        """The batch's records, decompressed; None: they are more than ``limit`` bytes."""
        batch = gathered.batch
        try:
            content = decompress(batch.records, batch.compression, max(0, limit))
        except TooManyBytesError:
            return None
        except BadCompressionError as error:
            raise self._place.corrupt(batch.base_offset, str(error)) from error
        return content if len(content) <= limit else None

    def _merged(self, opened: Sequence[_Opened]) -> Iterator[BatchBlock]:
        """One batch of these, none if nothing of them is wanted."""
        if not opened:
            return
        batches = [(gathered.batch, gathered.position) for gathered, _ in opened]
        if len(opened) == 1 and opened[0][0].may_pass_whole:
            yield whole_block(batches[0][0], self._place)
            return
        contents = [content for _, content in opened]
        try:
            few = sum(batch.count for batch, _ in batches) < FEW_RECORDS
            together = (
                self._one_by_one(batches, contents)
                if few
                else merge_batches(
                    headers_of(batch for batch, _ in batches), contents, [position for _, position in batches]
                )
            )
        except Unusual:
            together = self._one_by_one(batches, contents)
        if together is not None:
            yield self._finished(together, self._compression, self._epoch)

    def _finished(self, together: Merged, compression: Compression, epoch: int) -> BatchBlock:
        raw = finish_batch(
            together.data,
            len(together.offsets),
            together.base_timestamp,
            together.max_timestamp,
            compression,
            quickly=True,
        )
        return BatchBlock(
            self._place.topic_partition,
            epoch,
            together.offsets,
            (memoryview(raw),),
            len(raw),
            together.newest_timestamp,
            self._place,
        )

    def _one_by_one(
        self, batches: Sequence[tuple[Batch, int]], contents: Sequence[bytes | memoryview]
    ) -> Merged | None:
        """What `merge_batches` gives, plainly, and however many records there are."""
        out, offsets = bytearray(), OffsetRanges()
        base: int | None = None
        newest = largest = 0
        for (batch, position), content in zip(batches, contents, strict=True):
            try:
                for record in records_of(batch, content):
                    if record.offset < position:
                        continue
                    newest = record.timestamp
                    if base is None:
                        base = largest = newest
                    largest = max(largest, newest)
                    out += encode_record(record, len(offsets), base)
                    offsets.extend(range(record.offset, record.offset + 1))
            except (ValueError, IndexError) as error:
                raise self._place.corrupt(batch.base_offset, str(error)) from error
        return None if base is None else Merged(memoryview(out), offsets, base, largest, newest)
