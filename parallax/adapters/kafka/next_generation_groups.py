"""Describing groups of the protocol that brokers assign partitions by (``group.protocol=consumer``, KIP-848).

kafka-python does not know this request.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

from parallax.adapters.kafka.transport import (
    Buffer,
    OwnRequest,
    after_tags,
    packed_unsigned_varint,
    unsigned_varint,
)

T = TypeVar("T")

_SHORT, _INT, _UUID_BYTES = struct.Struct(">h"), struct.Struct(">i"), 16
_NO_OPERATIONS_NO_TAGS = b"\0\0"


class Member(NamedTuple):
    """A member of a group.

    Attributes:
        instance: its ``group.instance.id``; empty without one.
        topics: those of which it has partitions.
    """

    instance: str
    topics: frozenset[str]


class DescribedGroup(NamedTuple):
    """A group as its coordinator describes it."""

    error_code: int
    group_id: str
    state: str
    members: tuple[Member, ...]


class ConsumerGroupDescribe(OwnRequest):
    """Asks a coordinator about groups of this protocol; it answers with `DescribedGroup`s."""

    API_KEY = 69
    name = "ConsumerGroupDescribe"

    def __init__(self, groups: Collection[str]) -> None:
        super().__init__(0, 1)
        self._groups = groups

    def parts(self) -> Sequence[Buffer]:
        """The request."""
        names = (name.encode() for name in self._groups)
        packed = b"".join(packed_unsigned_varint(len(name) + 1) + name for name in names)
        return [packed_unsigned_varint(len(self._groups) + 1) + packed + _NO_OPERATIONS_NO_TAGS]

    def read(self, answer: memoryview) -> list[DescribedGroup]:
        """The groups."""
        reader = _Reader(answer)
        reader.skip(_INT.size)  # throttle time
        return reader.array(lambda: self._group(reader))

    def _group(self, reader: _Reader) -> DescribedGroup:
        code = reader.number(_SHORT)
        reader.text()  # the error in words
        group, state = reader.text(), reader.text()
        reader.skip(2 * _INT.size)  # epochs
        reader.text()  # assignor
        members = reader.array(lambda: self._member(reader))
        reader.skip(_INT.size)  # authorized operations
        reader.tags()
        return DescribedGroup(code, group, state, tuple(members))

    def _member(self, reader: _Reader) -> Member:
        reader.text()  # member id
        instance = reader.text()
        reader.text()  # rack
        reader.skip(_INT.size)  # epoch
        for _ in ("client id", "host"):
            reader.text()
        reader.array(reader.text)  # subscribed topics
        reader.text()  # subscribed pattern
        # What it has, and what it is to get: a topic that is on its way to it counts as its own.
        topics = {*_assignment(reader), *_assignment(reader)}
        if self.version:
            reader.skip(1)  # its kind
        reader.tags()
        return Member(instance, frozenset(topics))


def _assignment(reader: _Reader) -> list[str]:
    def topic() -> tuple[str, int]:
        reader.skip(_UUID_BYTES)
        name = reader.text()
        partitions = reader.array(lambda: reader.number(_INT))
        reader.tags()
        return name, len(partitions)

    found = [name for name, partitions in reader.array(topic) if partitions]
    reader.tags()
    return found


class _Reader:
    """Reads fields of a flexible version, one after the other."""

    def __init__(self, view: memoryview) -> None:
        self._view, self._at = view, 0

    def skip(self, size: int) -> None:
        """Pass over as many bytes."""
        self._at += size

    def number(self, kind: struct.Struct) -> int:
        """An integer."""
        (found,) = kind.unpack_from(self._view, self._at)
        self._at += kind.size
        return int(found)

    def text(self) -> str:
        """A string; empty for null."""
        size, begin = unsigned_varint(self._view, self._at)
        self._at = begin + max(0, size - 1)
        if self._at > len(self._view):
            raise ValueError("a string beyond the end")
        return str(self._view[begin : self._at], "utf-8")

    def array(self, item: Callable[[], T]) -> list[T]:
        """Items; none for null."""
        count, self._at = unsigned_varint(self._view, self._at)
        return [item() for _ in range(count - 1)]

    def tags(self) -> None:
        """Pass over tagged fields."""
        self._at = after_tags(self._view, self._at)
