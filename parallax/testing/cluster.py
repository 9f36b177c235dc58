"""An aggregate cluster in memory, and consumers of it that behave as librdkafka's do."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from parallax.consumer.ports import Key, Rebalance

SourceRecord = tuple[str, int]
"""A record by the region that produced it and its offset there; an aggregate log is a list of these."""

_NOTHING_S = 0.002
"""A poll that finds nothing waits no longer; a `FailoverConsumer` polls again until its own time is over."""


@dataclass(frozen=True, slots=True)
class RecordContent:
    """What a record holds.

    Attributes:
        value: its value.
        key: its key.
        headers: its headers.
        timestamp_ms: when it was produced, milliseconds since the epoch.
    """

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, Any]] | None = None
    timestamp_ms: int = 0


def _name_as_value(_key: Key, record: SourceRecord) -> RecordContent:
    return RecordContent(f"{record[0]}:{record[1]}".encode())


@dataclass
class MemoryCluster:
    """An aggregate cluster.

    Attributes:
        name: its region's.
        content: what a record holds.
        logs: by topic and partition. None stands for an offset without a record, such as a transaction's marker.
        groups: committed offsets and metadata by group, topic and partition.
        dead: it answers nobody.
    """

    name: str
    content: Callable[[Key, SourceRecord], RecordContent] = _name_as_value
    logs: dict[Key, list[SourceRecord | None]] = field(default_factory=lambda: defaultdict(list))
    groups: dict[str, dict[Key, tuple[int, str]]] = field(default_factory=lambda: defaultdict(dict))
    dead: bool = False


def _matches(name: str, topic: str) -> bool:
    return re.search(topic, name) is not None if topic.startswith("^") else name == topic


class MemoryConsumer:
    """`confluent_kafka.Consumer` of a `MemoryCluster`, whose group has no other member.

    Args:
        cluster: what it consumes.
        config: its librdkafka settings, of which ``group.id`` counts.
    """

    def __init__(self, cluster: MemoryCluster, config: dict[str, Any]) -> None:
        self.cluster = cluster
        self.config = config
        self.positions: dict[Key, int] = {}
        self.paused: set[Key] = set()
        self.closed = False
        self._left = False
        self._member_id = ""
        self._callbacks: dict[str, Rebalance] = {}
        self._rebalances: list[tuple[str, list[Key]]] = []
        self._turn = 0
        self._nothing = threading.Event()

    # --- membership ---------------------------------------------------------------------------------------

    def subscribe(
        self, topics: list[str], *, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance
    ) -> None:
        """Get all partitions of these topics at the next poll; as librdkafka does, take ``^...`` for a pattern."""
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}
        names = {name for name, _ in self.cluster.logs if any(_matches(name, topic) for topic in topics)}
        self._rebalances.append(("assign", [key for key in sorted(self.cluster.logs) if key[0] in names]))

    def rebalance(self, kind: str, keys: Iterable[Key]) -> None:
        """What the group's coordinator does at the next poll: ``assign``, ``revoke`` or ``lost``."""
        self._rebalances.append((kind, list(keys)))

    def unsubscribe(self) -> None:
        """Leave the group."""
        self._left = True
        if self._callbacks:
            self._rebalances.append(("revoke", list(self.positions)))

    def memberid(self) -> str | None:
        """The id as a member, once it has joined."""
        return self._member_id or None

    def consumer_group_metadata(self) -> Any:
        """The membership; it stands for itself."""
        return self

    def _call_back(self, rebalances: list[tuple[str, list[Key]]]) -> None:
        while rebalances:
            kind, keys = rebalances.pop(0)
            places = [TopicPartition(*key) for key in keys]
            self._member_id = "" if self._left else "a member"
            self._callbacks[kind](self, places)
            if kind != "assign":
                self.incremental_unassign(places)  # as confluent-kafka does where the callback did not

    # --- reading ------------------------------------------------------------------------------------------

    def poll(self, timeout: float) -> Message | None:
        """The next record."""
        messages = self.consume(1, timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        """Up to so many records, a partition after the other."""
        if self.cluster.dead:
            self._nothing.wait(min(timeout, _NOTHING_S))
            return []
        self._call_back(self._rebalances)
        messages: list[Message] = []
        idle = 0
        keys = sorted(self.positions)
        while keys and len(messages) < num_messages and idle < len(keys):
            key = keys[self._turn % len(keys)]
            self._turn += 1
            message = None if key in self.paused else self._next(key)
            idle = idle + 1 if message is None else 0
            if message is not None:
                messages.append(message)
        if not messages:
            self._nothing.wait(min(timeout, _NOTHING_S))
        return messages

    def _next(self, key: Key) -> Message | None:
        log = self.cluster.logs[key]
        while self.positions[key] < len(log):
            offset = self.positions[key]
            self.positions[key] += 1
            record = log[offset]
            if record is not None:
                content = self.cluster.content(key, record)
                return Message(
                    topic=key[0],
                    partition=key[1],
                    offset=offset,
                    value=content.value,
                    key=content.key,
                    headers=content.headers,
                    timestamp=(1, content.timestamp_ms),
                    leader_epoch=0,
                )
        return None

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Read these from their offsets; what is paused stays so, as with librdkafka."""
        self.positions.clear()
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Read these, too."""
        self.positions.update({(item.topic, item.partition): item.offset for item in partitions})

    def unassign(self) -> None:
        """Read nothing."""
        self.positions.clear()

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        """Read these no more."""
        for item in partitions:
            self.positions.pop((item.topic, item.partition), None)

    def assignment(self) -> list[TopicPartition]:
        """What is read."""
        return [TopicPartition(*key) for key in self.positions]

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Deliver nothing of these."""
        self.paused |= {(item.topic, item.partition) for item in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Deliver again."""
        self.paused -= {(item.topic, item.partition) for item in partitions}

    def seek(self, partition: TopicPartition) -> None:
        """Go to another offset."""
        self.positions[partition.topic, partition.partition] = partition.offset

    # --- offsets ------------------------------------------------------------------------------------------

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition] | None:
        """Commit; a dead cluster lets those wait in vain who wait."""
        if self.closed:
            raise RuntimeError("Consumer closed")
        if not self.cluster.dead:
            committed = self.cluster.groups[self.config["group.id"]]
            for item in offsets:
                committed[item.topic, item.partition] = (item.offset, item.metadata or "")
        elif not asynchronous:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))  # noqa: SLF001 - librdkafka's own code
        return None if asynchronous else offsets

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        """The group's committed offsets."""
        self._check_alive(timeout)
        committed = self.cluster.groups[self.config["group.id"]]
        answers = []
        for item in partitions:
            offset, metadata = committed.get((item.topic, item.partition), (-1001, ""))
            answers.append(TopicPartition(item.topic, item.partition, offset, metadata=metadata))
        return answers

    def get_watermark_offsets(
        self,
        partition: TopicPartition,
        timeout: float,
        *,
        cached: bool,  # noqa: ARG002 - confluent-kafka's own signature
    ) -> tuple[int, int]:
        """Log start and end."""
        self._check_alive(timeout)
        return 0, len(self.cluster.logs[partition.topic, partition.partition])

    def offsets_for_times(
        self, partitions: Sequence[TopicPartition], timeout: float = -1
    ) -> list[TopicPartition]:
        """The first records that are not older than the times given as offsets; -1 where there are none."""
        self._check_alive(timeout)
        return [
            TopicPartition(item.topic, item.partition, self._first_since(item.offset, item))
            for item in partitions
        ]

    def _first_since(self, time_ms: int, partition: TopicPartition) -> int:
        key = partition.topic, partition.partition
        return next(
            (
                offset
                for offset, record in enumerate(self.cluster.logs[key])
                if record is not None and self.cluster.content(key, record).timestamp_ms >= time_ms
            ),
            -1,
        )

    # --- the cluster --------------------------------------------------------------------------------------

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """The names of the topics."""
        self._check_alive(timeout)
        return sorted({key[0] for key in self.cluster.logs if topic in (None, key[0])})

    def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's name."""
        self._check_alive(timeout)
        return self.cluster.name

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Nobody asks for them here."""

    def close(self) -> None:
        """End."""
        self.closed = True

    def _check_alive(self, timeout: float) -> None:
        if self.cluster.dead:
            self._nothing.wait(min(max(0, timeout), _NOTHING_S))
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - librdkafka's own code
