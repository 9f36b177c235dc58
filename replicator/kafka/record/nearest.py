"""Reads records from replicas in the replicator's rack (KIP-392), and believes leaders alone about all else.

librdkafka goes to the replica that a leader names, and says of its log what it says of a leader's. Here two readers stand beside
each other: one that may go to replicas, and one without a rack, which reads from leaders, and is opened when it is needed first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from parallax.adapters.kafka.librdkafka import LATEST, list_offsets
from parallax.domain.ids import SourceOffset, TopicPartition
from replicator.copying.ports import (
    Damaged,
    EndReached,
    NotAllowed,
    OutOfRange,
    ReadFrom,
    RecordBlock,
    SourceEvent,
    SourceReader,
    Trouble,
)
from replicator.kafka.batch.nearest import ALONE_S, LEADER_EVERY_S

PATIENCE_S = 5.0
"""So long after the leader has told of more a replica may still lack it."""
_TURN_MS = 10
"""Of two readers each is waited for so long."""
_UNBELIEVED = (OutOfRange, Damaged, NotAllowed)


class LogEnds(NamedTuple):
    """Where a partition's leader says that its log ends: for readers of committed records, and for all."""

    stable: int
    high_watermark: int


class LeaderEnds(Protocol):
    """Asks leaders where their logs end; waits for nobody."""

    def ask(self, partitions: Collection[TopicPartition]) -> None:
        """Ask for these, unless a question is on its way."""

    def told(self) -> Mapping[TopicPartition, LogEnds]:
        """What has been told since the last call, of those whose leaders answered."""

    def close(self) -> None:
        """Ask no more."""


@dataclass(slots=True)
class _Reading:
    """A partition that is being read.

    Attributes:
        place: behind the last record that was handed out.
        seen: nothing of the log below this is to come.
        lacks_since_s: since when the leader has more, and nothing came; None: it has not, or something did.
        alone_until_s: so long the leader alone is read from; None: replicas may be.
    """

    place: ReadFrom
    seen: int
    high_watermark: int = -1
    lacks_since_s: float | None = None
    alone_until_s: float | None = None


