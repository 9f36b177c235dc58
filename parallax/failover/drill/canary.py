"""Canary records on real clusters: producers in every region, the drill's group, and an observer per cluster."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from parallax.adapters.kafka.librdkafka import client_settings, translated
from parallax.config.config import Config
from parallax.consumer.consumer import FailoverConsumer
from parallax.consumer.events import FailoverEvent
from parallax.domain.ids import ClusterName, RegionName, TopicName, aggregate_cluster, regional_cluster
from parallax.errors import ClusterUnavailableError, ParallaxError
from parallax.failover.drill.figures import CanaryDelivery, CanaryRecord, Samples
from parallax.failover.drill.run import DrillPlan
from parallax.failover.outside import Outside
from parallax.wiring import open_client

_CLIENT = "parallax-drill"
_PARTITIONS = 3
_RETENTION_MS = 86_400_000
_CALL_S = 10.0
_POLL_S = 0.5
_JOIN_S = 60.0
_ACKNOWLEDGED_WITHIN_MS = 30_000
"""Shorter than `DrillPlan.flow_ms`, so that a regional cluster that is away is what a drill fails by."""


class KafkaCanary:
    """See `parallax.failover.drill.run.Canary`.

    Args:
        config: clusters, and how fast records are produced (``drill``).
        plan: who produces what, and which group consumes.
        outside: the clusters that replication reaches.
    """

    def __init__(self, config: Config, plan: DrillPlan, outside: Outside) -> None:
        self._config = config
        self._plan = plan
        self._outside = outside
        self._began_s = time.monotonic()
        self._lock = threading.Lock()
        self._acknowledged: dict[CanaryRecord, float] = {}
        self._delivered: list[CanaryDelivery] = []
        self._arrived: dict[str, dict[CanaryRecord, float]] = {plan.origin: {}, plan.to: {}}
        self._events: list[tuple[float, str]] = []
        self._failure: ParallaxError | None = None
        self._mark = b""
        self._producing_ended = threading.Event()
        self._ended = threading.Event()
        self._producers: list[threading.Thread] = []
        self._consumers: list[threading.Thread] = []

    def now_ms(self) -> float:
        """Milliseconds since `open`."""
        return (time.monotonic() - self._began_s) * 1_000

    def open(self, drill_id: str) -> None:
        """Create the topic where it is missing, then produce and consume.

        Raises:
            ConfigError: a cluster does not allow it.
            ClusterUnavailableError: a cluster does not answer, or the topic is not replicated.
        """
        self._mark = f"{drill_id} ".encode()
        produced = {region: self._ensure_topic(region) for region in self._plan.regions}
        ways = (RegionName(self._plan.origin), RegionName(self._plan.to))
        partitions = {region: self._await_topic(region) for region in ways}
        self._began_s = time.monotonic()
        for region, count in partitions.items():
            observer = self._observer(region, count)
            self._start(self._consumers, f"drill-observe-{region}", self._observe, region, observer)
        self._start(self._consumers, "drill-consume", self._consume)
        for region, count in produced.items():
            self._start(self._producers, f"drill-produce-{region}", self._produce, region, count)

    def check(self) -> None:
        """Whether all goes on.

        Raises:
            ParallaxError: what ended a producer or consumer.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure

    def samples(self) -> Samples:
        """What has happened so far; after `close`, all of it."""
        with self._lock:
            arrived = {region: dict(records) for region, records in self._arrived.items()}
            return Samples(dict(self._acknowledged), tuple(self._delivered), arrived, tuple(self._events))

    def stop_producing(self) -> None:
        """Produce no more; returns once all is acknowledged or given up."""
        self._producing_ended.set()
        for thread in self._producers:
            thread.join(_JOIN_S)

    def close(self) -> None:
        """End everything."""
        self.stop_producing()
        self._ended.set()
        for thread in self._consumers:
            thread.join(_JOIN_S)

    # --- topics --------------------------------------------------------------------------------------------

    def _settings(self, cluster: ClusterName) -> dict[str, Any]:
        return dict(client_settings(self._config.cluster(cluster), client_id=_CLIENT))

    def _ensure_topic(self, region: RegionName) -> int:
        """The topic's partitions in the region's regional cluster; it is created if it is missing."""
        cluster, topic = regional_cluster(region), self._plan.topic
        doing = f"creating topic {topic} where it is missing"
        deadline = self._outside.time.deadline(self._plan.flow_ms)
        try:
            admin = AdminClient(self._settings(cluster))
            partitions = self._partitions(admin)
            if not partitions:
                self._create_topic(admin, cluster)
            while not partitions and not deadline.passed:
                partitions = self._partitions(admin)
                if not partitions:
                    self._outside.time.pause(_POLL_S)
        except TimeoutError as error:
            raise ClusterUnavailableError(
                f"{cluster}: {doing}: no answer within {_CALL_S:g} s: are its brokers there?"
            ) from error
        except KafkaException as error:
            raise translated(error, cluster, doing) from error
        if not partitions:
            raise ClusterUnavailableError(
                f"{cluster}: {doing}: it was made, and is not there after {self._plan.flow_ms / 1_000:g} s"
            )
        return partitions

    def _partitions(self, admin: AdminClient) -> int:
        """How many partitions the topic has; 0: it is not there."""
        metadata = admin.list_topics(timeout=_CALL_S).topics.get(self._plan.topic)
        return 0 if metadata is None else len(metadata.partitions)

    def _create_topic(self, admin: AdminClient, cluster: ClusterName) -> None:
        """Make it, unless somebody has meanwhile: a replicator does where producers and copies share a cluster."""
        topic, replication = self._plan.topic, self._config.cluster(cluster).replication_factor
        new = NewTopic(
            topic,
            _PARTITIONS,
            -1 if replication is None else replication,
            config={"retention.ms": str(_RETENTION_MS)},
        )
        made: Future[None] = admin.create_topics([new], request_timeout=_CALL_S)[topic]
        try:
            made.result(_CALL_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _await_topic(self, region: RegionName) -> int:
        """The topic's partitions in the region's aggregate cluster, once replication has created it there."""
        cluster, topic = aggregate_cluster(region), self._plan.topic
        deadline = self._outside.time.deadline(self._plan.flow_ms)
        while True:
            info = self._outside.clusters.writer(cluster).topics().get(TopicName(topic))
            if info is not None and info.partitions:
                return info.partitions
            if deadline.passed:
                raise ClusterUnavailableError(
                    f"{cluster} has no topic {topic} after {self._plan.flow_ms / 1_000:g} s: does replication run "
                    "(parallax routes), and do topics.include and topics.exclude choose it?"
                )
            self._outside.time.pause(_POLL_S)

    # --- threads -------------------------------------------------------------------------------------------

    def _start(
        self, threads: list[threading.Thread], name: str, work: Callable[..., None], *arguments: object
    ) -> None:
        def run() -> None:
            try:
                work(*arguments)
            except ParallaxError as error:
                self._fail(error)
            except KafkaException as error:
                self._fail(translated(error, ClusterName(name), "canary records"))

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        threads.append(thread)

    def _fail(self, error: ParallaxError) -> None:
        with self._lock:
            self._failure = self._failure or error

    def _produce(self, region: RegionName, partitions: int) -> None:
        cluster = regional_cluster(region)
        producer = Producer(
            {
                **self._settings(cluster),
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": _ACKNOWLEDGED_WITHIN_MS,
            }
        )
        interval_s = 1 / self._config.drill.records_per_s
        number = 0

        def done(record: CanaryRecord, error: KafkaError | None, _message: Message) -> None:
            if error is None:
                with self._lock:
                    self._acknowledged[record] = self.now_ms()
            else:
                self._fail(translated(KafkaException(error), cluster, f"producing to {self._plan.topic}"))

        while not self._producing_ended.wait(interval_s):
            producer.produce(
                self._plan.topic,
                self._mark + f"{region} {number}".encode(),
                partition=number % partitions,
                on_delivery=partial(done, (region, number)),
            )
            producer.poll(0)
            number += 1
        if producer.flush(_CALL_S):
            self._fail(ClusterUnavailableError(f"{cluster} did not acknowledge all canary records in time"))

    def _consume(self) -> None:
        def told(event: FailoverEvent) -> None:
            with self._lock:
                self._events.append((self.now_ms(), f"{event.kind.value} {event.region}"))

        clusters: Mapping[str, Mapping[str, Any]] = {
            region: self._settings(aggregate_cluster(RegionName(region)))
            for region in (self._plan.origin, self._plan.to)
        }
        consumer = FailoverConsumer(
            {
                "group.id": self._plan.group,
                "topic.metadata.refresh.interval.ms": 1_000,
                "auto.commit.interval.ms": 500,
            },
            clusters=clusters,
            region=self._plan.origin,
            services=open_client(self._config, first=self._plan.origin),
            on_event=told,
            follow_primary=True,
        )
        with consumer:
            consumer.subscribe([self._plan.topic])
            while not self._ended.is_set():
                messages = consumer.consume(500, 0.1)
                at_ms = self.now_ms()
                records = [record for message in messages if (record := self._record(message)) is not None]
                with self._lock:
                    self._delivered += [CanaryDelivery(record, at_ms, consumer.region) for record in records]

    def _observer(self, region: RegionName, partitions: int) -> Consumer:
        """Reads what comes into an aggregate cluster from now on; no group, no commits."""
        cluster, topic = aggregate_cluster(region), self._plan.topic
        consumer = Consumer(
            {
                **self._settings(cluster),
                "group.id": f"{self._plan.group}-observer",  # librdkafka asks for one; assign() never joins it
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        try:
            # OFFSET_END is looked up later, when the first records may have come already.
            ends = [
                consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=_CALL_S)[1]
                for number in range(partitions)
            ]
            consumer.assign([TopicPartition(topic, number, end) for number, end in enumerate(ends)])
        except KafkaException as error:
            consumer.close()
            raise translated(error, cluster, f"reading topic {topic}") from error
        return consumer

    def _observe(self, region: RegionName, consumer: Consumer) -> None:
        """Note when records arrive in an aggregate cluster."""
        try:
            while not self._ended.is_set():
                messages = consumer.consume(500, 0.05)
                at_ms = self.now_ms()
                with self._lock:
                    for message in messages:
                        record = self._record(message)
                        if record is not None:
                            self._arrived[region].setdefault(record, at_ms)
        finally:
            consumer.close()

    def _record(self, message: Message) -> CanaryRecord | None:
        """The canary record in a message; None: another drill's, or no record."""
        value = message.value()
        if message.error() is not None or value is None or not value.startswith(self._mark):
            return None
        region, number = value[len(self._mark) :].decode().split(" ")
        return region, int(number)
