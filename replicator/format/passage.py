"""Which batches pass whole, which are opened, and which hold nothing that a reader could see."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from replicator.format.header import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Batch, BatchPlace
from replicator.format.records import varint

WHOLE_FROM_BYTES = 64 * 1024
"""To compress as much anew costs more than a batch of its own, however few its records are
(docs/decisions/0007-copy-paths.md)."""
_ABORT = 0
_IN_TRANSACTION = TRANSACTIONAL | CONTROL


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


def choose(batch: Batch, position: int) -> Passage:
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
        _, at = varint(data, 0)
        _, at = varint(data, at + 1)
        _, at = varint(data, at)
        length, at = varint(data, at)
        key = bytes(data[at : at + 4])
    except (IndexError, ValueError) as error:
        raise place.corrupt(batch.base_offset, f"a control record that can't be read: {error}") from error
    if length < len(key) or len(key) < 4:  # noqa: PLR2004 - two 16-bit numbers
        raise place.corrupt(batch.base_offset, "a control record without a type")
    return int.from_bytes(key[2:], "big", signed=True)
