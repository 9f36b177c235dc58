"""What the record path's consumer makes of a right that is missing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from parallax.domain.ids import ClusterName, TopicName, TopicPartition
from replicator.copying.ports import NotAllowed, SourceEvent
from replicator.kafka.record.source import KafkaSource


@pytest.mark.parametrize(("named", "stopped"), [(1, [1]), (-1, [0, 1]), (None, [0, 1])])
def test_a_topic_that_may_not_be_read_is_told_of_for_each_of_its_partitions(
    named: int | None, stopped: list[int]
) -> None:
    """librdkafka says it of one partition or, of the whole topic, once."""
    source = KafkaSource.__new__(KafkaSource)
    source._cluster = ClusterName("regional-a")
    items = [TopicPartition(TopicName(name), number) for name in ("trips", "orders") for number in range(2)]
    source._taken = {(item.topic, item.partition): item for item in items}
    message = SimpleNamespace(topic=lambda: "trips", partition=lambda: named)
    events: list[SourceEvent] = []
    source._add_event(message, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), events)  # type: ignore[arg-type]
    told = {event.topic_partition: event.reason for event in events if isinstance(event, NotAllowed)}
    assert sorted(told) == [TopicPartition(TopicName("trips"), number) for number in stopped]
    assert len(told) == len(events)
    for reason in told.values():
        assert reason.startswith("RIGHT_MISSING: Read on topic trips at regional-a")
