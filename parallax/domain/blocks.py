"""Rows of one lineage as columns that are searched as they lie, without being decoded.

A block holds rows that follow each other. Its first row is the last one of the block before it, so that a block alone
answers every look-up between its first row and its last. It is the form in which an index may keep rows, at five to ten
bytes a run, in the store as in memory. The parts, little-endian, each at a multiple of its numbers' width::

    head      format u1, widths of source, target and count 3 x u1, CRC-32 of all that follows it u4,
              rows, places where holes end, stretches of one epoch, epochs before 4 x u2,
              source_start and target_start of the first row, when the last was committed (ms) 3 x i8
    holes     previous_source_end i8: of rows for which it is not the end of the row before, so always of the first
    before    epoch, first, run_end, watermark_end 4 x i8: what rows before the block's first tell of each leader epoch
    columns   source_start and target_start, less those of the first row, and count: 8, 4, 2 or 1 bytes each
    epochs    i4: of each stretch of rows with one source leader epoch
    places    u2: rows at which holes end, then rows at which stretches begin

Parts of wider numbers come first; of equally wide ones, as above.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from struct import Struct
from zlib import crc32

from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.lineage_history import EpochRows, epochs_of
from parallax.domain.runs import Run
from parallax.errors import InvariantError, UnreadableRowError

FORMAT = 1

MOST_ROWS = (1 << 16) - 1
"""In one block."""

_HEAD = Struct("<4BI4Hqqq")
_CHECKED_FROM = 8
_CODES = {1: "B", 2: "H", 4: "I", 8: "q"}
_ORDER: dict[str, int] = {code: -width for width, code in _CODES.items()} | {"i": -4}

_Part = tuple[str, int]
"""The type code of a part's numbers, and how many there are."""


