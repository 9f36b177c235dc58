"""Many small batches that follow one another, taken apart and checked side by side.

`replicator.format.batch` says plainly what a batch must be; with all that becomes of a batch later on it costs some
microseconds of each. Here only the search for where each batch begins, and its checksum, go from one to the next.
Whatever is out of the ordinary, damage above all, is left to the plain way.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import lz4.frame
import numpy as np
import numpy.typing as npt
from fastcrc.crc32 import iscsi as crc32c

from replicator.format.batch import (
    ATTRIBUTES_AT,
    COMPRESSION,
    CONTROL,
    HEADER_BYTES,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL,
    Batch,
    BatchPlace,
    split,
)
from replicator.format.compression import (
    COMPRESSIONS,
    BadCompressionError,
    Compression,
    TooManyBytesError,
    decompress,
    lz4_has_size,
)

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
"""Columns: an entry for each of many batches, frames or records."""

WHOLE_FROM_BYTES = 64 * 1024
"""To compress as much anew costs more than a batch of its own, however few its records are
(docs/decisions/0007-copy-paths.md)."""
FULL_BYTES = 256 * 1024
"""So much becomes one batch, as read; a larger one gains nothing."""
MERGED_BYTES = 32 * 1024 * 1024
"""So many bytes may come out of what becomes one batch, whatever it says: the memory that each merge takes is a small
multiple of it. Compressed a hundredfold it is still more than `FULL_BYTES`."""
LEAST_BATCHES = 16
"""Fewer are faster one by one."""

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
"""A batch's header; `replicator.format.batch` says what it means."""
Headers = npt.NDArray[np.void]

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_LARGE_OFFSET = 2**62
"""Sums of smaller ones have no more than 63 bits."""
_LZ4_USUAL_HEAD = np.frombuffer(b"\x04\x22\x4d\x18\x60\x40\x82", np.uint8)
"""As the JVM's clients and librdkafka write it: independent blocks of up to 64 KiB, no checksums, no size."""
_LZ4_STORED_AT, _LZ4_END_BYTES, _LZ4_IS_STORED = 11, 4, 0x80000000
"""Behind that the size of the first block, with a bit that says that it is not compressed; a size of zero ends the frame."""


@dataclass(frozen=True, slots=True)
class SmallBatches:
    """Small batches, whole and checked, whose records may all become one batch.

    None is part of a transaction; all were read under one leader epoch, and are compressed in one way or not at all.

    Attributes:
        raw: all of their bytes.
        headers: of each.
        begins, ends: where its records lie in ``raw``.
    """

    raw: memoryview
    headers: Headers
    begins: Numbers
    ends: Numbers

    @property
    def base_offset(self) -> int:
        """The first offset."""
        return int(self.headers["base_offset"][0])

    @property
    def next_offset(self) -> int:
        """The first offset after the last batch."""
        last = self.headers[-1]
        return int(last["base_offset"]) + int(last["last_offset_delta"]) + 1

    @property
    def leader_epoch(self) -> int:
        """Under which all were read."""
        return int(self.headers["leader_epoch"][0])

    @property
    def compressions(self) -> Sequence[Compression]:
        """How the records of each batch are compressed."""
        return [COMPRESSIONS[code] for code in (self.headers["attributes"] & COMPRESSION).tolist()]


def headers_of(batches: Iterable[Batch]) -> Headers:
    """The headers of batches."""
    return np.frombuffer(b"".join([batch.raw[:HEADER_BYTES] for batch in batches]), HEADER)


def batches_of(
    buffer: bytes | bytearray | memoryview, place: BatchPlace, *, at_offset: int, below_records: int
) -> Iterator[Batch | SmallBatches]:
    """The batches of a fetched buffer, as `split` has them, in order; many small ones in a row as `SmallBatches`.

    Args:
        buffer: the record set of a fetch response.
        place: where it came from.
        at_offset: what was asked for.
        below_records: batches of fewer records are small.

    Raises:
        CorruptBatchError: as `split`; the batches before the damaged one were handed out.
    """
    view = memoryview(buffer)
    begin, expected = 0, at_offset
    while begin < len(view):
        borders = _borders(view, begin)
        small = _gathered(view, borders, expected, below_records)
        end = borders[-1] if len(borders) > 1 else len(view)
        begin_plainly = begin
        if small is not None:
            yield small
            begin_plainly, expected = begin + len(small.raw), small.next_offset
        may_begin_below = begin_plainly == 0
        for batch in split(
            view[begin_plainly:end], place, at_offset=expected, may_begin_below=may_begin_below
        ):
            yield batch
            expected = batch.next_offset
        begin = end


def _borders(view: memoryview, begin: int) -> list[int]:
    """Where each of the next batches begins, and the last one ends: about as many as become one batch."""
    borders = [begin]
    add, length_at = borders.append, _LENGTH.unpack_from
    last = len(view) - HEADER_BYTES
    until, total = min(begin + FULL_BYTES, last + 1), len(view)
    while begin < until:
        (length,) = length_at(view, begin + _LENGTH_AT)
        begin += LENGTH_END + length
        if length < HEADER_BYTES - LENGTH_END or begin > total:
            break
        add(begin)
    return borders


