"""The record path's source: a consumer that hands out committed records in blocks, and says what it skipped."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from confluent_kafka import (
    Consumer,
    KafkaError,
    Message,
)
from confluent_kafka import TopicPartition as KafkaPartition

from parallax.adapters.kafka.librdkafka import Settings, topic_id
from parallax.domain.ids import UNKNOWN_EPOCH, ClusterName, SourceOffset, TopicId, TopicName, TopicPartition
from parallax.errors import PartitionStoppedError
from replicator.copying.ports import (
    Damaged,
    EndReached,
    NotAllowed,
    OutOfRange,
    ReadFrom,
    RecordBlock,
    SourceEvent,
    TopicChanged,
    Trouble,
)
from replicator.kafka.refusals import not_readable

_DIVERGED = re.compile(r"broker end offset is (\d+) \(offset leader epoch (-?\d+)\)")
_DAMAGED = frozenset(
    {
        KafkaError._BAD_MSG,  # noqa: SLF001 - librdkafka's local codes are named so
        KafkaError._BAD_COMPRESSION,  # noqa: SLF001 - as above
        KafkaError.INVALID_MSG,
    }
)
_CHANGED_ID = re.compile(r"Topic (\S+) changed id from \S+ to (\S+)")


class TopicIds:
    """Reads from librdkafka's log which incarnation of a topic a client is talking to.

    A consumer that has lost its topic goes on at the same offset in a new one of that name, without an error or
    event; it only writes a line to its log, in order with what it hands out. (Fetch knows topic ids since
    KIP-516, but librdkafka's interface tells none of it.)
    """

    def __init__(self) -> None:
        self.current: dict[str, TopicId] = {}

    def log(self, _level: int, pattern: str, *args: object) -> None:
        """Take in a line of librdkafka's log (the method of `logging.Logger` that it calls)."""
        text = pattern % args if args else pattern
        found = _CHANGED_ID.search(text)
        if found:
            self.current[found[1]] = topic_id(found[2])


class KafkaSource:
    """`SourceReader` over one consumer without a group."""

    def __init__(self, settings: Settings, cluster: ClusterName) -> None:
        self._cluster = cluster
        self._ids = TopicIds()
        self._consumer = Consumer(
            {
                **settings,
                "group.id": "parallax.replicator",  # asked for, never used: positions are in the run log
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 5,
                "fetch.error.backoff.ms": 100,
                "fetch.message.max.bytes": 4 * 1024 * 1024,
                "queued.min.messages": 200_000,
                "queued.max.messages.kbytes": 65_536,
                "topic.metadata.propagation.max.ms": 0,
                "topic.metadata.refresh.interval.ms": 5_000,  # partitions may be added
                "debug": "topic",
                "log_level": 7,
            },
            logger=self._ids,
        )
        self._expected: dict[str, TopicId] = {}
        self._taken: dict[tuple[str, int], TopicPartition] = {}
        self._assigned: set[tuple[str, int]] = set()

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        """Begin to read at these positions."""
        self.drop([item for item in positions if (item.topic, item.partition) in self._assigned])
        places = []
        for item, place in positions.items():
            self._taken[item.topic, item.partition] = item
            self._assigned.add((item.topic, item.partition))
            self._expected[item.topic] = place.topic_id
            # With the epoch of what was read last, the broker is asked whether its log still agrees up to here.
            # librdkafka's own word for an unknown epoch is ours, -1.
            places.append(
                KafkaPartition(item.topic, item.partition, place.source_next, leader_epoch=place.leader_epoch)
            )
        self._consumer.incremental_assign(places)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these."""
        gone = self._assigned & {(str(item.topic), item.partition) for item in partitions}
        for place in gone:
            self._taken.pop(place, None)
        self._assigned -= gone
        if gone:
            self._consumer.incremental_unassign([KafkaPartition(*place) for place in gone])

    def poll(self, max_records: int, timeout_ms: float) -> Sequence[SourceEvent]:
        """What has arrived: waits for the first record only, then takes what there is."""
        messages = self._consumer.consume(1, timeout_ms / 1_000)
        if messages:
            messages += self._consumer.consume(max_records, 0)
        events: list[SourceEvent] = []
        for topic, expected in list(self._expected.items()):
            current = self._ids.current.get(topic)
            if current is not None and current != expected:
                # Forgotten at once: the loop drops the topic, and takes it again when it knows what it is.
                del self._expected[topic]
                self._taken = {place: item for place, item in self._taken.items() if place[0] != topic}
                events.append(TopicChanged(TopicName(topic)))
        self._in_blocks(messages, events)
        return events

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """High watermarks as of the last fetch."""
        ends = {}
        for item in partitions:
            if (item.topic, item.partition) in self._taken:
                found = self._consumer.get_watermark_offsets(
                    KafkaPartition(item.topic, item.partition), cached=True
                )
                if found is not None and found[1] >= 0:
                    ends[item] = found[1]
        return ends

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def _in_blocks(self, messages: list[Message], events: list[SourceEvent]) -> None:
        """Group messages in a row of one partition and epoch; errors and ends keep their place."""
        offsets: list[int] = []
        records: list[Message] = []
        key: tuple[str | None, int | None, int | None] | None = None
        for message in messages:
            error = message.error()
            here = (message.topic(), message.partition(), message.leader_epoch())
            if error is None and here == key:
                offsets.append(message.offset())  # type: ignore[arg-type] # a record has an offset
                records.append(message)
                continue
            self._add_block(key, offsets, records, events)
            offsets, records, key = [], [], None
            if error is None:
                offsets, records, key = [message.offset()], [message], here  # type: ignore[list-item] # as above
            else:
                self._add_event(message, error, events)
        self._add_block(key, offsets, records, events)

    def _add_block(
        self,
        key: tuple[str | None, int | None, int | None] | None,
        offsets: list[int],
        records: list[Message],
        events: list[SourceEvent],
    ) -> None:
        if key is None:
            return
        item = self._taken.get((key[0], key[1]))  # type: ignore[arg-type] # a record has topic and partition
        if item is None:
            return
        epoch = UNKNOWN_EPOCH if key[2] is None else key[2]
        size_bytes = sum(map(len, records))
        events.append(RecordBlock(item, epoch, offsets, records, size_bytes, records[-1].timestamp()[1]))

    def _add_event(self, message: Message, error: KafkaError, events: list[SourceEvent]) -> None:
        item = self._taken.get((message.topic(), message.partition()))  # type: ignore[arg-type] # may be None
        code = error.code()
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            events += self._not_allowed(message)
        elif code == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's local codes are named so
            if item is not None:
                events.append(EndReached(item, SourceOffset(message.offset())))  # type: ignore[arg-type] # it has
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001 - as above
            if item is not None:
                events.append(OutOfRange(item, None))
        elif code in _DAMAGED:
            # From here on nothing of the partition is taken in: librdkafka may go on behind the damage.
            if item is not None:
                self._taken.pop((item.topic, item.partition), None)
                events.append(Damaged(item, self._damage(item, message, error)))
        elif code == KafkaError._LOG_TRUNCATION:  # noqa: SLF001 - as above
            if item is not None:
                events.append(_parted(item, error))
        else:
            events.append(Trouble(f"{self._cluster}: {error.str()} ({error.name()})"))

    def _not_allowed(self, message: Message) -> list[NotAllowed]:
        """Of the partition, or of all of the topic: librdkafka says it once of what it has noticed it for."""
        return [
            NotAllowed(item, not_readable(self._cluster, item.topic))
            for (topic, partition), item in self._taken.items()
            if topic == message.topic() and message.partition() in {partition, -1, None}
        ]

    def _damage(self, item: TopicPartition, message: Message, error: KafkaError) -> PartitionStoppedError:
        return PartitionStoppedError(
            f"{self._cluster}: {item}: the batch at offset {message.offset()} is damaged: {error.str()} "
            f"({error.name()}); nothing of it was copied (read it with another client: if that fails too, the "
            "source's log is damaged)"
        )


def _parted(item: TopicPartition, error: KafkaError) -> OutOfRange:
    """Where the source's log parts from what was read, as far as librdkafka says so."""
    found = _DIVERGED.search(error.str())
    if found is None:
        return OutOfRange(item, None)
    return OutOfRange(item, SourceOffset(int(found[1])), int(found[2]))
