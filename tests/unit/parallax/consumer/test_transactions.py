"""Transactions that commit a `FailoverConsumer`'s offsets: what they commit is consumed, what they abort is not."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from structlog.testing import capture_logs

from parallax import (
    ConsumerConfigError,
    FailoverConsumer,
    GroupMovingError,
)
from parallax.consumer.transactions import Transactions
from parallax.domain.metadata import decode
from tests.worlds.failover_fakes import TOPIC, A, B, FakeProducer, World

MANUAL = {"enable.auto.commit": False}
PLACE = TopicPartition(TOPIC, 0)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def start(world: World, region: str, **arguments: object) -> FailoverConsumer:
    return world.start(region, MANUAL, move_from="committed", **arguments)


def transact(world: World, consumer: FailoverConsumer, offset: int | None = None) -> None:
    """Commit the position, or an offset made by hand, in a transaction."""
    producer = FakeProducer(world.clusters[consumer.region])
    positions = consumer.position([PLACE]) if offset is None else [TopicPartition(TOPIC, 0, offset)]
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()


def committed(world: World, region: str) -> tuple[int, str]:
    return world.clusters[region].committed[TOPIC, 0]


def test_a_move_starts_from_what_transactions_have_committed(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1], A[2]])
    world.log("b").extend([B[0], A[0], A[1], A[2], A[3]])
    consumer = start(world, "a")
    world.poll_records(2)
    transact(world, consumer)
    world.poll_records(2)  # of a transaction that is aborted
    world.move("b")
    assert world.poll_records(3) == [A[1], A[2], A[3]]
    transact(world, consumer)
    world.move("a")
    world.log("a").extend([A[3], A[4]])
    assert world.poll_records(1) == [A[4]]


def test_nothing_that_was_only_delivered_counts(world: World) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:3])
    consumer = start(world, "a")
    world.poll_records(3)
    consumer.consumer_group_metadata()
    world.move("b")
    assert world.poll_records(3) == A[:3]


def test_the_commit_of_a_transaction_carries_what_is_to_be_skipped(world: World) -> None:
    world.log("a").extend([A[0], B[0], B[1], A[1]])
    world.log("b").extend([A[0], A[1], A[2], B[0], B[1], B[2]])
    consumer = start(world, "a")
    world.poll_records(4)
    transact(world, consumer)
    world.move("b")
    assert world.poll_records(1) == [A[2]]
    transact(world, consumer)
    world.close()
    offset, metadata = committed(world, "b")
    assert offset == 3
    assert [(item.start, item.end) for item in decode(metadata).skips] == [(3, 5)]
    world.service.away = True
    start(world, "b")
    assert world.poll_records(1) == [B[2]]


@pytest.mark.parametrize("seen_by", ["polling", "a revocation", "closing"])
def test_offsets_made_by_hand_get_what_is_to_be_skipped(world: World, seen_by: str) -> None:
    world.log("a").extend([A[0], B[0], B[1], A[1]])
    world.log("b").extend([A[0], A[1], A[2], B[0], B[1], B[2]])
    interval_ms = 20 if seen_by == "polling" else 60_000
    consumer = start(world, "a", report_interval_ms=interval_ms)
    world.poll_records(4)
    transact(world, consumer)
    world.move("b")
    assert world.poll_records(1) == [A[2]]
    transact(world, consumer, 3)
    assert committed(world, "b") == (3, "")
    if seen_by == "polling":
        world.poll_until(lambda: committed(world, "b")[1] != "", "the metadata")
    elif seen_by == "a revocation":
        world.inner[-1].rebalance("revoke", [(TOPIC, 0)])
        world.poll()
    world.close()
    offset, metadata = committed(world, "b")
    assert offset == 3
    assert [(item.start, item.end) for item in decode(metadata).skips] == [(3, 5)]


def test_what_transactions_have_committed_is_reported(world: World) -> None:
    world.log("a").extend(A[:5])
    consumer = start(world, "a")
    world.poll_records(3)
    transact(world, consumer)
    world.poll_records(2)

    def reported() -> list[int]:
        return [item.next_offset for report in world.service.reports for item in report.positions]

    world.poll_until(lambda: bool(reported()), "a report")
    world.poll_nothing()
    assert set(reported()) == {3}


@pytest.mark.parametrize(
    ("config", "arguments"),
    [({}, {"move_from": "committed"}), (MANUAL, {}), (MANUAL, {"move_from": "delivered"})],
)
def test_settings_under_which_an_abort_would_lose_records_are_refused(
    world: World, config: dict[str, object], arguments: dict[str, object]
) -> None:
    with pytest.raises(ConsumerConfigError, match="move_from='committed'"):
        world.start("a", config, **arguments).consumer_group_metadata()


def test_no_transaction_is_begun_while_a_move_is_under_way(world: World) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:4])
    world.service.away = True
    refused: list[str] = []
    consumer = world.start("a", MANUAL, move_from="committed", subscribe=False)

    def lost(_consumer: object, _partitions: object) -> None:
        with pytest.raises(GroupMovingError) as caught:
            consumer.consumer_group_metadata()
        refused.append(str(caught.value))

    consumer.subscribe([TOPIC], on_lost=lost)
    world.poll_records(3)
    consumer.move_to("b")
    transact(world, consumer)  # before the move has begun
    world.poll()
    with pytest.raises(GroupMovingError, match="abort the transaction"):
        consumer.consumer_group_metadata()
    world.coordinator_answers = False
    world.service.away = False
    world.poll_until(lambda: len(world.inner) == 2, "the new cluster")
    with pytest.raises(GroupMovingError):  # it has not joined, and its membership would guard nothing
        consumer.consumer_group_metadata()
    world.inner[1].joins = True
    assert world.poll_records(1) == [A[3]]
    assert refused
    transact(world, consumer)
    assert committed(world, "b")[0] == 4


def test_a_move_waits_for_a_transaction_that_has_sent_its_offsets(world: World) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:4])
    consumer = start(world, "a")
    world.poll_records(3)
    producer = FakeProducer(world.clusters["a"])
    producer.send_offsets_to_transaction(consumer.position([PLACE]), consumer.consumer_group_metadata())
    consumer.move_to("b")
    world.log("a").append(A[3])
    world.poll_nothing(polls=5)
    assert (consumer.region, world.service.asked) == ("a", [])
    producer.commit_transaction()
    assert world.poll_records(1) == [A[3]]
    assert consumer.region == "b"


def test_a_move_from_a_dead_cluster_starts_from_what_was_read_last(world: World) -> None:
    world.log("a").extend(A[:5])
    world.log("b").extend(A[:6])
    consumer = start(world, "a")
    world.poll_records(3)
    transact(world, consumer)
    world.poll_until(lambda: consumer._engine.site.delivery.partitions[TOPIC, 0].committed == 3, "a look")
    world.poll_records(2)
    world.clusters["a"].dead = True
    world.move("b")
    assert world.poll_records(3) == A[3:6]


def test_offsets_of_the_cluster_before_the_move_do_not_count(world: World) -> None:
    world.log("a").extend(A[:8])
    world.log("b").extend([*A[:4], B[0]])
    consumer = start(world, "a")
    world.poll_records(8)
    transact(world, consumer)
    world.move("b")
    world.poll_records(1)
    transact(world, consumer, 8)  # made by hand, of the other cluster
    with capture_logs() as logs:
        world.poll_nothing()
    assert "foreign_commits" in [entry["event"] for entry in logs]
    assert committed(world, "b")[0] == 8
    assert consumer._engine.site.delivery.partitions[TOPIC, 0].committed == 4


def test_a_revoked_partition_is_committed_in_the_callback(world: World) -> None:
    world.log("a").extend(A[:4])
    consumer = world.start("a", MANUAL, move_from="committed", subscribe=False)
    consumer.subscribe([TOPIC], on_revoke=lambda *_: transact(world, consumer))
    world.poll_records(4)
    world.inner[0].rebalance("revoke", [(TOPIC, 0)])
    world.poll()
    assert committed(world, "a") == (4, "")


def test_the_broker_refuses_a_membership_that_was_left(world: World) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:3])
    consumer = start(world, "a")
    world.poll_records(3)
    left = consumer.consumer_group_metadata()
    world.move("b")
    deadline = time.monotonic() + 5
    while not world.inner[0].closed and time.monotonic() < deadline:
        world.poll()
    with pytest.raises(KafkaException) as caught:
        FakeProducer(world.clusters["a"]).send_offsets_to_transaction(consumer.position([PLACE]), left)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID


def test_an_aborted_transaction_is_read_again_where_it_was_aborted(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1]])
    world.log("b").extend([B[0], A[0], A[1], A[2], B[1]])
    consumer = start(world, "a")

    def read_again() -> None:
        for place in consumer.committed(consumer.assignment(), 1):
            consumer.seek(place)

    world.poll_records(3)
    read_again()  # nothing was ever committed
    assert world.poll_records(3) == [A[0], B[0], A[1]]
    transact(world, consumer)
    world.move("b")
    assert world.poll_records(2) == [A[2], B[1]]
    read_again()
    assert world.poll_records(2) == [A[2], B[1]]


def test_a_transaction_that_stays_open_does_not_keep_a_move_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parallax.consumer.transactions.COORDINATOR_WITHIN_S", 0.2)
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:3])
    consumer = start(world, "a")
    world.poll_records(3)
    consumer.consumer_group_metadata()
    world.clusters["a"].unsettled = True
    world.move("b")
    assert world.poll_records(3) == A[:3]


def test_a_move_asked_for_while_a_transaction_is_waited_for_replaces_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World("a", "b", "c")
    for region in "abc":
        world.log(region).extend(A[:4])
    consumer = world.start("a", {"enable.auto.commit": False}, move_from="committed")
    world.poll_records(4)

    def settled(_transactions: Transactions) -> bool:
        monkeypatch.setattr(Transactions, "settled", lambda _: True)
        consumer.move_to("c")
        return False

    monkeypatch.setattr(Transactions, "settled", settled)
    world.move("b")
    assert consumer.region == "c"
    world.close()