def encode(rows: Sequence[Run], committed_at_ms: int, before: Mapping[int, EpochRows] | None = None) -> bytes:
    """Rows, which are in order, as a block.

    Args:
        rows: the first of them is the last row of the block before, if there is one.
        committed_at_ms: when the last of them was committed, milliseconds since the Unix epoch.
        before: what the rows before these tell of each source leader epoch.

    Raises:
        InvariantError: they are not in order, there are none, or more than `MOST_ROWS` of them or of leader epochs.
    """
    if not 0 < len(rows) <= MOST_ROWS or len(before or {}) > MOST_ROWS:
        raise InvariantError(
            f"a block of {len(rows)} rows; 1 to {MOST_ROWS}, of as many leader epochs, are possible"
        )
    first = rows[0]
    holes, stretches = [0], [0]
    for place, (row, following) in enumerate(pairwise(rows), 1):
        if following.previous_source_end != row.source_end:
            holes.append(place)
        if following.source_leader_epoch != row.source_leader_epoch:
            stretches.append(place)
    columns = [
        [row.source_start - first.source_start for row in rows],
        [row.target_start - first.target_start for row in rows],
        [row.count for row in rows],
    ]
    if min(map(min, columns)) < 0:
        raise InvariantError(f"A: the rows of a block go back behind its first one, {first}")
    widths = [_width(max(column)) for column in columns]
    earlier = [number for epoch, known in (before or {}).items() for number in (epoch, *known)]
    parts: list[tuple[str, Sequence[int]]] = [
        ("q", [rows[place].previous_source_end for place in holes]),
        ("q", earlier),
        *((_CODES[width], column) for width, column in zip(widths, columns, strict=True)),
        ("i", [rows[place].source_leader_epoch for place in stretches]),
        ("H", holes),
        ("H", stretches),
    ]
    parts.sort(key=lambda part: _ORDER[part[0]])
    body = b"".join(Struct(f"<{len(numbers)}{code}").pack(*numbers) for code, numbers in parts)
    counts = (len(rows), len(holes), len(stretches), len(earlier) // 4)
    head = _HEAD.pack(
        FORMAT, *widths, 0, *counts, first.source_start, first.target_start, committed_at_ms
    )  # fmt: skip
    check = crc32(body, crc32(head[_CHECKED_FROM:], crc32(head[:4])))
    return head[:4] + check.to_bytes(4, "little") + head[_CHECKED_FROM:] + body


def _width(most: int) -> int:
    return next(width for width in _CODES if width == 8 or most < 1 << (8 * width))  # noqa: PLR2004


class Block:
    """A block as it is stored, with views of its columns. Rows are named by their place in it.

    Attributes:
        source_base, target_base: where its first row starts.
        sources, targets: where rows start, less the base. ``counts``: their records.
        committed_at_ms: when its last row was committed, milliseconds since the Unix epoch.
        nbytes: its size.

    Raises:
        UnreadableRowError: it is of another format, or damaged.
    """

    __slots__ = (
        "__weakref__",
        "_before",
        "_epochs",
        "_hole_places",
        "_holes",
        "_stretches",
        "committed_at_ms",
        "counts",
        "nbytes",
        "source_base",
        "sources",
        "target_base",
        "targets",
    )

    def __init__(self, stored: bytes) -> None:
        if len(stored) < _HEAD.size or stored[0] != FORMAT:
            raise UnreadableRowError(f"a block of format {stored[:1].hex() or 'none'}, {len(stored)} bytes")
        _, *widths, check, rows, holes, stretches, before, source, target, at_ms = _HEAD.unpack_from(stored)
        view = memoryview(stored)
        if check != crc32(view[_CHECKED_FROM:], crc32(view[:4])):
            raise UnreadableRowError(f"a block of {len(stored)} bytes that is damaged: its checksum differs")
        if not all(width in _CODES for width in widths) or not (rows and holes and stretches):
            raise UnreadableRowError(f"a block that can't be: widths {widths}, {rows} rows, {holes} holes")
        self.nbytes = len(stored)
        self.source_base: int = source
        self.target_base: int = target
        self.committed_at_ms: int = at_ms
        columns = [(_CODES[width], rows) for width in widths]
        parts = [("q", holes), ("q", 4 * before), *columns, ("i", stretches), ("H", holes), ("H", stretches)]
        (
            self._holes,
            self._before,
            self.sources,
            self.targets,
            self.counts,
            self._epochs,
            self._hole_places,
            self._stretches,
        ) = _views(view, parts)
        if self._hole_places[0] or self._stretches[0]:
            raise UnreadableRowError("a block whose first row has no predecessor or leader epoch")

    def __len__(self) -> int:
        return len(self.sources)

    def floor_by_source(self, source: int) -> int:
        """The place of the last row with ``source_start <= source``; -1: none."""
        return bisect_right(self.sources, source - self.source_base) - 1

    def floor_by_target(self, target: int) -> int:
        """The place of the last row with ``target_start <= target``; -1: none."""
        return bisect_right(self.targets, target - self.target_base) - 1

    def source_start(self, place: int) -> int:
        """The row's `Run.source_start`."""
        return self.source_base + self.sources[place]

    def target_start(self, place: int) -> int:
        """The row's `Run.target_start`."""
        return self.target_base + self.targets[place]

    def previous_source_end(self, place: int) -> int:
        """The row's `Run.previous_source_end`."""
        hole = bisect_left(self._hole_places, place)
        if hole < len(self._holes) and self._hole_places[hole] == place:
            return self._holes[hole]
        return self.source_base + self.sources[place - 1] + self.counts[place - 1]

    def leader_epoch(self, place: int) -> int:
        """The row's source leader epoch."""
        return self._epochs[bisect_right(self._stretches, place) - 1]

    @property
    def holes(self) -> tuple[Sequence[int], Sequence[int]]:
        """The places of rows whose `Run.previous_source_end` is not the end of the row before, and what it is."""
        return self._hole_places, self._holes

    @property
    def stretches(self) -> tuple[Sequence[int], Sequence[int]]:
        """The places at which stretches of rows with one source leader epoch begin, and these epochs."""
        return self._stretches, self._epochs

    def run(self, place: int) -> Run:
        """A row.

        Raises:
            InvariantError: it can't be one.
        """
        return Run(
            SourceOffset(self.source_base + self.sources[place]),
            TargetOffset(self.target_base + self.targets[place]),
            self.counts[place],
            SourceOffset(self.previous_source_end(place)),
            self.leader_epoch(place),
        )

    def epochs(self, end: int) -> dict[int, EpochRows]:
        """What the rows before place ``end``, and those before the block, tell of each source leader epoch."""
        told = self._before
        known = {
            told[at]: EpochRows(SourceOffset(told[at + 1]), told[at + 2], told[at + 3])
            for at in range(0, len(told), 4)
        }
        for first, last in pairwise([*self._stretches, end]):
            # All but the last run of a stretch say no more than that one.
            places = range(first, min(last, end))
            telling = [place for place in places if not self.counts[place]]
            run = next((place for place in reversed(places) if self.counts[place]), None)
            telling += [] if run is None else [run]
            if places:
                known |= epochs_of((self.run(place) for place in sorted({first, *telling})), known)
        return known


def _views(view: memoryview, parts: Sequence[_Part]) -> list[memoryview[int]]:
    """The parts of a block, in the order in which they are named.

    Raises:
        UnreadableRowError: they are not what follows the head.
    """
    if sys.byteorder != "little":
        raise UnreadableRowError("blocks can't be read on a machine whose numbers begin with the high byte")
    found: list[memoryview[int]] = [memoryview(b"")] * len(parts)
    at = _HEAD.size
    for number in sorted(range(len(parts)), key=lambda number: _ORDER[parts[number][0]]):
        code, count = parts[number]
        end = at - _ORDER[code] * count
        if end > len(view):
            break
        found[number] = view[at:end].cast(code)  # type: ignore[call-overload] # of these codes: int
        at = end
    if at != len(view):
        raise UnreadableRowError(f"a block of {len(view)} bytes whose parts end at byte {at}")
    return found
