"""The order of what goes to the target, and what becomes of a batch that its topic is too small for."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import topic_uuid
from parallax.domain.ids import ClusterName, TopicId, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.ports import RecordRefusedError, TargetLog
from replicator.format.batch import BatchPlace, Record, make_batch, record_body, split
from replicator.format.block import whole_block
from replicator.format.compression import Compression
from replicator.kafka.batch.exchange import Produce
from replicator.kafka.batch.target import BatchTarget
from replicator.kafka.refusals import TOO_LARGE, Refusal
from replicator.kafka.transactions.coordinator import CONCURRENT_TRANSACTIONS, ProducerState

ITEM = TopicPartition(TopicName("trips"), 0)
RUN_LOG = TopicPartition(TopicName("runs"), 0)
FENCED_LEADER_EPOCH = 74


class Brokers:
    """Stands for `Connections` to a cluster whose brokers take what they are sent, and answer at the next turn."""

    cluster = ClusterName("aggregate-b")

    def __init__(self, loop: EventLoop, leaders: Mapping[TopicPartition, int] | None = None) -> None:
        self.sent: list[tuple[int, str, list[TopicPartition]]] = []
        self.leaders = dict(leaders or {})
        self.codes: list[int] = []
        """Of Produce answers to come; 0 afterwards."""
        self.told: dict[TopicPartition, int] = {}
        """The codes with which leaders answer the question about logs; 0 of others."""
        self.ways = {1: object(), 2: object()}
        self._loop = loop
        self._ends: dict[TopicPartition, int] = {}

    def watch(self, _topics: object) -> None:
        pass

    def leader(self, item: TopicPartition) -> int:
        return self.leaders.get(item, 1)

    def way_to(self, node: int) -> object:
        return self.ways[node]

    def by_leader(self, items: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        for item in items:
            found.setdefault(self.leader(item), []).append(item)
        return found

    def refresh(self) -> None:
        pass

    def learn_leaders(self, _items: object, *, timeout_ms: float) -> list[TopicPartition]:
        assert timeout_ms > 0
        return []

    def send(self, node: int, request: Any, answered: Callable[[Any], None], _failed: object) -> None:
        answer = self._produced(node, request) if isinstance(request, Produce) else self._asked(node, request)
        self._loop.after(0, lambda: answered(answer))

    def _produced(self, node: int, request: Produce) -> Any:
        self.sent.append((node, "produce", list(request._batches)))
        code, topics = self.codes.pop(0) if self.codes else 0, []
        for item in request._batches:
            end = self._ends.get(item, 0)
            self._ends[item] = end + (not code)
            part = SimpleNamespace(index=item.partition, error_code=code, base_offset=end, error_message="")
            topics.append(SimpleNamespace(name=item.topic, partition_responses=[part]))
        return SimpleNamespace(responses=topics)

    def _asked(self, node: int, request: Any) -> Any:
        asked = [
            (item, topic.topic_id, part.partition)
            for topic in request.topics
            for part in topic.partitions
            for item in (ITEM, RUN_LOG)
            if topic_uuid(LOGS[item].topic_id) == topic.topic_id
        ]
        self.sent.append((node, "ask", [item for item, _, _ in asked]))
        topics = [
            SimpleNamespace(
                topic_id=topic_id,
                partitions=[SimpleNamespace(partition_index=partition, error_code=self.told.get(item, 0))],
            )
            for item, topic_id, partition in asked
        ]
        return SimpleNamespace(error_code=0, throttle_time_ms=0, responses=topics)


LOGS = {
    item: TargetLog(TopicId(urlsafe_b64encode(bytes([number] * 16)).decode().rstrip("=")), 4)
    for number, item in enumerate((ITEM, RUN_LOG), start=1)
}


class Committing:
    """Stands for the coordinator."""

    newest = True
    transactional_id = "own"

    def __init__(self) -> None:
        self.ended = False

    def end(self, _producer: object, *, committed: bool) -> None:
        self.ended = committed


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    with closing(EventLoop()) as made:
        yield made


def target_on(brokers: Brokers, opening: Entry | None = None) -> BatchTarget:
    """A target that has sent one batch."""
    coordinator: Any = Committing()
    target = BatchTarget(
        brokers._loop,
        brokers,  # type: ignore[arg-type]
        coordinator,
        ProducerState(1, 0),
        run_log=RUN_LOG,
        timeout_ms=1_000,
        limits={},
    )
    send_one(target, opening)
    return target


def send_one(target: BatchTarget, opening: Entry | None = None) -> None:
    place = BatchPlace(Brokers.cluster, ITEM)
    [found] = split(make_batch([Record(0, 1, record_body(None, b"x"))], Compression.NONE), place)
    target.begin(opening)
    target.produce(whole_block(found, place))
    target.serve()


TOGETHER = [(1, "produce", [RUN_LOG, ITEM])]


@pytest.mark.parametrize(
    ("leaders", "sent"),
    [({}, TOGETHER), ({RUN_LOG: 2}, [(2, "produce", [RUN_LOG]), (1, "produce", [ITEM])])],
)
def test_an_opening_is_sent_with_the_first_batches(
    loop: EventLoop, leaders: dict[TopicPartition, int], sent: list[tuple[int, str, list[TopicPartition]]]
) -> None:
    brokers = Brokers(loop, leaders)
    target = target_on(brokers, Entry(pieces=2))
    assert brokers.sent == sent
    target.settle(LOGS)
    assert list(target.commit([Entry(piece=1, pieces=2)], LOGS)) == [0, 1]


@pytest.mark.parametrize("opened", [True, False])
@pytest.mark.parametrize("moves", [True, False])
def test_what_a_session_has_written_to_is_not_written_to_over_another_connection(
    loop: EventLoop, *, opened: bool, moves: bool
) -> None:
    """The broker may have come back without the marker of the transaction before, which the next one would join."""
    brokers = Brokers(loop)
    target = target_on(brokers)
    target.settle(LOGS)
    target.commit([Entry()], LOGS)
    if moves:
        brokers.leaders |= dict.fromkeys(LOGS, 2)
    else:
        brokers.ways[1] = object()
    brokers.sent.clear()
    loop.pause(2_000, lambda: target.calm_ms == 0)
    with pytest.raises(ClusterUnavailableError, match="the connection to its leader was lost"):
        send_one(target, Entry(pieces=2) if opened else None)
    assert brokers.sent == []


def test_a_batch_is_not_sent_again_over_another_connection(loop: EventLoop) -> None:
    brokers = Brokers(loop)
    brokers.codes = [CONCURRENT_TRANSACTIONS]
    target = target_on(brokers)
    brokers.ways[1] = object()
    with pytest.raises(ClusterUnavailableError, match="the connection to its leader was lost"):
        target.settle({})
    assert brokers.sent == [(1, "produce", [ITEM])]


BATCH = [(1, "produce", [ITEM])]


def test_the_logs_are_asked_about_right_behind_the_batches_and_not_again(loop: EventLoop) -> None:
    brokers = Brokers(loop)
    target = target_on(brokers)
    assert list(target.settle(LOGS)[ITEM]) == [0]
    assert brokers.sent == [*BATCH, (1, "ask", [ITEM, RUN_LOG])]
    assert list(target.commit([Entry()], LOGS)) == [0]
    assert brokers.sent[2:] == [(1, "produce", [RUN_LOG])]
    assert target._coordinator.ended  # type: ignore[attr-defined]


@pytest.mark.parametrize("item", LOGS)
@pytest.mark.parametrize("asked_early", [True, False])
def test_an_entry_is_appended_only_where_the_leaders_have_said_that_they_have_the_same_logs(
    loop: EventLoop, item: TopicPartition, *, asked_early: bool
) -> None:
    """It would join the transaction before where the run log has lost that one's marker, and an abort would end both."""
    brokers = Brokers(loop)
    brokers.told[item] = FENCED_LEADER_EPOCH
    target = target_on(brokers)
    target.settle(LOGS if asked_early else {})
    with pytest.raises(ClusterUnavailableError, match="another leader leads it"):
        target.commit([Entry()], LOGS)
    assert (1, "produce", [RUN_LOG]) not in brokers.sent


