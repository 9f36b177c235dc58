"""When the batch path fetches and sends: not for every record, and not into a transaction's end."""

from __future__ import annotations

import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.config.pace import PACES, Rests
from parallax.domain.ids import ClusterName, SourceOffset, TopicId, TopicName, TopicPartition
from parallax.errors import ConfigError
from replicator.copying.ports import NotAllowed, ReadFrom, RecordBlock
from replicator.copying.session_end import TopicsRefusedError
from replicator.format.batch import BatchPlace, Record, make_batch, record_body, split
from replicator.format.block import BatchBlock, whole_block
from replicator.format.compression import Compression
from replicator.kafka.batch.exchange import Fetch, Fetched, FetchedPartition, Produce
from replicator.kafka.batch.sender import LARGEST_REQUEST_BYTES, Sender
from replicator.kafka.batch.source import BatchSource
from replicator.kafka.transactions.coordinator import ProducerState

TOPIC_ID = uuid.UUID(int=7)
CONCURRENT_TRANSACTIONS = 51
SMALL_BYTES, LARGE_BYTES = 100, 200_000
RESTS = PACES["latency"]
START = ReadFrom(
    topic_id=TopicId(urlsafe_b64encode(TOPIC_ID.bytes).decode().rstrip("=")),
    source_next=SourceOffset(0),
    leader_epoch=-1,
)


