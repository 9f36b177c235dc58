"""A `FailoverConsumer` on real brokers, with an offset service that knows the logs because the test wrote them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from parallax import AIOFailoverConsumer, EventKind, FailoverConsumer, FailoverEvent
from tests.support import Stack, poll_until, unique_name
from tests.worlds.failover_fakes import FakeCluster, FakeService, Record, record_of

PARTITIONS = 2
WITHIN_S = 30.0


class RealWorld:
    """Two aggregate clusters whose logs this test writes, in transactions, and knows."""

    def __init__(self, stack: Stack, topic: str) -> None:
        self.stack = stack
        self.topic = topic
        self.known = {region: FakeCluster(region) for region in ("a", "b")}
        self.service = FakeService(self.known)
        self.events: list[FailoverEvent] = []
        self.delivered: list[Record] = []
        for region in self.known:
            admin = AdminClient({"bootstrap.servers": self.bootstrap(region)})
            for future in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
                future.result(timeout=WITHIN_S)
            self._ask_coordinator(region)

    def bootstrap(self, region: str) -> str:
        return self.stack.bootstrap(f"aggregate-{region}")

    def _ask_coordinator(self, region: str) -> None:
        """A cluster that never had a group creates its topic of offsets first, which takes seconds."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap(region), "group.id": unique_name("first")})

        def answered() -> bool:
            try:
                consumer.committed([TopicPartition(self.topic, 0)], timeout=WITHIN_S)
            except KafkaException:  # whoever coordinates is still being found out
                return False
            return True

        poll_until(answered, WITHIN_S, f"the coordinator of aggregate-{region}")
        consumer.close()

    def write(self, region: str, partition: int, records: Sequence[Record]) -> None:
        """One transaction: its marker takes an offset that holds no record."""
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap(region),
                "transactional.id": unique_name("world"),
                "transaction.timeout.ms": 10_000,
            }
        )
        producer.init_transactions(WITHIN_S)
        producer.begin_transaction()
        for source, sequence in records:
            producer.produce(self.topic, f"{source}:{sequence}", partition=partition)
        producer.commit_transaction(WITHIN_S)
        self.known[region].logs[self.topic, partition].extend([*records, None])

    def start(self, region: str, group: str, **config: object) -> FailoverConsumer:
        consumer = FailoverConsumer(
            {"group.id": group, "auto.commit.interval.ms": 50, **config},
            clusters={name: self.bootstrap(name) for name in self.known},
            region=region,
            services=self.service,
            on_event=self.events.append,
            index_wait_ms=0,
        )
        consumer.subscribe([self.topic])
        return consumer

    def poll(self, consumer: FailoverConsumer, timeout_s: float = 0.1) -> Message | None:
        message = consumer.poll(timeout_s)
        if message is not None and message.error() is None:
            self.delivered.append(record_of(message))
            return message
        return None

    def poll_until(self, consumer: FailoverConsumer, count: int) -> None:
        deadline = time.monotonic() + WITHIN_S
        while len(self.delivered) < count:
            assert time.monotonic() < deadline, f"{len(self.delivered)} of {count}: {self.delivered[-10:]}"
            self.poll(consumer)

    def poll_until_told(self, consumer: FailoverConsumer, kind: EventKind) -> None:
        deadline = time.monotonic() + WITHIN_S
        while kind not in [event.kind for event in self.events]:
            assert time.monotonic() < deadline, f"{kind} was not told: {self.events}"
            self.poll(consumer)

    def poll_nothing(self, consumer: FailoverConsumer, seconds: float = 1.0) -> None:
        before = list(self.delivered)
        ends_at = time.monotonic() + seconds
        while time.monotonic() < ends_at:
            self.poll(consumer)
        assert self.delivered == before


@pytest.fixture
def world(infrastructure: Stack, topic_name: str) -> Iterator[RealWorld]:
    yield RealWorld(infrastructure, topic_name)
    infrastructure.start("aggregate-a")


def of(source: str, *bounds: int) -> list[Record]:
    return [(source, sequence) for sequence in range(*bounds)]


