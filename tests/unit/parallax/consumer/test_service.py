"""What a `FailoverConsumer` does while no offset service answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from parallax import (
    ConsumerConfigError,
    EventKind,
    NoStartOffsetError,
    OffsetServiceAwayError,
)
from parallax.consumer import skip_watcher as watch
from parallax.errors import UnknownRegionError
from parallax.testing import MemorySkips
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.failover_fakes import TOPIC, Record, World

A: list[Record] = [("a", sequence) for sequence in range(10)]
B: list[Record] = [("b", sequence) for sequence in range(10)]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_a_move_waits_for_a_service(world: World) -> None:
    world.log("a").extend([A[0], B[0]])
    world.log("b").extend([B[0], A[0], A[1]])
    consumer = world.start("a")
    world.poll_records(2)
    world.service.away = True
    consumer.move_to("b")
    world.poll_nothing()
    assert consumer.moving
    assert EventKind.SERVICE_AWAY in world.kinds()
    world.service.away = False
    assert world.poll_records(1) == [A[1]]
    world.poll()
    assert EventKind.SERVICE_BACK in world.kinds()


def test_a_move_can_go_by_committed_metadata(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1]])
    world.log("b").extend([B[0], A[0], A[1], A[2]])
    world.clusters["b"].committed[TOPIC, 0] = (1, "")
    world.start("a", on_service_away="metadata")
    world.poll_records(3)
    world.service.away = True
    world.move("b")
    assert world.poll_records(3) == [A[0], A[1], A[2]]  # read twice, as the policy says; none is lost
    world.poll()
    assert EventKind.SERVICE_AWAY in world.kinds()


def test_a_move_without_service_and_commit_does_not_guess(world: World) -> None:
    world.log("a").extend([A[0], B[0]])
    world.log("b").extend([A[0]])
    consumer = world.start("a", on_service_away="metadata")
    world.poll_records(2)
    world.service.away = True
    consumer.move_to("b")
    with pytest.raises(NoStartOffsetError, match="no commit in region 'b'"):
        world.poll_until(lambda: False, "never")


def test_a_move_can_be_called_off(world: World) -> None:
    world.log("a").extend(A[:2])
    world.log("b").extend(A[:2])
    consumer = world.start("a", on_service_away="stop")
    world.poll_records(1)
    world.service.away = True
    consumer.move_to("b")
    with pytest.raises(OffsetServiceAwayError, match="the move to region 'b' is off"):
        world.poll_until(lambda: False, "never")
    assert consumer.region == "a"
    assert not consumer.moving
    assert EventKind.MOVE_FAILED in world.kinds()
    assert world.poll_records(1) == [A[1]]


def pending_without_service(world: World, policy: str) -> None:
    """A consumer that has moved, holds a record, and has lost the service."""
    world.log("a").extend([A[0], B[0]])
    world.log("b").append(A[0])
    world.start("a", on_service_away=policy)
    world.poll_records(2)
    world.move("b")
    world.service.away = True
    world.log("b").extend([A[1], B[0], A[2]])


def test_held_records_wait_for_a_service(world: World) -> None:
    pending_without_service(world, "wait")
    world.poll_until(lambda: EventKind.SERVICE_AWAY in world.kinds(), "the application is told")
    world.poll_nothing()
    world.service.away = False
    assert world.poll_records(2) == [A[1], A[2]]


def test_held_records_can_be_delivered_without_knowing(world: World) -> None:
    pending_without_service(world, "metadata")
    assert world.poll_records(3) == [A[1], B[0], A[2]]
    world.poll()
    assert EventKind.SKIPPING_ABANDONED in world.kinds()


def test_held_records_can_stop_the_consumer(world: World) -> None:
    pending_without_service(world, "stop")
    with pytest.raises(OffsetServiceAwayError, match="still to arrive"):
        world.poll_until(lambda: False, "never")


def test_a_move_that_could_not_be_reported_is_reported_later(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1]])
    world.log("b").extend([B[0], A[0], A[1], A[2]])
    world.service.refuses_reports = True
    world.start("a")
    world.poll_records(3)
    world.move("b")
    assert world.poll_records(1) == [A[2]]
    assert world.service.progress == {}
    world.service.refuses_reports = False
    world.poll_until(lambda: bool(world.service.progress), "the move is reported")
    assert world.service.progress == {("g", "b", (TOPIC, 0)): (3, {"a": 2, "b": 1})}


def test_an_unreported_move_is_told_before_the_next_one_is_asked_for(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1]])
    world.log("b").extend([A[0], B[0]])
    world.service.refuses_reports = True
    world.start("a")
    world.poll_records(3)
    world.move("b")
    world.poll_nothing()
    world.service.refuses_reports = False
    world.move("a")
    world.log("a").append(A[2])
    assert world.poll_records(1) == [
        A[2]
    ]  # A[1] had not arrived in b: only the report tells that it is consumed


def test_a_topic_created_anew_ends_the_waiting_and_says_so(world: World) -> None:
    world.log("a").extend([A[0], B[0]])
    world.log("b").append(A[0])
    world.start("a")
    world.poll_records(2)
    world.service.topic_ids["b"] = "another"
    world.move("b")
    world.log("b").append(A[1])
    assert world.poll_records(1) == [A[1]]
    abandoned = [event for event in world.events if event.kind is EventKind.SKIPPING_ABANDONED]
    assert [event.message for event in abandoned] == ["the topic was created anew"]


def test_a_service_that_does_not_know_the_region_yet_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_AGAIN_AFTER_S", 0.01)
    watch_skips = world.service.watch_skips
    asked: list[str] = []

    def refused() -> Iterator[pb.SkipUpdate]:
        yield from ()
        raise UnknownRegionError("region 'a' is not configured")

    def lags(topic: str, *arguments: Any, **named: Any) -> MemorySkips:
        asked.append(topic)
        if len(asked) == 1:
            return MemorySkips(refused(), threading.Event())
        return watch_skips(topic, *arguments, **named)

    monkeypatch.setattr(world.service, "watch_skips", lags)
    world.log("a").extend(A[:3])
    world.log("b").append(A[0])
    world.start("a")
    world.poll_records(3)
    world.move("b")
    world.poll_until(lambda: len(asked) > 1, "it is asked again")
    world.log("b").extend(A[1:4])
    assert world.poll_records(1) == [A[3]]
    assert EventKind.SKIPPING_ABANDONED not in world.kinds()


def test_it_stays_where_no_consumer_can_be_made_for_the_destination(world: World) -> None:
    world.log("a").extend(A[:5])
    world.log("b").extend(A[:6])
    consumer = world.start("a")
    world.poll_records(5)
    world.invalid.add("b")
    with pytest.raises(ConsumerConfigError, match=r"region 'b': .*ssl\.ca\.location failed"):
        world.move("b")
    assert EventKind.MOVE_FAILED in world.kinds()
    assert (consumer.region, consumer.moving) == ("a", False)
    world.log("a").append(B[0])
    assert world.poll_records(1) == [B[0]]
    world.invalid.clear()
    world.move("b")
    assert world.poll_records(1) == [A[5]]
