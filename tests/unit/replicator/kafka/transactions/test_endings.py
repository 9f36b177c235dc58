"""How a transaction ended, by the batches and markers of a log."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from contextlib import closing
from typing import Any

import pytest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import topic_uuid
from parallax.domain.ids import ClusterName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError
from replicator.kafka.batch.exchange import Fetch, Fetched, FetchedPartition
from replicator.kafka.transactions.endings import Found, Sought, TransactionEnd, endings_of
from tests.worlds.batches_made import Made, control, made

TOPIC = TopicId("AAAAAAAAAAAAAAAAAAAAAQ")
P0 = TopicPartition(TopicName("trips"), 0)
OURS, THEIRS = 7, 8
BEYOND, NOT_LEADER = 1, 6


def data(
    base: int, count: int, producer_id: int = OURS, *, epoch: int = 0, transactional: bool = True
) -> bytes:
    records = [Made(base + index, 1_000, None, b"x" * 10, ()) for index in range(count)]
    return made(records, producer=(producer_id, epoch, 0), transactional=transactional)


class Log:
    """A leader's log of one partition, whose batches it hands out some at a time."""

    def __init__(self, *batches: bytes, start: int = 0) -> None:
        self._batches = [
            (struct.unpack_from(">q", raw)[0] + struct.unpack_from(">i", raw, 23)[0] + 1, raw)
            for raw in batches
        ]
        """Each with its end."""
        self.start = start
        self.end = self._batches[-1][0]

    def read(self, offset: int, room_bytes: int, *, at_least_one: bool) -> bytes:
        found = b""
        for end, raw in self._batches:
            if end <= offset:
                continue
            if len(found) + len(raw) > room_bytes and (found or not at_least_one):
                break
            found += raw
        return found


