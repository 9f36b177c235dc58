"""The batch path's source: committed batches, fetched ahead and handed out as they are."""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

from kafka.errors import for_code

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections, topic_uuid
from parallax.config.pace import Rests
from parallax.domain.ids import SourceOffset, TopicPartition
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
from replicator.format.batch import BatchPlace, CorruptBatchError
from replicator.format.block import detach_from_answer
from replicator.format.repack import AbortedRanges, blocks_of
from replicator.kafka.batch.exchange import Fetch, Fetched, FetchedPartition, WantedPartition
from replicator.kafka.batch.fetches import Ahead, Fetches
from replicator.kafka.batch.nearest import ALONE_S, Nearest
from replicator.kafka.refusals import NOT_ALLOWED, not_readable

FETCH_WAIT_MS = 100
_SMALL_ANSWER_BYTES = 64 * 1024
"""After less the next fetch waits: a steady stream of single records would otherwise be fetched one by one, which costs more
of broker and copier than all else that becomes of them."""
WHOLE_FROM_RECORDS = 64
"""Smaller batches are faster opened and merged than passed one by one (docs/decisions/0007-copy-paths.md)."""
_RETRY_MS, _LONG_RETRY_MS = 100, 2_000
_LEAST_PARTITION_BYTES = 256 * 1024
"""Of one partition in one answer, however many share it."""
_MOST_FETCH_BYTES = 32 * 1024 * 1024
"""Of one answer: a broker at 80 ms then gives 400 MiB/s at most."""
_POLL_BYTES = 8 * 1024 * 1024
"""What is handed out in one turn is no longer counted as fetched ahead."""
_TELL_EVERY_S = 10.0
"""So often it is said that the cluster has not been reached."""
_OUT_OF_RANGE = 1
_OTHER_TOPIC = frozenset({3, 100, 103})
"""Unknown topic or partition, unknown topic id, inconsistent topic id."""
_MOVED = frozenset({5, 6, 9, 74, 75, 78})
"""Leader not available or not here any more, replica not available, epochs that differ, offset not available."""


@dataclass(slots=True, eq=False)
class _Reading:
    """A partition that is being read.

    Attributes:
        position: where the next fetch begins.
        epoch: of the record before it.
        nearest: whom to ask, and where the log ends.
        told_end: the last end that was told.
        retry_at_s: not before this (monotonic seconds); infinite once the partition has to be taken anew.
    """

    place: BatchPlace
    topic: uuid.UUID
    position: int
    epoch: int
    nearest: Nearest = field(default_factory=Nearest)
    told_end: int = -1
    retry_at_s: float = 0.0


class _Asked(NamedTuple):
    """A partition of a fetch: where it began, and whether its leader was asked."""

    reading: _Reading
    position: int
    leader: bool


_Event = tuple[_Reading | None, SourceEvent]
"""An event, and what it is of: void once its partition is dropped or taken anew; None: of none."""


