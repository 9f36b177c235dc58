"""What a transaction left hanging is asked of, and where it is looked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import pytest
from kafka.protocol.admin import DescribeProducersRequest, DescribeProducersResponse

from parallax.config.config import Config
from parallax.domain.ids import ClusterName, Route, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.transactions import hanging
from replicator.kafka.transactions.coordinator import ProducerState
from replicator.kafka.transactions.endings import Found, Sought, TransactionEnd
from replicator.kafka.transactions.fates import Fates
from replicator.kafka.transactions.hanging import earlier_shards, open_transactions
from replicator.lease import Lease

ITEM = TopicPartition(TopicName("trips"), 0)
IDS = {ITEM.topic: TopicId("t")}
P0, P1, P2 = (TopicPartition(TopicName("trips"), number) for number in range(3))
LEASE = Lease(Route.parse("a->b"), 1, 2, 5, 0, 0)


def test_a_marker_with_more_of_the_producer_before_it_is_not_the_transactions_own() -> None:
    """It is that of the next one, which was begun because this one had been committed."""
    told = {
        P0: Found(TransactionEnd.ABORTED, TargetOffset(12)),
        P1: Found(TransactionEnd.ABORTED, TargetOffset(13)),
        P2: Found(TransactionEnd.GONE, TargetOffset(11)),
    }
    asked: list[Mapping[TopicPartition, Sought]] = []

    class Leaders:
        def endings_of(self, sought: Mapping[TopicPartition, Sought]) -> Mapping[TopicPartition, Found]:
            asked.append(sought)
            return told

    leaders: Any = Leaders()
    found = hanging._Producer(7, IDS, leaders).endings(dict.fromkeys((P0, P1, P2), TargetOffset(11)))
    assert found == {P0: TransactionEnd.ABORTED, P2: TransactionEnd.GONE}
    assert asked == [{item: Sought(IDS[item.topic], TargetOffset(11), 7) for item in (P0, P1, P2)}]


def test_of_a_few_layouts_before_every_shard_that_there_can_have_been_is_looked_for() -> None:
    found = [(item.layout, item.shard) for item in earlier_shards(LEASE, 2)]
    assert found == [(2, 0), (2, 1), (3, 0), (3, 1), (4, 0), (4, 1)]
    assert not list(earlier_shards(replace(LEASE, layout=1), 2))


def test_what_hangs_of_a_topic_without_a_right_holds_up_the_lease_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has to be ended before anything else: to leave that topic alone would not do."""

    class Refused:
        def __init__(self, *_: object, **__: object) -> None: ...

        def initialise(self) -> ProducerState:
            return ProducerState(7, 0)

        def add(self, *_: object) -> NoReturn:
            raise TopicsRefusedError({ITEM.topic: "RIGHT_MISSING: Write on topic trips"})

    monkeypatch.setattr(hanging, "Coordinator", Refused)
    monkeypatch.setattr(hanging, "LeaderEpochs", Refused)
    monkeypatch.setattr(hanging, "open_transactions", lambda *_: {7: {ITEM: TargetOffset(3)}})
    monkeypatch.setattr(hanging, "_fates", lambda *_: Fates(commit=(ITEM,)))
    config = Config.model_validate({"regions": {}, "cassandra": {"contact_points": ["127.0.0.1:1"]}})
    nothing: Any = None
    with pytest.raises(ClusterUnavailableError, match="RIGHT_MISSING: Write on topic trips"):
        hanging._settle(config, LEASE, "batch", [ITEM], nothing, nothing)


NONE, UNKNOWN, NOT_LEADER, FORBIDDEN = 0, 3, 6, 29
"""Kafka's numbers: the partition is unknown to the broker, it does not lead it, its topic may not be looked at."""
STARTS = {0: 11, 1: 12}
"""Where the only transaction of producer 7 is open."""


class Leaders:
    """Stands for `Connections`: two brokers that lead partitions by their numbers.

    Args:
        codes: by partition what its leader answers, one after the other; the last one for ever.
        unheard: partitions of which no leader is heard of.
    """

    cluster = ClusterName("aggregate-b")

    def __init__(self, codes: Mapping[int, list[int]], unheard: Collection[int] = ()) -> None:
        self._codes = codes
        self._unheard = unheard
        self.asked: list[list[int]] = []
        self.learnt = 0

    def learn_leaders(
        self, items: Collection[TopicPartition], *, timeout_ms: float
    ) -> Collection[TopicPartition]:
        del timeout_ms
        return [item for item in items if item.partition in self._unheard]

    def learn_anew(self, *, timeout_ms: float) -> None:
        del timeout_ms
        self.learnt += 1

    def by_leader(self, items: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        found: dict[int, list[TopicPartition]] = {}
        for item in items:
            found.setdefault(item.partition % 2, []).append(item)
        return found

    def ask(self, _node: int, request: DescribeProducersRequest, _doing: str) -> DescribeProducersResponse:
        (topic,) = request.topics
        self.asked.append(list(topic.partition_indexes))
        told = DescribeProducersResponse.TopicResponse
        parts = [self._part(number) for number in topic.partition_indexes]
        return DescribeProducersResponse(topics=[told(name=topic.name, partitions=parts)])

    def _part(self, number: int) -> Any:
        codes, told = self._codes[number], DescribeProducersResponse.TopicResponse.PartitionResponse
        code = codes.pop(0) if len(codes) > 1 else codes[0]
        starts = [STARTS[number]] if code == NONE and number in STARTS else []
        producers = [told.ProducerState(producer_id=7, current_txn_start_offset=start) for start in starts]
        return told(partition_index=number, error_code=code, active_producers=producers)


def found_by(leaders: Leaders) -> dict[int, dict[TopicPartition, TargetOffset]]:
    connections: Any = leaders
    return open_transactions(connections, [P0, P1, P2])


def test_a_leader_that_has_yet_to_hear_of_a_new_topic_is_asked_again() -> None:
    leaders = Leaders({0: [NONE], 1: [UNKNOWN, NOT_LEADER, NONE], 2: [NONE]})
    assert found_by(leaders) == {7: {P0: TargetOffset(11), P1: TargetOffset(12)}}
    assert leaders.asked == [[0, 2], [1], [1], [1]]
    assert leaders.learnt == 2, "each time after the present leaders were asked for"


def test_a_leader_that_never_hears_of_it_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hanging, "_TIMEOUT_MS", 20)
    with pytest.raises(ClusterUnavailableError, match=r"aggregate-b: trips-1: .*UnknownTopicOrPartition"):
        found_by(Leaders({0: [NONE], 1: [UNKNOWN], 2: [NONE]}))
    with pytest.raises(ClusterUnavailableError, match=r"aggregate-b: trips-2: no leader"):
        found_by(Leaders({}, unheard=[2]))


def test_what_may_not_be_looked_at_is_passed_over() -> None:
    assert found_by(Leaders({0: [NONE], 1: [FORBIDDEN], 2: [NONE]})) == {7: {P0: TargetOffset(11)}}
