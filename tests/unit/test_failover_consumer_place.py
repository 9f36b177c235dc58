"""A `FailoverConsumer` whose handle or whose partitions can't go on, and what it takes to go on all the same."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError
from tests.failover_fakes import TOPIC, A, B, World

from offsetsvc.consumer import own_place
from offsetsvc.consumer.site import START_AGAIN_S
from offsetsvc.failover_consumer import NoStartOffsetError, OffsetServiceAwayError


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def fatal_error_of(world: World) -> KafkaError:
    """The fatal error that the application gets."""
    assert world.consumer is not None
    for _ in range(100):
        message = world.consumer.poll(0.01)
        if message is not None:
            error = message.error()
            assert error is not None
            return error
    raise AssertionError("no error was delivered")


def test_a_place_that_librdkafka_gave_up_is_taken_again(world: World) -> None:
    world.log("a").extend(A[:3])
    world.start("a")
    assert world.poll_records(3) == A[:3]
    world.poll_until(lambda: world.clusters["a"].committed[TOPIC, 0][0] == 3, "the commit")
    world.inner[0].fail_for_good()
    world.log("a").extend(A[3:6])
    assert world.poll_records(3) == A[3:6]
    world.poll_nothing()
    old, new = world.inner
    assert old.config["group.instance.id"] == new.config["group.instance.id"]
    world.poll_until(lambda: old.closed, "the old handle is closed")
    assert not old.gave_up_place  # it is the new one's by now


def test_what_a_move_left_to_skip_outlives_the_handle(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1], B[1]])
    world.log("b").extend([B[0], A[0]])
    world.start("a")
    world.poll_records(3)
    world.move("b")
    world.inner[1].fail_for_good()
    world.log("b").extend([A[1], B[1]])
    assert world.poll_records(1) == [B[1]]
    world.poll_nothing()


def test_a_message_delivered_before_can_be_committed_after(world: World) -> None:
    world.log("a").extend(A[:3])
    consumer = world.start("a", {"enable.auto.commit": False})
    message = world.poll()
    while message is None:
        message = world.poll()
    world.inner[0].fail_for_good()
    world.poll_until(lambda: len(world.inner) == 2 and bool(world.inner[1].positions), "it has joined again")
    consumer.commit(message, asynchronous=False)
    assert world.clusters["a"].committed[TOPIC, 0][0] == 1


def test_a_place_that_the_application_named_is_the_applications_to_lose(world: World) -> None:
    world.log("a").extend(A[:3])
    world.start("a", {"group.instance.id": "mine"})
    world.poll_records(3)
    world.inner[0].fail_for_good()
    assert fatal_error_of(world).code() == KafkaError._FATAL
    assert len(world.inner) == 1


def test_a_fatal_error_that_comes_at_once_again_is_told(world: World) -> None:
    world.log("a").extend(A[:3])
    world.start("a")
    world.poll_records(3)
    world.inner[0].fail_for_good()
    world.poll_until(lambda: len(world.inner) == 2, "it has joined again")
    world.inner[1].fail_for_good()
    assert fatal_error_of(world).code() == KafkaError._FATAL
    assert len(world.inner) == 2


def test_a_fatal_error_of_a_later_outage_is_healed_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_place, "REST_S", 0.0)
    world.log("a").extend(A[:3])
    world.start("a")
    world.poll_records(3)
    for count in (1, 2):
        world.inner[-1].fail_for_good()
        world.poll_until(lambda count=count: len(world.inner) == 1 + count, "it has joined again")
    world.log("a").append(A[3])
    world.poll_until(lambda: A[3] in world.delivered, "it goes on")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_partition_without_a_start_begins_once_there_is_one(world: World, strategy: str) -> None:
    world.log("a").extend(A[:3])
    world.start("a", {"partition.assignment.strategy": strategy}, on_no_offset="error")
    for _ in range(3):  # said again and again: what is not read may not look like what is not there
        with pytest.raises(NoStartOffsetError, match="no commit in region 'a'"):
            world.poll_until(lambda: False, "never")
    world.clusters["a"].committed[TOPIC, 0] = (1, "")
    assert world.poll_records(2) == A[1:3]


def test_a_partition_that_was_taken_away_needs_no_start_any_more(world: World) -> None:
    world.log("a").extend(A[:3])
    world.start("a", on_no_offset="error")
    with pytest.raises(NoStartOffsetError):
        world.poll()
    world.inner[0].rebalance("lost", [(TOPIC, 0)])
    world.poll()
    time.sleep(START_AGAIN_S)
    world.poll_nothing()


def test_a_start_that_only_the_service_knows_is_asked_for_again(world: World) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend(A)
    consumer = world.start("a", {"enable.auto.commit": False}, on_service_away="stop")
    world.poll_records(3)
    world.move("b")
    world.clusters["b"].committed.clear()
    world.service.away = True
    world.inner[1].rebalance("lost", [(TOPIC, 0)])
    world.inner[1].rebalance("assign", [(TOPIC, 0)])
    with pytest.raises(OffsetServiceAwayError, match="no offset service answers where trips-0 start"):
        world.poll_until(lambda: False, "never")
    world.service.away = False
    before = len(world.delivered)
    world.poll_until(lambda: len(world.delivered) >= before + 1, "it goes on")
    assert consumer.region == "b"
