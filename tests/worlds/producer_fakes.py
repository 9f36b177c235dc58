"""Regional clusters of a make-believe world, for `FailoverProducer`: logs, outages, lost acknowledgements, a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message

from parallax.errors import ClusterUnavailableError
from parallax.producer.addresses import GivenAddresses
from parallax.producer.delivery import ProducerDelivery
from parallax.producer.engine import ProducerEngine
from parallax.producer.events import ProducerEvent
from parallax.producer.pilot import Pilot
from parallax.producer.ports import ClusterTopics
from parallax.producer.settings import ProducerPolicies, read_settings
from parallax.producer.site import DeliveryReport

TOPIC = "trips"

Reported = tuple[KafkaError | None, DeliveryReport]


class FakeRegional:
    """A regional cluster.

    Attributes:
        up: brokers answer.
        mute: brokers answer probes and write records, and acknowledge none.
        topics: partition counts.
        refused: topics that take nothing, with the error's code; an inner producer that has met it raises it at once.
        leaderless: partitions of `TOPIC` that take nothing.
        log: values in the order in which they were written.
    """

    def __init__(self, region: str) -> None:
        self.region = region
        self.up = True
        self.mute = False
        self.topics = {TOPIC: 4}
        self.refused: dict[str, int] = {}
        self.leaderless: set[int] = set()
        self.log: list[bytes] = []
        self.inners: list[FakeInner] = []


class FakeInner:
    """`confluent_kafka.Producer` of one cluster."""

    def __init__(self, world: ProducerWorld, cluster: FakeRegional, config: dict[str, Any]) -> None:
        self.world = world
        self.cluster = cluster
        self.config = config
        self.queue: list[tuple[Any, ...]] = []
        self.unanswered: list[tuple[Any, ...]] = []
        self.reports: list[tuple[KafkaError | None, tuple[Any, ...]]] = []
        self.told_down = False
        self.known_refused: set[str] = set()
        self.silent_until_s = 0.0
        self.capacity = 10_000
        cluster.inners.append(self)

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        *,
        on_delivery: Callable[[KafkaError | None, Message], None],
        timestamp: int,
        headers: Any,
    ) -> None:
        if len(self.queue) + len(self.unanswered) >= self.capacity:
            raise BufferError("Local: Queue full")
        if topic in self.known_refused:
            raise KafkaException(KafkaError(self.cluster.refused[topic]))
        chosen = partition if partition >= 0 else sum(key or b"") % 4
        self.queue.append((self.world.now_s, topic, value, key, chosen, on_delivery, timestamp, headers))

    def poll(self, timeout: float) -> int:
        self._work()
        if timeout > 0 and (not self.reports or self.world.now_s < self.silent_until_s):
            self.world.now_s += timeout
            self._work()
        if self.world.now_s < self.silent_until_s:
            return 0
        due, self.reports = self.reports, []
        for error, (_, topic, value, key, partition, on_delivery, timestamp, _) in due:
            on_delivery(
                error,
                Message(topic=topic, value=value, key=key, partition=partition, timestamp=(1, timestamp)),
            )
        return len(due)

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return len(self.queue) + len(self.unanswered)

    def purge(self, *, in_queue: bool, in_flight: bool, blocking: bool) -> None:  # noqa: ARG002 - confluent-kafka's own signature
        if in_queue:
            self._fail(self.queue, KafkaError._PURGE_QUEUE)
        if in_flight:
            self._fail(self.unanswered, KafkaError._PURGE_INFLIGHT)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:  # noqa: ARG002 - as above
        return self.cluster.topics

    def cluster_id(self, timeout: float = -1) -> str:  # noqa: ARG002 - as above
        return f"regional-{self.cluster.region}"

    def set_sasl_credentials(self, username: str, password: str) -> None:
        self.config.update({"sasl.username": username, "sasl.password": password})

    def close(self) -> None:
        assert not self.queue
        assert not self.unanswered

    def _fail(self, items: list[tuple[Any, ...]], code: int) -> None:
        self.reports += [(KafkaError(code), item) for item in items]
        items.clear()

    def _work(self) -> None:
        """What librdkafka's threads and the brokers have done meanwhile."""
        if not self.cluster.up:
            if not self.told_down:
                self.told_down = True
                self.config["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN))
        else:
            self.told_down = False
            kept = []
            for item in self.queue:
                topic, partition = item[1], item[4]
                if topic in self.cluster.refused:
                    self.known_refused.add(topic)
                    self.reports.append((KafkaError(self.cluster.refused[topic]), item))
                elif topic not in self.cluster.topics:
                    self.reports.append((KafkaError(KafkaError._UNKNOWN_TOPIC), item))
                elif partition in self.cluster.leaderless:
                    kept.append(item)
                else:
                    self.cluster.log.append(item[2])
                    self.unanswered.append(item)
            self.queue = kept
            if not self.cluster.mute:
                self.reports += [(None, item) for item in self.unanswered]
                self.unanswered = []
        timeout_s = float(self.config.get("message.timeout.ms", 300_000)) / 1_000
        for items in (self.queue, self.unanswered):
            late = [item for item in items if self.world.now_s - item[0] >= timeout_s]
            self.reports += [(KafkaError(KafkaError._MSG_TIMED_OUT), item) for item in late]
            items[:] = [item for item in items if self.world.now_s - item[0] < timeout_s]


class FakeProbe:
    """What the fake cluster says of itself."""

    def __init__(self, world: ProducerWorld, cluster: FakeRegional) -> None:
        self.world = world
        self.cluster = cluster

    def ask(self, topics: Sequence[str], timeout_s: float) -> Callable[[], ClusterTopics]:
        def answer() -> ClusterTopics:
            if not self.cluster.up:
                self.world.now_s += timeout_s
                raise ClusterUnavailableError("no answer")
            found = {topic: self.cluster.topics[topic] for topic in topics if topic in self.cluster.topics}
            leaderless = {TOPIC} if self.cluster.leaderless else set()
            return ClusterTopics(found, frozenset(leaderless))

        return answer

    def close(self) -> None:
        pass


class ProducerWorld:
    """Regions, a clock that passes while somebody waits, and one producer without its thread."""

    def __init__(
        self, regions: Sequence[str] = ("a", "b"), config: dict[str, Any] | None = None, **policies: Any
    ) -> None:
        self.now_s = 100.0
        self.clusters = {region: FakeRegional(region) for region in regions}
        self.events: list[ProducerEvent] = []
        self.reported: dict[bytes, list[Reported]] = {}
        self.accepted: list[bytes] = []
        self.invalid: set[str] = set()
        """Regions whose settings librdkafka's producer refuses."""
        self.refusal: Exception = KafkaException(
            KafkaError(KafkaError._INVALID_ARG, "ssl.ca.location failed: no such file")
        )
        """With what."""
        self.invalid_for_probes: set[str] = set()
        settings = read_settings(config or {})
        kept = ProducerPolicies(**policies)
        self.addresses = addresses = GivenAddresses(dict.fromkeys(regions, "unused"))
        self._by_servers = self.clusters
        addresses.clusters = {region: {"bootstrap.servers": region} for region in regions}
        self.delivery = ProducerDelivery(
            settings,
            kept,
            addresses,
            list(regions),
            factory=self._make_inner,
            on_event=self.events.append,
            clock=lambda: self.now_s,
            wall_ms=lambda: int(self.now_s * 1_000),
        )
        self.engine = ProducerEngine(self.delivery, settings, kept, addresses, clock=lambda: self.now_s)
        self.pilot = Pilot(
            self.engine,
            self._make_probe,
            refresh_every_s=60,
            clock=lambda: self.now_s,
        )

    def _make_inner(self, config: dict[str, Any]) -> FakeInner:
        return FakeInner(self, self._cluster(config, self.invalid), config)

    def _make_probe(self, config: dict[str, Any]) -> FakeProbe:
        return FakeProbe(self, self._cluster(config, self.invalid_for_probes))

    def _cluster(self, config: dict[str, Any], invalid: set[str]) -> FakeRegional:
        region = config["bootstrap.servers"]
        if region in invalid:
            raise self.refusal
        return self.clusters[region]

    def produce(self, value: str, key: str = "k", topic: str = TOPIC, partition: int = -1) -> bytes:
        name = value.encode()
        self.reported.setdefault(name, [])

        def delivered(error: KafkaError | None, message: Message, report: DeliveryReport) -> None:
            assert message.value() == name
            self.reported[name].append((error, report))

        self.delivery.produce(topic, value, key, partition, delivered, 0, None)
        self.accepted.append(name)
        return name

    def step(self, seconds: float = 0.1, times: int = 1) -> None:
        """What happens while an application polls."""
        for _ in range(times):
            self.pilot.round()
            self.engine.turn(seconds)

    def settle(self, within_s: float = 3_600) -> None:
        """Flush."""
        self.step(0)
        ends_at_s = self.now_s + within_s
        while len(self.delivery.ledger) and self.now_s < ends_at_s:
            self.pilot.round()
            self.engine.turn(0.1, flush=True)
            self.now_s += 0.01
        assert len(self.delivery.ledger) == 0

    def report(self, name: bytes) -> Reported:
        (found,) = self.reported[name]
        return found

    def kinds(self) -> list[str]:
        return [event.kind.name for event in self.events]