class Leader:
    """Stands for `Connections`: one broker that leads every partition.

    Args:
        logs: by partition.
        room_bytes: so much of each partition is in an answer.
    """

    cluster = ClusterName("aggregate-b")

    def __init__(self, logs: Mapping[int, Log | int], room_bytes: int = 10_000) -> None:
        self._logs = logs
        self._room_bytes = room_bytes
        self.asked = 0
        self.leader_epochs: set[int] = set()
        self.throttled = 0

    def learn_leaders(
        self, _items: Collection[TopicPartition], *, timeout_ms: float
    ) -> Collection[TopicPartition]:
        del timeout_ms
        return ()

    def by_leader(self, items: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        return {1: [item for item in items if item.partition in self._logs]}

    def refresh(self) -> None: ...

    def ask(self, _node: int, request: Fetch, _doing: str) -> Fetched:
        self.asked += 1
        if self.throttled:
            self.throttled -= 1
            return Fetched(1, 0, [])
        fetch: Any = request._request
        assert fetch.isolation_level == 0, "markers of open transactions lie above the last stable offset"
        parts: list[FetchedPartition] = []
        for part in fetch.topics[0].partitions:
            self.leader_epochs.add(part.current_leader_epoch)
            log, at = self._logs[part.partition], part.fetch_offset
            code, records, end = (log, b"", -1) if isinstance(log, int) else (0, b"", log.end)
            if not isinstance(log, int):
                code = 0 if log.start <= at <= log.end else BEYOND
                records = b"" if code else log.read(at, self._room_bytes, at_least_one=not parts)
            parts.append(
                FetchedPartition(
                    topic_uuid(TOPIC), part.partition, code, end, end, None, (), -1, memoryview(records)
                )
            )
        return Fetched(0, 0, parts)


def look(leader: Leader, sought: Mapping[TopicPartition, Sought]) -> Mapping[TopicPartition, Found]:
    connections: Any = leader
    with closing(EventLoop()) as loop:
        return endings_of(loop, connections, sought, timeout_ms=50)


def ending(log: Log, offset: int, producer_id: int | None = None) -> Found:
    return look(Leader({0: log}), {P0: Sought(TOPIC, TargetOffset(offset), producer_id)})[P0]


def found(kind: TransactionEnd, records_end: int) -> Found:
    return Found(kind, TargetOffset(records_end))


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_marker_of_the_producer_says_how_it_ended(commit: bool) -> None:  # noqa: FBT001 - parametrised
    theirs = [data(3, 2, THEIRS), control(5, THEIRS, commit=not commit)]
    log = Log(data(0, 3), *theirs, control(6, OURS, commit=commit), control(7, OURS, commit=not commit))
    expected = found(TransactionEnd.COMMITTED if commit else TransactionEnd.ABORTED, 3)
    assert {ending(log, 0), ending(log, 2), ending(log, 2, OURS)} == {expected, found(expected.ending, 3)}


def test_two_transactions_without_a_marker_between_them_end_as_one() -> None:
    log = Log(data(0, 3), data(3, 1, THEIRS), data(4, 2, epoch=1), control(6, OURS, commit=False))
    assert ending(log, 2) == found(TransactionEnd.ABORTED, 6)


def test_what_has_no_marker_is_open_and_tells_where_its_records_end() -> None:
    log = Log(data(0, 3), data(3, 1, THEIRS), data(4, 2), data(6, 3, THEIRS))
    assert ending(log, 2) == found(TransactionEnd.OPEN, 6)
    assert ending(log, 6, OURS) == found(TransactionEnd.OPEN, 6), "nothing of it follows"
    assert ending(log, 9, OURS) == found(TransactionEnd.OPEN, 9)


def test_of_what_retention_or_compaction_has_taken_nothing_is_told() -> None:
    log = Log(data(4, 2), control(6, OURS, commit=True), start=4)
    assert ending(log, 3).ending is TransactionEnd.GONE
    log = Log(data(0, 1, THEIRS), data(4, 2), control(6, OURS, commit=False))
    assert ending(log, 2).ending is TransactionEnd.GONE, "another record lies there"
    assert ending(log, 2, OURS).ending is TransactionEnd.ABORTED, "but its producer is known"
    assert ending(log, 6).ending is TransactionEnd.GONE
    assert ending(Log(data(0, 2, transactional=False)), 1).ending is TransactionEnd.COMMITTED


def test_a_log_is_read_on_until_its_marker_comes_however_large_its_batches() -> None:
    small = [data(base, 1, THEIRS) for base in range(1, 40)]
    large = data(40, 200, THEIRS)
    log = Log(data(0, 1), *small, large, control(240, OURS, commit=False))
    leader = Leader(dict.fromkeys(range(3), log), room_bytes=1_000)
    partitions = [TopicPartition(TopicName("trips"), number) for number in range(3)]
    told = look(leader, {item: Sought(TOPIC, TargetOffset(0)) for item in partitions})
    assert told == dict.fromkeys(partitions, found(TransactionEnd.ABORTED, 1))
    assert leader.asked > 5


def test_more_partitions_than_one_request_takes_are_asked_in_turn() -> None:
    log = Log(data(0, 1), control(1, OURS, commit=True))
    partitions = [TopicPartition(TopicName("trips"), number) for number in range(250)]
    leader = Leader({item.partition: log for item in partitions})
    told = look(leader, {item: Sought(TOPIC, TargetOffset(0)) for item in partitions})
    assert told == dict.fromkeys(partitions, found(TransactionEnd.COMMITTED, 1))
    assert leader.asked == 3


def test_the_very_leader_is_asked_where_its_epoch_is_known() -> None:
    """One that leads no more would tell of a log that nobody reads."""
    leader = Leader({0: Log(data(0, 1), control(1, OURS, commit=True))})
    look(leader, {P0: Sought(TOPIC, TargetOffset(0), leader_epoch=5)})
    assert leader.leader_epochs == {5}


def test_partitions_that_are_not_told_are_missing() -> None:
    log = Log(data(0, 1), control(1, OURS, commit=True))
    damaged = bytearray(data(0, 1))
    damaged[40] ^= 1
    leader = Leader({0: log, 1: NOT_LEADER, 2: Log(bytes(damaged))})
    partitions = [TopicPartition(TopicName("trips"), number) for number in range(4)]
    assert look(leader, {item: Sought(TOPIC, TargetOffset(0)) for item in partitions}).keys() == {P0}


def test_a_broker_that_throttles_is_asked_again_for_a_while() -> None:
    leader = Leader({0: Log(data(0, 1), control(1, OURS, commit=True))})
    leader.throttled = 1
    assert look(leader, {P0: Sought(TOPIC, TargetOffset(0))})[P0].ending is TransactionEnd.COMMITTED
    leader.throttled = 1_000
    with pytest.raises(ClusterUnavailableError, match="broker 1 tells nothing of its logs"):
        look(leader, {P0: Sought(TOPIC, TargetOffset(0))})
