"""A source of which only some records are handed out: by default those that no route has put there.

What arrives is held until the incoming run logs tell of it. A copy and its entry are one transaction, and the entry is
appended first. So once a reader has copies, the entry lies below the run log's high watermark as it is read after that; where
all below that watermark is decided and read, nothing of these copies is left to be heard of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from parallax.domain.ids import ClusterName, SourceOffset, TopicId, TopicPartition
from parallax.errors import PartitionStoppedError
from replicator.copying.origins import ORIGIN_UNKNOWN, RecordFate
from replicator.copying.ports import (
    Clock,
    Damaged,
    PassedOver,
    ReadFrom,
    RecordBlock,
    SourceEvent,
    SourceReader,
)

_MOST_HELD_BYTES = 32 * 1024 * 1024
_TURN_MS = 2


class IncomingLogs(Protocol):
    """The run logs of the routes into the source cluster; they are read beside the copy loop."""

    def need(self, positions: Mapping[TopicPartition, tuple[TopicId, int]]) -> None:
        """Partitions will be asked about from these offsets on; waits until what tells of them is read.

        Raises:
            ClusterUnavailableError: the source did not answer in time.
            RunLogError: an entry is of a newer format than this release reads.
        """

    def request(self) -> int:
        """Ask for all that is appended until now; the ticket grows by 1 with each request."""

    def settled(self) -> int:
        """The newest ticket of which all is known by now.

        Raises:
            ParallaxError: the run logs can't be followed any more: the session has to end.
        """

    def judge(
        self, item: TopicPartition, topic_id: TopicId, leader_epoch: int, offsets: Sequence[int]
    ) -> list[tuple[int, int, RecordFate]]:
        """`replicator.copying.origins.Origins.judge`, by what is known now."""

    def forget_below(self, item: TopicPartition, topic_id: TopicId, offset: int) -> None:
        """Nothing below the offset will be asked about, unless `need` says so."""

    def close(self) -> None:
        """Let go of everything."""


class OriginUnknownError(PartitionStoppedError):
    """Nobody can tell any more whether a record was produced where it lies."""

    code = ORIGIN_UNKNOWN


@dataclass(slots=True)
class _Round:
    """Events that arrived together, and the ticket with which they are decided."""

    events: list[SourceEvent]
    ticket: int


class OwnRecords:
    """`SourceReader` that hands out the records which the route copies, and says what it passes over.

    Args:
        source: all records.
        incoming: tells which of them are copies.
        cluster: the source's, for messages.
        clock: time.
    """

    def __init__(
        self,
        source: SourceReader,
        incoming: IncomingLogs,
        cluster: ClusterName,
        clock: Clock,
    ) -> None:
        self._source = source
        self._incoming = incoming
        self._cluster = cluster
        self._clock = clock
        self._topic_ids: dict[TopicPartition, TopicId] = {}
        self._held: deque[_Round] = deque()
        self._held_bytes = 0

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        """Begin to read at these positions, once the run logs are known from there on."""
        self._let_go(positions.keys())
        self._incoming.need(
            {item: (place.topic_id, int(place.source_next)) for item, place in positions.items()}
        )
        self._topic_ids |= {item: place.topic_id for item, place in positions.items()}
        self._source.take(positions)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these; what is held of them is handed out no more."""
        self._let_go(partitions)
        self._source.drop(partitions)

    def poll(self, max_records: int, timeout_ms: float) -> Sequence[SourceEvent]:
        """What has arrived and is decided."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        while True:
            left_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
            if self._held_bytes < _MOST_HELD_BYTES:
                patience_ms = int(min(left_ms, _TURN_MS) if self._held else left_ms)
                self._hold(self._source.poll(max_records, patience_ms))
            else:
                self._hold(self._source.poll(0, 0))  # to turn the loop that it shares with the target
                self._clock.sleep_ms(min(left_ms, _TURN_MS))
            decided = list(self._decided())
            if decided or not left_ms:
                return decided

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """High watermarks as last seen."""
        return self._source.end_offsets(partitions)

    def close(self) -> None:
        """Let go of everything."""
        self._source.close()
        self._incoming.close()

    def _hold(self, events: Sequence[SourceEvent]) -> None:
        if not events:
            return
        blocks = [event for event in events if isinstance(event, RecordBlock)]
        self._held_bytes += sum(block.size_bytes for block in blocks)
        last = self._held[-1].ticket if self._held else 0
        self._held.append(_Round(list(events), self._incoming.request() if blocks else last))

    def _decided(self) -> Iterator[SourceEvent]:
        settled = self._incoming.settled()
        while self._held and self._held[0].ticket <= settled:
            for event in self._held.popleft().events:
                if isinstance(event, RecordBlock):
                    self._held_bytes -= event.size_bytes
                    yield from self._judged(event)
                else:
                    yield event

    def _judged(self, block: RecordBlock) -> Iterator[SourceEvent]:
        item = block.topic_partition
        topic_id = self._topic_ids.get(item)
        if topic_id is None:
            return
        for begin, end, verdict in self._incoming.judge(item, topic_id, block.leader_epoch, block.offsets):
            source_next = SourceOffset(block.offsets[end - 1] + 1)
            if verdict is RecordFate.COPY:
                yield block.part(begin, end)
            elif verdict is RecordFate.LEAVE:
                yield PassedOver(item, source_next, block.leader_epoch)
            else:
                yield Damaged(item, self._unknown(item, block.offsets[begin]))
                del self._topic_ids[item]
                return
        self._incoming.forget_below(item, topic_id, int(block.offsets[-1]) + 1)

    def _unknown(self, item: TopicPartition, offset: int) -> OriginUnknownError:
        return OriginUnknownError(
            f"{ORIGIN_UNKNOWN}: {self._cluster}: {item}: nobody can tell any more whether the record at offset {offset} was produced there or "
            "is a copy: the run logs of the routes into the cluster (parallax.runs.*) don't reach back so far, by retention or "
            "because they were rebuilt. Nothing from there on is copied by this route; see docs/run-log.md"
        )

    def _let_go(self, partitions: Collection[TopicPartition]) -> None:
        """Take what is held of partitions out of the rounds."""
        gone = set(partitions)
        for item in gone:
            self._topic_ids.pop(item, None)
        for held in self._held:
            kept = [event for event in held.events if getattr(event, "topic_partition", None) not in gone]
            for event in held.events:
                if isinstance(event, RecordBlock) and event.topic_partition in gone:
                    self._held_bytes -= event.size_bytes
            held.events = kept
