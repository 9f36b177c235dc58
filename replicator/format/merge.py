"""Records of many small batches, rewritten side by side for one large batch.

`replicator.format.batch` says plainly what comes of a record; it costs some microseconds of each. Here only the
search for where each record begins goes from one to the next, everything else is done with all of them at once.
Whatever is out of the ordinary, damage above all, is left to the plain way (`Unusual`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from replicator.copying.offset_ranges import OffsetRanges
from replicator.format.batch import LOG_APPEND_TIME, SMALLEST_RECORD_BYTES, read_varint
from replicator.format.small_batches import Bytes, Headers, Numbers

_PLAIN_BYTES = 8
"""Of a varint: longer ones are left to the plain way, shorter ones never overflow 64 bits, whatever is added here."""
_TIMESTAMP_BITS = 60
_MOST_BYTES = 2**28
"""Of all records: places in them have 32 bits."""
_MOST_RECORDS = 2**18
"""Each takes some hundred bytes of memory on its way through here."""
_WORD_BYTES = 8
_MORE: Numbers = np.array([0] + [int.from_bytes(b"\x80" * size, "little") for size in range(_WORD_BYTES)])
"""By size of a varint, the bits that say that more follows."""
_PAD = bytes(64)
"""Behind the last record: zeros, which end every number. More than a record's head has."""


class Unusual(Exception):  # noqa: N818 - no error: the plain way knows what it is
    """The records are not ordinary, or damaged: the plain way decides."""


@dataclass(frozen=True, slots=True)
class Merged:
    """Records encoded one after the other.

    Attributes:
        data: ready to be compressed; deltas count from ``base_timestamp`` and 0.
        offsets: of the records at the source.
        newest_timestamp: the last record's.
    """

    data: bytes | memoryview
    offsets: OffsetRanges
    base_timestamp: int
    max_timestamp: int
    newest_timestamp: int


def merge_batches(
    headers: Headers, contents: Sequence[bytes | memoryview], positions: Sequence[int] | None = None
) -> Merged | None:
    """The records of the batches, of each those from its position on; None if that leaves none.

    Args:
        headers: of the batches.
        contents: their records, decompressed.
        positions: of each batch; None: all of its records are wanted.

    Raises:
        Unusual: the plain way has to be gone.
    """
    counts = headers["count"].astype(np.int64)
    data = b"".join([*contents, _PAD])
    total = len(data) - len(_PAD)
    count = int(counts.sum())
    if total > _MOST_BYTES or count > _MOST_RECORDS or counts.min() < 1:
        raise Unusual
    firsts = np.cumsum(counts) - counts
    begins = _begins(data, count, total)
    if begins[firsts].tolist() != [0, *accumulate(map(len, contents[:-1]))]:
        raise Unusual
    bodies, ends, timestamp_deltas, offset_deltas = _fields(np.frombuffer(data, np.uint8), begins, total)
    before = np.empty_like(offset_deltas)
    before[1:] = offset_deltas[:-1]
    before[firsts] = -1
    in_order = (offset_deltas > before).all()
    if not (in_order and (offset_deltas[firsts + counts - 1] <= headers["last_offset_delta"]).all()):
        raise Unusual
    base_timestamps = _small(headers["base_timestamp"])
    stamped = headers["attributes"] & LOG_APPEND_TIME != 0
    if stamped.any():
        base_timestamps = np.where(stamped, _small(headers["max_timestamp"]), base_timestamps)
        timestamp_deltas[np.repeat(stamped, counts)] = 0
    timestamps = timestamp_deltas + np.repeat(base_timestamps, counts)
    base_offsets = headers["base_offset"].astype(np.int64)
    offsets = offset_deltas + np.repeat(base_offsets, counts)
    wanted_from = None if positions is None else np.array(positions, np.int64)
    if wanted_from is not None and (wanted_from > base_offsets).any():
        wanted = offsets >= np.repeat(wanted_from, counts)
        bodies, ends, offsets, timestamps = (column[wanted] for column in (bodies, ends, offsets, timestamps))
        if not len(offsets):
            return None
    base = int(timestamps[0])
    return Merged(
        _joined(data, bodies, ends, timestamps - base),
        _ranges(offsets),
        base,
        int(timestamps.max()),
        int(timestamps[-1]),
    )


def _small(timestamps: npt.NDArray[Any]) -> Numbers:
    """The timestamps, if nothing that is calculated here with them has more than 64 bits."""
    result: Numbers = timestamps.astype(np.int64)
    if ((result + 2**_TIMESTAMP_BITS) >> (_TIMESTAMP_BITS + 1)).any():
        raise Unusual
    return result


# --- reading ---------------------------------------------------------------------------------------------------


def _advance(first: int, second: int) -> int:
    """From a record that begins with these bytes to the next; 0 if they don't tell, or it is too short."""
    size, value = (1, first) if first <= 0x7F else (2, first & 0x7F | second << 7)  # noqa: PLR2004 - high bit: more
    if (size == 2 and second > 0x7F) or value & 1 or value >> 1 < SMALLEST_RECORD_BYTES:  # noqa: PLR2004 - as above
        return 0
    return size + (value >> 1)


