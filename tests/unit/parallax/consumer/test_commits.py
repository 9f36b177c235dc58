"""Commits of a `FailoverConsumer`: what they carry, what a restarted process makes of it, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from parallax import (
    ConsumerClosedError,
    ConsumerConfigError,
    EventKind,
    FailoverConsumer,
    NoStartOffsetError,
    StaleMessageError,
)
from parallax.domain.metadata import decode
from parallax.errors import UnknownRegionError
from tests.worlds.failover_fakes import TOPIC, Record, World

A: list[Record] = [("a", sequence) for sequence in range(10)]
B: list[Record] = [("b", sequence) for sequence in range(10)]
PARTITION = TopicPartition(TOPIC, 0)
MANUAL = {"enable.auto.commit": False}


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def committed(world: World, region: str) -> tuple[int, str]:
    return world.clusters[region].committed[TOPIC, 0]


def test_a_restarted_process_skips_by_the_commit_alone(world: World) -> None:
    world.log("a").extend([A[0], B[0], B[1], A[1]])
    world.log("b").extend([A[0], A[1], A[2], B[0], B[1], B[2]])
    world.start("a")
    world.poll_records(4)
    world.move("b")
    assert world.poll_records(1) == [A[2]]
    world.close()
    offset, metadata = committed(world, "b")
    assert offset == 3
    assert [(item.start, item.end) for item in decode(metadata).skips] == [(3, 5)]
    world.service.away = True
    world.start("b")
    assert world.poll_records(1) == [B[2]]
    world.poll()
    assert EventKind.RESTORED in world.kinds()


def test_a_restarted_process_asks_for_what_was_pending(world: World) -> None:
    world.log("a").extend([A[0], B[0], B[1], B[2]])
    world.log("b").extend([A[0], A[1]])
    world.start("a")
    world.poll_records(4)
    world.move("b")
    assert world.poll_records(1) == [A[1]]
    world.close()
    assert decode(committed(world, "b")[1]).complete_to == 2
    world.start("b")
    world.log("b").extend([B[0], A[2], B[1], B[2], B[3]])
    assert world.poll_records(2) == [A[2], B[3]]
    world.poll_nothing()


def test_commits_carry_nothing_once_nothing_is_left_to_skip(world: World) -> None:
    world.log("a").extend([A[0], B[0]])
    world.log("b").extend([B[0], A[0], A[1]])
    world.start("a")
    world.poll_records(2)
    world.move("b")
    world.poll_records(1)
    world.poll_until(lambda: committed(world, "b")[0] == 3, "the last record is committed")
    assert committed(world, "b") == (3, "")


def test_a_move_replaces_an_old_commit_at_its_destination(world: World) -> None:
    world.clusters["b"].committed[TOPIC, 0] = (1, "")
    world.log("a").extend(A[:4])
    world.log("b").extend(A[:5])
    world.start("a")
    world.poll_records(4)
    world.move("b")
    assert committed(world, "b")[0] == 4


def test_a_damaged_commit_is_told_and_loses_nothing(world: World) -> None:
    world.clusters["b"].committed[TOPIC, 0] = (1, "plx1.AAAA")
    world.log("b").extend(A[:3])
    world.start("b")
    assert world.poll_records(2) == A[1:3]
    assert EventKind.METADATA_UNREADABLE in world.kinds()


def test_an_application_that_commits_by_itself_is_not_run_ahead_of(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1], A[2]])
    world.log("b").extend([B[0], A[0], A[1], A[2], A[3]])
    consumer = world.start("a", MANUAL)
    world.poll()
    first = consumer.poll(1)
    assert first is not None
    consumer.commit(message=first, asynchronous=False)  # A[0] and B[0] are done
    world.poll()
    world.move("b")  # A[1] was delivered, not committed
    world.poll_until(lambda: A[3] in world.delivered, "the live process goes on where it was")
    assert world.delivered.count(A[1]) == 1
    offset, metadata = committed(world, "b")
    assert (offset, metadata) == (2, "")
    world.close()
    world.delivered.clear()
    world.start("b", MANUAL)
    world.poll_until(lambda: len(world.delivered) == 3, "a restarted process reads what was not committed")
    assert world.delivered == A[1:4]


def test_moving_from_what_was_committed(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1], A[2]])
    world.log("b").extend([B[0], A[0], A[1], A[2], A[3]])
    consumer = world.start("a", MANUAL, move_from="committed")
    world.poll_records(2)
    consumer.commit()
    world.poll_records(2)
    world.move("b")
    assert world.poll_records(3) == [A[1], A[2], A[3]]


def test_commit_without_arguments_needs_something_to_commit(world: World) -> None:
    world.log("a").extend(A[:2])
    consumer = world.start("a", MANUAL)
    world.poll_records(2)
    assert [item.offset for item in consumer.commit(asynchronous=False) or ()] == [2]
    with pytest.raises(KafkaException, match="_NO_OFFSET"):
        consumer.commit(asynchronous=False)


def test_offsets_that_are_none_are_no_progress(world: World) -> None:
    world.log("a").extend(A[:4])
    world.log("b").extend(A[:6])
    consumer = world.start("a", MANUAL | {"enable.auto.offset.store": False})
    world.poll_records(4)
    consumer.store_offsets(offsets=[TopicPartition(TOPIC, 0, 3)])
    consumer.store_offsets(offsets=consumer.assignment())
    consumer.commit(asynchronous=False)
    assert committed(world, "a") == (3, "")
    consumer.commit(offsets=consumer.assignment())
    consumer.move_to("b")
    assert world.poll_records(2) == A[4:6]
    assert committed(world, "b")[0] == 3


def test_only_what_was_stored_is_committed(world: World) -> None:
    world.log("a").extend(A[:3])
    consumer = world.start("a", {**MANUAL, "enable.auto.offset.store": "false"})
    messages = consumer.consume(3, 1)
    consumer.store_offsets(message=messages[1])
    assert [item.offset for item in consumer.commit(asynchronous=False) or ()] == [2]
    with pytest.raises(ConsumerConfigError, match="store_offsets needs"):
        consumer.store_offsets()


def test_a_message_from_before_the_move_is_not_committed(world: World) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend([*B[:3], *A[:4]])
    consumer = world.start("a", MANUAL)
    old = consumer.poll(1)
    world.poll_records(2)
    world.move("b")
    world.poll_records(3)
    assert old is not None
    with pytest.raises(StaleMessageError, match="was delivered before the last move"):
        consumer.commit(message=old)
    with pytest.raises(StaleMessageError, match="was delivered before the last move"):
        consumer.store_offsets(message=old)
    with pytest.raises(StaleMessageError, match="from 0 to 3 have been delivered in region 'b'"):
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7)])


def test_offsets_of_partitions_not_assigned_are_refused_after_a_move(world: World) -> None:
    world.log("a").extend(A[:8])
    world.log("b").extend([*B[:3], *A[:8]])
    consumer = world.start("a", {**MANUAL, "enable.auto.offset.store": False})
    world.poll_records(8)
    consumer.commit(offsets=[TopicPartition(TOPIC, 5, 1)])  # of this cluster all the same
    world.coordinator_answers = False
    consumer.move_to("b")
    world.poll_until(lambda: len(world.inner) == 2, "the move")
    before = dict(world.clusters["b"].committed)
    for offsets in ([TopicPartition(TOPIC, 0, 8)], [TopicPartition(TOPIC, 5, 99)]):
        with pytest.raises(StaleMessageError, match="is not assigned here in region 'b'"):
            consumer.commit(offsets=offsets)
        with pytest.raises(StaleMessageError, match="is not assigned here in region 'b'"):
            consumer.store_offsets(offsets=offsets)
    assert world.clusters["b"].committed == before
    world.inner[1].joins = True
    message = None
    while message is None:
        message = consumer.poll(0.01)
    world.inner[1].rebalance("lost", [(TOPIC, 0)])
    consumer.poll(0.01)
    consumer.store_offsets(message=message)
    consumer.commit(message=message)  # it was delivered here
    assert world.clusters["b"].committed[TOPIC, 0][0] == 1


def test_a_commit_that_was_refused_is_sent_again(world: World) -> None:
    world.log("a").extend(A[:3])
    world.clusters["a"].refusal = KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    world.start("a")
    world.poll_records(3)
    world.poll_until(lambda: len(world.inner[0].commits) > 1, "a commit in vain")
    world.clusters["a"].refusal = None
    world.poll_until(lambda: world.clusters["a"].committed.get((TOPIC, 0)) == (3, ""), "the commit stands")


def test_a_commit_of_the_applications_own_that_was_refused_is_repeated_by_the_next(world: World) -> None:
    world.log("a").extend(A[:3])
    world.clusters["a"].refusal = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)
    consumer = world.start("a", MANUAL)
    world.poll_records(3)
    consumer.commit()
    world.clusters["a"].refusal = None
    world.poll_nothing()
    consumer.commit(asynchronous=False)
    assert committed(world, "a") == (3, "")
    with pytest.raises(KafkaException, match="_NO_OFFSET"):
        consumer.commit(asynchronous=False)


def test_a_commit_that_was_refused_while_partitions_are_revoked_is_sent_again(world: World) -> None:
    world.log("a").extend(A[:4])
    world.clusters["a"].committed[TOPIC, 0] = (0, "")
    consumer = world.start("a", {"auto.commit.interval.ms": 60_000}, subscribe=False)

    def revoked(_consumer: object, _partitions: object) -> None:
        world.clusters["a"].refusal = None

    consumer.subscribe([TOPIC], on_revoke=revoked)
    world.poll_records(4)
    world.clusters["a"].refusal = KafkaError(KafkaError.REBALANCE_IN_PROGRESS)
    world.inner[-1].rebalance("revoke", [(TOPIC, 0)])
    world.inner[-1].rebalance("assign", [(TOPIC, 0)])
    world.poll_nothing()
    assert committed(world, "a") == (4, "")


def test_a_cluster_that_dies_while_closing_is_not_waited_for(world: World) -> None:
    world.log("a").extend(A[:3])
    consumer = world.start("a", close_timeout_ms=50)
    world.poll_records(1)
    world.clusters["a"].dead = True
    consumer.close()
    assert not world.inner[0].closed
    with pytest.raises(ConsumerClosedError):
        consumer.poll(0)


def test_the_applications_own_client_is_left_open(world: World) -> None:
    world.start("a").close()
    assert not world.service.closed


def test_a_client_that_was_made_here_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parallax.consumer.consumer.OffsetClient", lambda _targets, **_: world.service)
    consumer = FailoverConsumer(
        {"group.id": "g"},
        clusters={"a": "a"},
        region="a",
        services=["a:1"],
        consumer_factory=world._make,
    )
    consumer.close()
    assert world.service.closed


def test_seeking_back_to_before_the_move_reads_everything_again(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1]])
    world.log("b").extend([A[0], A[1], B[0], A[2], B[1]])
    consumer = world.start("a")
    world.poll_records(3)
    world.move("b")
    world.poll_records(2)
    consumer.seek(TopicPartition(TOPIC, 0, 1))
    assert world.poll_records(4) == [A[1], B[0], A[2], B[1]]
    assert EventKind.REWOUND in world.kinds()


def test_seeking_above_the_resume_offset_still_skips(world: World) -> None:
    world.log("a").extend([A[0], B[0], B[1]])
    world.log("b").extend([A[0], A[1], B[0], A[2], B[1], B[2]])
    consumer = world.start("a")
    world.poll_records(3)
    world.move("b")
    world.poll_records(3)
    consumer.seek(TopicPartition(TOPIC, 0, 2))
    assert world.poll_records(2) == [A[2], B[2]]
    assert consumer.position([PARTITION])[0].offset == 6


def test_pause_and_resume_while_something_is_held(world: World) -> None:
    world.log("a").extend([A[0], B[0]])
    world.log("b").extend([A[0]])
    consumer = world.start("a")
    world.poll_records(2)
    world.service.away = False
    world.move("b")
    world.log("b").append(A[1])
    world.poll_records(1)
    consumer.pause([PARTITION])
    world.log("b").extend([B[0], A[2]])
    world.poll_nothing()
    consumer.resume([PARTITION])
    assert world.poll_records(1) == [A[2]]


def test_a_seek_drops_what_was_held(world: World) -> None:
    world.log("a").extend([A[0], B[0]])
    world.log("b").extend([A[0]])
    consumer = world.start("a")
    world.poll_records(2)
    world.move("b")
    world.service.away = True
    world.log("b").extend([A[1], A[2], B[0]])
    world.poll_nothing()
    consumer.seek(TopicPartition(TOPIC, 0, 2))
    world.service.away = False
    assert world.poll_records(1) == [A[2]]
    world.poll_nothing()


def test_a_rebalance_goes_on_from_the_commit(world: World) -> None:
    world.log("a").extend([A[0], B[0], B[1]])
    world.log("b").extend([A[0], A[1], B[0], B[1], A[2]])
    world.start("a")
    world.poll_records(3)
    world.move("b")
    assert world.poll_records(1) == [A[1]]
    world.inner[-1].rebalance("revoke", [(TOPIC, 0)])
    world.inner[-1].rebalance("assign", [(TOPIC, 0)])
    assert world.poll_records(1) == [A[2]]


def test_cooperative_rebalances_keep_the_other_partitions(world: World) -> None:
    world.log("a", 0).extend(A[:2])
    world.log("a", 1).extend(B[:2])
    world.start("a", {"partition.assignment.strategy": "cooperative-sticky"})
    world.poll_records(4)
    world.inner[-1].rebalance("revoke", [(TOPIC, 0)])
    world.log("a", 1).append(B[2])
    assert world.poll_records(1) == [B[2]]
    world.inner[-1].rebalance("assign", [(TOPIC, 0)])
    world.log("a", 0).append(A[2])
    assert world.poll_records(1) == [A[2]]


@pytest.mark.parametrize(("policy", "expected"), [("earliest", A[0]), ("latest", A[3])])
def test_a_partition_never_committed_on_starts_by_the_policy(
    world: World, policy: Any, expected: Record
) -> None:
    world.log("a").extend(A[:3])
    world.start("a", on_no_offset=policy)
    world.poll()
    world.log("a").append(A[3])
    assert world.poll_records(1) == [expected]
    world.poll()
    assert EventKind.NO_OFFSET in world.kinds()


def test_a_partition_never_committed_on_can_be_an_error(world: World) -> None:
    world.log("a").extend(A[:3])
    world.start("a", on_no_offset="error")
    with pytest.raises(NoStartOffsetError, match="trips-0: group 'g' has no commit in region 'a'"):
        world.poll()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"group.id": ""}, "group.id is missing"),
        ({"bootstrap.servers": "x:1"}, "belongs into clusters"),
        ({"isolation.level": "read_uncommitted"}, "read_committed alone"),
        ({"auto.offset.reset": "latest"}, "on_no_offset"),
        ({"enable.auto.commit": "perhaps"}, "neither true nor false"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(
    world: World, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConsumerConfigError, match=message):
        world.start("a", config)


@pytest.mark.parametrize(
    "arguments",
    [
        {"on_no_offset": "smallest"},
        {"on_service_away": "panic"},
        {"move_from": "x"},
        {"service_timeout_ms": 0},
    ],
)
def test_arguments_that_make_no_sense_are_refused(world: World, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConsumerConfigError, match=next(iter(arguments))):
        world.start("a", **arguments)


def test_regions_without_a_cluster_are_refused(world: World) -> None:
    with pytest.raises(UnknownRegionError, match="'z'"):
        world.start("z")
    with pytest.raises(UnknownRegionError, match="'z'"):
        world.start("a", moved_from="z")


def test_the_inner_consumer_never_jumps_or_commits_by_itself(world: World) -> None:
    world.start("a", {"fetch.min.bytes": 7})
    config = world.inner[0].config
    assert config["isolation.level"] == "read_committed"
    assert config["auto.offset.reset"] == "error"
    assert config["enable.auto.commit"] is False
    assert config["enable.auto.offset.store"] is False
    assert config["fetch.min.bytes"] == 7