def once_each(world: RealWorld, wanted: Sequence[Record]) -> None:
    """Every record delivered once, and each source's in order."""
    assert sorted(world.delivered) == sorted(wanted)
    for source in {record[0] for record in wanted}:
        mine = [record for record in world.delivered if record[0] == source]
        assert mine == sorted(mine)


def test_failover_from_a_killed_cluster_and_back(world: RealWorld) -> None:
    group = unique_name("group")
    world.write("a", 0, [*of("a", 200), *of("b", 40), *of("a", 200, 300)])
    consumer = world.start("a", group)
    world.poll_until(
        consumer, 300
    )  # beyond what the far route has copied, whichever partition is fetched first
    world.write("a", 1, [*of("c", 100), *of("d", 100)])
    world.poll_until(consumer, 400)
    world.write("b", 0, [*of("b", 50), *of("a", 150)])  # the far route is behind
    world.write("b", 1, [*of("d", 100), *of("c", 100)])

    world.stack.kill("aggregate-a")
    world.known["a"].dead = True
    killed_at = time.monotonic()
    consumer.move_to("b")
    while consumer.moving:
        assert time.monotonic() - killed_at < WITHIN_S
        world.poll(consumer)
    world.write("b", 0, [*of("a", 150, 320), *of("b", 50, 60)])
    everything = [*of("a", 320), *of("b", 60), *of("c", 100), *of("d", 100)]
    world.poll_until(consumer, len(everything))
    world.poll_until_told(consumer, EventKind.PENDING_CLEARED)
    world.poll_nothing(consumer)
    once_each(world, everything)

    world.stack.start("aggregate-a")
    world.known["a"].dead = False
    world.write("a", 0, [*of("b", 40, 70), *of("a", 300, 350)])
    consumer.move_to("a")
    everything += [*of("b", 60, 70), *of("a", 320, 350)]
    world.poll_until(consumer, len(everything))
    world.poll_nothing(consumer)
    once_each(world, everything)
    assert consumer.region == "a"
    consumer.close()


def test_batches_held_in_the_middle_are_delivered_once(world: RealWorld) -> None:
    group = unique_name("group")
    world.write("a", 0, [*of("a", 50), *of("b", 50)])
    world.write("a", 1, of("c", 50))
    consumer = world.start("a", group)
    world.poll_until(consumer, 150)
    world.write("b", 0, of("a", 40))
    world.write("b", 1, of("c", 60))
    consumer.move_to("b")
    world.poll_until(consumer, 160)
    # Fetched in large batches, far beyond what is known at that time.
    world.service.away = True
    world.write("b", 0, [*of("a", 40, 60), *of("b", 45), *of("a", 60, 700), *of("b", 45, 60)])
    ends_at = time.monotonic() + 1.0
    got: list[Record] = []
    while time.monotonic() < ends_at:
        got += [record_of(message) for message in consumer.consume(100, 0.1)]
    assert got == []
    world.service.away = False
    deadline = time.monotonic() + WITHIN_S
    while len(got) < 660 and time.monotonic() < deadline:
        got += [record_of(message) for message in consumer.consume(100, 0.1)]
    got += [record_of(message) for message in consumer.consume(100, 0.5)]
    world.delivered += got
    once_each(world, [*of("a", 700), *of("b", 60), *of("c", 60)])
    consumer.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_partitions_that_wait_go_on_after_a_rebalance(world: RealWorld, strategy: str) -> None:
    group = unique_name("group")
    config = {"partition.assignment.strategy": strategy}
    for partition, source in enumerate("ab"):
        world.write("a", partition, of(source, 50))
        world.write("b", partition, of(source, 40))
    consumer = world.start("a", group, **config)
    world.poll_until(consumer, 100)
    consumer.move_to("b")
    world.poll_until_told(consumer, EventKind.PENDING_STARTED)
    world.service.away = True
    for partition, (source, new) in enumerate(("ac", "bd")):
        world.write("b", partition, [*of(new, 10), *of(source, 40, 60)])
    world.poll_nothing(consumer)

    other = Consumer({"bootstrap.servers": world.bootstrap("b"), "group.id": group, **config})
    other.subscribe([world.topic])
    poll_until(
        lambda: world.poll(consumer) is None and len(consumer.assignment()) == 1, WITHIN_S, "one is taken"
    )
    other.close()
    poll_until(
        lambda: world.poll(consumer) is None and len(consumer.assignment()) == 2, WITHIN_S, "and given back"
    )
    world.service.away = False
    world.poll_until(consumer, 140)
    world.poll_nothing(consumer)
    once_each(world, [*of("a", 60), *of("b", 60), *of("c", 10), *of("d", 10)])
    consumer.close()


