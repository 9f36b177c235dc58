"""Consume, transform, produce on real brokers: offsets in the application's transactions, and moves in mid-stream."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from parallax import FailoverConsumer
from parallax.domain.metadata import decode
from tests.integration.test_failover_consumer_brokers import WITHIN_S, RealWorld, of
from tests.support import Stack, unique_name
from tests.worlds.failover_fakes import Record, record_of

CALL_S = 5.0


class Application:
    """What docs/failover-consumer.md shows: a transactional producer for each region, and outputs there."""

    def __init__(self, world: RealWorld, group: str, consumer: FailoverConsumer) -> None:
        self.world = world
        self.consumer = consumer
        self.output = unique_name("output")
        self.group = group
        self.producers: dict[str, Producer] = {}
        self.committed = 0
        self.aborted: list[Record] = []
        for region in world.known:
            admin = AdminClient({"bootstrap.servers": world.bootstrap(region)})
            admin.create_topics([NewTopic(self.output, 1)])[self.output].result(WITHIN_S)

    def producer(self) -> Producer:
        """The present region's."""
        region = self.consumer.region
        if region not in self.producers:
            made = Producer(
                {
                    "bootstrap.servers": self.world.bootstrap(region),
                    "transactional.id": f"{self.group}-{region}",
                    "message.timeout.ms": 5_000,
                    "transaction.timeout.ms": 10_000,
                }
            )
            made.init_transactions(WITHIN_S)
            self.producers[region] = made
        return self.producers[region]

    def step(self, *, fail: bool = False) -> None:
        """One transaction, if there is something to transform; it is aborted to ``fail``."""
        messages = self.consumer.consume(20, 0.1)
        if not messages:
            return
        assert all(message.error() is None for message in messages)
        region, producer = self.consumer.region, self.producer()
        producer.begin_transaction()
        try:
            self.transform(producer, messages)
            if fail:
                producer.abort_transaction(CALL_S)
                self.aborted += [record_of(message) for message in messages]
                return
            self.send_offsets(producer)
            producer.commit_transaction(CALL_S)
            self.committed += len(messages)
        except KafkaException:
            self.read_again(region, producer)

    def transform(self, producer: Producer, messages: Sequence[Message]) -> None:
        for message in messages:
            producer.produce(self.output, message.value())

    def send_offsets(self, producer: Producer) -> None:
        positions = self.consumer.position(self.consumer.assignment())
        producer.send_offsets_to_transaction(positions, self.consumer.consumer_group_metadata(), CALL_S)

    def read_again(self, region: str, producer: Producer) -> None:
        try:
            producer.abort_transaction(CALL_S)
            for place in self.consumer.committed(self.consumer.assignment(), CALL_S):
                self.consumer.seek(place)
        except KafkaException:
            self.consumer.pause(self.consumer.assignment())
            del self.producers[region]

    def run(self, count: int) -> None:
        """Transform until so many records are committed."""
        deadline = time.monotonic() + WITHIN_S
        while self.committed < count:
            assert time.monotonic() < deadline, f"{self.committed} of {count}"
            self.step()

    def outputs(self) -> Counter[Record]:
        """What the outputs of all regions hold, of committed transactions."""
        found: Counter[Record] = Counter()
        for region in self.world.known:
            reader = Consumer(
                {
                    "bootstrap.servers": self.world.bootstrap(region),
                    "group.id": unique_name("reader"),
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "fetch.wait.max.ms": 20,
                }
            )
            reader.assign([TopicPartition(self.output, 0, 0)])
            deadline = time.monotonic() + WITHIN_S
            while time.monotonic() < deadline:
                message = reader.poll(1.0)
                if message is not None and message.error() is not None:
                    break
                if message is not None:
                    found[record_of(message)] += 1
            reader.close()
        return found


@pytest.fixture
def world(infrastructure: Stack, topic_name: str) -> Iterator[RealWorld]:
    yield RealWorld(infrastructure, topic_name)
    infrastructure.start("aggregate-a")


def start(world: RealWorld, group: str) -> FailoverConsumer:
    consumer = FailoverConsumer(
        {"group.id": group, "enable.auto.commit": False},
        clusters={name: world.bootstrap(name) for name in world.known},
        region="a",
        services=world.service,
        on_event=world.events.append,
        move_from="committed",
        index_wait_ms=0,
    )
    consumer.subscribe([world.topic])
    return consumer


def test_every_input_is_transformed_once_over_moves_in_mid_stream(world: RealWorld) -> None:
    group = unique_name("group")
    application = Application(world, group, start(world, group))
    consumer = application.consumer
    world.write("a", 0, [*of("a", 200), *of("b", 100)])
    world.write("a", 1, of("c", 100))
    world.write("b", 0, [*of("b", 60), *of("a", 250), *of("b", 60, 120)])
    world.write("b", 1, of("c", 50))
    application.run(150)
    while not application.aborted:
        application.step(fail=True)  # and moved before it could read them again
    consumer.move_to("b")
    application.run(350)
    world.write("b", 1, of("c", 50, 130))
    everything = [*of("a", 250), *of("b", 120), *of("c", 130)]
    application.run(len(everything))
    assert consumer.region == "b"
    world.write("a", 0, [*of("a", 200, 260), *of("b", 100, 130)])
    world.write("a", 1, of("c", 100, 140))
    consumer.move_to("a")
    everything = [*of("a", 260), *of("b", 130), *of("c", 140)]
    application.run(len(everything))
    consumer.close()
    assert application.outputs() == Counter(everything)


def test_a_transaction_carries_what_a_restarted_process_skips_by(world: RealWorld) -> None:
    group = unique_name("group")
    application = Application(world, group, start(world, group))
    world.write("a", 0, [*of("a", 50), *of("b", 50)])
    world.write("b", 0, [*of("a", 60), *of("b", 60)])
    application.run(100)
    application.consumer.move_to("b")
    while application.committed < 105:
        for message in application.consumer.consume(5, 0.1):
            producer = application.producer()
            producer.begin_transaction()
            application.transform(producer, [message])
            application.send_offsets(producer)
            producer.commit_transaction(CALL_S)
            application.committed += 1
    reader = Consumer({"bootstrap.servers": world.bootstrap("b"), "group.id": group})
    (place,) = reader.committed([TopicPartition(world.topic, 0)], timeout=WITHIN_S)
    reader.close()
    assert [(item.start, item.end) for item in decode(place.metadata).skips] == [(60, 110)]
    application.consumer.close()


def test_a_cluster_that_dies_in_a_transaction_costs_nothing(world: RealWorld) -> None:
    group = unique_name("group")
    application = Application(world, group, start(world, group))
    consumer = application.consumer
    world.write("a", 0, [*of("a", 100), *of("b", 50)])
    world.write("b", 0, [*of("b", 70), *of("a", 120)])
    application.run(100)
    consumer.pause(consumer.assignment())
    for _ in range(10):  # what it has committed is read
        assert consumer.poll(0.05) is None
    consumer.resume(consumer.assignment())
    messages: list[Message] = []
    while not messages:
        messages = consumer.consume(20, 0.1)
    producer = application.producer()
    producer.begin_transaction()
    application.transform(producer, messages)
    world.stack.kill("aggregate-a")
    world.known["a"].dead = True
    with pytest.raises(KafkaException):
        application.send_offsets(producer)
    application.read_again("a", producer)
    consumer.move_to("b")
    everything = [*of("a", 120), *of("b", 70)]
    application.run(len(everything))
    consumer.close()
    world.stack.start("aggregate-a")
    assert application.outputs() == Counter(everything)
