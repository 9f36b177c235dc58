"""A `FailoverConsumer` whose handle or whose partitions can't go on, and what it takes to go on all the same."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from parallax import FailoverConsumer, NoStartOffsetError, OffsetServiceAwayError
from parallax.consumer import handles as own_place
from parallax.consumer.starts import START_AGAIN_S
from tests.worlds.failover_fakes import TOPIC, A, B, World


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
    world.poll_until(lambda: world.clusters["a"].committed.get((TOPIC, 0)) == (3, ""), "the commit")
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


def test_a_message_delivered_before_can_be_committed_once_it_has_joined(world: World) -> None:
    world.log("a").extend(A[:3])
    consumer = world.start("a", {"enable.auto.commit": False})
    message = world.poll()
    while message is None:
        message = world.poll()
    world.inner[0].fail_for_good()
    world.poll_until(lambda: len(world.inner) == 2 and bool(world.inner[1].positions), "it has joined again")
    consumer.commit(message, asynchronous=False)
    assert world.clusters["a"].committed[TOPIC, 0][0] == 1


def test_nothing_is_committed_before_the_new_handle_has_joined(world: World) -> None:
    """The coordinator would take such a commit for a stranger's, and fence the consumer again."""
    world.log("a").extend(A[:3])
    consumer = world.start("a", {"enable.auto.commit": False})
    message = world.poll()
    while message is None:
        message = world.poll()
    world.coordinator_answers = False
    world.inner[0].fail_for_good()
    world.poll_until(lambda: len(world.inner) == 2, "it joins again")
    consumer.commit(message)
    with pytest.raises(KafkaException, match="will be delivered again"):
        consumer.commit(message, asynchronous=False)
    assert world.inner[1].commits == []
    world.inner[1].joins = True
    world.poll_until(lambda: world.delivered[1:] == A[:3], "all since the last commit")


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_application_hears_that_its_partitions_are_gone(world: World, *, lost: bool, fails: bool) -> None:
    world.log("a").extend(A[:3])
    consumer = world.start("a", {"enable.auto.commit": False}, subscribe=False)
    told: list[int] = []

    def on_revoke(revoked: FailoverConsumer, partitions: list[TopicPartition]) -> None:
        told.append(len(partitions))
        if not lost:  # as at a move: nobody is there to take it
            revoked.commit(offsets=[TopicPartition(TOPIC, 0, 3)], asynchronous=False)
        if fails and len(told) == 1:
            raise ValueError("the application's own")

    consumer.subscribe([TOPIC], on_revoke=on_revoke)
    world.poll_records(3)
    world.inner[0].fail_for_good(lost=lost)
    if fails:
        with pytest.raises(ValueError, match="the application's own"):
            world.poll_until(lambda: False, "never")
    world.poll_until(lambda: len(world.delivered) >= 6, "delivered again, for nothing was committed")
    assert told == [1]
    assert world.delivered == A[:3] * 2


def test_who_has_unsubscribed_does_not_join_again(world: World) -> None:
    world.log("a").extend(A[:3])
    consumer = world.start("a")
    world.poll_records(3)
    consumer.unsubscribe()
    world.poll()
    world.inner[0].fail_for_good(lost=False)
    world.poll_until(lambda: len(world.inner) == 2, "a new handle")
    world.log("a").extend(A[3:6])
    world.poll_nothing()


def test_partitions_that_were_chosen_go_on_where_they_are(world: World) -> None:
    world.log("a").extend(A[:3])
    world.log("a", 1).extend(B[:3])
    consumer = world.start("a", {"enable.auto.commit": False}, subscribe=False, on_no_offset="latest")
    consumer.assign([TopicPartition(TOPIC, 0, 0), TopicPartition(TOPIC, 1, 0)])
    world.poll_records(6)
    consumer.pause([TopicPartition(TOPIC, 1)])
    world.inner[0].fail_for_good(lost=False)
    world.log("a").extend(A[3:6])
    world.log("a", 1).extend(B[3:6])
    assert world.poll_records(3) == A[3:6]
    world.poll_nothing()
    consumer.resume([TopicPartition(TOPIC, 1)])
    assert world.poll_records(3) == B[3:6]


