"""What becomes of the batches of one fetched record set: passed whole, made into larger ones, opened, or left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from replicator.format.block import BatchBlock, whole
from replicator.format.header import CorruptBatchError, Place
from replicator.format.passage import AbortedRanges, Passage, choose, is_small
from replicator.format.repack import Repacker
from replicator.format.small_batches import Stretch, parted


class Position(Protocol):
    """How far a partition has been read.

    Attributes:
        position: the next offset.
        epoch: of the record before it.
    """

    position: int
    epoch: int


def passed(
    records: bytes | bytearray | memoryview,
    at: Position,
    place: Place,
    aborted: AbortedRanges,
    *,
    whole_from_records: int,
) -> Iterator[BatchBlock]:
    """The blocks that come of a record set, in order.

    Args:
        records: the record set.
        at: what was asked for; moves along.
        place: where it came from.
        aborted: its aborted transactions.
        whole_from_records: batches of fewer records are made into larger ones, unless they have many bytes.

    Raises:
        CorruptBatchError: a batch is damaged; what stands before it was handed out.
    """
    gathered, damage = Repacker(place), None
    try:
        for found in parted(records, place, at_offset=at.position, below_records=whole_from_records):
            if isinstance(found, Stretch):
                yield from gathered.blocks()
                yield from gathered.side_by_side(found)
            else:
                hidden = aborted.hides(found, place)
                passage = Passage.DROPPED if hidden else choose(found, at.position)
                if passage is Passage.WHOLE and not is_small(found, whole_from_records):
                    yield from gathered.blocks()
                    yield whole(found, place)
                elif passage is not Passage.DROPPED:
                    if not gathered.takes(found):
                        yield from gathered.blocks()
                    gathered.add(found, at.position, passage)
            at.position, at.epoch = found.next_offset, found.leader_epoch
    except CorruptBatchError as error:
        damage = error
    yield from gathered.blocks()
    if damage is not None:
        raise damage
