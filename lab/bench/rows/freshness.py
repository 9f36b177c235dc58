"""How long after a group's commit its translated offset lies in the other cluster.

Parallax: the group commits on aggregate-a, syncjob publishes on aggregate-b. MirrorMaker 2: the group commits on the
regional cluster, its checkpoints are published on aggregate-a. One side after the other, over a light stream.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from lab.bench import BenchError
from lab.bench.report import Measure, Round, percentile
from lab.bench.rows import BenchPlace, Play, Row
from lab.bench.rows.moves import start_services
from lab.bench.sides import BOTH, Copier, CopierOptions, Side, is_parallax
from lab.bench.stage import BenchStage
from lab.workload.topics import committed_offsets

_ARRIVED_WITHIN_S = 600.0
_PUBLISHED_WITHIN_S = 300.0
_ASK_EVERY_S = 0.05
"""So far off a measured time may be."""
_RECORDS = 100
_FLUSH_S = 30.0
_SMOKE_COMMITS = 3


@dataclass(frozen=True)
class FreshnessRow(Row):
    """From a group's commit to its translated offset; ``commits`` of each side."""

    commits: int = 20

    @property
    def place(self) -> BenchPlace:
        """Two aggregate clusters."""
        return BenchPlace(("a", "b"))

    def play(self, play: Play) -> None:
        """Each side once, with many commits."""
        commits = _SMOKE_COMMITS if play.settings.smoke else self.commits
        for side in BOTH:
            if not play.store.has(side, 1):
                taken = sorted(_taken_s(play, side, commits))
                measures = (
                    Measure(f"{self.name}: p50", "s", "lower", percentile(taken, 50)),
                    Measure(f"{self.name}: max", "s", "lower", taken[-1]),
                )
                play.store.add(Round(side, 1, measures, {"seconds": taken}))


def _taken_s(play: Play, side: Side, commits: int) -> list[float]:
    """Seconds from each commit to its translated offset's being there; the first commit only warms up."""
    stage, ours, topic = play.stage, is_parallax(side), f"follow-{side}"
    group = f"{topic}-group"
    with ExitStack() as clean_up:
        stage.create_topic("regional-a", topic, 1)
        options = CopierOptions(
            routes=(("a", "a"), ("a", "b")) if ours else (("a", "a"),),
            tuning="groups",
            groups=f"{topic}.*",
            with_sync=ours,
        )
        copier = Copier(stage, side, [topic], options)
        clean_up.callback(copier.stop)
        copier.start()
        if ours:
            start_services(stage, copier, clean_up)
        origin, target = ("aggregate-a", "aggregate-b") if ours else ("regional-a", "aggregate-a")
        copier.await_topic(topic, [origin, target])
        producer = Producer({"bootstrap.servers": stage.bootstrap("regional-a"), "log_level": 3})
        consumer = Consumer(
            {
                "bootstrap.servers": stage.bootstrap(origin),
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 3,
            }
        )
        clean_up.callback(consumer.close)
        consumer.assign([TopicPartition(topic, 0, 0)])
        taken = []
        for number in range(commits + 1):
            taken.append(_one(stage, copier, producer, consumer, topic, target, group))
            play.tell(f"{side}: commit {number} published after {taken[-1]:.2f} s")
        return taken[1:]


def _one(
    stage: BenchStage,
    copier: Copier,
    producer: Producer,
    consumer: Consumer,
    topic: str,
    target: str,
    group: str,
) -> float:
    """Send some records, read them, commit, and wait until the target's offset has moved."""
    for number in range(_RECORDS):
        producer.produce(topic, str(number).encode(), partition=0)
    if producer.flush(_FLUSH_S):
        raise BenchError(f"regional-a did not acknowledge records of {topic}")
    before = committed_offsets(stage.bootstrap(target), group, topic, [0]).get(0, -1)
    left, deadline = _RECORDS, time.monotonic() + _ARRIVED_WITHIN_S
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