class NearestSource:
    """`SourceReader` that takes records from near replicas.

    Invariants:
        A. What is handed out beside records and their ends comes from a leader.
        B. A partition is read by one of the two readers at a time, from behind the last record that was handed out.
        C. Where the leader has told of more, and nothing came for `PATIENCE_S`, it is read from itself.

    Args:
        near: may be sent to replicas.
        open_leaders: opens the reader of leaders.
        ends: asks leaders.
        now_s: monotonic seconds.
    """

    def __init__(
        self,
        near: SourceReader,
        open_leaders: Callable[[], SourceReader],
        ends: LeaderEnds,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._near = near
        self._open_leaders = open_leaders
        self._opened: SourceReader | None = None
        self._ends = ends
        self._now_s = now_s
        self._ask_at_s = now_s()
        self._reading: dict[TopicPartition, _Reading] = {}
        self._to_tell: list[SourceEvent] = []

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        """Begin to read at these positions, where they are read from now."""
        self.drop([item for item in positions if item in self._reading])
        for item, place in positions.items():
            self._reading[item] = _Reading(place, place.source_next)
        self._near.take(positions)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these."""
        known = {item: self._reading.pop(item) for item in partitions if item in self._reading}
        alone = [item for item, reading in known.items() if reading.alone_until_s is not None]
        self._near.drop([item for item in known if item not in alone])
        if alone:
            self._leaders.drop(alone)

    def poll(self, max_records: int, timeout_ms: float) -> Sequence[SourceEvent]:
        """What has arrived at either."""
        self._look_at_ends()
        self._go_back()
        deadline_s = self._now_s() + timeout_ms / 1_000
        while True:
            both = self._opened is not None and any(
                reading.alone_until_s is not None for reading in self._reading.values()
            )
            left_ms = max(0, round((deadline_s - self._now_s()) * 1_000))
            wait_ms = min(left_ms, _TURN_MS) if both else left_ms
            events = list(self._of_near(self._near.poll(max_records, wait_ms)))
            if both:
                of_leaders = self._leaders.poll(max_records, 0 if events else wait_ms)
                events += [event for event in of_leaders if self._take_in(event, alone=True)]
            events += self._to_tell
            self._to_tell = []
            if events or left_ms <= wait_ms:
                return events

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """High watermarks as last seen, of a replica or its leader."""
        asked = [item for item in partitions if item in self._reading]
        found = dict(self._near.end_offsets(asked))
        if self._opened is not None:
            found |= self._opened.end_offsets(asked)
        known = ((item, max(found.get(item, -1), self._reading[item].high_watermark)) for item in asked)
        return {item: end for item, end in known if end >= 0}

    def close(self) -> None:
        """Close both."""
        self._ends.close()
        self._near.close()
        if self._opened is not None:
            self._opened.close()

    @property
    def _leaders(self) -> SourceReader:
        if self._opened is None:
            self._opened = self._open_leaders()
        return self._opened

    def _of_near(self, events: Sequence[SourceEvent]) -> Iterable[SourceEvent]:
        for event in events:
            if isinstance(event, _UNBELIEVED):
                what = (
                    "it is damaged there" if isinstance(event, Damaged) else "it says that it can't be read"
                )
                self._leave(event.topic_partition, what)
            elif self._take_in(event, alone=False):
                yield event

    def _take_in(self, event: SourceEvent, *, alone: bool) -> bool:
        """Whether the event may be handed out: of a partition, by the reader that reads it now."""
        if not isinstance(event, RecordBlock | EndReached):
            return True
        reading = self._reading.get(event.topic_partition)
        if reading is None or (reading.alone_until_s is not None) is not alone:
            return False
        if isinstance(event, RecordBlock):
            done = SourceOffset(event.offsets[-1] + 1)
            reading.place = ReadFrom(done, event.leader_epoch, reading.place.topic_id)
            reading.seen = max(reading.seen, done)
        else:
            reading.seen = max(reading.seen, event.source_next)
        reading.lacks_since_s = None
        return True

    def _look_at_ends(self) -> None:
        now_s = self._now_s()
        for item, ends in self._ends.told().items():
            reading = self._reading.get(item)
            if reading is None:
                continue
            reading.high_watermark = max(reading.high_watermark, ends.high_watermark)
            if reading.alone_until_s is None and reading.lacks_since_s is None and reading.seen < ends.stable:
                reading.lacks_since_s = now_s
        for item, reading in self._reading.items():
            if reading.lacks_since_s is not None and now_s - reading.lacks_since_s > PATIENCE_S:
                self._leave(item, "it lacks what the leader has")
        if now_s >= self._ask_at_s:
            self._ask_at_s = now_s + LEADER_EVERY_S
            self._ends.ask([item for item, of in self._reading.items() if of.alone_until_s is None])

    def _leave(self, item: TopicPartition, why: str) -> None:
        """Read the partition from its leader for a while."""
        reading = self._reading.get(item)
        if reading is None or reading.alone_until_s is not None:
            return
        reading.alone_until_s, reading.lacks_since_s = self._now_s() + ALONE_S, None
        self._near.drop([item])
        self._leaders.take({item: reading.place})
        self._to_tell.append(
            Trouble(f"{item}: the nearer replica: {why}: the leader is read from for {ALONE_S:.0f} s")
        )

    def _go_back(self) -> None:
        """Let replicas be read from again where the time is over."""
        now_s = self._now_s()
        over = {
            item: reading
            for item, reading in self._reading.items()
            if reading.alone_until_s is not None and now_s >= reading.alone_until_s
        }
        if over:
            ends = self._leaders.end_offsets(over)
            self._leaders.drop(over)
            for item, reading in over.items():
                reading.high_watermark = max(reading.high_watermark, ends.get(item, -1))
                reading.alone_until_s = None
            self._near.take({item: reading.place for item, reading in over.items()})


class AskedLeaders:
    """`LeaderEnds` of a cluster, in a thread that waits for the answers.

    Args:
        admin: asks; it sends each question to the leader.
        timeout_s: bound of each question.
    """

    def __init__(self, admin: AdminClient, *, timeout_s: float) -> None:
        self._admin = admin
        self._timeout_s = timeout_s
        self._thread = ThreadPoolExecutor(1, "leaders' ends")
        self._asked: Future[Mapping[TopicPartition, LogEnds]] | None = None

    def ask(self, partitions: Collection[TopicPartition]) -> None:
        """Ask for these, unless a question is on its way."""
        if self._asked is None and partitions:
            self._asked = self._thread.submit(self._ends_of, frozenset(partitions))

    def told(self) -> Mapping[TopicPartition, LogEnds]:
        """What has been told since the last call."""
        if self._asked is None or not self._asked.done():
            return {}
        asked, self._asked = self._asked, None
        return {} if asked.exception() is not None else asked.result()

    def close(self) -> None:
        """Ask no more; a question that is on its way ends by its own time-out."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _ends_of(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogEnds]:
        request: dict[KafkaPartition, OffsetSpec] = {
            KafkaPartition(item.topic, item.partition): LATEST for item in partitions
        }
        both = [
            {
                (place.topic, place.partition): offset
                for place, future in self._futures(request, isolation).items()
                if (offset := _offset(future)) is not None
            }
            for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        ]
        stable, high = both
        return {
            item: LogEnds(stable[place], high[place])
            for item in partitions
            if (place := (str(item.topic), item.partition)) in stable and place in high
        }

    def _futures(
        self, request: Mapping[KafkaPartition, OffsetSpec], isolation: IsolationLevel
    ) -> Mapping[KafkaPartition, Future[Any]]:
        return list_offsets(self._admin, request, isolation_level=isolation, request_timeout=self._timeout_s)


def _offset(future: Future[Any]) -> int | None:
    try:
        return int(future.result(timeout=0).offset)
    except (KafkaException, TimeoutError):
        return None
