"""`FailoverConsumer` whose callbacks fail: the error is told, and costs no record and no move."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from parallax.consumer.errors import NoStartOffsetError
from tests.worlds.failover_fakes import TOPIC, A, B, FakeConsumer, World, record_of

COOPERATIVE = {"partition.assignment.strategy": "cooperative-sticky"}


@pytest.fixture
def world() -> Iterator[World]:
    world = World("a", "b")
    yield world
    world.close()


class Failing:
    """A callback that fails when it is told to."""

    def __init__(self) -> None:
        self.armed = False

    def __call__(self, *_: object) -> None:
        if self.armed:
            self.armed = False
            raise ValueError("the application's own")


@pytest.mark.parametrize("kind", ["assign", "revoke", "lost"])
def test_an_error_of_a_callback_costs_no_record(world: World, kind: str) -> None:
    world.log("a").extend(A[:3])
    world.log("a", 1).extend(B[:1])
    failing = Failing()
    consumer = world.start("a", COOPERATIVE, subscribe=False)
    consumer.subscribe([TOPIC], on_assign=failing, on_revoke=failing, on_lost=failing)
    world.poll_records(4)
    failing.armed = True
    world.log("a").extend(A[3:6])
    world.inner[0].rebalance_behind_records(kind, [(TOPIC, 2 if kind == "assign" else 1)])
    assert [record_of(message) for message in consumer.consume(500, 0.05)] == A[3:6]
    with pytest.raises(ValueError, match="the application's own"):
        consumer.consume(500, 0.05)
    world.log("a").append(A[6])
    assert [record_of(message) for message in consumer.consume(500, 0.05)] == A[6:7]


def test_a_partition_without_a_start_costs_no_record_of_another(world: World) -> None:
    world.log("a").extend(A[:3])
    world.clusters["a"].committed[TOPIC, 0] = (0, "")
    consumer = world.start("a", COOPERATIVE, on_no_offset="error")
    world.poll_records(3)
    world.log("a").extend(A[3:6])
    world.inner[0].rebalance_behind_records("assign", [(TOPIC, 1)])
    assert [record_of(message) for message in consumer.consume(500, 0.05)] == A[3:6]
    with pytest.raises(NoStartOffsetError):
        consumer.consume(500, 0.05)


@pytest.mark.parametrize("name", ["on_commit", "error_cb", "stats_cb", "throttle_cb"])
def test_other_callbacks_raise_outside_of_librdkafka(world: World, name: str) -> None:
    failing = Failing()
    consumer = world.start("a", {name: failing})
    consumer.poll(0.01)
    failing.armed = True
    arguments: dict[str, tuple[object, ...]] = {"on_commit": (None, [])}
    world.inner[0].config[name](*arguments.get(name, (KafkaError(KafkaError._TRANSPORT),)))
    with pytest.raises(ValueError, match="the application's own"):
        consumer.poll(0.01)


def test_held_records_that_are_let_go_are_returned_though_the_cluster_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.log("a").extend(A[:5])
    consumer = world.start("a")
    world.poll_records(5)
    world.log("b").extend(A[:2])
    world.move("b")
    world.poll_nothing()
    world.service.away = True
    world.log("b").extend(B[:3])
    world.poll_nothing()
    delivery = consumer._engine.site.delivery
    assert len(delivery.partitions[TOPIC, 0].held) > 0
    delivery.learn((TOPIC, 0), (), None)

    def fails(_self: FakeConsumer, _num_messages: int, _timeout: float) -> None:
        raise ValueError("the handle is closed")

    with monkeypatch.context() as patch:
        patch.setattr(FakeConsumer, "consume", fails)
        found = [record_of(message) for message in consumer.consume(500, 0.05)]
    found += [record_of(message) for message in consumer.consume(500, 0.05)]
    assert found == B[:3]


def test_a_move_is_made_though_the_callback_that_hears_of_it_fails(world: World) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:5])
    failing = Failing()
    consumer = world.start("a", subscribe=False)
    consumer.subscribe([TOPIC], on_lost=failing)
    world.poll_records(3)
    failing.armed = True
    with pytest.raises(ValueError, match="the application's own"):
        world.move("b")
    world.poll_until(lambda: not consumer.moving, "the move")
    assert consumer.region == "b"
    assert world.poll_records(2) == A[3:5]


def test_closing_ends_everything_though_on_revoke_fails(world: World) -> None:
    world.log("a").extend(A[:3])
    failing = Failing()
    consumer = world.start("a", {"auto.commit.interval.ms": 60_000}, subscribe=False)
    consumer.subscribe([TOPIC], on_revoke=failing)
    world.poll_records(3)
    failing.armed = True
    with pytest.raises(ValueError, match="the application's own"):
        consumer.close()
    assert world.inner[0].closed
    assert world.clusters["a"].committed[TOPIC, 0][0] == 3
    consumer.close()