class BatchSource:
    """`SourceReader` that fetches raw batches; at most one fetch per broker is on its way.

    Args:
        loop: shared with the target, so that both go on whenever either waits.
        connections: to the source's cluster; closed with this.
        buffer_bytes: no fetch begins while more is waiting to be copied.
        fetch_bytes: of one answer at first (`Fetches`). A single larger batch still arrives.
        rests: tells how long to rest between fetches.
        rack: the brokers' rack that is nearest; empty: leaders alone are read from.
        whole_from_records: batches of fewer records are made into larger ones, unless they have many bytes.
    """

    def __init__(
        self,
        loop: EventLoop,
        connections: Connections,
        *,
        buffer_bytes: int,
        fetch_bytes: int,
        rests: Rests,
        rack: str = "",
        whole_from_records: int = WHOLE_FROM_RECORDS,
    ) -> None:
        self._loop = loop
        self._connections = connections
        self._buffer_bytes = buffer_bytes
        self._fetches = Fetches(fetch_bytes, min(buffer_bytes // 2, _MOST_FETCH_BYTES))
        self._rests = rests
        self._rack = rack
        self._whole_from_records = whole_from_records
        self._reading: dict[TopicPartition, _Reading] = {}
        self._events: deque[_Event] = deque()
        self._arrived: list[_Event] = []
        self._ahead = Ahead(whole_from_records)
        self._resting_until_s: dict[int, float] = {}
        """By broker."""
        self._may_fetch = False
        """Whether something has changed since it was last seen that no fetch is to be sent."""
        self._turns: dict[int, int] = {}
        """By broker: with one counter for two that answer alternately each would begin with half of its partitions."""
        self._refresh: Any = None
        self._tell_at_s = time.monotonic() + _TELL_EVERY_S

    def take(self, positions: Mapping[TopicPartition, ReadFrom]) -> None:
        """Begin to read at these positions."""
        for item, place in positions.items():
            self._reading[item] = _Reading(
                BatchPlace(self._connections.cluster, item),
                topic_uuid(place.topic_id),
                place.source_next,
                place.leader_epoch,
            )
        self._may_fetch = True
        self._connections.watch({item.topic for item in positions})

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these; what has arrived of them is passed over."""
        for item in partitions:
            self._reading.pop(item, None)

    def poll(self, max_records: int, timeout_ms: float) -> Sequence[SourceEvent]:
        """What has arrived."""
        self._tell_if_away()
        self._fetch()
        self._loop.turn(0)
        deadline_s = time.monotonic() + timeout_ms / 1_000
        while not self._events:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                break
            self._loop.turn(left_s * 1_000)
            self._fetch()
        result: list[SourceEvent] = []
        records = size_bytes = 0
        while self._events and records < max_records and size_bytes < _POLL_BYTES:
            reading, event = self._events.popleft()
            if isinstance(event, RecordBlock):
                self._ahead.take(event)
                size_bytes += event.size_bytes
                records += len(event.offsets)
            if reading is None or self._reading.get(reading.place.topic_partition) is reading:
                result.append(event)
        self._fetch()
        return result

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """High watermarks as of the last fetch, or a few seconds older where another broker than the leader is read from."""
        return {
            item: reading.nearest.high_watermark
            for item in partitions
            if (reading := self._reading.get(item)) is not None and reading.nearest.high_watermark >= 0
        }

    def close(self) -> None:
        """Close the connections."""
        self._reading.clear()
        self._events.clear()
        self._connections.close()

    # --- fetching ----------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Send a fetch to every broker that has none on its way, while there is room."""
        if self._ahead.size_bytes >= self._buffer_bytes or self._ahead.many_tiny or not self._may_fetch:
            return
        now = time.monotonic()
        by_broker: dict[int, list[_Asked]] = {}
        leaderless = False
        for item, reading in self._reading.items():
            if reading.retry_at_s > now:
                continue
            leader = self._connections.leader(item)
            if leader is None:
                leaderless = True
                continue
            broker = reading.nearest.broker(leader, now)
            if broker not in self._fetches and self._resting_until_s.get(broker, 0) <= now:
                asked = _Asked(reading, reading.position, broker == leader)
                by_broker.setdefault(broker, []).append(asked)
        self._may_fetch = leaderless
        if leaderless:
            self._ask_for_metadata()
        for broker, wanted in by_broker.items():
            self._fetch_from(broker, wanted, now)

    def _wake(self) -> None:
        self._may_fetch = True
        self._fetch()

    def _rested(self) -> None:
        """Fetch at the next poll: while a transaction is being committed, what comes would only wait for the one after the next."""
        self._may_fetch = True

    def _fetch_from(self, broker: int, wanted: list[_Asked], now_s: float) -> None:
        # Each answer begins with another partition: the first always gets a whole batch, however large.
        turn = self._turns[broker] = self._turns.get(broker, 0) + 1
        rack = self._rack
        if rack and (alone := [item for item in wanted if item.reading.nearest.alone(now_s)]):
            # A request has one rack for all that it asks for.
            others = [item for item in wanted if not item.reading.nearest.alone(now_s)]
            turn, odd = divmod(turn, 2)
            wanted, rack = (others, rack) if odd and others else (alone, "")
        begin = turn % len(wanted)
        asked = {
            (item.reading.topic, item.reading.place.topic_partition.partition): item
            for item in wanted[begin:] + wanted[:begin]
        }
        most_bytes = self._fetches.begin(broker, self._buffer_bytes - self._ahead.size_bytes)
        request = Fetch(
            (
                WantedPartition(
                    topic,
                    partition,
                    item.position,
                    item.reading.epoch,
                    self._connections.leader_epoch(item.reading.place.topic_partition),
                )
                for (topic, partition), item in asked.items()
            ),
            wait_ms=FETCH_WAIT_MS,
            most_bytes=most_bytes,
            partition_bytes=max(_LEAST_PARTITION_BYTES, most_bytes // len(asked)),
            rack=rack,
        )

        def answered(answer: Fetched) -> None:
            self._fetches.answered(broker, answer.size_bytes, self._ahead.size_bytes)
            self._take_in(broker, answer, asked)
            if answer.size_bytes < _SMALL_ANSWER_BYTES:
                rests = self._rests
                rest_ms = max(rests.after_fetch_ms, rests.after_fetch_per_partition_ms * len(asked))
                self._resting_until_s[broker] = time.monotonic() + rest_ms / 1_000
                self._loop.after(rest_ms, self._rested)
            else:
                self._wake()

        def failed(error: Exception) -> None:
            self._fetches.failed(broker)
            self._may_fetch = True
            self._fail(broker, asked.values(), type(error).__name__)

        self._connections.send(broker, request, answered, failed)

    def _fail(self, broker: int, asked: Iterable[_Asked], problem: str) -> None:
        """Nothing has come of a whole fetch."""
        led: list[_Reading] = []
        left: list[tuple[_Reading, str]] = []
        for item in asked:
            if item.leader:
                led.append(item.reading)
            else:
                left.append((item.reading, problem))
        self._later(led, _RETRY_MS)
        self._leave(broker, left)
        self._ask_for_metadata()

    def _take_in(self, broker: int, answer: Fetched, asked: Mapping[tuple[uuid.UUID, int], _Asked]) -> None:
        if answer.error_code:
            self._fail(broker, asked.values(), f"error {answer.error_code}")
            return
        arrived = []
        left: list[tuple[_Reading, str]] = []
        for part in answer.partitions:
            wanted = asked.get((part.topic_id, part.partition))
            if wanted is None:
                continue
            reading = wanted.reading
            if (
                self._reading.get(reading.place.topic_partition) is reading
                and reading.position == wanted.position
            ):
                self._arrived = []
                if wanted.leader:
                    self._take_in_partition(reading, part)
                elif problem := self._take_in_replica(reading, part):
                    left.append((reading, problem))
                arrived.append(self._arrived)
        self._leave(broker, left)
        kept = detach_from_answer(arrived, answer.size_bytes)
        # In turn, because a Produce request holds one batch of each partition.
        self._events.extend(event for turn in zip_longest(*kept) for event in turn if event is not None)

    def _take_in_partition(self, reading: _Reading, part: FetchedPartition) -> None:
        """What the leader says."""
        item = reading.place.topic_partition
        epoch, diverged_at = part.diverging_from or (-1, -1)
        if diverged_at >= 0:
            self._stop(reading, OutOfRange(item, SourceOffset(diverged_at), epoch))
        elif part.error_code == _OUT_OF_RANGE:
            self._stop(reading, OutOfRange(item, None))
        elif part.error_code == NOT_ALLOWED:
            self._stop(reading, NotAllowed(item, not_readable(reading.place.cluster, item.topic)))
        elif part.error_code in _OTHER_TOPIC:
            self._look_at_topic(reading)
        elif part.error_code in _MOVED:
            self._later([reading], _RETRY_MS)
            self._ask_for_metadata()
        elif part.error_code:
            self._trouble(reading, f"{reading.place.cluster}: {item}: {for_code(part.error_code).__name__}")
        else:
            reading.nearest.leader_answered(part, time.monotonic())
            damage = self._take_in_records(reading, part)
            if damage is not None:
                self._stop(reading, Damaged(item, damage))

    def _take_in_replica(self, reading: _Reading, part: FetchedPartition) -> str:
        """What a broker says that does not lead the partition: why that is not to be relied on, if it is not."""
        problem = reading.nearest.replica_answered(part, reading.position, time.monotonic())
        damage = None if problem else self._take_in_records(reading, part)
        if part.error_code:
            self._ask_for_metadata()
        return problem if damage is None else str(damage)

    def _take_in_records(self, reading: _Reading, part: FetchedPartition) -> CorruptBatchError | None:
        """The records, up to what is damaged."""
        aborted, at_least = AbortedRanges(part.aborted), self._whole_from_records
        try:
            for block in blocks_of(
                part.records, reading, reading.place, aborted, whole_from_records=at_least
            ):
                self._ahead.add(block)
                self._arrived.append((reading, block))
        except CorruptBatchError as error:
            return error
        if reading.position >= reading.nearest.stable_end and reading.position > reading.told_end:
            reading.told_end = reading.position
            end = EndReached(reading.place.topic_partition, SourceOffset(reading.position))
            self._arrived.append((reading, end))
        return None

    # --- what goes wrong ---------------------------------------------------------------------------------------

    def _stop(self, reading: _Reading, event: OutOfRange | Damaged | NotAllowed) -> None:
        reading.retry_at_s = float("inf")
        self._arrived.append((reading, event))

    def _leave(self, broker: int, left: Sequence[tuple[_Reading, str]]) -> None:
        """Go back from this replica to the leaders of these partitions."""
        if not left:
            return
        now = time.monotonic()
        for reading, _ in left:
            reading.nearest.leave(now)
        self._may_fetch = True
        first, problem = left[0]
        more = f" and {len(left) - 1} more" if len(left) > 1 else ""
        text = (
            f"{self._connections.cluster}: {first.place.topic_partition}{more}: broker {broker}, which is nearer: {problem}: "
            f"leaders are read from for {ALONE_S:.0f} s"
        )
        self._events.append((None, Trouble(text)))

    def _trouble(self, reading: _Reading, text: str) -> None:
        self._later([reading], _LONG_RETRY_MS)
        self._arrived.append((None, Trouble(text)))

    def _tell_if_away(self) -> None:
        if time.monotonic() >= self._tell_at_s and self._connections.problem:
            self._tell_at_s = time.monotonic() + _TELL_EVERY_S
            self._events.append((None, Trouble(f"{self._connections.cluster}: {self._connections.problem}")))

    def _later(self, readings: Iterable[_Reading], delay_ms: int) -> None:
        for reading in readings:
            reading.retry_at_s = max(reading.retry_at_s, time.monotonic() + delay_ms / 1_000)
        # The loop may sleep longer than that otherwise.
        self._loop.after(delay_ms, self._wake)

    def _ask_for_metadata(self) -> None:
        if self._refresh is None or self._refresh.is_done:
            self._refresh = self._connections.refresh()

    def _look_at_topic(self, reading: _Reading) -> None:
        """The broker does not know the topic's id: another topic of the name may have taken its place."""
        topic = reading.place.topic_partition.topic
        current = self._connections.topic_id(topic)
        if current is None or current == reading.topic or current.int == 0:
            self._later([reading], _RETRY_MS)
            self._ask_for_metadata()
            return
        self._arrived.append((None, TopicChanged(topic)))
        for item in [item for item in self._reading if item.topic == topic]:
            del self._reading[item]
