"""A `FailoverConsumer` that is awaited: the same records, none lost to a task that was cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from parallax import (
    AIOFailoverConsumer,
    ConsumerClosedError,
    FailoverConsumer,
    NoStartOffsetError,
    OffsetServiceAwayError,
)
from tests.worlds.failover_fakes import TOPIC, A, B, FakeProducer, Record, World, record_of

WITHIN_S = 30.0


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, WITHIN_S))


def test_settings_instead_of_a_consumer_are_refused_with_the_right_way() -> None:
    settings: Any = {"group.id": "g"}
    with pytest.raises(TypeError, match=r"not dict: AIOFailoverConsumer\(FailoverConsumer"):
        AIOFailoverConsumer(settings)


async def take(consumer: AIOFailoverConsumer, count: int) -> list[Record]:
    found: list[Record] = []
    while len(found) < count:
        found += [record_of(message) for message in await consumer.consume(100, 0.5)]
    return found


def test_it_consumes_moves_and_skips(world: World) -> None:
    world.log("a").extend([A[0], B[0], A[1]])
    world.log("b").extend([B[0], B[1], A[0], A[1], A[2]])

    async def scenario() -> None:
        async with AIOFailoverConsumer(world.start("a", subscribe=False)) as consumer:
            await consumer.subscribe([TOPIC])
            assert await take(consumer, 3) == [A[0], B[0], A[1]]
            consumer.move_to("b")
            assert await take(consumer, 2) == [B[1], A[2]]
            assert (consumer.region, consumer.moving, consumer.skipped_records) == ("b", False, 2)
            assert [item.offset for item in await consumer.position([TopicPartition(TOPIC, 0)])] == [5]
            assert await consumer.poll(0.05) is None
        with pytest.raises(ConsumerClosedError):
            await consumer.poll(0)
        await consumer.close()

    run(scenario())


def test_a_batch_of_nothing_is_there_at_once(world: World) -> None:
    async def scenario() -> None:
        async with AIOFailoverConsumer(world.start("a")) as consumer:
            assert await consumer.consume(0) == []

    run(scenario())


def test_the_loop_goes_on_while_nothing_comes(world: World) -> None:
    async def scenario() -> None:
        consumer = AIOFailoverConsumer(world.start("a", subscribe=False))
        await consumer.subscribe([TOPIC])
        polling = asyncio.create_task(consumer.poll())
        for _ in range(20):
            await asyncio.sleep(0.01)
        assert not polling.done()
        world.log("a").append(A[0])
        world.inner[0].rebalance("assign", [(TOPIC, 0)])
        assert await consumer.assignment() in ([], [TopicPartition(TOPIC, 0)])  # between two of its slices
        message = await polling
        assert message is not None
        assert record_of(message) == A[0]
        await consumer.close()

    run(scenario())


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.003, 0.01])
def test_what_a_cancelled_call_had_fetched_comes_with_the_next(world: World, delay_s: float) -> None:
    world.log("a").extend(A)

    async def scenario() -> None:
        consumer = AIOFailoverConsumer(world.start("a", subscribe=False))
        await consumer.subscribe([TOPIC])
        found: list[Record] = []
        for _ in range(60):
            polling = asyncio.create_task(consumer.consume(3, 1.0))
            await asyncio.sleep(delay_s)
            polling.cancel()
            try:
                found += [record_of(message) for message in await polling]
            except asyncio.CancelledError:
                continue
        found += await take(consumer, len(A) - len(found)) if len(found) < len(A) else []
        assert found == A
        await consumer.close()

    run(scenario())


@pytest.mark.parametrize("asked", [True, False])
def test_what_nobody_has_seen_counts_as_not_delivered(world: World, *, asked: bool) -> None:
    world.log("a").extend(A[:6])

    async def scenario() -> None:
        consumer = AIOFailoverConsumer(world.start("a", subscribe=False))
        await consumer.subscribe([TOPIC])
        assert await take(consumer, 6) == A[:6]
        world.log("a").extend(A[6:9])
        fetched = asyncio.Event()
        consume = FailoverConsumer.consume
        loop = asyncio.get_running_loop()

        def and_tell(num_messages: int, timeout: float) -> list[Any]:
            found = consume(world.consumer, num_messages, timeout)  # type: ignore[arg-type] # it was started
            loop.call_soon_threadsafe(fetched.set)
            return found

        world.consumer.consume = and_tell  # type: ignore[union-attr, method-assign, assignment] # tells when
        polling = asyncio.create_task(consumer.consume(3, 1.0))
        await fetched.wait()
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        if asked:
            assert [item.offset for item in await consumer.position([TopicPartition(TOPIC, 0)])] == [6]
            assert await take(consumer, 3) == A[6:9]
        await consumer.close()
        assert world.clusters["a"].committed[TOPIC, 0][0] == (9 if asked else 6)

    run(scenario())


def test_errors_reach_the_task(world: World) -> None:
    world.log("a").extend(A[:3])

    async def scenario() -> None:
        consumer = AIOFailoverConsumer(world.start("a", subscribe=False, on_no_offset="error"))
        await consumer.subscribe([TOPIC])
        with pytest.raises(NoStartOffsetError):
            await consumer.poll(1.0)
        await consumer.close()

    run(scenario())


def test_a_transaction_commits_what_was_awaited(world: World) -> None:
    world.log("a").extend(A[:3])
    world.log("b").extend(A[:4])

    async def scenario() -> None:
        inner = world.start("a", {"enable.auto.commit": False}, move_from="committed", subscribe=False)
        async with AIOFailoverConsumer(inner) as consumer:
            await consumer.subscribe([TOPIC])
            assert await take(consumer, 3) == A[:3]
            producer = FakeProducer(world.clusters["a"])
            positions = await consumer.position(await consumer.assignment())
            producer.send_offsets_to_transaction(positions, await consumer.consumer_group_metadata())
            producer.commit_transaction()
            consumer.move_to("b")
            assert await take(consumer, 1) == A[3:4]

    run(scenario())


@pytest.mark.parametrize("seen_by", ["thread", "task"])
def test_an_error_that_a_cancelled_task_has_missed_is_told_to_the_next(world: World, seen_by: str) -> None:
    async def scenario() -> None:
        inner = world.start("a", subscribe=False)
        consumer = AIOFailoverConsumer(inner)
        begun, may_fail = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def fail(*_arguments: float) -> list[Any]:
            loop.call_soon_threadsafe(begun.set)
            may_fail.wait(WITHIN_S)
            raise OffsetServiceAwayError("the move to region 'b' is off")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(inner, "consume", fail)
            polling = asyncio.create_task(consumer.poll(1.0))
            await begun.wait()
            if seen_by == "task":  # it has failed, and the loop has not come to it yet
                may_fail.set()
                time.sleep(0.05)  # noqa: ASYNC251 - on purpose
            polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling
            may_fail.set()
        with pytest.raises(OffsetServiceAwayError):
            await consumer.poll(1.0)
        assert await consumer.poll(0.05) is None
        await consumer.close()

    run(scenario())
