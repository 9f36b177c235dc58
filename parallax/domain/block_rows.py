"""How blocks of rows are named and ordered, and what a lease tells in one turn. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from parallax.domain.blocks import Block
from parallax.domain.ids import Lineage, RoutePartition, SourceOffset, TargetOffset
from parallax.errors import UnreadableRowError

SECTION = 1 << 22
"""Blocks that begin within so many target offsets lie together: some MiB, be the runs ever so short."""

_MOST_NUMBERS = 20_000
"""Remembered: each look-up needs one, and to make it takes longer."""

TURN_FORMAT = 1

_TURN = Struct("<B3xIqqq")
_PIECE = Struct("<qq")
_CHECKED_FROM = 8


@lru_cache(_MOST_NUMBERS)
def lineage_number(partition: RoutePartition, lineage: Lineage) -> int:
    """The number by which a lineage of a partition is named in keys and turns: 64 bits of a hash of its names."""
    named = blake2b(f"{partition}/{lineage}".encode(), digest_size=8).digest()
    return int.from_bytes(named, "big", signed=True)


class BlockKey(NamedTuple):
    """Which block it is, among those of one partition of a target.

    Attributes:
        lineage: `lineage_number`.
        target_start, source_start: of its first row.
        term: of the owner that wrote it: the layout, and the number of its term (`parallax.domain.index_rows.index_version`);
            of rows that a layout has left to another one, what `parallax.domain.index_rows.left_by` says.
    """

    lineage: int
    target_start: TargetOffset
    source_start: SourceOffset
    term: int

    @property
    def section(self) -> int:
        """In which section of the target partition it begins."""
        return self.target_start // SECTION

    @property
    def start(self) -> tuple[TargetOffset, SourceOffset]:
        """Where its first row lies."""
        return self.target_start, self.source_start


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block with its key.

    Attributes:
        version: of the last entry that it tells of (`parallax.domain.index_rows.index_version`); of two with one key the
            greater stays.
        first: its first row as a block of its own, which is told with the key; None: the key has been told.
    """

    partition: RoutePartition
    key: BlockKey
    body: bytes
    version: int
    first: bytes | None


def in_order(keys: Iterable[BlockKey]) -> list[BlockKey]:
    """The blocks of one lineage that count, in the order of their rows.

    An owner has written every row from the first one of its term on. So blocks of an earlier owner count up to there alone,
    whatever a late one of those has added.
    """
    counting: list[BlockKey] = []
    begun: tuple[TargetOffset, SourceOffset] | None = None
    for key in sorted(keys, key=lambda key: (key.term, key.start), reverse=True):
        if begun is None or key.start < begun or (counting and counting[-1].term == key.term):
            counting.append(key)
            begun = key.start if begun is None else min(begun, key.start)
    return counting[::-1]


@dataclass(frozen=True, slots=True)
class Turn:
    """What an owner of a lease committed within a moment.

    Attributes:
        run_log_first: the first run-log offset whose entry it tells of.
        committed_at_ms: when the last was committed, milliseconds since the Unix epoch.
        pieces: rows by `lineage_number`.
    """

    run_log_first: int
    committed_at_ms: int
    pieces: Mapping[int, Block]


def encode_turn(run_log_first: int, committed_at_ms: int, pieces: Mapping[int, bytes]) -> bytes:
    """A turn of blocks by `lineage_number`."""
    table = b"".join(_PIECE.pack(number, len(body)) for number, body in pieces.items())
    head = _TURN.pack(TURN_FORMAT, 0, run_log_first, committed_at_ms, len(pieces))
    check = crc32(table, crc32(head[_CHECKED_FROM:], crc32(head[:4])))
    return head[:4] + check.to_bytes(4, "little") + head[_CHECKED_FROM:] + table + b"".join(pieces.values())


def decode_turn(stored: bytes) -> Turn:
    """The turn that was stored.

    Raises:
        UnreadableRowError: it is of another format, or damaged.
    """
    if len(stored) < _TURN.size or stored[0] != TURN_FORMAT:
        raise UnreadableRowError(f"a turn of format {stored[:1].hex() or 'none'}, {len(stored)} bytes")
    _, check, run_log_first, committed_at_ms, count = _TURN.unpack_from(stored)
    at = _TURN.size + count * _PIECE.size
    if not _TURN.size <= at <= len(stored) or check != crc32(stored[_CHECKED_FROM:at], crc32(stored[:4])):
        raise UnreadableRowError(f"a turn of {len(stored)} bytes that is damaged")
    pieces = {}
    for number, size in _PIECE.iter_unpack(stored[_TURN.size : at]):
        pieces[number] = Block(stored[at : at + size])
        at += size
    if at != len(stored):
        raise UnreadableRowError(f"a turn of {len(stored)} bytes whose pieces end at byte {at}")
    return Turn(run_log_first, committed_at_ms, pieces)
