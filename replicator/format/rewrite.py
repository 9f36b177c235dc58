"""What changes in a batch on its way: who wrote it, and where it will stand. Its records stay as they are."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import crc32c

from parallax.domain.ids import TopicPartition
from replicator.format.header import ATTRIBUTES_AT, CRC_AT, HEADER_BYTES, LENGTH_END

SEQUENCES = 2**31
"""Sequence numbers wrap here."""
_TRANSACTIONAL, _DELETE_HORIZON = 0x10, 0x40
_PRODUCER_AT = 43
_PRODUCER = struct.Struct(">qhi")
_UNSIGNED = struct.Struct(">I")
_SHORT = struct.Struct(">h")
_HEAD = struct.Struct(">qii")
_NO_EPOCH = -1


@dataclass(slots=True)
class ProducerState:
    """A transactional producer as the target knows it.

    Attributes:
        producer_id, epoch: as the coordinator gave them; either may change with every transaction.
    """

    producer_id: int
    epoch: int
    _sequences: dict[TopicPartition, int] = field(default_factory=dict)

    def take(self, item: TopicPartition, count: int) -> int:
        """The sequence number of the next batch of the partition, which has ``count`` records."""
        sequence = self._sequences.get(item, 0)
        self._sequences[item] = (sequence + count) % SEQUENCES
        return sequence

    def renewed(self, producer_id: int, epoch: int) -> None:
        """Take the id and epoch of a coordinator's answer; under new ones every sequence begins at 0."""
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self._sequences.clear()


def rewritten(
    raw: bytes | bytearray | memoryview, producer_id: int, epoch: int, sequence: int
) -> tuple[bytearray, memoryview]:
    """The batch as this producer's own, ready for a Produce request: a new header, and the records where they are.

    The offset is relative to 0 and the leader epoch unknown (the target's broker sets both), the transactional bit
    is set, the delete horizon cleared: it is a matter of the source's cleaner. ``base_timestamp`` stays as it is,
    because the timestamps of the records count from it.
    """
    view = memoryview(raw)
    header, records = bytearray(view[:HEADER_BYTES]), view[HEADER_BYTES:]
    _HEAD.pack_into(header, 0, 0, len(view) - LENGTH_END, _NO_EPOCH)
    (attributes,) = _SHORT.unpack_from(header, ATTRIBUTES_AT)
    _SHORT.pack_into(header, ATTRIBUTES_AT, (attributes | _TRANSACTIONAL) & ~_DELETE_HORIZON)
    _PRODUCER.pack_into(header, _PRODUCER_AT, producer_id, epoch, sequence)
    checksum = crc32c.crc32c(records, crc32c.crc32c(memoryview(header)[ATTRIBUTES_AT:]))
    _UNSIGNED.pack_into(header, CRC_AT, checksum)
    return header, records
