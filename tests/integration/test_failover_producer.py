"""A `FailoverProducer` on real brokers: its regional cluster is killed under load and comes back."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from parallax import DeliveryReport, FailoverProducer, ProducerEvent, ProducerEventKind
from tests.support import Stack, poll_until, unique_name

PARTITIONS = 4
WITHIN_S = 60.0
BURST = 50
KEYS = 97


class Load:
    """An application that produces numbered records in a thread, and keeps what the reports say."""

    def __init__(self, stack: Stack, topic: str) -> None:
        self.topic = topic
        self.events: list[ProducerEvent] = []
        self.reports: dict[int, list[tuple[KafkaError | None, DeliveryReport]]] = {}
        self.producer = FailoverProducer(
            {"log_level": 0},
            region="a",
            clusters={region: stack.bootstrap(f"regional-{region}") for region in ("a", "b")},
            topics=[topic],
            on_event=self.events.append,
            return_after_ms=1_000,
        )
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ends.is_set():
            for _ in range(BURST):
                self._produce(len(self.reports))
            self.producer.poll(0.02)

    def _produce(self, number: int) -> None:
        self.reports[number] = []
        while True:
            try:
                self.producer.produce(
                    self.topic, str(number), key=str(number % KEYS), on_delivery=self._ended(number)
                )
            except BufferError:
                self.producer.poll(0.1)
            else:
                return

    def _ended(self, number: int) -> Callable[[KafkaError | None, Message, DeliveryReport], None]:
        def ended(error: KafkaError | None, message: Message, report: DeliveryReport) -> None:
            assert message.value() == str(number).encode()
            self.reports[number].append((error, report))

        return ended

    def flows_into(self, region: str) -> None:
        """Wait until the region has acknowledged some more records, and new ones go there."""
        before = self._acknowledged(region)
        poll_until(
            lambda: self.producer.region == region and self._acknowledged(region) > before + 1_000,
            WITHIN_S,
            f"records in region {region}",
        )

    def _acknowledged(self, region: str) -> int:
        return self.producer.counts.acknowledged.get(region, 0)

    def end(self) -> None:
        self._ends.set()
        self._thread.join(WITHIN_S)


@pytest.fixture
def topic(infrastructure: Stack, topic_name: str) -> Iterator[str]:
    for region in ("a", "b"):
        admin = AdminClient({"bootstrap.servers": infrastructure.bootstrap(f"regional-{region}")})
        for future in admin.create_topics([NewTopic(topic_name, PARTITIONS)]).values():
            future.result(timeout=WITHIN_S)
    yield topic_name
    infrastructure.start("regional-a")


def written(stack: Stack, region: str, topic: str) -> dict[int, list[int]]:
    """The numbers in each partition of a region's regional cluster."""
    consumer = Consumer(
        {
            "bootstrap.servers": stack.bootstrap(f"regional-{region}"),
            "group.id": unique_name("reader"),
            "enable.auto.commit": False,
        }
    )
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    left = 0
    for partition in found:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=WITHIN_S)
        left += high - low
    consumer.assign([TopicPartition(topic, partition, 0) for partition in found])
    while left:
        messages = consumer.consume(min(left, 1_000), WITHIN_S)
        assert messages, f"{left} records of {topic} in {region} did not come"
        for message in messages:
            assert message.error() is None
            found[message.partition()].append(int(message.value()))
        left -= len(messages)
    consumer.close()
    return found


def test_a_killed_region_and_back(infrastructure: Stack, topic: str) -> None:
    load = Load(infrastructure, topic)
    try:
        load.flows_into("a")
        infrastructure.kill("regional-a")
        load.flows_into("b")
        infrastructure.start("regional-a")
        load.flows_into("a")
    finally:
        load.end()
    assert load.producer.flush(WITHIN_S) == 0
    counts = load.producer.counts
    assert load.producer.close()

    logs = {region: written(infrastructure, region, topic) for region in ("a", "b")}
    copies = {
        region: Counter(number for numbers in log.values() for number in numbers)
        for region, log in logs.items()
    }
    for number, reports in load.reports.items():
        ((error, report),) = reports
        assert error is None, (number, error)
        places = {region for region in copies if copies[region][number]}
        assert report.region in places <= {report.region, *report.unconfirmed}, (number, report)
        if not report.maybe_duplicate:
            assert copies[report.region][number] == 1, (number, report)
    moves = [(event.kind, event.from_region, event.region) for event in load.events]
    assert (ProducerEventKind.MOVED, "a", "b") in moves
    assert (ProducerEventKind.RETURNED, "b", "a") in moves
    assert (sum(counts.acknowledged.values()), counts.failed) == (len(load.reports), 0)
    for partition in range(PARTITIONS):  # the partitioner is the same, and in each region order is kept
        keys = {number % KEYS for region in logs for number in logs[region][partition]}
        for log in logs.values():
            assert not keys & {number % KEYS for place in log if place != partition for number in log[place]}
            surely_once = [number for number in log[partition] if not load.reports[number][0][1].unconfirmed]
            assert surely_once == sorted(surely_once)
