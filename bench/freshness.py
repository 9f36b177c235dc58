"""How long after a group's commit its translated offset lies in the other cluster.

Parallax: the group commits on aggregate-a, syncjob publishes on aggregate-b. MirrorMaker 2: the group commits on the
regional cluster, its checkpoints are published on aggregate-a. One side after the other, over a light stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from bench.copiers import Copier, CopierOptions, Side
from bench.errors import BenchError
from bench.redelivery import start_services
from bench.stage import Stage, await_true
from devstack.workload.topics import committed_offsets

_START_WITHIN_S = 120.0
_PUBLISHED_WITHIN_S = 60.0
_ASK_EVERY_S = 0.05
_RECORDS = 100
_FLUSH_S = 30.0
_GROUP = "followers"


def freshness(
    stage: Stage,
    side: Side,
    name: str,
    commits: int,
    replicator: Mapping[str, Any],
    tell: Callable[[str], None] = lambda _line: None,
) -> list[float]:
    """Seconds from each commit to its translated offset's being there; the first commit only warms up.

    Args:
        stage: with the regions a and b.
        side: which one.
        name: letters and digits, unique on the stage.
        commits: how many are timed.
        replicator: Parallax's settings.
        tell: gets a line now and then.

    Raises:
        BenchError: a copier ended, or an offset was not published in time.
    """
    topic = f"follow-{name}"
    with ExitStack() as clean_up:
        stage.create_topic("regional-a", topic, 1)
        ours = side == "parallax"
        options = CopierOptions(
            routes=(("a", "a"), ("a", "b")) if ours else (("a", "a"),),
            tuning="groups",
            groups=f"{_GROUP}.*",
            replicator=replicator,
            with_sync=ours,
        )
        copier = Copier(stage, side, name, [topic], options)
        clean_up.callback(copier.stop)
        copier.start()
        if ours:
            start_services(stage, name, clean_up)
        origin, target = ("aggregate-a", "aggregate-b") if ours else ("regional-a", "aggregate-a")
        await_true(
            lambda: all(topic in stage.topics(cluster) for cluster in (origin, target)),
            _START_WITHIN_S,
            f"{name} made no topic {topic}",
        )
        producer = Producer({"bootstrap.servers": stage.bootstrap("regional-a"), "log_level": 3})
        consumer = Consumer(
            {
                "bootstrap.servers": stage.bootstrap(origin),
                "group.id": f"{_GROUP}-{name}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 3,
            }
        )
        clean_up.callback(consumer.close)
        consumer.assign([TopicPartition(topic, 0, 0)])
        taken = []
        for number in range(commits + 1):
            taken.append(_one(stage, copier, producer, consumer, topic, target, f"{_GROUP}-{name}"))
            tell(f"{side}: commit {number} published after {taken[-1]:.2f} s")
        return taken[1:]


def _one(
    stage: Stage, copier: Copier, producer: Producer, consumer: Consumer, topic: str, target: str, group: str
) -> float:
    """Send some records, read them, commit, and wait until the target's offset has moved."""
    for number in range(_RECORDS):
        producer.produce(topic, str(number).encode(), partition=0)
    if producer.flush(_FLUSH_S):
        raise BenchError(f"regional-a did not acknowledge records of {topic}")
    before = committed_offsets(stage.bootstrap(target), group, topic, [0]).get(0, -1)
    left, deadline = _RECORDS, time.monotonic() + _START_WITHIN_S
    while left:
        if time.monotonic() > deadline:
            copier.check_alive()
            raise BenchError(f"{copier.name}: {left} records of {topic} did not arrive")
        message = consumer.poll(0.2)
        if message is not None:
            if (error := message.error()) is not None:
                raise KafkaException(error)
            left -= 1
    consumer.commit(asynchronous=False)
    committed_at = time.monotonic()
    while committed_offsets(stage.bootstrap(target), group, topic, [0]).get(0, -1) <= before:
        if time.monotonic() - committed_at > _PUBLISHED_WITHIN_S:
            copier.check_alive()
            raise BenchError(f"{copier.name}: no offset was published within {_PUBLISHED_WITHIN_S:.0f} s")
        time.sleep(_ASK_EVERY_S)
    return time.monotonic() - committed_at