_ADVANCES = [[_advance(first, second) for second in range(256)] for first in range(256)]


def _begins(data: bytes, count: int, total: int) -> Numbers:
    """Where each record begins: ``count`` of them, which fill ``total`` bytes."""
    at = 0
    begins: list[int] = []
    add, advances = begins.append, _ADVANCES
    try:
        for _ in range(count):
            add(at)
            at += advances[data[at]][data[at + 1]] or _far(data, at)
    except IndexError:
        raise Unusual from None
    if at != total:
        raise Unusual
    return np.fromiter(begins, np.int64, count)


def _far(data: bytes, at: int) -> int:
    """From a large record to the next."""
    try:
        length, begin = read_varint(data, at)
    except ValueError:
        raise Unusual from None
    if length < SMALLEST_RECORD_BYTES:
        raise Unusual
    return begin - at + length


def _fields(data: Bytes, begins: Numbers, total: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Of each record: where its body begins and ends, its timestamp delta, its offset delta."""
    ends = np.append(begins[1:], total)
    _, at = _varints(data, begins)
    timestamp_deltas, at = _varints(data, at + 1)
    offset_deltas, bodies = _varints(data, at)
    if (bodies > ends).any():
        raise Unusual
    return bodies, ends, timestamp_deltas, offset_deltas


def _varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """The zigzag numbers at these places, and where they end."""
    found = data[at]
    at = at + 1
    values = (found & 0x7F).astype(np.int64)
    goes_on = found > 0x7F  # noqa: PLR2004 - the high bit says that more follows
    shift = 7
    while goes_on.any():
        if shift >= 7 * _PLAIN_BYTES:
            raise Unusual
        found = data[at] * goes_on
        at += goes_on
        values |= (found & 0x7F).astype(np.int64) << shift
        goes_on = found > 0x7F  # noqa: PLR2004 - as above
        shift += 7
    return (values >> 1) ^ -(values & 1), at


# --- writing ---------------------------------------------------------------------------------------------------


def _joined(data: bytes, bodies: Numbers, ends: Numbers, timestamp_deltas: Numbers) -> memoryview:
    """The records with these bodies, encoded.

    Arrow copies many pieces at once; for it they are strings of one array, between which others are left out. Each
    record has three: its length and attributes, its deltas, its body.
    """
    count = len(bodies)
    times = (timestamp_deltas << 1) ^ (timestamp_deltas >> 63)
    indices = np.arange(0, 2 * count, 2)
    time_sizes, index_sizes = _sizes(times), _sizes(indices)
    delta_sizes = time_sizes + index_sizes
    if delta_sizes.max() > _WORD_BYTES:
        raise Unusual
    lengths = (1 + delta_sizes + ends - bodies) << 1
    length_sizes = _sizes(lengths)
    words = np.empty((count, 2), "<i8")
    words[:, 0] = _encoded(lengths, length_sizes)
    words[:, 1] = _encoded(times, time_sizes) | _encoded(indices, index_sizes) << (time_sizes << 3)
    rows = np.arange(len(data), len(data) + words.nbytes, words.nbytes // count)
    borders = np.empty(6 * count, np.int32)
    borders[0 : 2 * count : 2], borders[1 : 2 * count : 2] = bodies, ends
    places = borders[2 * count :].reshape(count, 4)
    places[:, 0], places[:, 1] = rows, rows + length_sizes + 1
    places[:, 2], places[:, 3] = rows + _WORD_BYTES, rows + _WORD_BYTES + delta_sizes
    chosen = np.empty((count, 3), np.int32)
    chosen[:, 0] = np.arange(2 * count, 6 * count, 4)
    chosen[:, 1], chosen[:, 2] = chosen[:, 0] + 2, indices
    pieces = [None, pa.py_buffer(borders), pa.py_buffer(data + words.tobytes())]
    strings: Any = pa.Array.from_buffers(pa.binary(), len(borders) - 1, pieces)
    # Not pa.array(chosen), which imports pandas.
    wanted = pa.Array.from_buffers(pa.int32(), chosen.size, [None, pa.py_buffer(chosen)])
    return memoryview(pc.take(strings, wanted).buffers()[2])


def _sizes(values: Numbers) -> Numbers:
    """How many bytes each needs."""
    sizes = np.ones(len(values), np.int64)
    largest, limit = int(values.max()), 0x80
    while largest >= limit:
        sizes += values >= limit
        limit <<= 7
    return sizes


def _encoded(values: Numbers, sizes: Numbers) -> Numbers:
    """Numbers of these sizes as varints, the first byte lowest."""
    words = values & 0x7F
    for place in range(1, int(sizes.max())):
        words |= (values >> 7 * place & 0x7F) << 8 * place
    words |= _MORE[sizes]
    return words


def _ranges(offsets: Numbers) -> OffsetRanges:
    """The offsets; what follows without a gap is one range."""
    gaps = np.flatnonzero(np.diff(offsets) != 1)
    ranges = OffsetRanges()
    for first, last in zip(
        offsets[np.append(0, gaps + 1)].tolist(), offsets[np.append(gaps, -1)].tolist(), strict=True
    ):
        ranges.extend(range(first, last + 1))
    return ranges
