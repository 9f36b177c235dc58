"""The producer and the consumer of a steady stream, each a process of its own so that neither delays the other."""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Mapping
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from lab.bench.data.batches import json_value

STAMP = struct.Struct(">QQ")
"""What a value begins with: the moment of sending (ns since 1970) and the record's number."""

_FLUSH_S = 30.0
_TICK_S = 0.001
_POLL_S = 0.1
_VARIANTS = 512
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001 - librdkafka's own code


def produce_steadily(settings: Mapping[str, Any], answer: Connection, stop: Event) -> None:
    """Send records at an even pace until told to stop; answers how many were acknowledged.

    Args:
        settings: ``bootstrap``, ``topic``, ``partitions``, ``per_s``, ``value_bytes``.
        answer: gets ``{"sent": ..., "failed": ...}``.
        stop: ends it.
    """
    producer = Producer(
        {
            "bootstrap.servers": settings["bootstrap"],
            "enable.idempotence": True,
            # Above some thousand records a second a batch leaves every millisecond, not every record.
            "linger.ms": 0 if settings["per_s"] <= 5_000 else 1,  # noqa: PLR2004
            "compression.type": "lz4",
            "log_level": 3,
        }
    )
    draw = Random(1)  # noqa: S311 - places and fares, not secrets
    rest = [json_value(draw, settings["value_bytes"])[STAMP.size :] for _ in range(_VARIANTS)]
    failed = 0

    def delivered(error: Any, _message: Any) -> None:
        nonlocal failed
        failed += error is not None

    topic, partitions, per_s = settings["topic"], settings["partitions"], settings["per_s"]
    started, sent = time.perf_counter(), 0
    while not stop.is_set():
        due = int((time.perf_counter() - started) * per_s)
        while sent < due:
            value = STAMP.pack(time.time_ns(), sent) + rest[sent % _VARIANTS]
            producer.produce(topic, value, partition=sent % partitions, on_delivery=delivered)
            sent += 1
        producer.poll(_TICK_S)
    left = producer.flush(_FLUSH_S)
    answer.send({"sent": sent, "failed": failed + left})


def consume_steadily(settings: Mapping[str, Any], answer: Connection, stop: Event) -> None:
    """Read a topic with read_committed until told to stop, and a little longer; answers all stamps.

    Args:
        settings: ``bootstrap``, ``topic``, ``partitions``, ``linger_s`` (how long it reads on after the stop).
        answer: gets some bytes with the first record, at last the stamps as bytes of unsigned 64-bit numbers: sent,
            number, received for each record.
        stop: ends it.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": settings["bootstrap"],
            "group.id": "bench-steady",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "log_level": 3,
        }
    )
    consumer.assign(
        [TopicPartition(settings["topic"], number, 0) for number in range(settings["partitions"])]
    )
    stamps: array[int] = array("Q")
    stop_at: float | None = None
    try:
        while stop_at is None or time.monotonic() < stop_at:
            if stop_at is None and stop.is_set():
                stop_at = time.monotonic() + settings["linger_s"]
            messages = consumer.consume(10_000, 0) or consumer.consume(1, _POLL_S)
            now = time.time_ns()
            for message in messages:
                problem = message.error()
                if problem is not None:
                    if problem.code() in _UNKNOWN:
                        continue
                    raise KafkaException(problem)
                value = message.value()
                if value is not None:
                    if not stamps:
                        answer.send_bytes(b"first")
                    stamps.extend((*STAMP.unpack_from(value), now))
    finally:
        consumer.close()
    answer.send_bytes(stamps.tobytes())