def _gathered(view: memoryview, borders: list[int], expected: int, below_records: int) -> SmallBatches | None:
    """As many of the batches as are ordinary, from the first one on; None if those are few."""
    if len(borders) <= LEAST_BATCHES:
        return None
    places = np.array(borders, np.int64)
    data = np.frombuffer(view, np.uint8)
    headers: Headers = bytes_at(data, places[:-1], HEADER_BYTES).view(HEADER)[:, 0]
    count = _leading(_ordinary(headers, expected, below_records))
    if count < LEAST_BATCHES:
        return None
    found = [crc32c(view[begin + ATTRIBUTES_AT : end]) for begin, end in pairwise(borders[: count + 1])]
    count = _leading(headers["crc"][:count] == np.array(found, np.uint32))
    if count < LEAST_BATCHES:
        return None
    within = places[: count + 1] - borders[0]
    return SmallBatches(
        view[borders[0] : borders[count]], headers[:count], within[:-1] + HEADER_BYTES, within[1:]
    )


def _leading(right: npt.NDArray[np.bool_]) -> int:
    """How many are right before the first that is not."""
    return len(right) if right.all() else int(right.argmin())


def _ordinary(headers: Headers, expected: int, below_records: int) -> npt.NDArray[np.bool_]:
    """Of each batch, whether it may join those before it; its checksum is not looked at."""
    base_offsets = headers["base_offset"].astype(np.int64)
    next_offsets = base_offsets + headers["last_offset_delta"] + 1
    before = np.empty_like(next_offsets)
    before[0], before[1:] = expected, next_offsets[:-1]
    counts, attributes = headers["count"], headers["attributes"].astype(np.int64)
    codes = attributes & COMPRESSION
    compressed = codes[codes > 0]
    result: npt.NDArray[np.bool_] = (
        (headers["magic"] == MAGIC)
        & (headers["length"] < WHOLE_FROM_BYTES - LENGTH_END)
        & (headers["leader_epoch"] == headers["leader_epoch"][0])
        & (attributes & (TRANSACTIONAL | CONTROL) == 0)
        & (base_offsets >= before)
        & (base_offsets >= 0)
        & (base_offsets < _LARGE_OFFSET)
        & (headers["last_offset_delta"] >= 0)
        & (counts >= 1)
        & (counts <= headers["last_offset_delta"].astype(np.int64) + 1)
        & (counts < below_records)
        & (codes < len(COMPRESSIONS))
    )
    if len(compressed):
        result &= (codes == 0) | (codes == compressed[0])
    return result


# --- their records -----------------------------------------------------------------------------------------------


def decompress_each(
    buffer: memoryview,
    begins: Numbers,
    ends: Numbers,
    compressions: Sequence[Compression],
    limit: int = MERGED_BYTES,
) -> list[bytes | memoryview]:
    """What `decompress` makes of the records of each of some small batches.

    Args:
        buffer: has them all.
        begins: where the records of each begin in it.
        ends: where they end.
        compressions: of each.
        limit: more bytes than this are refused, all together.

    Raises:
        TooManyBytesError: they are more than ``limit`` bytes.
        BadCompressionError: those of some batch are out of the ordinary, or damaged: `decompress` decides.
    """
    places = zip(begins.tolist(), ends.tolist(), strict=True)
    result: list[bytes | memoryview] = []
    left = limit
    if not min(compressions) is Compression.LZ4 is max(compressions):
        for (begin, end), how in zip(places, compressions, strict=True):
            result.append(decompress(buffer[begin:end], how, left))
            left -= len(result[-1])
            if left < 0:
                raise TooManyBytesError(limit)
        return result
    context, unpack = lz4.frame.create_decompression_context(), lz4.frame.decompress_chunk
    for (begin, end), is_stored in zip(places, _stored_lz4(buffer, begins, ends).tolist(), strict=True):
        if is_stored:
            result.append(buffer[begin + _LZ4_STORED_AT : end - _LZ4_END_BYTES])
            continue
        frame = buffer[begin:end]
        try:
            content, read_bytes, is_whole = (b"", 0, False) if lz4_has_size(frame) else unpack(context, frame)
        except (RuntimeError, MemoryError) as error:
            raise BadCompressionError(f"it is not lz4: {error}") from error
        if not is_whole or read_bytes != end - begin:
            raise BadCompressionError("an unusual lz4 frame")
        left -= len(content)
        if left < 0:
            raise TooManyBytesError(limit)
        result.append(content)
    return result


def _stored_lz4(buffer: memoryview, begins: Numbers, ends: Numbers) -> npt.NDArray[np.bool_]:
    """Which of the frames hold one block that is not compressed, as those of single records often do."""
    data = np.frombuffer(buffer, np.uint8)
    sizes = ends - begins
    result = sizes > _LZ4_STORED_AT + _LZ4_END_BYTES
    head = bytes_at(data, np.where(result, begins, 0), _LZ4_STORED_AT)
    block_sizes = head[:, len(_LZ4_USUAL_HEAD) :].copy().view("<u4")[:, 0]
    result &= (head[:, : len(_LZ4_USUAL_HEAD)] == _LZ4_USUAL_HEAD).all(axis=1)
    result &= block_sizes == (sizes - _LZ4_STORED_AT - _LZ4_END_BYTES) | _LZ4_IS_STORED
    result &= ~bytes_at(data, np.where(result, ends - _LZ4_END_BYTES, 0), _LZ4_END_BYTES).any(axis=1)
    return result


def bytes_at(data: Bytes, places: Numbers, size: int) -> Bytes:
    """So many bytes from each of these places on."""
    found: Bytes = np.lib.stride_tricks.sliding_window_view(data, size)[places]
    return found
