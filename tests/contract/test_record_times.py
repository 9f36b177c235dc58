"""One behaviour suite over what is asked of clusters about record timestamps: in memory, and a broker's own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from lab.workload.topics import create_topic
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.kafka.librdkafka import Settings
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName, TargetOffset, TopicName, TopicPartition
from parallax.ports.clusters import ClusterReader, PositionTime
from tests.support import Stack, poll_until
from tests.worlds.offset_world import Control, FakeCluster

NAME = ClusterName("aggregate-a")
START_MS = time.time_ns() // 1_000_000 - 3_600_000
"""An hour ago: old enough for what follows, and young enough for the broker to keep it."""

Times = Sequence[int | None]
"""Milliseconds after `START_MS`; None: a control record, which ends a transaction."""


@dataclass
class Log:
    """One partition that a test may write."""

    reader: ClusterReader
    partition: TopicPartition
    bootstrap_servers: str = ""

    def write(self, times: Times, low: int = 0) -> None:
        """Every record is a batch of its own; then retention takes what lies below ``low``."""
        if isinstance(self.reader, FakeCluster):
            now = Control(time.time_ns() // 1_000_000)
            stamps = [now if at_ms is None else START_MS + at_ms for at_ms in times]
            self.reader.lay(self.partition, stamps, low)
            return
        address: Settings = {"bootstrap.servers": self.bootstrap_servers}
        transactional = Producer({**address, "transactional.id": self.partition.topic, "linger.ms": 0})
        transactional.init_transactions(30)
        plain = Producer({**address, "linger.ms": 0})
        rest = list(times)
        while rest:
            ends = None in rest
            records = rest[: rest.index(None)] if ends else rest
            producer = transactional if ends else plain
            if ends:
                transactional.begin_transaction()
            for at_ms in records:
                producer.produce(self.partition.topic, b"", partition=0, timestamp=START_MS + (at_ms or 0))
                assert producer.flush(30) == 0
            if ends:
                transactional.commit_transaction(30)
            rest = rest[len(records) + ends :]
        # A commit has ended before its control record is in the log.
        poll_until(lambda: self._end() == len(times), 60, "all control records")
        if low:
            admin = AdminClient(address)
            (deleted,) = admin.delete_records([KafkaPartition(self.partition.topic, 0, low)]).values()
            deleted.result(30)

    def _end(self) -> int:
        return self.reader.log_ranges([self.partition])[self.partition].high_watermark

    def time_at(self, position: int) -> tuple[int, bool] | None:
        found = self.reader.time_at(self.partition, TargetOffset(position))
        assert found is None or isinstance(found, PositionTime)
        return None if found is None else (found.timestamp_ms - START_MS, found.below)

    def offset_at(self, at_ms: int) -> int | None:
        return self.reader.offset_at(self.partition, START_MS + at_ms)


@pytest.fixture(params=["memory", pytest.param("kafka", marks=pytest.mark.stack("infrastructure"))])
def log(request: pytest.FixtureRequest, topic_name: str) -> Log:
    partition = TopicPartition(TopicName(topic_name), 0)
    if request.param == "memory":
        return Log(FakeCluster(NAME), partition)
    stack: Stack = request.getfixturevalue("infrastructure")
    address = stack.bootstrap(NAME)
    create_topic(address, topic_name, 1)
    reader = KafkaCluster(NAME, Cluster(bootstrap_servers=address), timeout_ms=20_000)
    return Log(reader, partition, address)


def test_the_first_record_of_that_time_or_later_counts_in_the_order_of_offsets(log: Log) -> None:
    log.write([100, 300, 200, 300, 400])

    found = {at_ms: log.offset_at(at_ms) for at_ms in (0, 100, 101, 200, 300, 301, 400)}

    assert found == {0: 0, 100: 0, 101: 1, 200: 1, 300: 1, 301: 4, 400: 4}


def test_where_no_record_is_so_late_it_is_the_end(log: Log) -> None:
    log.write([100, 200])

    assert (log.offset_at(200), log.offset_at(201)) == (1, 2)


def test_a_control_record_counts_by_the_time_of_its_broker(log: Log) -> None:
    """So that the answer may be earlier than the first record, and never later."""
    log.write([100, None, 200])

    assert (log.offset_at(100), log.offset_at(101), log.offset_at(200)) == (0, 1, 1)


def test_the_time_of_a_position_is_its_records(log: Log) -> None:
    log.write([100, 300, 200, None, 400])

    found = [log.time_at(position) for position in range(5)]

    assert found == [(100, False), (300, False), (200, False), (400, False), (400, False)]


@pytest.mark.parametrize("times", [[100, 200], [100, 200, None], [100, None, 200, None]])
def test_at_the_end_it_is_that_of_the_last_record(log: Log, times: Times) -> None:
    log.write(times)

    assert log.time_at(len(times)) == (200, True)


def test_a_control_record_at_the_end_bears_no_time_of_its_own(log: Log) -> None:
    log.write([100, 200, None])

    assert log.time_at(2) == (200, True)


def test_outside_of_the_log_there_is_no_time(log: Log) -> None:
    log.write([100, 200, 300], low=2)

    assert [log.time_at(position) for position in (0, 1, 4)] == [None, None, None]
    assert log.time_at(2) == (300, False)
    assert log.offset_at(0) == 2


def test_a_log_that_retention_emptied_has_no_time(log: Log) -> None:
    log.write([100, 200], low=2)

    assert log.time_at(2) is None
    assert log.offset_at(0) == 2


def test_a_partition_that_does_not_exist_has_neither(log: Log) -> None:
    log.write([100])
    log.partition = TopicPartition(log.partition.topic, 7)

    assert (log.time_at(0), log.offset_at(0)) == (None, None)
