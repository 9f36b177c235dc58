"""What becomes of a batch that the target's topic is too small for."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.domain.ids import ClusterName, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError
from replicator.copying.ports import RecordRefusedError
from replicator.kafka.batch.target import BatchTarget
from replicator.kafka.refusals import TOO_LARGE, Refusal
from replicator.kafka.transactions.coordinator import ProducerState

ITEM = TopicPartition(TopicName("trips"), 0)


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