def test_what_was_asked_before_a_batch_was_sent_again_is_asked_again(loop: EventLoop) -> None:
    brokers = Brokers(loop)
    brokers.codes = [CONCURRENT_TRANSACTIONS]
    target = target_on(brokers)
    target.settle(LOGS)
    assert [what for _, what, _ in brokers.sent] == ["produce", "ask", "produce"]
    target.commit([Entry()], LOGS)
    assert brokers.sent[3:] == [(1, "ask", [ITEM, RUN_LOG]), (1, "produce", [RUN_LOG])]


def test_a_leader_that_has_moved_since_is_asked_once_all_is_acknowledged(loop: EventLoop) -> None:
    brokers = Brokers(loop)
    target = target_on(brokers)
    brokers.leaders[ITEM] = 2
    target.settle(LOGS)
    assert brokers.sent == BATCH
    target.commit([Entry()], LOGS)
    asked = sorted(brokers.sent[1:3])
    assert asked == [(1, "ask", [RUN_LOG]), (2, "ask", [ITEM])]


def test_a_log_that_was_not_asked_about_is_asked_about_at_the_commit(loop: EventLoop) -> None:
    brokers = Brokers(loop)
    target = target_on(brokers)
    target.settle({RUN_LOG: LOGS[RUN_LOG], ITEM: replace(LOGS[ITEM], leader_epoch=3)})
    target.commit([Entry()], LOGS)
    assert [(what, items) for _, what, items in brokers.sent[2:]] == [
        ("ask", [ITEM]),
        ("produce", [RUN_LOG]),
    ]


