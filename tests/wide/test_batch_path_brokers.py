"""The batch path between clusters of three brokers whose leaders are killed, and come back, under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from lab.stack.process import ProcessState
from lab.stack.spec import StackSpec
from lab.stack.stack import LocalStack
from replicator.kafka.run_log import run_log_topic
from tests.support import poll_until, unique_name
from tests.worlds.shard_harness import PATIENCE_S, Harness, ends, same_on_both_sides

_OWN_STACK_TIMEOUT_S = 600
_LEASE_S = 400
_RECORDS_PER_S = 2_000
_MORE = 2_000
_WITHIN_S = 120.0


@contextmanager
def load(harness: Harness) -> Iterator[None]:
    """Write numbered records into both partitions, steadily, until the end of the block."""
    stop = threading.Event()

    def write() -> None:
        producer = Producer(
            {"bootstrap.servers": harness.source, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        number = 0
        while not stop.wait(0.05):
            for _ in range(_RECORDS_PER_S // 20):
                producer.produce(
                    harness.topic, value=f"value {number}", key=str(number), partition=number % 2
                )
                number += 1
            producer.poll(0)
        assert producer.flush(PATIENCE_S) == 0

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield
    finally:
        stop.set()
        writer.join(PATIENCE_S)
        assert not writer.is_alive()


def leader(admin: AdminClient, topic: str) -> int:
    """Broker that leads the topic's first partition."""
    return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)


def replicas(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].replicas)


@pytest.mark.stack
@pytest.mark.timeout(_OWN_STACK_TIMEOUT_S)
def test_leaders_die_and_return_on_both_sides_and_no_record_is_lost_or_doubled(tmp_path: Path) -> None:
    spec = StackSpec(("m",), brokers={"regional-m": 3, "aggregate-m": 3}, services=False, store=False)
    with LocalStack(spec, tmp_path) as stack:
        harness = Harness(
            stack, unique_name("leaders"), clusters=("regional-m", "aggregate-m"), source_replicas=3
        )
        harness.create(2)
        config = harness.config()
        lease = replace(harness.lease(config), deadline_unix_ms=int((time.time() + _LEASE_S) * 1_000))
        owner = harness.own(config, lease=lease)

        def copied() -> int:
            return sum(part.records for part in owner.progress[-1].partitions) if owner.progress else 0

        def goes_on(what: str) -> None:
            before = copied()
            poll_until(lambda: copied() > before + _MORE, _WITHIN_S, f"copying goes on {what}")

        with load(harness):
            goes_on("at first")
            for cluster, admin in (
                ("aggregate-m", harness.target_admin),
                ("regional-m", harness.source_admin),
            ):
                assert sorted(admin.list_topics(timeout=10).brokers) == [1, 2, 3]
                broker = f"{cluster}-{leader(admin, harness.topic)}"
                stack.kill(broker)
                assert stack.process(broker).state is ProcessState.KILLED
                goes_on(f"without {broker}")
                stack.start(cluster)
                assert stack.process(broker).state is ProcessState.READY
                goes_on(f"with {broker} again")
        assert replicas(harness.target_admin, harness.topic) == 3
        assert replicas(harness.target_admin, run_log_topic(config, harness.route.source)) == 3
        total = sum(ends(harness.source, harness.topic))
        poll_until(lambda: copied() == total, _WITHIN_S, "everything is copied")
        result = owner.finish()
        assert result.stopped == {}
        assert same_on_both_sides(harness) == result.records == total
