"""A group at work on a whole stack: a topic in every region, records into it, and FailoverConsumers or a plain one that read it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from parallax import FailoverConsumer
from tests.support import Stack, poll_until, unique_name
from tests.worlds.live_clients import QUICK_MEMBER

_WITHIN_S = 60


class Work:
    """A topic of this test's own, and a group that reads it.

    Attributes:
        group: the group, called as the topic is.
        seen: what it was given, in order.
    """

    def __init__(self, stack: Stack, name: str) -> None:
        self.stack = stack
        self.group = self.topic = unique_name(name)
        self.seen: list[str] = []
        self._made = 0
        for region in "ab":
            admin = AdminClient({"bootstrap.servers": stack.bootstrap(f"regional-{region}")})
            for made in admin.create_topics([NewTopic(self.topic, 1, 1)]).values():
                made.result(_WITHIN_S)

    def produce(self, records: int, regions: str = "ab") -> None:
        """So many more into each of the regions."""
        for region in regions:
            producer = Producer({"bootstrap.servers": self.stack.bootstrap(f"regional-{region}")})
            for _ in range(records):
                producer.produce(self.topic, f"{region}{self._made}")
                self._made += 1
            assert producer.flush(_WITHIN_S) == 0

    def all_seen(self) -> None:
        """Wait until every record was given to the group, and hold that none was twice."""
        poll_until(lambda: len(self.seen) >= self._made, _WITHIN_S, "everything is consumed")
        assert sorted(self.seen) == sorted(set(self.seen))
        assert len(self.seen) == self._made

    @contextmanager
    def following(self, region: str = "a") -> Iterator[None]:
        """A FailoverConsumer that goes where the group is primary."""
        regions = self.stack.status()["regions"]
        consumer: Any = FailoverConsumer(
            {"group.id": self.group, **QUICK_MEMBER},
            clusters={name: self.stack.bootstrap(f"aggregate-{name}") for name in regions},
            region=region,
            services=[item["grpc"] for item in regions.values()],
            follow_primary=True,
        )
        with self._polled(consumer):
            yield

    @contextmanager
    def staying(self, region: str = "a") -> Iterator[None]:
        """A plain consumer that hears of no move."""
        settings = {
            "bootstrap.servers": self.stack.bootstrap(f"aggregate-{region}"),
            "group.id": self.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        with self._polled(Consumer(settings)):
            yield

    @contextmanager
    def _polled(self, consumer: Any) -> Iterator[None]:
        ended = threading.Event()

        def poll() -> None:
            while not ended.is_set():
                messages = [item for item in consumer.consume(500, 0.1) if item.error() is None]
                self.seen.extend((item.value() or b"").decode() for item in messages)
                if messages and isinstance(consumer, Consumer):
                    consumer.commit(asynchronous=False)

        consumer.subscribe([self.topic])
        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_WITHIN_S)
            consumer.close()