class Broker:
    """Stands for `Connections` to a cluster of one broker: keeps requests until the test answers them."""

    cluster = ClusterName("aggregate-b")

    def __init__(self) -> None:
        self.requests: list[tuple[Any, Callable[[Any], None], float]] = []

    def leader(self, _item: TopicPartition) -> int:
        return 1

    def way_to(self, node: int) -> object:
        return node

    def leader_epoch(self, _item: TopicPartition) -> int:
        return 4

    def by_leader(self, items: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        return {1: list(items)}

    def learn_leaders(self, _items: Collection[TopicPartition], *, timeout_ms: float) -> list[TopicPartition]:
        assert timeout_ms > 0
        return []

    def watch(self, _topics: Iterable[TopicName]) -> None: ...

    def refresh(self) -> None: ...

    @property
    def problem(self) -> str:
        return ""

    def send(
        self, _node: int, request: Any, answered: Callable[[Any], None], _failed: Callable[..., None]
    ) -> None:
        self.requests.append((request, answered, time.monotonic()))


def item(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(TopicName(topic), partition)


def batch(size: int) -> bytes:
    return make_batch([Record(0, 1_000, record_body(None, bytes(size)))], Compression.NONE)


def fetched(*records: bytes) -> Fetched:
    parts = [
        FetchedPartition(TOPIC_ID, number, 0, 10, 10, None, (), -1, memoryview(raw))
        for number, raw in enumerate(records)
    ]
    return Fetched(0, 0, parts)


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    made = EventLoop()
    yield made
    made.close()


@pytest.mark.parametrize("pace", PACES.values(), ids=PACES)
@pytest.mark.parametrize(("size", "rests"), [(SMALL_BYTES, True), (LARGE_BYTES, False)])
def test_after_a_small_answer_the_next_fetch_waits(
    loop: EventLoop, size: int, pace: Rests, *, rests: bool
) -> None:
    broker = Broker()
    source = BatchSource(loop, broker, buffer_bytes=10_000_000, fetch_bytes=1_000_000, rests=pace)  # type: ignore[arg-type]
    source.take({item(0): START})
    source.poll(100, 1)
    [(request, answered, _)] = broker.requests
    assert isinstance(request, Fetch)
    answered(fetched(batch(size)))
    answered_at = time.monotonic()
    deadline = answered_at + 2
    while len(broker.requests) == 1 and time.monotonic() < deadline:
        source.poll(100, 50)
    sent_at = broker.requests[1][2]
    assert not rests or sent_at - answered_at >= pace.after_fetch_ms / 1_000
    assert rests or source._resting_until_s == {}


def test_what_has_rested_is_fetched_at_the_next_poll_and_not_while_others_turn_the_loop(
    loop: EventLoop,
) -> None:
    broker = Broker()
    source = BatchSource(loop, broker, buffer_bytes=10_000_000, fetch_bytes=1_000_000, rests=RESTS)  # type: ignore[arg-type]
    source.take({item(0): START})
    source.poll(100, 1)
    broker.requests[0][1](fetched(batch(SMALL_BYTES)))
    loop.pause(10 * RESTS.after_fetch_ms)
    assert len(broker.requests) == 1
    source.poll(100, 0)
    assert len(broker.requests) == 2


@pytest.mark.parametrize(("size", "waits"), [(SMALL_BYTES, True), (LARGE_BYTES, False)])
def test_while_many_tiny_batches_wait_no_fetch_begins(loop: EventLoop, size: int, *, waits: bool) -> None:
    broker = Broker()
    source = BatchSource(loop, broker, buffer_bytes=10**9, fetch_bytes=1_000_000, rests=RESTS)  # type: ignore[arg-type]
    source.take({item(number): START for number in range(400)})
    source.poll(1, 1)
    broker.requests[0][1](fetched(*[batch(size)] * 400))
    deadline = time.monotonic() + 0.1
    while time.monotonic() < deadline:
        loop.turn(10)
    handed_out = len(source.poll(1, 0))
    assert (len(broker.requests) == 1) is waits
    while len(broker.requests) == 1:
        handed_out += len(source.poll(50, 0))
    assert (handed_out > 1) is waits


class TwoBrokers(Broker):
    """Two brokers, each the leader of every second partition."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[int, list[Callable[[Any], None]]] = {0: [], 1: []}

    def leader(self, item: TopicPartition) -> int:
        return item.partition % 2

    def way_to(self, node: int) -> object:
        return node

    def by_leader(self, items: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        for each in items:
            found.setdefault(self.leader(each), []).append(each)
        return found

    def send(
        self, node: int, _request: Any, answered: Callable[[Any], None], _failed: Callable[..., None]
    ) -> None:
        self.asked[node].append(answered)


def test_a_broker_that_does_not_answer_holds_up_no_partition_of_another_one(loop: EventLoop) -> None:
    brokers = TwoBrokers()
    source = BatchSource(loop, brokers, buffer_bytes=10_000_000, fetch_bytes=1_000_000, rests=RESTS)  # type: ignore[arg-type]
    source.take({item(number): START for number in range(2)})
    silent, talking = brokers.asked[0], brokers.asked[1]
    for turn in range(20):
        deadline = time.monotonic() + 2
        while len(talking) <= turn and time.monotonic() < deadline:
            source.poll(100, 10)
        raw = bytearray(batch(LARGE_BYTES))
        raw[:8] = turn.to_bytes(8, "big")  # its offset is no part of the checksum
        part = FetchedPartition(TOPIC_ID, 1, 0, turn + 9, turn + 9, None, (), -1, memoryview(bytes(raw)))
        talking[turn](Fetched(0, 0, [part]))
        begun = time.monotonic()
        (event,) = source.poll(100, 50)
        assert time.monotonic() - begun < 0.5
        assert (event.topic_partition, event.offsets[0]) == (item(1), turn)  # type: ignore[union-attr]
    assert len(silent) == 1


def test_a_target_broker_that_does_not_answer_holds_up_no_request_to_another_one(loop: EventLoop) -> None:
    brokers = TwoBrokers()
    sending = sender(loop, brokers)
    for number in range(2):
        sending.add(block(number))
    sending.step()
    for turn in range(5):
        request = SimpleNamespace(_batches=[item(1)])
        brokers.asked[1][turn](produced(request, 0))  # type: ignore[arg-type]
        sending.add(block(1))
        sending.step()
    assert [len(brokers.asked[node]) for node in (0, 1)] == [1, 6]


def sender(loop: EventLoop, broker: Broker) -> Sender:
    coordinator: Any = SimpleNamespace(newest=True, transactional_id="parallax.a.b.1.0.batch")
    made = Sender(loop, broker, coordinator, ProducerState(1, 0), timeout_ms=5_000)  # type: ignore[arg-type]
    made.begin()
    return made


def block(partition: int, topic: str = "orders") -> BatchBlock:
    place = BatchPlace(ClusterName("regional-a"), item(partition, topic))
    [found] = split(batch(SMALL_BYTES), place)
    return whole_block(found, place)


def produced(request: Produce, code: int) -> Any:
    return SimpleNamespace(
        responses=[
            SimpleNamespace(
                name=place.topic,
                partition_responses=[
                    SimpleNamespace(index=place.partition, error_code=code, base_offset=40, error_message="")
                ],
            )
            for place in request._batches
        ]
    )


def test_topics_that_may_not_be_written_to_are_all_named(loop: EventLoop) -> None:
    broker = Broker()
    sending = sender(loop, broker)
    topics = ("orders", "trips")
    for topic in topics:
        sending.add(block(0, topic))
    sending.step()
    [(request, answered, _)] = broker.requests
    answered(produced(request, 29))
    with pytest.raises(TopicsRefusedError) as caught:
        sending.flush("waiting")
    assert sorted(caught.value.reasons) == sorted(topics)
    for topic, reason in caught.value.reasons.items():
        assert reason.startswith(f"RIGHT_MISSING: Write on topic {topic} at aggregate-b")


def test_an_id_that_may_not_be_written_under_is_named(loop: EventLoop) -> None:
    broker = Broker()
    sending = sender(loop, broker)
    sending.add(block(0))
    sending.step()
    [(request, answered, _)] = broker.requests
    answered(produced(request, 53))
    with pytest.raises(ConfigError, match=r"^RIGHT_MISSING: Write on transactional id "):
        sending.flush("waiting")


def test_a_partition_that_may_not_be_read_is_told_of_and_left_until_it_is_taken_anew(loop: EventLoop) -> None:
    broker = Broker()
    source = BatchSource(loop, broker, buffer_bytes=10_000_000, fetch_bytes=1_000_000, rests=RESTS)  # type: ignore[arg-type]
    source.take({item(number): START for number in range(2)})
    source.poll(100, 1)
    refused = FetchedPartition(TOPIC_ID, 0, 29, -1, -1, None, (), -1, memoryview(b""))
    given = FetchedPartition(TOPIC_ID, 1, 0, 1, 1, None, (), -1, memoryview(batch(SMALL_BYTES)))
    broker.requests[0][1](Fetched(0, 0, [refused, given]))
    events = [event for _ in range(5) for event in source.poll(100, 10)]
    [told] = [event for event in events if isinstance(event, NotAllowed)]
    assert told.topic_partition == item(0)
    assert told.reason.startswith("RIGHT_MISSING: Read on topic orders at aggregate-b")
    assert any(isinstance(event, RecordBlock) and event.topic_partition == item(1) for event in events)
    asked = [place.partition for place in broker.requests[-1][0]._request.topics[0].partitions]
    assert asked == [1]
    source.drop([item(0)])
    source.take({item(0): START})
    broker.requests[-1][1](Fetched(0, 0, []))
    source.poll(100, 50)
    source.poll(100, 50)
    asked = [place.partition for place in broker.requests[-1][0]._request.topics[0].partitions]
    assert sorted(asked) == [0, 1]


def test_after_a_commit_nothing_is_sent_for_as_long_as_it_took(loop: EventLoop) -> None:
    broker = Broker()
    sending = sender(loop, broker)
    committed_at = time.monotonic()
    sending.committed(took_ms=4.0)
    sending.add(block(0))
    sending.step()
    while not broker.requests and time.monotonic() < committed_at + 2:
        loop.turn(50)
    assert broker.requests[0][2] - committed_at >= 0.004


def test_what_comes_too_early_after_a_commit_makes_the_next_pause_longer(loop: EventLoop) -> None:
    broker = Broker()
    sending = sender(loop, broker)
    pauses_ms = []
    for late in (False, True, False):
        sending.committed(took_ms=0.0)
        pauses_ms.append(sending.calm_ms)
        sending.begin()
        sending.add(block(0))
        loop.pause(2_000, lambda: sending.calm_ms == 0)
        sending.step()
        request, answered, _ = broker.requests.pop()
        if late:
            loop.pause(25)
        answered(produced(request, 0))
        sending.flush("waiting")
    assert pauses_ms[0] == pytest.approx(1.0, abs=0.2)
    assert pauses_ms[1] <= pauses_ms[0] + 0.2
    assert pauses_ms[2] == pytest.approx(1.25, abs=0.2)


def test_a_slow_commit_does_not_keep_the_next_transaction_waiting(loop: EventLoop) -> None:
    broker = Broker()
    sending = sender(loop, broker)
    sending.committed(took_ms=10_000.0)
    sending.add(block(0))
    sending.step()
    deadline = time.monotonic() + 2
    while not broker.requests and time.monotonic() < deadline:
        loop.turn(50)
    assert broker.requests


def test_partitions_that_are_told_to_come_again_come_in_one_request(loop: EventLoop) -> None:
    broker = Broker()
    sending = sender(loop, broker)
    for partition in range(100):
        sending.add(block(partition))
    sending.step()
    [(first, answered, _)] = broker.requests
    answered(produced(first, CONCURRENT_TRANSACTIONS))
    while len(broker.requests) == 1:
        loop.turn(50)
    again, answered, _ = broker.requests[1]
    assert list(again._batches) == list(first._batches) == [item(partition) for partition in range(100)]
    assert again._batches == first._batches
    answered(produced(again, 0))
    sending.flush("waiting")
    assert {place: list(found) for place, found in sending.acknowledged.items()} == {
        item(partition): [40] for partition in range(100)
    }
    assert len(broker.requests) == 2


def test_what_a_callback_raises_ends_every_turn_of_the_loop(loop: EventLoop) -> None:
    def broken() -> None:
        raise ValueError("not of this world")

    loop.after(0, broken)
    for _ in range(2):
        with pytest.raises(ValueError, match="not of this world"):
            loop.turn(50)


@pytest.mark.parametrize(("rest_bytes", "kept"), [(SMALL_BYTES // 4, True), (LARGE_BYTES, False)])
def test_a_batch_keeps_its_answer_only_if_it_is_most_of_it(
    loop: EventLoop,
    rest_bytes: int,
    *,
    kept: bool,
) -> None:
    broker = Broker()
    source = BatchSource(
        loop,
        broker,
        buffer_bytes=10_000_000,
        fetch_bytes=1_000_000,
        rests=RESTS,
        whole_from_records=0,  # type: ignore[arg-type]
    )
    source.take({item(0): START})
    source.poll(100, 1)
    [(_, answered, _)] = broker.requests
    begun = batch(LARGE_BYTES)[:rest_bytes]
    answer = fetched(batch(SMALL_BYTES) + begun)
    answered(answer)
    [event] = source.poll(100, 1)
    assert isinstance(event, BatchBlock)
    assert bytes(event.raw) == batch(SMALL_BYTES)
    assert (event.raw.obj is answer.partitions[0].records.obj) is kept


def test_batches_that_come_again_are_cut_into_requests_of_bounded_size(loop: EventLoop) -> None:
    broker = Broker()
    sending = sender(loop, broker)
    place = BatchPlace(ClusterName("regional-a"), item(0))
    [large] = split(batch(LARGEST_REQUEST_BYTES * 2 // 3), place)
    for partition in range(4):
        sending.add(whole_block(large, BatchPlace(place.cluster, item(partition))))
        sending.step()
    first, broker.requests = broker.requests, []
    for request, answered, _ in first:
        answered(produced(request, CONCURRENT_TRANSACTIONS))
    while not broker.requests:
        loop.turn(50)
    assert [len(request._batches) for request, _, _ in broker.requests] == [2, 2]


def test_each_broker_has_its_own_turn_of_partitions(loop: EventLoop) -> None:
    class TwoBrokers(Broker):
        def __init__(self) -> None:
            super().__init__()
            self.first: dict[int, set[int]] = {1: set(), 2: set()}
            self.answers: list[Any] = []

        def leader(self, item: TopicPartition) -> int:
            return 1 + item.partition % 2

        def send(self, leader: int, request: Any, answered: Any, _failed: Any) -> None:
            self.first[leader].add(request._request.topics[0].partitions[0].partition)
            self.answers.append(answered)

    brokers = TwoBrokers()
    source = BatchSource(loop, brokers, buffer_bytes=10**9, fetch_bytes=1_000_000, rests=RESTS)  # type: ignore[arg-type]
    source.take({item(number): START for number in range(8)})
    source.poll(1, 0)
    other = FetchedPartition(uuid.UUID(int=8), 0, 0, 10, 10, None, (), -1, memoryview(bytes(LARGE_BYTES)))
    for _ in range(40):
        brokers.answers.pop(0)(Fetched(0, 0, [other]))
    assert brokers.first == {1: {0, 2, 4, 6}, 2: {1, 3, 5, 7}}
