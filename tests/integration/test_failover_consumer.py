"""A `FailoverConsumer` on the whole stack, under load: each record is delivered once, wherever the consumer is.

Counted by region and sequence number inside of the records alone.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Self

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lab.workload.distance import FAR_READER, NarrowLink
from parallax import EventKind, FailoverConsumer, FailoverEvent
from tests.support import Stack, unique_name

PARTITIONS = 3
INDEX_WAIT_MS = 10_000
"""The replicator outlives the cluster, so that every record gets indexed, on a busy machine too."""
WITHIN_S = 90.0
PER_SECOND = {"a": 100, "b": 500}
FAR_BYTES_PER_S = 200
"""Far less than region a's stream, and minutes for the burst, however long this machine takes for the rest."""


class Traffic:
    """Producers in every region, until stopped; one sequence per region and partition."""

    def __init__(self, stack: Stack, topic: str) -> None:
        self._topic = topic
        self._stopped = threading.Event()
        self._sent: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._threads = []
        for region, addresses in stack.status()["regions"].items():
            admin = AdminClient({"bootstrap.servers": addresses["regional"]})
            for future in admin.create_topics([NewTopic(topic, PARTITIONS)]).values():
                future.result(timeout=30)
            producer = Producer(
                {"bootstrap.servers": addresses["regional"], "enable.idempotence": True, "linger.ms": 5}
            )
            self._threads.append(threading.Thread(target=self._run, args=(region, producer), daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def burst(self, stack: Stack, region: str, count: int) -> None:
        """Many records at once, on top of the stream."""
        producer = Producer(
            {"bootstrap.servers": stack.status()["regions"][region]["regional"], "linger.ms": 5}
        )
        for number in range(count):
            self._send(producer, f"{region}x", number % PARTITIONS)
        assert producer.flush(30) == 0

    def _run(self, region: str, producer: Producer) -> None:
        number = 0
        while not self._stopped.wait(0.01):
            for _ in range(PER_SECOND[region] // 100):
                self._send(producer, region, number % PARTITIONS)
                number += 1
            producer.poll(0)
        assert producer.flush(30) == 0

    def _send(self, producer: Producer, source: str, partition: int) -> None:
        stream = f"{source}{partition}"
        with self._lock:
            sequence = self._sent[stream]
            self._sent[stream] += 1
        producer.produce(self._topic, f"{stream}:{sequence}", partition=partition)

    def stop(self) -> Counter[str]:
        """End.

        Returns:
            How many records each stream has.
        """
        self._stopped.set()
        for thread in self._threads:
            thread.join(60)
        return self._sent


class Reader:
    """Polls a consumer and keeps what it delivers."""

    def __init__(self, consumer: FailoverConsumer) -> None:
        self.consumer = consumer
        self.delivered: list[tuple[str, int]] = []

    def poll(self) -> int:
        """Read a little.

        Returns:
            How many records came.
        """
        count = 0
        for message in self.consumer.consume(500, 0.1):
            error = message.error()
            assert error is None or error.code() != KafkaError._FATAL, error
            if error is None:
                value = message.value()
                assert value is not None
                stream, sequence = value.decode().split(":")
                self.delivered.append((stream, int(sequence)))
                count += 1
        return count

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: not within {WITHIN_S} s"
            self.poll()

    def poll_more(self, count: int) -> None:
        wanted = len(self.delivered) + count
        self.poll_until(lambda: len(self.delivered) >= wanted, f"{count} more records")

    def move(self, region: str) -> None:
        """Move, until the first record comes."""
        self.consumer.move_to(region)
        self.poll_until(lambda: not self.consumer.moving, f"the move to {region}")
        self.poll_more(1)


def once_each_in_order(delivered: list[tuple[str, int]], sent: Counter[str]) -> None:
    counts = Counter(delivered)
    lost = [(stream, n) for stream, end in sent.items() for n in range(end) if (stream, n) not in counts]
    again = [record for record, count in counts.items() if count > 1]
    assert (len(lost), len(again)) == (0, 0), f"lost {lost[:10]}, delivered again {again[:10]}"
    assert sum(counts.values()) == sum(sent.values())
    for stream in sent:
        numbers = [number for name, number in delivered if name == stream]
        assert numbers == sorted(numbers)


@pytest.fixture
def both_aggregates(stack: Stack) -> Iterator[Stack]:
    """The stack, with both aggregate clusters up again afterwards."""
    yield stack
    stack.start("aggregate-a")
    stack.start("aggregate-b")


def reader_at(stack: Stack, region: str, topic: str, events: list[FailoverEvent]) -> Reader:
    regions = stack.status()["regions"]
    others = [name for name in regions if name != region]
    consumer = FailoverConsumer(
        {"group.id": unique_name("failover"), "topic.metadata.refresh.interval.ms": 1_000},
        clusters={name: addresses["aggregate"] for name, addresses in regions.items()},
        region=region,
        services=[regions[name]["grpc"] for name in (region, *others)],
        on_event=events.append,
        index_wait_ms=INDEX_WAIT_MS,
    )
    consumer.subscribe([topic])
    return Reader(consumer)


def test_moves_to_and_fro_while_both_clusters_are_up(stack: Stack, topic_name: str) -> None:
    events: list[FailoverEvent] = []
    with Traffic(stack, topic_name) as traffic:
        reader = reader_at(stack, "a", topic_name, events)
        reader.poll_more(500)
        for region in ("b", "a", "b"):
            reader.move(region)
            reader.poll_more(300)
        sent = traffic.stop()
    reader.poll_until(lambda: len(reader.delivered) >= sum(sent.values()), "everything that was sent")
    reader.consumer.close()
    once_each_in_order(reader.delivered, sent)


def test_failover_under_load_with_the_far_route_behind_and_back(
    both_aggregates: Stack, topic_name: str
) -> None:
    stack = both_aggregates
    events: list[FailoverEvent] = []
    with Traffic(stack, topic_name) as traffic:
        reader = reader_at(stack, "a", topic_name, events)
        reader.poll_more(1_000)

        # Little of a reaches b for a while, so that b lacks records that were consumed in a.
        far_route = NarrowLink(stack.bootstrap("regional-a"), FAR_READER)
        far_route.narrow(FAR_BYTES_PER_S)
        traffic.burst(stack, "a", 3_000)
        reader.poll_more(4_000)
        stack.kill("aggregate-a")
        reader.move("b")
        far_route.widen()
        reader.poll_more(2_000)

        stack.start("aggregate-a")
        reader.poll_more(1_000)
        reader.move("a")
        reader.poll_more(1_000)
        sent = traffic.stop()
    reader.poll_until(lambda: len(reader.delivered) >= sum(sent.values()), "everything that was sent")
    settled_at = time.monotonic() + 2
    reader.poll_until(lambda: time.monotonic() > settled_at, "nothing more")
    reader.consumer.close()
    once_each_in_order(reader.delivered, sent)
    kinds = Counter(event.kind for event in events)
    assert kinds[EventKind.MOVED] == kinds[EventKind.RESUMED] == 2
    assert kinds[EventKind.PENDING_STARTED] >= 1
    assert kinds[EventKind.SKIPPING_ABANDONED] == 0
