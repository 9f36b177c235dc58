"""A topic as it lies in one cluster, read with a plain read_committed consumer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lab.stack.access import kafka_client
from lab.stack.errors import StackError
from lab.workload.events import RecordId, record_id

_MOST_RECORDS = 10_000


_CONSUME_S = 0.5


_METADATA_S = 10.0


_BLOCK = 512


class OracleReadError(StackError):
    """A topic could not be read to its end."""


class Placed(NamedTuple):
    """A record and its place (record offset) in a partition; ``timestamp_ms`` as its producer set it."""

    record_offset: int
    record: RecordId
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class TopicLog:
    """Every record that a read_committed consumer can see of a topic, by partition and in order."""

    cluster: str
    partitions: Mapping[int, tuple[Placed, ...]]

    @property
    def count(self) -> int:
        """All records."""
        return sum(len(records) for records in self.partitions.values())

    def produced_in(self, region: str) -> TopicLog:
        """Its records that were produced in a region: without the copies, where producers write to the cluster too."""
        return TopicLog(
            self.cluster,
            {
                partition: tuple(placed for placed in records if placed.record.region == region)
                for partition, records in self.partitions.items()
            },
        )

    def records(self) -> set[RecordId]:
        """Which records there are."""
        return {placed.record for records in self.partitions.values() for placed in records}

    def places(self) -> dict[RecordId, tuple[int, int]]:
        """Partition and record offset of each record; where one lies twice, of its first copy."""
        found: dict[RecordId, tuple[int, int]] = {}
        for partition, records in self.partitions.items():
            for placed in records:
                found.setdefault(placed.record, (partition, placed.record_offset))
        return found


def read_topic(cluster: str, bootstrap_servers: str, topic: str, within_s: float = 120.0) -> TopicLog:
    """Read a topic from its log start to its end (its last stable offset) of this moment.

    Raises:
        OracleReadError: the topic does not exist, or its end was not reached in time.
    """
    consumer = Consumer(
        {
            **kafka_client(bootstrap_servers),
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "auto.offset.reset": "earliest",
            "log_level": 3,
        }
    )
    try:
        partitions = _partitions(consumer, cluster, topic)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: dict[int, list[Placed]] = {partition: [] for partition in partitions}
        unfinished = set(partitions)
        give_up_at = time.monotonic() + within_s
        while unfinished:
            if time.monotonic() > give_up_at:
                raise OracleReadError(
                    f"{cluster}: partitions {sorted(unfinished)} of {topic} have not ended in {within_s:.0f} s"
                )
            for message in consumer.consume(_MOST_RECORDS, _CONSUME_S):
                partition = message.partition()
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF and partition is not None:  # noqa: SLF001 - public name
                        unfinished.discard(partition)
                    continue
                offset = message.offset()
                if partition in unfinished and offset is not None:
                    _, timestamp_ms = message.timestamp()
                    found[partition].append(Placed(offset, record_id(message.value()), timestamp_ms))
    except KafkaException as error:
        raise OracleReadError(f"{cluster}: {topic} can't be read: {error}") from error
    finally:
        consumer.close()
    return TopicLog(cluster, {partition: tuple(records) for partition, records in found.items()})


def end_offsets(cluster: str, bootstrap_servers: str, topic: str) -> dict[int, int]:
    """Where a consumer that starts at `latest` would begin, by partition.

    Raises:
        OracleReadError: the cluster did not answer.
    """
    consumer = Consumer({**kafka_client(bootstrap_servers), "group.id": "oracle", "log_level": 3})
    try:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_METADATA_S)[
                1
            ]
            for partition in _partitions(consumer, cluster, topic)
        }
    except KafkaException as error:
        raise OracleReadError(f"{cluster}: no end offsets of {topic}: {error}") from error
    finally:
        consumer.close()


def _partitions(consumer: Consumer, cluster: str, topic: str) -> list[int]:
    metadata = consumer.list_topics(topic, timeout=_METADATA_S).topics[topic]
    if metadata.error is not None:
        raise OracleReadError(f"{cluster}: {topic}: {metadata.error}")
    return sorted(metadata.partitions)


def count_inversions(first: TopicLog, second: TopicLog) -> int:
    """Pairs of records of one partition that the two clusters hold in opposite order.

    Records that only one of them holds don't count.
    """
    places = second.places()
    total = 0
    for partition, records in first.partitions.items():
        there = [
            place[1]
            for placed in records
            if (place := places.get(placed.record)) is not None and place[0] == partition
        ]
        total += _inversions(there)
    return total


def _inversions(values: Sequence[int]) -> int:
    """Pairs ``i < j`` with ``values[i] > values[j]``: counted within blocks, then while merging them."""
    numbers = np.asarray(values, dtype=np.int64)
    blocks = [numbers[start : start + _BLOCK] for start in range(0, len(numbers), _BLOCK)]
    found = sum(int(np.count_nonzero(np.triu(block[:, None] > block[None, :], 1))) for block in blocks)
    blocks = [np.sort(block) for block in blocks]
    while len(blocks) > 1:
        merged = []
        for left, right in zip(blocks[::2], blocks[1::2], strict=False):
            not_greater = int(np.searchsorted(left, right, side="right").sum())
            found += len(left) * len(right) - not_greater
            merged.append(np.sort(np.concatenate((left, right)), kind="stable"))
        blocks = merged + blocks[2 * len(merged) :]
    return found
