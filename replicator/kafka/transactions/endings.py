"""How transactions ended in the target's logs: told by the markers that lie there, whatever readers are given.

A log may take several transactions of a producer for one, where the marker between them was lost: what its records count for is what
the next marker of the producer says, not what its coordinator decided (docs/decisions/0008-hanging-transactions.md).
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice

import structlog
from kafka.errors import for_code

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections, topic_uuid
from parallax.domain.ids import UNKNOWN_EPOCH, TargetOffset, TopicId, TopicPartition
from parallax.errors import ClusterUnavailableError
from parallax.runtime.deadline import Deadline
from replicator.format.batch import Batch, BatchPlace, CorruptBatchError, read_records, read_varint, split
from replicator.kafka.batch.exchange import Fetch, Fetched, FetchedPartition, WantedPartition

log = structlog.get_logger(__name__)

_MOST_BYTES = 4 * 1024 * 1024
_PARTITION_BYTES = 256 * 1024
_MOST_PARTITIONS = 100
"""In a request."""
_MARKER = struct.Struct(">hh")
"""Version and kind: the key of a marker's record."""
_OFFSET_OUT_OF_RANGE = 1
_TURN_MS = 20


class TransactionEnd(Enum):
    """How a transaction ended in a log."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    """The log has no marker of the producer behind its records."""
    GONE = "gone"
    """Retention or compaction has taken what was looked for."""


_MARKERS = {0: TransactionEnd.ABORTED, 1: TransactionEnd.COMMITTED}


@dataclass(frozen=True, slots=True)
class Sought:
    """A record whose transaction is looked for.

    Attributes:
        topic_id: of its topic.
        offset: its own.
        producer_id: who wrote it; None: whoever did. Where it is named, the record itself may be compacted away.
        leader_epoch: of the leader whose log is meant; UNKNOWN_EPOCH: any.
    """

    topic_id: TopicId
    offset: TargetOffset
    producer_id: int | None = None
    leader_epoch: int = UNKNOWN_EPOCH


@dataclass(frozen=True, slots=True)
class Found:
    """What a log has of a transaction.

    Attributes:
        ending: how it ended.
        records_end: where the producer's last record before that ends.
    """

    ending: TransactionEnd
    records_end: TargetOffset


class Search:
    """Goes through the batches from a record on, up to its producer's next marker.

    Args:
        sought: the record.
    """

    def __init__(self, sought: Sought) -> None:
        self._sought = sought
        self._producer_id = sought.producer_id
        self._records_end = sought.offset
        self.next_offset = int(sought.offset)
        """Up to here the log was gone through."""

    def take(self, batch: Batch, marker: TransactionEnd | None) -> Found | None:
        """Go through the next batch; what was found, if it decides.

        Args:
            batch: it.
            marker: what it ends a transaction with.
        """
        self.next_offset = batch.next_offset
        if self._producer_id is None:
            if batch.base_offset > self._sought.offset or batch.is_control:
                return self._found(TransactionEnd.GONE)
            if not batch.is_transactional:
                return self._found(TransactionEnd.COMMITTED)
            self._producer_id = batch.producer_id
        if batch.producer_id != self._producer_id:
            return None
        if marker is not None:
            return self._found(marker)
        if not batch.is_control:
            self._records_end = TargetOffset(batch.next_offset)
        return None

    def end(self) -> Found:
        """The log ends here."""
        return self._found(TransactionEnd.OPEN)

    def gone(self) -> Found:
        """The log begins behind the record."""
        return self._found(TransactionEnd.GONE)

    def _found(self, ending: TransactionEnd) -> Found:
        return Found(ending, self._records_end)


def endings_of(
    loop: EventLoop,
    connections: Connections,
    sought: Mapping[TopicPartition, Sought],
    *,
    timeout_ms: float,
) -> Mapping[TopicPartition, Found]:
    """Look in the leaders' logs.

    Args:
        loop: turned while answers are awaited.
        connections: to the target.
        sought: by partition.
        timeout_ms: the patience with which leaders are awaited, and brokers that throttle.

    Returns:
        What was found; partitions are missing whose leader does not tell: another broker leads them, say, or another topic
        has the name.

    Raises:
        ClusterUnavailableError: a leader did not answer in time.
    """
    connections.learn_leaders(sought.keys(), timeout_ms=timeout_ms / 3)
    found: dict[TopicPartition, Found] = {}
    for leader, items in connections.by_leader(sought).items():
        looking = deque((item, Search(sought[item])) for item in items)
        patience = Deadline.after_ms(timeout_ms)
        while looking:
            asked = dict(islice(looking, _MOST_PARTITIONS))
            answer = connections.ask(leader, _request(asked, sought), "looking how transactions ended")
            parts = _parts(answer, asked, sought)
            if not parts:  # as a broker answers that throttles
                if patience.passed:
                    raise ClusterUnavailableError(
                        f"{connections.cluster}: broker {leader} tells nothing of its logs"
                    )
                loop.pause(max(_TURN_MS, answer.throttle_time_ms))
                continue
            looking = deque(islice(looking, len(asked), None))
            for item, search in asked.items():
                before, told = search.next_offset, _look(connections, item, search, parts.get(item))
                if isinstance(told, Found):
                    found[item] = told
                elif told:  # the first of a request always brings a batch, however large
                    stalled = search.next_offset == before
                    (looking.appendleft if stalled else looking.append)((item, search))
    return found


def _look(
    connections: Connections, item: TopicPartition, search: Search, part: FetchedPartition | None
) -> Found | bool:
    """Go through what has come of a partition: what was found, or whether to go on."""
    if part is not None and part.error_code == _OFFSET_OUT_OF_RANGE:
        return search.gone()
    if part is None or part.error_code:
        problem = "nothing" if part is None else for_code(part.error_code).__name__
        log.info("transaction_end_unknown", partition=str(item), problem=problem)
        connections.refresh()
        return False
    place = BatchPlace(connections.cluster, item)
    try:
        for batch in split(part.records, place, at_offset=search.next_offset):
            told = search.take(batch, _marker(batch, place))
            if told is not None:
                return told
    except CorruptBatchError as error:
        log.warning("transaction_end_unknown", partition=str(item), problem=str(error))
        return False
    return search.end() if search.next_offset >= part.high_watermark else True


def _marker(batch: Batch, place: BatchPlace) -> TransactionEnd | None:
    """What a batch ends a transaction with; None: it is none that does."""
    if not batch.is_control:
        return None
    for record in read_records(batch, place):
        size, begin = read_varint(record.body, 0)
        if size >= _MARKER.size:
            _, kind = _MARKER.unpack_from(record.body, begin)
            return _MARKERS.get(kind)
    return None


def _request(asked: Mapping[TopicPartition, Search], sought: Mapping[TopicPartition, Sought]) -> Fetch:
    wanted = (
        WantedPartition(
            topic_uuid(sought[item].topic_id),
            item.partition,
            search.next_offset,
            leader_epoch=sought[item].leader_epoch,
        )
        for item, search in asked.items()
    )
    return Fetch(wanted, wait_ms=0, most_bytes=_MOST_BYTES, partition_bytes=_PARTITION_BYTES, committed=False)


def _parts(
    answer: Fetched, asked: Mapping[TopicPartition, Search], sought: Mapping[TopicPartition, Sought]
) -> Mapping[TopicPartition, FetchedPartition]:
    named = {(topic_uuid(sought[item].topic_id), item.partition): item for item in asked}
    parts = {named.get((part.topic_id, part.partition)): part for part in answer.partitions}
    return {item: part for item, part in parts.items() if item is not None}
