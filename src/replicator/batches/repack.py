"""Makes one batch of the records of several: of those that can't pass whole, and of small ones that follow one another.

The same records could be opened with `replicator.batches.records` one by one; this does it in one pass over the bytes,
because it stands in the way of every record of a source that writes tiny batches.
"""

from __future__ import annotations

from parallax.domain.ids import UNKNOWN_EPOCH
from replicator.batches.block import BatchBlock, whole
from replicator.batches.choose import Passage
from replicator.batches.compression import BadCompressionError, decompressed
from replicator.batches.header import Batch, Compression, Place
from replicator.batches.records import encoded, finished, varint
from replicator.offset_ranges import OffsetRanges

FULL_BYTES = 128 * 1024
"""Uncompressed; a larger batch gains nothing."""
_SMALLEST_RECORD_BYTES = 6
_TABLE = [encoded(number) for number in range(4_096)]
_TABLE_SIZE = len(_TABLE)


class Repacker:
    """Gathers records of one partition, read under one leader epoch and compressed in one way or not at all.

    Args:
        place: where they come from.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._batches: list[tuple[Batch, int]] = []
        self._epoch = UNKNOWN_EPOCH
        self._compression = Compression.NONE
        self._alone_whole = False
        self._size = 0

    def takes(self, batch: Batch) -> bool:
        """Whether the batch may join those that are here."""
        if not self._batches:
            return True
        joins = (
            Compression.NONE in (batch.compression, self._compression)
            or batch.compression == self._compression
        )
        return joins and batch.leader_epoch == self._epoch and self._size < FULL_BYTES

    def add(self, batch: Batch, position: int, passage: Passage) -> None:
        """Take a batch; of its records those from ``position`` on. One that may pass whole and stays alone does."""
        if not self._batches or self._compression is Compression.NONE:
            self._compression = batch.compression  # producers leave out what would not make a batch smaller
        self._alone_whole = passage is Passage.WHOLE
        self._batches.append((batch, position))
        self._epoch = batch.leader_epoch
        self._size += len(batch.raw)

    def block(self) -> BatchBlock | None:
        """One batch of everything gathered, which is forgotten; None if nothing of it is wanted.

        Raises:
            CorruptBatchError: a batch does not hold what its header says.
        """
        batches, self._batches, self._size = self._batches, [], 0
        if not batches:
            return None
        if len(batches) == 1 and self._alone_whole:
            return whole(batches[0][0], self._place)
        out = bytearray()
        offsets = OffsetRanges()
        base: int | None = None
        newest = largest = -1
        for batch, position in batches:
            try:
                data = bytes(decompressed(batch.records, batch.compression))
                base, newest, largest = _append(batch, data, position, out, offsets, base, newest, largest)
            except (BadCompressionError, ValueError, IndexError) as error:
                raise self._place.corrupt(batch.base_offset, str(error)) from error
        if base is None:
            return None
        raw = finished(bytes(out), len(offsets), base, largest, self._compression)
        return BatchBlock(
            self._place.topic_partition,
            self._epoch,
            offsets,
            (memoryview(raw),),
            len(raw),
            newest,
            self._place,
        )


def _append(  # noqa: C901, PLR0912, PLR0915 - one pass without calls: it is run for every record
    batch: Batch,
    data: bytes,
    position: int,
    out: bytearray,
    offsets: OffsetRanges,
    base: int | None,
    newest: int,
    largest: int,
) -> tuple[int | None, int, int]:
    """Append a batch's records from ``position`` on, and their offsets.

    Returns:
        The base timestamp, the last record's and the largest timestamp so far.

    Raises:
        IndexError: the data ends inside a number.
        ValueError: the records are not what the header says.
    """
    view = memoryview(data)
    stamp = batch.max_timestamp if batch.is_log_append_time else None
    base_timestamp, base_offset, last_offset_delta = (
        batch.base_timestamp,
        batch.base_offset,
        batch.last_offset_delta,
    )
    total, at, last_delta, index = len(data), 0, -1, len(offsets)
    table, table_size = _TABLE, _TABLE_SIZE
    begin_offset = end_offset = -1
    for _ in range(batch.count):
        byte = data[at]
        if byte < 0x80:  # noqa: PLR2004 - the high bit says that more follows
            length, at = (byte >> 1) ^ -(byte & 1), at + 1
        else:
            length, at = varint(view, at)
        end = at + length
        if length < _SMALLEST_RECORD_BYTES or end > total:
            raise ValueError(f"a record of {length} bytes does not fit")
        byte = data[at + 1]
        if byte < 0x80:  # noqa: PLR2004 - as above
            delta, begin = (byte >> 1) ^ -(byte & 1), at + 2
        else:
            delta, begin = varint(view, at + 1)
        byte = data[begin]
        if byte < 0x80:  # noqa: PLR2004 - as above
            offset_delta, begin = (byte >> 1) ^ -(byte & 1), begin + 1
        else:
            offset_delta, begin = varint(view, begin)
        if not last_delta < offset_delta <= last_offset_delta or begin > end:
            raise ValueError(f"a record with offset delta {offset_delta} after one with {last_delta}")
        at, last_delta = end, offset_delta
        offset = base_offset + offset_delta
        if offset < position:
            continue
        newest = base_timestamp + delta if stamp is None else stamp
        if base is None:
            base = newest
        largest = max(largest, newest)
        delta = newest - base
        head = b"\x00" + (table[delta] if 0 <= delta < table_size else encoded(delta))
        head += table[index] if index < table_size else encoded(index)
        size = len(head) + end - begin
        out += table[size] if size < table_size else encoded(size)
        out += head
        out += view[begin:end]
        index += 1
        if offset != end_offset:
            if end_offset > begin_offset:
                offsets.extend(range(begin_offset, end_offset))
            begin_offset = offset
        end_offset = offset + 1
    if end_offset > begin_offset:
        offsets.extend(range(begin_offset, end_offset))
    if at != total:
        raise ValueError(f"{total - at} bytes follow the last record")
    return base, newest, largest
