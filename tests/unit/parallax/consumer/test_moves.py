"""Moves of a `FailoverConsumer` between clusters in memory: nothing lost, nothing read twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from parallax import EventKind
from parallax.domain.outcome import Outcome
from parallax.errors import UnknownRegionError, UnknownTopicError
from tests.worlds.failover_fakes import TOPIC, A, B, FakeConsumer, Record, World, records


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_a_move_from_a_dead_cluster_loses_nothing_and_repeats_nothing(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1], A[2], B[1], A[3], A[4]])
    world.log("b").extend([B[0], B[1], A[0], A[1], A[2], A[3], A[4], B[2]])
    consumer = world.start("a")
    first = world.poll_records(4)
    world.clusters["a"].dead = True
    world.move("b")
    rest = world.poll_records(4)
    world.poll_nothing()
    assert first == [A[0], B[0], A[1], A[2]]
    assert rest == [B[1], A[3], A[4], B[2]]
    assert consumer.region == "b"
    assert consumer.skipped_records == 3


def test_a_topic_that_is_subscribed_to_and_not_there_yet_holds_up_no_move(world: World) -> None:
    world.log("a").extend(A[:5])
    world.log("b").extend(A)
    consumer = world.start("a", subscribe=False)
    consumer.subscribe([TOPIC, "later"])
    world.poll_records(5)
    world.move("b")
    assert world.poll_records(5) == A[5:]


def test_a_topic_that_the_dead_cluster_alone_had_holds_up_no_move(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.log("a").extend(A[:5])
    world.log("b").extend(A)
    world.clusters["a"].logs["local", 0].extend(B[:3])
    consumer = world.start("a", subscribe=False)
    consumer.subscribe([TOPIC, "local"])
    assert sorted(world.poll_records(8)) == A[:5] + B[:3]
    answers = world.service.get_group_failover_offsets

    def without_local(group: str, **asked: Any) -> Any:
        topics = asked["topics"] or [item.topic for item in asked["positions"]]
        if "local" in topics:
            raise UnknownTopicError("topic 'local' is known neither to aggregate-a nor to aggregate-b")
        world.clusters["a"].committed.pop(("local", 0), None)  # of those that nobody names it leaves them out
        return answers(group, **asked)

    world.poll_until(lambda: ("local", 0) in world.clusters["a"].committed, "all is committed")
    world.clusters["a"].dead = True
    monkeypatch.setattr(world.service, "get_group_failover_offsets", without_local)
    world.move("b")
    assert world.poll_records(5) == A[5:]


def test_each_consumer_takes_its_own_place_again_unless_the_application_names_it(world: World) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:3])
    world.start("a")
    world.poll_records(1)
    world.move("b")
    world.poll_records(1)
    first, second = (inner.config["group.instance.id"] for inner in world.inner)
    assert first == second
    world.start("a")
    assert world.inner[-1].config["group.instance.id"] != first
    world.start("a", {"group.instance.id": "mine"})
    assert world.inner[-1].config["group.instance.id"] == "mine"


@pytest.mark.parametrize("named", [True, False])
def test_a_member_that_moves_gives_its_place_up_and_one_that_ends_keeps_the_applications(
    world: World, *, named: bool
) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:3])
    consumer = world.start("a", {"group.instance.id": "mine"} if named else {})
    world.poll_records(1)
    world.move("b")
    world.poll_records(1)
    world.poll_until(lambda: world.inner[0].closed, "it has left a")
    assert world.inner[0].gave_up_place
    consumer.close()
    assert world.inner[1].closed
    assert world.inner[1].gave_up_place is not named


def test_a_move_does_not_wait_for_the_cluster_that_it_leaves(world: World) -> None:
    world.log("a").extend(A)
    world.log("b").extend(A)
    world.start("a")
    world.poll_records(3)
    world.clusters["a"].dead = True  # closing its consumer blocks from now on
    begun = time.monotonic()
    world.move("b")
    assert world.poll_records(1) == [A[3]]
    assert time.monotonic() - begun < 2
    assert not world.inner[0].closed
    assert world.inner[0].commits_in_vain == 0  # librdkafka's handle would wait for them
    # Its membership comes back with the cluster, and would keep the next to join waiting: it leaves then.
    world.clusters["a"].dead = False
    world.poll_until(lambda: world.inner[0].closed, "the old consumer leaves once its cluster is back")


def test_records_consumed_elsewhere_that_arrive_late_are_skipped(world: World) -> None:
    world.log("a").extend([A[0], B[0], B[1], B[2], A[1]])
    world.log("b").extend([A[0], A[1]])  # the far route has brought nothing of b yet
    world.start("a")
    world.poll_records(5)
    world.move("b")
    world.poll_nothing()
    world.log("b").extend([B[0], A[2], B[1]])
    assert world.poll_records(1) == [A[2]]
    world.log("b").extend([B[2], B[3], A[3]])
    assert world.poll_records(2) == [B[3], A[3]]
    world.poll_nothing()
    assert EventKind.PENDING_STARTED in world.kinds()
    assert world.kinds().count(EventKind.PENDING_CLEARED) == 1


def test_while_something_is_pending_what_is_known_is_delivered(world: World) -> None:
    world.log("a").extend([A[0], B[0], B[1]])
    world.log("b").extend([A[0], A[1], A[2]])
    world.start("a")
    world.poll_records(3)
    world.move("b")
    assert world.poll_records(2) == [A[1], A[2]]  # below complete_to
    world.log("b").append(A[3])
    assert world.poll_records(1) == [A[3]]  # the next update raises complete_to
    assert EventKind.PENDING_CLEARED not in world.kinds()


def test_one_partition_that_waits_does_not_stop_the_others(world: World) -> None:
    world.log("a", 0).extend([A[0], B[0]])
    world.log("a", 1).extend(records("c", 0, 1))
    world.log("b", 0).append(A[0])
    world.log("b", 1).extend(records("c", 0, 1, 2))
    world.start("a")
    world.poll_records(4)
    world.move("b")
    world.service.away = True  # no further skip ranges
    world.log("b", 0).append(A[1])
    world.log("b", 1).extend(records("c", 3, 4))
    assert sorted(world.poll_records(3)) == records("c", 2, 3, 4)
    world.poll_nothing()
    world.service.away = False
    assert world.poll_records(1) == [A[1]]


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_partition_that_waits_goes_on_though_it_was_taken_and_given_back(
    world: World, strategy: str
) -> None:
    world.log("a").extend([A[0], B[0]])
    world.log("b").append(A[0])
    world.start("a", {"partition.assignment.strategy": strategy})
    world.poll_records(2)
    world.move("b")
    world.service.away = True  # no further skip ranges
    world.log("b").append(A[1])
    world.poll_nothing()
    assert world.inner[-1].paused
    world.inner[-1].rebalance("revoke", [(TOPIC, 0)])
    world.inner[-1].rebalance("assign", [(TOPIC, 0)])
    world.poll_nothing()
    world.service.away = False
    assert world.poll_records(1) == [A[1]]


def test_straight_back(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1], B[1], A[2]])
    world.log("b").extend([B[0], B[1], B[2], A[0]])
    world.start("a")
    world.poll_records(3)
    world.move("b")
    assert world.poll_records(2) == [B[1], B[2]]
    world.log("a").extend([B[2], B[3]])
    world.move("a")
    assert world.poll_records(2) == [A[2], B[3]]
    world.poll_nothing()


def test_a_second_move_while_something_is_pending() -> None:
    world = World("a", "b", "c")
    c = records("c", *range(6))
    world.log("a").extend([A[0], B[0], c[0], c[1], B[1]])
    world.log("b").extend([B[0], A[0], B[1], B[2], c[0]])
    world.log("c").extend([c[0], c[1], c[2], A[0]])
    world.start("a")
    world.poll_records(5)
    world.move("b")
    assert world.poll_records(1) == [B[2]]
    world.move("c")
    world.log("c").extend([B[0], B[1], A[1], B[2], B[3]])
    assert world.poll_records(3) == [c[2], A[1], B[3]]
    world.poll_nothing()
    world.close()


def test_a_move_back_before_anything_was_delivered(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1], B[1]])
    world.log("b").extend([A[0]])
    world.start("a")
    world.poll_records(3)
    world.move("b")
    world.move("a")
    assert world.poll_records(1) == [B[1]]
    world.poll_nothing()


def test_a_later_move_replaces_one_that_was_not_made(world: World) -> None:
    world.log("a").extend(A[:4])
    world.log("b").extend(A[:5])
    consumer = world.start("a")
    world.poll_records(2)
    world.service.away = True
    consumer.move_to("b")
    world.poll_nothing()
    assert consumer.moving
    consumer.move_to("a")
    assert world.poll_records(2) == A[2:4]
    assert not consumer.moving
    assert [config["bootstrap.servers"] for config in (inner.config for inner in world.inner)] == ["a"]


def test_skip_ranges_that_did_not_fit_into_the_answer_are_asked_for(world: World) -> None:
    world.service.most_ranges = 2
    world.log("a").extend(A)
    mixed: list[Record | None] = [record for pair in zip(A, B, strict=True) for record in pair]
    world.log("b").extend([B[0], *mixed[:1], *mixed[2:]])
    world.start("a")
    world.poll_records(10)
    world.move("b")
    assert world.poll_records(10) == B
    world.poll_nothing()


def test_control_records_between_are_no_obstacle(world: World) -> None:
    world.log("a").extend([A[0], None, B[0], None])
    world.log("b").extend([B[0], None, A[0], None, A[1], None])
    world.start("a")
    world.poll_records(2)
    world.move("b")
    assert world.poll_records(1) == [A[1]]


def test_moving_with_batches(world: World) -> None:
    world.log("a").extend([A[0], B[0], B[1], A[1]])
    world.log("b").extend([A[0], A[1], A[2], A[3]])
    consumer = world.start("a")
    assert [message.offset() for message in consumer.consume(10, 0.1)] == [0, 1, 2, 3]
    consumer.move_to("b")
    got = []
    deadline = time.monotonic() + 5
    world.log("b").extend([B[0], A[4], B[1], A[5]])
    while len(got) < 4 and time.monotonic() < deadline:
        got += [message.offset() for message in consumer.consume(10, 0.05)]
    assert got == [2, 3, 5, 7]


@pytest.mark.timeout(20)
def test_a_batch_of_nothing_is_there_at_once(world: World) -> None:
    world.log("a").extend(A[:2])
    consumer = world.start("a")
    assert consumer.consume(0) == []
    assert world.poll_records(2) == A[:2]


def test_an_assignment_by_hand_moves_too(world: World) -> None:
    world.log("a", 0).extend([A[0], B[0]])
    world.log("a", 1).extend(records("c", 0, 1))
    world.log("b", 0).extend([B[0], A[0], A[1]])
    consumer = world.start("a", subscribe=False)
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    world.poll_records(2)
    world.move("b")
    assert world.poll_records(1) == [A[1]]
    assert [(item.topic, item.partition) for item in consumer.assignment()] == [(TOPIC, 0)]


@pytest.mark.parametrize("asked", [False, True])
def test_who_has_unsubscribed_reads_nothing_after_a_move(world: World, *, asked: bool) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:5])
    consumer = world.start("a")
    world.poll_records(3)
    consumer.move_to("b")
    if asked:
        world.service.away = True
        world.poll_nothing(2)
    consumer.unsubscribe()
    world.service.away = False
    world.poll_until(lambda: not consumer.moving, "the move to b")
    world.poll_nothing()
    assert (consumer.region, consumer.assignment()) == ("b", [])
    consumer.subscribe([TOPIC])
    assert world.poll_records(2) == A[3:5]


def test_what_is_assigned_by_hand_after_unsubscribing_moves_too(world: World) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:5])
    consumer = world.start("a")
    world.poll_records(3)
    consumer.unsubscribe()
    world.poll_nothing()
    consumer.assign([TopicPartition(TOPIC, 0, 3)])
    world.move("b")
    assert world.poll_records(2) == A[3:5]


def test_a_process_that_starts_in_another_region_moves_first(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1]])
    world.log("b").extend([B[0], A[0], A[1], B[1]])
    world.clusters["a"].committed[TOPIC, 0] = (2, "")
    world.clusters["a"].dead = True
    world.start("b", moved_from="a")
    assert world.poll_records(2) == [A[1], B[1]]
    assert EventKind.MOVED in world.kinds()


def test_events_tell_what_happened_and_how_long_it_took(world: World) -> None:
    world.log("a").extend([A[0], B[0], B[1]])
    world.log("b").extend([A[0], B[0], A[1]])
    world.start("a")
    world.poll_records(3)
    world.move("b")
    world.poll_records(1)
    world.poll()  # events of a step are told before the next one
    by_kind = {event.kind: event for event in world.events}
    moved, resumed = by_kind[EventKind.MOVED], by_kind[EventKind.RESUMED]
    assert (moved.region, moved.from_region) == ("b", "a")
    (partition,) = moved.partitions
    assert (partition.resume_offset, partition.outcome, partition.pending_records) == (2, Outcome.PENDING, 1)
    assert moved.failover_ms is not None
    assert resumed.failover_ms is not None
    assert 0 < moved.failover_ms <= resumed.failover_ms < 5_000
    assert world.kinds().index(EventKind.MOVE_STARTED) < world.kinds().index(EventKind.MOVED)


def test_callbacks_of_subscribe_see_the_move(world: World) -> None:
    world.log("a").extend(A[:2])
    world.log("b").extend(A[:3])
    calls: list[tuple[str, int]] = []
    consumer = world.start("a", subscribe=False)
    consumer.subscribe(
        [TOPIC],
        on_assign=lambda _consumer, partitions: calls.append(("assign", partitions[0].offset)),
        on_revoke=lambda _consumer, partitions: calls.append(("revoke", len(partitions))),
    )
    world.poll_records(2)
    world.move("b")
    world.poll_records(1)
    assert calls == [("assign", 0), ("revoke", 1), ("assign", 2)]


def test_an_unknown_region_is_refused_at_once(world: World) -> None:
    consumer = world.start("a")
    with pytest.raises(UnknownRegionError, match="'z' is not among the clusters given: a, b"):
        consumer.move_to("z")


def test_a_move_waits_until_the_newest_records_are_indexed(world: World) -> None:
    world.log("a").extend(A[:4])
    world.log("b").extend(A[:5])
    answers = iter([0, 0, 4])
    world.service.indexed_to = lambda _region, _key: next(answers)
    world.start("a", index_wait_ms=5_000)
    world.poll_records(4)
    world.move("b")
    assert next(answers, None) is None
    assert EventKind.INDEX_INCOMPLETE not in world.kinds()


def test_a_move_says_so_if_the_newest_records_are_never_indexed(world: World) -> None:
    world.log("a").extend(A[:4])
    world.log("b").extend(A[:5])
    world.service.indexed_to = lambda _region, _key: 0
    world.start("a", index_wait_ms=100)
    world.poll_records(4)
    begun = time.monotonic()
    world.move("b")
    assert 0.05 < time.monotonic() - begun < 2
    assert EventKind.INDEX_INCOMPLETE in world.kinds()


def test_positions_and_moves_are_reported(world: World) -> None:
    world.log("a").extend([A[0], B[0]])
    world.log("b").extend([A[0], B[0], A[1]])
    world.start("a")
    world.poll_records(2)
    world.poll_until(
        lambda: any(
            report.at.region == "a" and report.positions and report.positions[0].next_offset == 2
            for report in world.service.reports
        ),
        "the delivered position is reported",
    )
    world.move("b")
    world.poll_until(lambda: ("g", "b", (TOPIC, 0)) in world.service.progress, "the move is reported")
    assert world.service.progress["g", "b", (TOPIC, 0)] == (2, {"a": 1, "b": 1})


def with_another_member(world: World) -> None:
    """This consumer has moved to b with partition 0, and another member with partition 1."""
    for region in ("a", "b"):
        world.log(region, 0).extend(A[:3])
        world.log(region, 1).extend(B[:3])
    consumer = world.start("a")
    world.poll_records(6)
    world.coordinator_answers = False
    consumer.move_to("b")
    world.poll_until(lambda: len(world.inner) == 2, "it has left a")
    world.inner[1].assign_only([(TOPIC, 0)])
    world.inner[1].joins = True
    world.poll_until(lambda: not consumer.moving, "the move to b")
    world.log("b", 1).extend(B[3:6])


@pytest.mark.parametrize("before", [None, (1, "")])
def test_a_partition_that_another_member_has_consumed_since_the_move_goes_on_from_its_commit(
    world: World, before: tuple[int, str] | None
) -> None:
    if before is not None:
        world.clusters["b"].committed[TOPIC, 1] = before
    with_another_member(world)
    world.clusters["b"].committed[TOPIC, 1] = (5, "")
    world.inner[-1].rebalance("revoke", [(TOPIC, 0)])
    world.inner[-1].rebalance("assign", [(TOPIC, 0), (TOPIC, 1)])
    assert world.poll_records(1) == [B[5]]
    world.poll_nothing()
    assert world.clusters["b"].committed[TOPIC, 1][0] == 6


@pytest.mark.parametrize("before", [None, (1, "")])
def test_a_partition_that_nobody_has_consumed_since_the_move_goes_on_from_the_answer(
    world: World, before: tuple[int, str] | None
) -> None:
    if before is not None:
        world.clusters["b"].committed[TOPIC, 1] = before
    with_another_member(world)
    world.inner[-1].rebalance("revoke", [(TOPIC, 0)])
    world.inner[-1].rebalance("assign", [(TOPIC, 0), (TOPIC, 1)])
    assert world.poll_records(3) == B[3:6]
    world.poll_nothing()


def test_an_answer_is_not_lost_to_a_coordinator_that_is_silent_as_others_commits_are_noted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.clusters["b"].committed[TOPIC, 1] = (1, "")
    reads, silent = FakeConsumer.committed, [True]

    def committed(inner: FakeConsumer, partitions: list[Any], timeout: float) -> Any:
        at_b = inner.cluster is world.clusters["b"]
        if silent and at_b and any(item.partition == 1 for item in partitions):
            silent.clear()
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return reads(inner, partitions, timeout)

    monkeypatch.setattr(FakeConsumer, "committed", committed)
    with_another_member(world)
    assert not silent
    world.inner[-1].rebalance("revoke", [(TOPIC, 0)])
    world.inner[-1].rebalance("assign", [(TOPIC, 0), (TOPIC, 1)])
    assert world.poll_records(3) == B[3:6]
    world.poll_nothing()


def test_a_later_move_tells_nothing_of_partitions_that_another_member_has(world: World) -> None:
    with_another_member(world)
    world.clusters["b"].committed[TOPIC, 1] = (5, "")
    world.coordinator_answers = True
    world.move("a")
    assert world.service.asked[-1] == ("b", "a", {(TOPIC, 0): 3})


def test_nothing_is_said_in_silence_of_a_partition_that_was_not_moved_along(world: World) -> None:
    world.log("a", 0).extend(A[:2])
    world.log("b", 0).extend(A[:3])
    world.log("b", 1).extend(records("c", 0))  # the topic has more partitions here
    world.start("a")
    world.poll_records(2)
    world.move("b")
    assert sorted(world.poll_records(2)) == [A[2], ("c", 0)]
    assert [event.partitions[0].partition for event in world.events if event.kind is EventKind.NO_OFFSET] == [
        0,
        1,
    ]
