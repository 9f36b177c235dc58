"""The records and names of MirrorMaker 2 that its clients look for, byte by byte (its classes `Checkpoint` and `Heartbeat`).

Texts begin with their length in two bytes; all numbers are big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass

from parallax.domain.ids import GroupName, TargetOffset, TopicName, TopicPartition

HEARTBEATS = TopicName("heartbeats")
"""The topic of a source in which its beats lie; its copies are called ``<source>.heartbeats`` whatever other copies are called."""
_VERSION = 0
_LONGEST_TEXT = 32_767


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a group at ``upstream_offset`` of a source cluster goes on at the target: both are next offsets.

    Attributes:
        topic_partition: as it is called at the target.
        upstream_offset: of the group at the cluster that it comes from.
        offset: at the target.
    """

    group: GroupName
    topic_partition: TopicPartition
    upstream_offset: TargetOffset
    offset: TargetOffset

    def key(self) -> bytes:
        """The record's key."""
        topic, partition = self.topic_partition
        return _text(self.group) + _text(topic) + struct.pack(">i", partition)

    def value(self) -> bytes:
        """The record's value; its metadata stay empty.

        A group that commits what it has translated has begun to consume there of its own accord, and is to be seen as such.
        """
        return struct.pack(">hqq", _VERSION, self.upstream_offset, self.offset) + _text("")


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """That records of ``source`` come to ``target``."""

    source: str
    target: str
    timestamp_ms: int

    def key(self) -> bytes:
        """The record's key."""
        return _text(self.source) + _text(self.target)

    def value(self) -> bytes:
        """The record's value."""
        return struct.pack(">hq", _VERSION, self.timestamp_ms)


def checkpoints_topic(source: str) -> TopicName:
    """Where, at a target, checkpoints of groups that come from ``source`` lie."""
    return TopicName(f"{source}.checkpoints.internal")


def copied_heartbeats(topics: Collection[TopicName], source: str, target: str) -> dict[TopicName, TopicName]:
    """Topics of beats that ``source`` has, with the names of their copies at ``target``.

    ``heartbeats`` is its own, ``x.heartbeats`` a copy of x's: so a chain is as long as its name. What has been at the target already
    does not come back to it.
    """
    found = {}
    for topic in topics:
        *passed, last = topic.split(".")
        if last == HEARTBEATS and not {source, target}.intersection(passed):
            found[topic] = TopicName(f"{source}.{topic}")
    return found


def _text(text: str) -> bytes:
    packed = text.encode()
    if len(packed) > _LONGEST_TEXT:
        raise ValueError(f"a text of {len(packed)} bytes: {_LONGEST_TEXT} at most")
    return struct.pack(">h", len(packed)) + packed
