"""What a transaction left hanging is asked of, and where it is looked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from parallax.config.config import Config
from parallax.domain.ids import Route, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.transactions import hanging
from replicator.kafka.transactions.coordinator import ProducerState
from replicator.kafka.transactions.endings import Found, Sought, TransactionEnd
from replicator.kafka.transactions.fates import Fates
from replicator.kafka.transactions.hanging import earlier_shards
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