def test_an_answer_of_before_says_nothing_of_the_next_transaction(loop: EventLoop) -> None:
    brokers = Brokers(loop)
    target = target_on(brokers)
    target.settle(LOGS)
    target.begin()
    target.commit([Entry()], LOGS)
    assert [what for _, what, _ in brokers.sent] == ["produce", "ask", "ask", "produce"]


class Topic:
    """Stands for `Connections` to a cluster whose topic has this ``max.message.bytes``."""

    cluster = ClusterName("aggregate-b")
    any_node = 1

    def __init__(self) -> None:
        self.max_message_bytes = 0

    def watch(self, _topics: object) -> None:
        pass

    def ask(self, _node: int, _request: object, _doing: str) -> Any:
        setting = SimpleNamespace(name="max.message.bytes", value=str(self.max_message_bytes))
        return SimpleNamespace(results=[SimpleNamespace(configs=[setting])])


def test_a_topic_whose_limit_is_lowered_again_gets_smaller_batches_again() -> None:
    topic, limits = Topic(), dict[TopicName, int]()
    coordinator: Any = SimpleNamespace(newest=True, transactional_id="own")
    with closing(EventLoop()) as loop:
        target = BatchTarget(
            loop,
            topic,  # type: ignore[arg-type]
            coordinator,
            ProducerState(1, 0),
            run_log=TopicPartition(TopicName("runs"), 0),
            timeout_ms=1_000,
            limits=limits,
        )
        target._sender.refused = Refusal(ITEM, 0, TOO_LARGE, "too large")
        for limit in (500_000, 200_000):
            topic.max_message_bytes = limit
            with pytest.raises(ClusterUnavailableError, match=str(limit)):
                target._refuse()
            assert limits == {ITEM.topic: limit}
        with pytest.raises(RecordRefusedError):
            target._refuse()
