"""Holding a lease between real brokers: what arrives, and what the run log says of it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewTopic

from parallax.domain.ids import RoutePartition, TargetOffset, TopicName, TopicPartition
from parallax.errors import FencedError, StoreUnavailableError
from tests.memory.index import MemoryMappingIndex
from tests.support import Stack
from tests.worlds.shard_harness import PATIENCE_S, Harness, check_rows, content, until


@pytest.fixture(params=["batch", "record"])
def harness(infrastructure: Stack, topic_name: str, request: pytest.FixtureRequest) -> Harness:
    return Harness(infrastructure, topic_name, request.param)


def values(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def produce_everything_there_is(harness: Harness) -> None:
    """Committed and aborted transactions of records with all that a record can have or lack."""
    producer = Producer({"bootstrap.servers": harness.source, "transactional.id": harness.topic})
    producer.init_transactions()
    number = 0
    for round_number in range(6):
        producer.begin_transaction()
        for _ in range(60):
            producer.produce(
                harness.topic,
                value=None if number % 7 == 0 else f"value {number}",
                key=None if number % 5 == 0 else f"key {number}",
                partition=number % 2,
                headers=[("h", b"1"), ("h", None), ("\u00fc", str(number).encode())] if number % 3 else [],
                timestamp=1_600_000_000_000 + number,
            )
            number += 1
        producer.flush()
        if round_number % 3 == 1:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    harness.wait_for_markers()


def test_records_arrive_as_they_are_and_the_run_log_maps_each(harness: Harness) -> None:
    harness.create(2)
    produce_everything_there_is(harness)
    result = harness.copy_now()
    assert result.records == 240
    assert content(harness.target, harness.topic) == content(harness.source, harness.topic)
    assert check_rows(harness) == 240


def test_log_append_time_becomes_create_time(harness: Harness) -> None:
    harness.create(1, **{"message.timestamp.type": "LogAppendTime"})
    harness.produce(values("v", 3))
    harness.copy_now()
    there, here = content(harness.source, harness.topic)[0], content(harness.target, harness.topic)[0]
    assert [(record[1], record[3][1]) for record in here] == [(record[1], record[3][1]) for record in there]
    assert {record[3][0] for record in here} == {1}


def test_the_next_owner_goes_on_where_the_last_one_stopped(harness: Harness) -> None:
    harness.create()
    expected: list[str] = []
    for number in range(3):
        more = values(f"{number}-", 20)
        harness.produce(more)
        expected += more
        assert harness.copy_now().records == 20
    assert harness.copied() == {0: expected}
    assert check_rows(harness) == 60


def test_an_open_source_transaction_is_not_copied_and_not_waited_for(harness: Harness) -> None:
    harness.create()
    producer = Producer({"bootstrap.servers": harness.source, "transactional.id": harness.topic})
    producer.init_transactions()
    harness.produce(["before"])
    producer.begin_transaction()
    producer.produce(harness.topic, value="open", key="open", partition=0)
    producer.flush()
    harness.produce(["behind"])
    harness.copy_now()
    assert harness.copied() == {0: ["before"]}
    producer.commit_transaction()
    harness.wait_for_markers()
    harness.copy_now()
    assert harness.copied() == {0: ["before", "open", "behind"]}


def test_an_older_owner_is_fenced_and_leaves(harness: Harness) -> None:
    harness.create()
    older = harness.own()
    harness.produce(values("a", 10))
    harness.wait_for({0: values("a", 10)})
    newer = harness.own()
    harness.produce(values("b", 10))
    harness.wait_for({0: values("a", 10) + values("b", 10)})
    until(lambda: older.failure is not None, "the older owner leaves")
    with pytest.raises(FencedError):
        older.finish()
    newer.finish()
    assert check_rows(harness) == 20


def test_a_route_whose_clusters_are_one_kafka_copies_nothing_of_its_own(
    infrastructure: Stack, topic_name: str
) -> None:
    harness = Harness(infrastructure, topic_name, clusters=("regional-a", "regional-a"))
    harness.create()
    harness.produce(values("own", 10))
    owner = harness.own()
    until(lambda: any("SAME_CLUSTER" in item.waiting_for for item in owner.progress), "it is told")
    owner.finish()
    assert harness.copied() == {0: values("own", 10)}


def test_a_new_topic_flows_within_seconds(harness: Harness) -> None:
    owner = harness.own(harness.config(discovery_interval_ms=5_000))
    until(lambda: owner.progress, "the lease works")
    harness.create(3)
    begun = time.monotonic()
    harness.produce(["first"])
    harness.wait_for({0: ["first"]})
    assert time.monotonic() - begun < 30
    owner.finish()


def test_watermarks_go_on_while_the_source_is_away(harness: Harness) -> None:
    harness.create()
    harness.produce(values("v", 5))
    harness.copy_now()
    owner = harness.own(harness.config(source="127.0.0.1:9"))
    until(lambda: owner.progress and owner.progress[-1].transactions >= 4, "watermarks")
    owner.finish()
    [(rows, _)] = [found for (item, _), found in harness.rows().items() if item.topic == harness.topic]
    idle = [row for row in rows if row.is_watermark and row.source_start == 5]
    assert len(idle) >= 3
    assert [row.target_end for row in idle] == sorted(row.target_end for row in idle)


def test_a_topic_that_the_source_lacks_gets_watermarks_at_zero(harness: Harness) -> None:
    harness.target_admin.create_topics([NewTopic(harness.topic, 1, 1)])[harness.topic].result()
    owner = harness.own()
    until(lambda: any(item.topic == harness.topic for item, _ in harness.rows()), "a watermark")
    harness.create()
    harness.produce(["late"])
    harness.wait_for({0: ["late"]})
    owner.finish()
    lineages = [
        (lineage, rows)
        for (item, lineage), (rows, _) in harness.rows().items()
        if item.topic == harness.topic
    ]
    assert [lineage.source_topic_id == "" for lineage, _ in lineages] == [True, False]
    assert {row.source_start for row in lineages[0][1]} == {0}


class AwayIndex(MemoryMappingIndex):
    """An index that can be away."""

    away = True

    def write_turn(self, *turn: Any) -> None:
        if self.away:
            raise StoreUnavailableError("away")
        super().write_turn(*turn)


def test_replication_goes_on_without_the_index_which_catches_up_from_the_run_log(harness: Harness) -> None:
    harness.create()
    index = AwayIndex()
    harness.produce(values("a", 10))
    harness.copy_now(index=index)
    owner = harness.own(index=index)
    harness.produce(values("b", 10))
    harness.wait_for({0: values("a", 10) + values("b", 10)})
    until(lambda: owner.progress and owner.progress[-1].index_lag_ms > 2_000, "a lag")
    index.away = False

    def indexed() -> bool:
        item = RoutePartition(harness.route, TopicPartition(TopicName(harness.topic), 0))
        found = [
            row
            for record in index.lineages(harness.route, TopicName(harness.topic))
            for row in index.rows_from_target(item, record.lineage, TargetOffset(0), 1_000).rows
        ]
        return sum(row.count for row in found) == 20

    until(indexed, "the index catches up")
    until(lambda: owner.progress[-1].index_lag_ms < 1_000, "the lag goes away")
    owner.finish()


def test_available_now_ends_by_itself(harness: Harness) -> None:
    begun = time.monotonic()
    harness.create(3)
    assert harness.copy_now().records == 0
    assert time.monotonic() - begun < PATIENCE_S / 2
