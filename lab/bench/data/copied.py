"""Reads a broker's segment files: what was committed, and whether it is the source's beginning, in order.

Only batch headers are looked at, so a gigabyte takes seconds. Timestamps tell each record's place in its source
partition (`lab.bench.data.batches`): a copy is right if every batch begins where the one before it ended.
"""

from __future__ import annotations

import mmap
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lab.bench.data.batches import FIRST_TIMESTAMP_MS
from replicator.format.batch import HEADER_BYTES, LENGTH_END

_HEADER = struct.Struct(">qiibIhiqqqhii")
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_COMMIT = 1


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """What a batch's header says; ``control`` is a marker's type (0: abort, 1: commit) or None."""

    base_offset: int
    count: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    transactional: bool
    control: int | None


@dataclass(slots=True)
class CopiedLog:
    """The committed records of one partition's log.

    Attributes:
        records: how many.
        misplaced: batches that do not begin where the one before them ended, or whose last record is not the one
            that their count leads to.
        first_problem: the first of them, in words.
    """

    records: int = 0
    misplaced: int = 0
    first_problem: str = ""
    _offsets: list[int] = field(default_factory=list)
    _before: list[int] = field(default_factory=list)

    def add(self, batch: BatchHeader) -> None:
        """Take the next committed batch in."""
        self._offsets.append(batch.base_offset)
        self._before.append(self.records)
        expected = FIRST_TIMESTAMP_MS + self.records
        self.records += batch.count
        if (batch.base_timestamp_ms, batch.max_timestamp_ms) != (expected, expected + batch.count - 1):
            self.misplaced += 1
            if not self.first_problem:
                self.first_problem = (
                    f"the batch at offset {batch.base_offset} holds records "
                    f"{batch.base_timestamp_ms - FIRST_TIMESTAMP_MS} to "
                    f"{batch.max_timestamp_ms - FIRST_TIMESTAMP_MS}, not {expected - FIRST_TIMESTAMP_MS} to "
                    f"{self.records - 1}"
                )

    def records_below(self, offset: int) -> int:
        """Committed records in batches that begin below an offset (a batch's middle counts as its end)."""
        place = bisect_left(self._offsets, offset)
        return self.records if place == len(self._offsets) else self._before[place]


def read_partition(storage: Path, topic: str, partition: int) -> CopiedLog:
    """The committed records of a partition, from its segment files.

    Args:
        storage: the broker's log directory.
        topic: the topic.
        partition: the partition.
    """
    log = CopiedLog()
    for batch in committed(_headers(storage / f"{topic}-{partition}")):
        log.add(batch)
    return log


def committed(batches: Iterable[BatchHeader]) -> Iterator[BatchHeader]:
    """The data batches that a read_committed consumer sees, in the order of their offsets.

    What an open transaction holds at the end of the log, and everything above it, is left out.
    """
    waiting: list[BatchHeader] = []
    undecided: dict[int, set[int]] = {}
    aborted: set[int] = set()
    for batch in batches:
        if batch.control is None:
            waiting.append(batch)
            if batch.transactional:
                undecided.setdefault(batch.producer_id, set()).add(batch.base_offset)
        else:
            transaction = undecided.pop(batch.producer_id, set())
            if batch.control != _COMMIT:
                aborted |= transaction
        if not undecided:
            yield from (item for item in waiting if item.base_offset not in aborted)
            waiting.clear()
            aborted.clear()
    # No consumer sees past the first record of an open transaction, decided ones above it included.
    stable = min((offset for offsets in undecided.values() for offset in offsets), default=0)
    for item in waiting:
        if item.base_offset < stable and item.base_offset not in aborted:
            yield item


def _headers(folder: Path) -> Iterator[BatchHeader]:
    for segment in sorted(folder.glob("*.log")):
        if segment.stat().st_size < HEADER_BYTES:
            continue
        with segment.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from headers_in(data)


def headers_in(data: mmap.mmap | bytes) -> Iterator[BatchHeader]:
    """The headers of the batches that lie one after another in some bytes; an unfinished tail is left out."""
    place, size = 0, len(data)
    while place + HEADER_BYTES <= size:
        offset, length, _, magic, _, attributes, _, base, latest, producer, _, _, count = _HEADER.unpack_from(
            data, place
        )
        if length <= 0 or magic != 2 or place + LENGTH_END + length > size:  # noqa: PLR2004 - the message format
            return
        control = _marker(data, place) if attributes & _CONTROL else None
        yield BatchHeader(offset, count, base, latest, producer, bool(attributes & _TRANSACTIONAL), control)
        place += LENGTH_END + length


def _marker(data: mmap.mmap | bytes, place: int) -> int:
    """The type in a control batch: its only record's key is a version and a type, two bytes each."""
    # length, attributes, timestamp delta, offset delta and key length are one byte each in such a short record
    (kind,) = struct.unpack_from(">h", data, place + HEADER_BYTES + 5 + 2)
    return int(kind)
