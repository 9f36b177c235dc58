"""A source topic that holds every kind of record batch there is, and a look at what it does hold."""

from __future__ import annotations

import random
from collections.abc import Iterator

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType
from confluent_kafka.admin._config import ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName, TopicName, TopicPartition
from replicator.format.batch import Batch, BatchPlace, split
from replicator.kafka.batch.exchange import Fetch, WantedPartition
from tests.support import poll_until
from tests.worlds.shard_harness import PATIENCE_S, Harness, create

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CLEANED_WITHIN_S = 120.0
_NEVER_MS = str(7 * 24 * 3_600 * 1_000)
_LARGEST_VALUE_BYTES = 1_048_000
"""With what surrounds it, a batch just below the default ``max.message.bytes``."""


def produce_everything(harness: Harness) -> Producer:
    """Fill partition 0; the producer that is handed back holds a transaction open behind everything else."""
    numbers = iter(range(10**9))
    for codec in CODECS:
        plain = Producer({"bootstrap.servers": harness.source, "compression.type": codec, "linger.ms": 50})
        _write(plain, harness.topic, numbers, 40)
        for _ in range(3):
            _write(plain, harness.topic, numbers, 1)
        idempotent = Producer(
            {"bootstrap.servers": harness.source, "compression.type": codec, "enable.idempotence": True}
        )
        _write(idempotent, harness.topic, numbers, 30)
        transactional = Producer(
            {
                "bootstrap.servers": harness.source,
                "compression.type": codec,
                "transactional.id": f"{harness.topic}-{codec}",
            }
        )
        transactional.init_transactions()
        for aborts in (False, True, False):
            transactional.begin_transaction()
            _write(transactional, harness.topic, numbers, 25)
            _write(plain, harness.topic, numbers, 5)
            if aborts:
                transactional.abort_transaction()
            else:
                transactional.commit_transaction()
    large = Producer({"bootstrap.servers": harness.source, "message.max.bytes": 2_000_000})
    large.produce(harness.topic, random.Random(3).randbytes(_LARGEST_VALUE_BYTES), b"large", partition=0)
    assert large.flush(PATIENCE_S) == 0
    with_broker_time(harness.source_admin, harness.topic, on=True)
    for codec in CODECS:
        stamped = Producer({"bootstrap.servers": harness.source, "compression.type": codec, "linger.ms": 50})
        _write(stamped, harness.topic, numbers, 10)
    with_broker_time(harness.source_admin, harness.topic, on=False)
    _write(Producer({"bootstrap.servers": harness.source}), harness.topic, numbers, 10)
    open_one = Producer({"bootstrap.servers": harness.source, "transactional.id": f"{harness.topic}-open"})
    open_one.init_transactions()
    open_one.begin_transaction()
    _write(open_one, harness.topic, numbers, 10)
    _write(Producer({"bootstrap.servers": harness.source}), harness.topic, numbers, 10)
    return open_one


def _write(producer: Producer, topic: str, numbers: Iterator[int], count: int) -> None:
    for _ in range(count):
        number = next(numbers)
        producer.produce(
            topic,
            value=None if number % 7 == 0 else f"value {number} ".encode() * (number % 9 + 1),
            key=None if number % 5 == 0 else f"key {number}",
            partition=0,
            headers=[("h", b"1"), ("h", None), ("\u00fc", str(number).encode())] if number % 3 else [],
            timestamp=1_600_000_000_000 + (number * 7_919) % 100_000,
        )
    assert producer.flush(PATIENCE_S) == 0


def with_broker_time(admin: AdminClient, topic: str, *, on: bool) -> None:
    """Let the broker stamp the records of a topic with its own time, or leave their own."""
    alter(admin, topic, "message.timestamp.type", "LogAppendTime" if on else "CreateTime")


def alter(admin: AdminClient, topic: str, name: str, value: str) -> None:
    """Change a setting of a topic; returns when the broker has taken it over."""
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(PATIENCE_S)

    def applied() -> bool:
        asked = ConfigResource(ResourceType.TOPIC, topic)
        settings = admin.describe_configs([asked])[asked].result(PATIENCE_S)
        return bool(settings[name].value == value)

    poll_until(applied, PATIENCE_S, f"{topic} has {name}={value}")


def produce_compacted(harness: Harness, topic: str) -> None:
    """A topic whose batches the broker's cleaner has thinned out: holes, and delete horizons."""
    create(
        harness.source_admin,
        topic,
        1,
        {
            "cleanup.policy": "compact",
            "segment.ms": "200",
            "min.cleanable.dirty.ratio": "0.01",
            "min.compaction.lag.ms": "0",
        },
    )
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": harness.source,
                "compression.type": codec,
                "linger.ms": 50,
                "transactional.id": f"{topic}-{codec}",
            }
        )
        producer.init_transactions()
        for outcome in ("commit", "abort", "commit"):
            producer.begin_transaction()
            for number in range(60):
                producer.produce(
                    topic,
                    value=None if number % 9 == 0 else f"{codec} {outcome} {number}",
                    key=f"key {number if number % 3 else codec + str(number)}",
                    partition=0,
                    headers=[("n", str(number).encode())],
                )
            producer.flush()
            (producer.commit_transaction if outcome == "commit" else producer.abort_transaction)()

    def cleaned() -> bool:
        # A segment is closed by the first record behind its time; only closed ones are cleaned.
        producer = Producer({"bootstrap.servers": harness.source})
        producer.produce(topic, value="last", key="last", partition=0)
        assert producer.flush(PATIENCE_S) == 0
        found = batches(harness, topic)
        return any(0 < batch.count <= batch.last_offset_delta for batch in found) and any(
            batch.attributes & 0x40 for batch in found
        )

    poll_until(cleaned, _CLEANED_WITHIN_S, f"{topic} is compacted")
    # Cleaned again after it was copied, the source would lack records that the runs tell of, rightly.
    alter(harness.source_admin, topic, "min.compaction.lag.ms", _NEVER_MS)


def batches(harness: Harness, topic: str, partition: int = 0) -> list[Batch]:
    """Every batch of a source partition as it stands in its log, control batches and aborted ones included."""
    loop = EventLoop()
    cluster = ClusterName("regional-a")
    connections = Connections(
        loop,
        cluster,
        Cluster(bootstrap_servers=harness.source),
        client_id="every-kind",
        largest_answer_bytes=2**26,
    )
    item = TopicPartition(TopicName(topic), partition)
    try:
        connections.connect()
        assert not connections.learn_leaders([item], timeout_ms=10_000)
        topic_id = connections.topic_id(item.topic)
        assert topic_id is not None
        start, end = _range(harness.source, topic, partition)
        found: list[Batch] = []
        position = start
        while position < end:
            request = Fetch(
                [WantedPartition(topic_id, partition, position)],
                wait_ms=10,
                most_bytes=2**24,
                partition_bytes=2**24,
                committed=False,
            )
            answer = connections.ask(connections.leader(item), request, "reading batches")
            [part] = answer.partitions
            assert part.error_code == 0
            found += split(part.records, BatchPlace(cluster, item), at_offset=position)
            position = found[-1].next_offset
        return found
    finally:
        connections.close()
        loop.close()


def _range(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "range", "isolation.level": "read_uncommitted"}
    )
    try:
        found = consumer.get_watermark_offsets(KafkaPartition(topic, partition), timeout=10)
        assert found is not None
        return found
    finally:
        consumer.close()