def test_a_place_that_the_application_named_is_the_applications_to_lose(world: World) -> None:
    world.log("a").extend(A[:3])
    world.start("a", {"group.instance.id": "mine"})
    world.poll_records(3)
    world.inner[0].fail_for_good()
    assert fatal_error_of(world).code() == KafkaError._FATAL
    assert len(world.inner) == 1


def test_a_new_handle_that_is_fenced_by_the_old_ones_late_join_is_replaced_too(world: World) -> None:
    world.log("a").extend(A[:3])
    world.start("a")
    world.poll_records(3)
    for joined in (2, 3):
        world.inner[-1].fail_for_good()
        world.poll_until(lambda joined=joined: len(world.inner) == joined, "it has joined again")
    world.log("a").append(A[3])
    world.poll_until(lambda: A[3] in world.delivered, "it goes on, and the application was told of no error")


def test_a_fatal_error_that_comes_again_and_again_is_told_and_healed_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_place, "REST_S", 2.0)
    world.log("a").extend(A[:3])
    world.start("a")
    world.poll_records(3)
    for joined in range(2, 2 + own_place.AT_ONCE):
        world.inner[-1].fail_for_good()
        world.poll_until(lambda joined=joined: len(world.inner) == joined, "it has joined again")
    world.inner[-1].fail_for_good()
    assert fatal_error_of(world).code() == KafkaError._FATAL
    assert len(world.inner) == 1 + own_place.AT_ONCE
    world.log("a").append(A[3])
    world.poll_until(lambda: A[3] in world.delivered, "it goes on")
    assert len(world.inner) == 2 + own_place.AT_ONCE


def test_another_fatal_error_is_the_applications(world: World) -> None:
    world.log("a").extend(A[:3])
    world.start("a")
    world.poll_records(3)
    world.inner[0].fail_for_good("Required feature not supported by broker")
    assert "not supported" in str(fatal_error_of(world))
    world.poll_nothing()
    assert len(world.inner) == 1


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


def moved_without_a_start(world: World) -> FailoverConsumer:
    """A consumer with a partition assigned by hand that has moved to b, where nobody tells it a start."""
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:5])
    world.log("b", 1).extend(B[:2])
    consumer = world.start("a", subscribe=False, on_service_away="metadata")
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    world.poll_records(3)
    world.poll_until(lambda: world.clusters["a"].committed.get((TOPIC, 0)) == (3, ""), "the commit stands")
    world.service.away = True
    consumer.move_to("b")
    with pytest.raises(NoStartOffsetError, match="trips-0: no commit in region 'b'"):
        world.poll_until(lambda: False, "never")
    assert (consumer.region, consumer.assignment()) == ("b", [])
    return consumer


def test_an_assignment_by_hand_begins_after_a_move_once_there_is_a_start(world: World) -> None:
    consumer = moved_without_a_start(world)
    with pytest.raises(NoStartOffsetError):  # said again and again
        world.poll_until(lambda: False, "never")
    world.service.away = False
    assert world.poll_records(2) == A[3:5]
    assert not consumer.moving


def test_what_is_assigned_beside_a_partition_without_a_start_stays(world: World) -> None:
    consumer = moved_without_a_start(world)
    consumer.incremental_assign([TopicPartition(TOPIC, 1, 0)])
    assert world.poll_records(2) == B[:2]
    world.service.away = False
    assert world.poll_records(2) == A[3:5]
    assert len(consumer.assignment()) == 2


def test_an_assignment_by_hand_without_a_start_moves_on(world: World) -> None:
    consumer = moved_without_a_start(world)
    world.log("a").append(A[3])
    world.service.away = False
    world.move("a")
    assert world.poll_records(1) == [A[3]]
    assert [(item.topic, item.partition) for item in consumer.assignment()] == [(TOPIC, 0)]


