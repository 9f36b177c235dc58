"""The reader of a cluster, through the death and return of its only broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from tests.support import Stack, poll_until, unique_name

from devstack.workload.topics import create_topic
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.domain.errors import ClusterUnavailableError
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicName, TopicPartition
from parallax.domain.resume import LogRange
from parallax.runtime.config import Cluster

NAME = "aggregate-a"
RECORDS = 10
TIMEOUT_MS = 10_000
BACK_WITHIN_S = 60.0


@pytest.fixture
def bootstrap_servers(infrastructure: Stack) -> Iterator[str]:
    yield infrastructure.bootstrap(NAME)
    infrastructure.start(NAME)


def test_a_reader_that_saw_its_cluster_die_sees_it_return(
    infrastructure: Stack, bootstrap_servers: str, topic_name: str
) -> None:
    create_topic(bootstrap_servers, topic_name, 1)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(topic_name, str(number), partition=0)
    assert producer.flush(30) == 0
    group, place = GroupName(unique_name("group")), TopicPartition(TopicName(topic_name), 0)
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    consumer.commit(offsets=[KafkaPartition(topic_name, 0, 4)], asynchronous=False)
    consumer.close()
    reader = KafkaCluster(
        ClusterName(NAME), Cluster(bootstrap_servers=bootstrap_servers), timeout_ms=TIMEOUT_MS, cache_ms=0
    )

    def everything() -> tuple[LogRange, int] | None:
        try:
            return reader.log_ranges([place])[place], reader.committed(group)[place].next_offset
        except ClusterUnavailableError:
            return None

    expected = LogRange(TargetOffset(0), TargetOffset(RECORDS)), 4
    assert everything() == expected
    infrastructure.kill(NAME)
    # Both kinds of question, and the second one twice: each has failed for good in its own way.
    for question in (
        lambda: reader.log_ranges([place]),
        *[lambda: reader.committed(group)] * 2,
        reader.topics,
    ):
        asked_at_s = time.monotonic()
        with pytest.raises(ClusterUnavailableError):
            question()
        # The broker refuses connections, and librdkafka knows: none takes as long as a silent one may.
        assert time.monotonic() - asked_at_s < TIMEOUT_MS / 2_000
    infrastructure.start(NAME)
    assert poll_until(everything, BACK_WITHIN_S, f"{NAME} answers the same reader again") == expected
