"""A source whose topics are called as their copies are: the copy loop knows the names of the target alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from parallax.domain.ids import TopicPartition
from parallax.domain.topic_choice import RouteTopics
from parallax.errors import InvariantError
from replicator.copying.ports import ReadFrom, SourceEvent, SourceReader, TopicChanged, Trouble


class RenamedSource:
    """`SourceReader` that calls partitions by the names of their copies.

    Args:
        source: calls them by their own.
        names: which topic is called how.
    """

    def __init__(self, source: SourceReader, names: RouteTopics) -> None:
        self._source = source
        self._names = names
        self._own: dict[TopicPartition, TopicPartition] = {}
        """Each partition's name at the source, by that of its copy."""
        self._copies: dict[TopicPartition, TopicPartition] = {}

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        """Begin to read at these positions."""
        for copy in positions.keys() - self._own.keys():
            name = self._names.source_of(copy.topic)
            if name is None:
                raise InvariantError(f"{copy} is no copy of the route")
            own = TopicPartition(name, copy.partition)
            self._own[copy], self._copies[own] = own, copy
        self._source.take({self._own[copy]: place for copy, place in positions.items()})

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these."""
        self._source.drop([self._own[copy] for copy in partitions if copy in self._own])

    def poll(self, max_records: int, timeout_ms: float) -> Sequence[SourceEvent]:
        """What has arrived."""
        return [self._renamed(event) for event in self._source.poll(max_records, timeout_ms)]

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """High watermarks as last seen."""
        ends = self._source.end_offsets([self._own[copy] for copy in partitions if copy in self._own])
        return {self._copies[own]: end for own, end in ends.items()}

    def close(self) -> None:
        """Let go of everything."""
        self._source.close()

    def _renamed(self, event: SourceEvent) -> SourceEvent:
        if isinstance(event, Trouble):
            return event
        if isinstance(event, TopicChanged):
            copy = self._names.copy_of(event.topic)
            return event if copy is None else TopicChanged(copy)
        return replace(event, topic_partition=self._copies[event.topic_partition])