def test_a_restarted_process_skips_by_its_commit(world: RealWorld) -> None:
    group = unique_name("group")
    world.write("a", 0, [*of("a", 100), *of("b", 100)])
    consumer = world.start("a", group)
    world.poll_until(consumer, 200)
    world.write("b", 0, [*of("a", 110), *of("b", 120), *of("a", 110, 120)])
    consumer.move_to("b")
    world.poll_until(consumer, 205)
    consumer.close()  # in the middle of the new records below the skip range
    world.service.away = True
    consumer = world.start("b", group)
    world.poll_until(consumer, 240)
    world.poll_nothing(consumer)
    once_each(world, [*of("a", 120), *of("b", 120)])
    consumer.close()


def test_commits_are_plain_offsets_to_other_consumers(world: RealWorld) -> None:
    group = unique_name("group")
    world.write("a", 0, of("a", 10))
    consumer = world.start("a", group, **{"enable.auto.commit": False})
    world.poll_until(consumer, 10)
    consumer.commit(asynchronous=False)
    consumer.close()
    plain = Consumer({"bootstrap.servers": world.bootstrap("a"), "group.id": group})
    (position,) = plain.committed([TopicPartition(world.topic, 0)], timeout=WITHIN_S)
    plain.close()
    assert position.offset == 10


def test_a_place_that_the_coordinator_gave_to_another_is_taken_back(world: RealWorld) -> None:
    group = unique_name("group")
    config = {"group.id": group, "heartbeat.interval.ms": 200}
    world.write("a", 0, of("a", 100))
    consumer = world.start("a", group, **{"heartbeat.interval.ms": 200})
    world.poll_until(consumer, 100)
    poll_until(
        lambda: (
            world.poll(consumer) is None and consumer.committed(consumer.assignment(), 10)[0].offset == 100
        ),
        WITHIN_S,
        "all is committed",
    )
    admin = AdminClient({"bootstrap.servers": world.bootstrap("a")})
    (member,) = admin.describe_consumer_groups([group])[group].result(WITHIN_S).members
    other = Consumer(
        {**config, "bootstrap.servers": world.bootstrap("a"), "group.instance.id": member.group_instance_id}
    )
    other.subscribe([world.topic])

    def given_back() -> bool:
        """Whether the other one, too, was told that its place is another's."""
        world.poll(consumer)
        message = other.poll(0.05)
        error = None if message is None else message.error()
        return error is not None and error.code() == KafkaError._FATAL

    poll_until(given_back, WITHIN_S, "the place is taken back")
    world.write("a", 0, of("a", 100, 200))
    world.poll_until(consumer, 200)  # an error that reached the application would be in the way
    world.poll_nothing(consumer)
    once_each(world, of("a", 200))
    other.close()
    consumer.close()


def test_an_awaited_consumer_moves_though_its_calls_are_cancelled(world: RealWorld) -> None:
    world.write("a", 0, [*of("a", 300), *of("b", 100)])
    world.write("b", 0, [*of("b", 150), *of("a", 350)])

    async def scenario() -> None:
        async with AIOFailoverConsumer(world.start("a", unique_name("group"))) as consumer:
            for wanted in (400, 500):
                while len(world.delivered) < wanted:
                    try:
                        found = await asyncio.wait_for(consumer.consume(10, 5.0), 0.02)
                    except TimeoutError:
                        continue
                    world.delivered += [record_of(message) for message in found]
                consumer.move_to("b")
            assert await consumer.consume(10, 1.0) == []
            assert consumer.region == "b"

    asyncio.run(asyncio.wait_for(scenario(), 2 * WITHIN_S))
    once_each(world, [*of("a", 350), *of("b", 150)])
