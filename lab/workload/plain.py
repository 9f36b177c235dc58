"""The plain consuming process: `confluent_kafka.Consumer` and nothing of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from lab.stack.access import kafka_client
from lab.stack.secure.material import CONSUMER
from lab.workload.channel import Channel
from lab.workload.consuming import ConsumeLoop
from lab.workload.delivered import DeliveredLog


def consume_plainly(
    *,
    bootstrap_servers: str,
    cluster: str,
    group: str,
    topic: str,
    log: Path,
    stage: int,
    offset_reset: str,
    per_s: float | None,
    channel: Channel,
) -> None:
    """Consume as a member of a group, from its committed offsets on.

    Args:
        bootstrap_servers: of the cluster to read.
        cluster: its name, for the log.
        group: the consumer group.
        topic: what to subscribe to.
        log: file for the deliveries.
        stage: moves that the group has made already.
        offset_reset: where to start without a committed offset.
        per_s: at most so many records a second; None: no limit.
        channel: commands and status.

    Raises:
        ConsumeError: the consumer is broken for good.
    """
    settings: dict[str, Any] = {
        **kafka_client(bootstrap_servers, CONSUMER),
        "client.id": log.stem,
        "group.id": group,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": offset_reset,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 1_000,
        # Keep what a throttled consumer holds back in memory small.
        "queued.max.messages.kbytes": 2_048,
        "log_level": 3,
    }
    consumer = Consumer(settings)
    with DeliveredLog(log) as delivered:
        loop = ConsumeLoop(
            consumer,
            commit=lambda wait: _commit(consumer, wait=wait),
            where=lambda: (stage, cluster),
            log=delivered,
            channel=channel,
            per_s=per_s,
        )

        def assigned(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
            channel.say("assigned", partitions=[partition.partition for partition in partitions])

        def revoked(_consumer: Consumer, _partitions: list[TopicPartition]) -> None:
            loop.commit_on_revoke()
            loop.forget_positions()

        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
        loop.run()


def _commit(consumer: Consumer, *, wait: bool) -> None:
    if not wait:
        consumer.commit(asynchronous=True)
        return
    for partition in consumer.commit(asynchronous=False) or []:
        if partition.error is not None:
            raise KafkaException(partition.error)