@pytest.mark.parametrize("subscribes", [False, True])
def test_another_assignment_replaces_a_partition_without_a_start(world: World, *, subscribes: bool) -> None:
    consumer = moved_without_a_start(world)
    if subscribes:
        consumer.subscribe(["others"])
    else:
        consumer.assign([TopicPartition(TOPIC, 1, 0)])
        assert world.poll_records(2) == B[:2]
    time.sleep(START_AGAIN_S)
    world.poll_nothing()


def test_partitions_that_come_later_do_not_make_it_forget_the_first(world: World) -> None:
    world.log("a").extend(A[:3])
    world.start("a", {"partition.assignment.strategy": "cooperative-sticky"}, on_no_offset="error")
    with pytest.raises(NoStartOffsetError):
        world.poll()
    world.log("a", 1).extend(B[:2])
    world.clusters["a"].committed[TOPIC, 1] = (0, "")
    world.inner[0].rebalance("assign", [(TOPIC, 1)])
    assert world.poll_records(2) == B[:2]
    with pytest.raises(NoStartOffsetError, match="trips-0"):
        world.poll_until(lambda: False, "never")
    world.clusters["a"].committed[TOPIC, 0] = (0, "")
    assert world.poll_records(3) == A[:3]


def test_others_go_on_while_a_start_takes_long_to_be_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.log("a").extend(A[:3])
    world.log("a", 1).extend(B[:2])
    world.clusters["a"].committed[TOPIC, 1] = (0, "")
    world.start("a", {"partition.assignment.strategy": "cooperative-sticky"}, on_no_offset="error")
    (inner,) = world.inner
    inner.assign_only([(TOPIC, 1)])
    assert world.poll_records(2) == B[:2]
    committed = inner.committed

    def slow(partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        time.sleep(1.2 * START_AGAIN_S)
        return committed(partitions, timeout)

    monkeypatch.setattr(inner, "committed", slow)
    inner.rebalance("assign", [(TOPIC, 0)])
    with pytest.raises(NoStartOffsetError):
        world.poll()
    time.sleep(1.2 * START_AGAIN_S)
    world.log("a", 1).extend(B[2:6])
    inner.rebalance("lost", [(TOPIC, 0)])
    refused = 0
    while B[5] not in world.delivered:
        try:
            world.poll()
        except NoStartOffsetError:
            refused += 1
            assert refused == 1  # then it hears that the partition is gone


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_where_the_application_begins_itself_nothing_else_begins(world: World, strategy: str) -> None:
    world.log("a").extend(A[:6])
    config = {"partition.assignment.strategy": strategy, "enable.auto.commit": False}
    consumer = world.start("a", config, on_no_offset="error")
    with pytest.raises(NoStartOffsetError):
        world.poll()
    (consumer.assign if strategy == "range" else consumer.incremental_assign)([TopicPartition(TOPIC, 0, 0)])
    assert world.poll_records(6) == A[:6]
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, 2)], asynchronous=False)
    time.sleep(START_AGAIN_S)
    world.poll_nothing()


def test_what_the_application_unassigns_does_not_begin(world: World) -> None:
    world.log("a").extend(A[:6])
    consumer = world.start("a", on_no_offset="error")
    with pytest.raises(NoStartOffsetError):
        world.poll()
    consumer.unassign()
    world.clusters["a"].committed[TOPIC, 0] = (0, "")
    time.sleep(START_AGAIN_S)
    world.poll_nothing()


def test_a_callback_that_fails_once_costs_no_partition(world: World) -> None:
    world.log("a").extend(A[:3])
    consumer = world.start("a", subscribe=False)
    calls: list[int] = []

    def on_assign(_consumer: FailoverConsumer, partitions: list[TopicPartition]) -> None:
        calls.append(len(partitions))
        if len(calls) == 1:
            raise ValueError("the application's own")

    consumer.subscribe([TOPIC], on_assign=on_assign)
    with pytest.raises(ValueError, match="the application's own"):
        world.poll()
    assert world.poll_records(3) == A[:3]
    assert calls == [1, 1]
