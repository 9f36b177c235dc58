"""The two messages that carry batches, written and read without copying them: Fetch and Produce.

Their fields are those of Kafka's message definitions, FetchResponse versions 13 to 16 and ProduceRequest versions 9
to 12. What is small, the Fetch request and the Produce answer, is left to kafka-python.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceResponse

from parallax.adapters.kafka.transport import (
    Buffer,
    OwnRequest,
    after_tags,
    packed_unsigned_varint,
    unsigned_varint,
)
from parallax.domain.ids import TopicPartition

_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_ALL_IN_SYNC = -1
_NO_TAGS = b"\0"
_ANSWER = struct.Struct(">ihi")
_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_REPLICA = struct.Struct(">i")
_DIVERGING_EPOCH = 0
"""Number of the tagged field."""
_EPOCH_END = struct.Struct(">iq")
_ACKS = struct.Struct(">hi")
_INDEX = struct.Struct(">i")


class FetchedPartition(NamedTuple):
    """What a Fetch answer says of one partition.

    Attributes:
        error_code: 0, or why there is nothing.
        last_stable_offset: the end of what is committed; -1: not told.
        diverging_from: where the leader's log ends in the epoch that was named, if it ends there before the offset
            that was asked for: (epoch, end offset) (KIP-595).
        aborted: (producer id, first offset) of aborted transactions among the records.
        nearer_replica: the broker that the leader would have this asked of instead (KIP-392); it gives no records then. -1: none.
        records: whole batches, and perhaps the beginning of another one.
    """

    topic_id: uuid.UUID
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    diverging_from: tuple[int, int] | None
    aborted: Sequence[tuple[int, int]]
    nearer_replica: int
    records: memoryview


class WantedPartition(NamedTuple):
    """One partition of a `Fetch`.

    Attributes:
        offset: the first one.
        epoch: of the record before it; -1: not known, or there is none.
        leader_epoch: of the leader that is meant: a broker that knows of an older or a newer one refuses; -1: any broker that
            has the partition may answer, one that leads it no more among them.
    """

    topic_id: uuid.UUID
    partition: int
    offset: int
    epoch: int = -1
    leader_epoch: int = -1


class Fetched(NamedTuple):
    """A Fetch answer.

    Attributes:
        throttle_time_ms: for the connection, which keeps quiet so long.
        error_code: of the whole request.
    """

    throttle_time_ms: int
    error_code: int
    partitions: Sequence[FetchedPartition]

    @property
    def size_bytes(self) -> int:
        """Of all records."""
        return sum(len(part.records) for part in self.partitions)


class Fetch(OwnRequest):
    """Asks for batches.

    Args:
        wanted: what.
        wait_ms: the broker waits so long for the first byte.
        most_bytes: of the answer. A single larger batch still arrives.
        partition_bytes: of one partition in it, likewise.
        committed: nothing beyond the last stable offset, and the answer tells of aborted transactions.
        rack: where the reader stands, so that a leader may name a nearer replica; empty: it is to answer itself.
    """

    API_KEY = FetchRequest.API_KEY
    name = "Fetch"

    def __init__(
        self,
        wanted: Iterable[WantedPartition],
        *,
        wait_ms: int,
        most_bytes: int,
        partition_bytes: int,
        committed: bool = True,
        rack: str = "",
    ) -> None:
        super().__init__(13, 16)
        topics: dict[uuid.UUID, list[Any]] = {}
        for item in wanted:
            topics.setdefault(item.topic_id, []).append(
                FetchRequest.FetchTopic.FetchPartition(
                    partition=item.partition,
                    current_leader_epoch=item.leader_epoch,
                    fetch_offset=item.offset,
                    last_fetched_epoch=item.epoch,
                    partition_max_bytes=partition_bytes,
                )
            )
        self._request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=most_bytes,
            isolation_level=_READ_COMMITTED if committed else _READ_UNCOMMITTED,
            rack_id=rack,
            topics=[
                FetchRequest.FetchTopic(topic_id=topic, partitions=parts) for topic, parts in topics.items()
            ],
        )

    def parts(self) -> Sequence[Buffer]:
        """As kafka-python writes it."""
        return [self._request.encode(version=self.version)]

    def read(self, answer: memoryview) -> Fetched:
        """The answer; records stay where they are."""
        throttle_ms, error_code, _session = _ANSWER.unpack_from(answer)
        topics, at = unsigned_varint(answer, _ANSWER.size)
        parts: list[FetchedPartition] = []
        for _ in range(topics - 1):
            topic_id = uuid.UUID(bytes=bytes(answer[at : at + 16]))
            partitions, at = unsigned_varint(answer, at + 16)
            for _ in range(partitions - 1):
                partition, at = _fetched_partition(topic_id, answer, at)
                parts.append(partition)
            at = after_tags(answer, at)
        return Fetched(throttle_ms, error_code, parts)


def _fetched_partition(topic_id: uuid.UUID, answer: memoryview, at: int) -> tuple[FetchedPartition, int]:
    index, error_code, high_watermark, last_stable, _start = _PARTITION.unpack_from(answer, at)
    count, at = unsigned_varint(answer, at + _PARTITION.size)
    aborted = []
    for _ in range(count - 1):
        aborted.append(_ABORTED.unpack_from(answer, at))
        at = after_tags(answer, at + _ABORTED.size)
    (nearer_replica,) = _REPLICA.unpack_from(answer, at)
    size, at = unsigned_varint(answer, at + _REPLICA.size)
    end = at + max(0, size - 1)
    if end > len(answer):
        raise ValueError(f"{size - 1} bytes of records in an answer with {len(answer) - at} left")
    records = answer[at:end]
    diverging: tuple[int, int] | None = None
    tags, at = unsigned_varint(answer, end)
    for _ in range(tags):
        tag, at = unsigned_varint(answer, at)
        size, at = unsigned_varint(answer, at)
        if tag == _DIVERGING_EPOCH:
            diverging = _EPOCH_END.unpack_from(answer, at)
        at += size
    return (
        FetchedPartition(
            topic_id,
            index,
            error_code,
            high_watermark,
            last_stable,
            diverging,
            aborted,
            nearer_replica,
            records,
        ),
        at,
    )


class Produce(OwnRequest):
    """Appends one batch to each of some partitions, acknowledged by all in-sync replicas.

    Args:
        batches: the pieces of each batch.
        transactional_id: of the transaction that they belong to.
        timeout_ms: the broker waits so long for replicas.
        newest: partitions join the transaction by themselves (KIP-890).
    """

    API_KEY = ProduceResponse.API_KEY
    name = "Produce"

    def __init__(
        self,
        batches: Mapping[TopicPartition, Sequence[Buffer]],
        *,
        transactional_id: str,
        timeout_ms: int,
        newest: bool,
    ) -> None:
        super().__init__(9, 12 if newest else 11)
        self._batches = batches
        self._transactional_id = transactional_id
        self._timeout_ms = timeout_ms

    def parts(self) -> Sequence[Buffer]:
        """The batches, with what belongs between them."""
        topics: dict[str, list[tuple[int, Sequence[Buffer]]]] = {}
        for item, pieces in self._batches.items():
            topics.setdefault(str(item.topic), []).append((item.partition, pieces))
        between = _string(self._transactional_id) + _ACKS.pack(_ALL_IN_SYNC, self._timeout_ms)
        between += packed_unsigned_varint(len(topics) + 1)
        parts: list[Buffer] = []
        for topic, batches in topics.items():
            between += _string(topic) + packed_unsigned_varint(len(batches) + 1)
            for partition, (head, *rest) in batches:
                size = len(head) + sum(map(len, rest))
                parts.append(between + _INDEX.pack(partition) + packed_unsigned_varint(size + 1) + head)
                parts += rest
                between = _NO_TAGS
            between += _NO_TAGS
        return [*parts, between + _NO_TAGS]

    def read(self, answer: memoryview) -> Any:
        """kafka-python's ProduceResponse."""
        return ProduceResponse.decode(answer, version=self.version)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return packed_unsigned_varint(len(encoded) + 1) + encoded
