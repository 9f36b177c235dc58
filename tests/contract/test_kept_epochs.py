"""One behaviour suite over what a log has kept of a leader's epoch: in memory, and a broker's own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from lab.workload.topics import create_topic
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName, TopicName, TopicPartition
from parallax.domain.place import KeptEpoch
from parallax.errors import ClusterUnavailableError
from parallax.ports.clusters import ClusterReader
from tests.support import Stack, poll_until
from tests.worlds.offset_world import FakeCluster

NAME = ClusterName("aggregate-a")
PATIENCE_S = 60.0


@dataclass
class Log:
    """One partition, whose leader may change."""

    reader: ClusterReader
    partition: TopicPartition
    stack: Stack | None = None
    end: int = 0
    began: int = -1
    """The epoch of the present leader; -1: nothing was written since it leads."""

    def write(self, count: int) -> int:
        """Write records; the epoch of their leader."""
        if isinstance(self.reader, FakeCluster):
            began = {**self.reader.epochs.get(self.partition, {})}
            if self.began < 0:
                self.began = max(began, default=-1) + 1
                self.reader.epochs[self.partition] = {**began, self.began: self.end}
            self.end += count
            self.reader.lay(self.partition, [0] * self.end)
            return self.began
        assert self.stack is not None
        address = self.stack.bootstrap(NAME)
        producer = Producer({"bootstrap.servers": address})
        for _ in range(count):
            producer.produce(self.partition.topic, b"v", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        self.end += count
        consumer = Consumer({"bootstrap.servers": address, "group.id": "epochs"})
        try:
            consumer.assign([KafkaPartition(self.partition.topic, 0, self.end - 1)])
            message = poll_until(lambda: consumer.poll(0.5), PATIENCE_S, "the last record")
            assert message.error() is None
            self.began = message.leader_epoch() or 0
        finally:
            consumer.close()
        return self.began

    def change_leader(self) -> None:
        """Let another leader's epoch begin."""
        self.began = -1
        if self.stack is None:
            return
        self.stack.kill(NAME)
        self.stack.start(NAME)

        def answers() -> bool:
            try:
                return self.partition in self.reader.log_ranges([self.partition], fresh=True)
            except ClusterUnavailableError:
                return False

        poll_until(answers, PATIENCE_S, "the partition has a leader again")

    def kept(self, epoch: int) -> tuple[int, int] | None:
        """Asked with a partition that does not exist, which nothing is told of."""
        absent = TopicPartition(self.partition.topic, 7)
        found = self.reader.kept_epochs({self.partition: epoch, absent: epoch})
        assert absent not in found
        if self.partition not in found:
            return None
        assert isinstance(found[self.partition], KeptEpoch)
        return found[self.partition].leader_epoch, found[self.partition].end


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.stack("infrastructure"))])
def log(request: pytest.FixtureRequest, topic_name: str) -> Log:
    partition = TopicPartition(TopicName(topic_name), 0)
    if request.param == "memory":
        memory = FakeCluster(NAME)
        memory.lay(partition, [])
        return Log(memory, partition)
    stack: Stack = request.getfixturevalue("infrastructure")
    address = stack.bootstrap(NAME)
    create_topic(address, topic_name, 1)
    reader = KafkaCluster(NAME, Cluster(bootstrap_servers=address), timeout_ms=20_000, cache_ms=0)
    return Log(reader, partition, stack)


def test_an_epoch_ends_where_the_next_began_and_the_present_one_at_the_end(log: Log) -> None:
    first = log.write(5)
    assert log.kept(first) == (first, 5)
    log.change_leader()
    assert log.kept(first) == (first, 5)
    second = log.write(3)
    assert second > first
    assert (log.kept(first), log.kept(second)) == ((first, 5), (second, 8))
    log.change_leader()
    third = log.write(1)
    assert [log.kept(epoch) for epoch in (first, second, third)] == [(first, 5), (second, 8), (third, 9)]


def test_of_an_epoch_that_never_began_nothing_is_told(log: Log) -> None:
    first = log.write(2)
    assert log.kept(first + 1_000) is None
