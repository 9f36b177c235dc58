"""A canary on a real route: written at the source, copied as any record, told of, and missed when none comes."""

from __future__ import annotations

from parallax.config.config import Config
from parallax.domain.ids import TopicName, TopicPartition
from replicator.kafka.canary import CanaryWriter, clusters_to_write_to
from replicator.leases.canary import CanaryBoard, CanaryState, watched_topics
from tests.support import Stack, poll_until
from tests.worlds.shard_harness import PATIENCE_S, Harness, await_markers, check_rows

LATE_AFTER_S = 5.0


class Clock:
    """Stands until it is set."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_canary_sings_on_each_shard_and_is_missed_when_it_does_not(
    infrastructure: Stack, topic_name: str
) -> None:
    harness = Harness(infrastructure, topic_name)
    harness.create()
    topic = f"{topic_name}-canary"
    canary = {"enabled": True, "topic": topic, "interval_s": 1, "late_after_s": LATE_AFTER_S}
    config = Config.model_validate(harness.config().model_dump() | {"canary": canary})
    route, clock = harness.route, Clock()
    board = CanaryBoard(watched_topics(config, [route]), config.canary, clock)
    [(cluster, routes)] = clusters_to_write_to(config, [route]).items()
    writer = CanaryWriter(config, cluster, routes, "test")

    owner = harness.own(config)
    heard = 0

    def state() -> CanaryState:
        nonlocal heard
        for progress in owner.progress[heard:]:
            board.heard(progress)
            heard += 1
        found = board.of(route)
        assert found is not None
        return found

    writer.round()
    poll_until(lambda: state().latency_ms is not None, PATIENCE_S, "a canary has come")
    took_ms = state().latency_ms
    assert took_ms is not None
    assert took_ms < PATIENCE_S * 1_000
    clock.now_s += LATE_AFTER_S + 1
    assert state().late
    assert board.troubles()
    writer.round()
    poll_until(lambda: not state().late, PATIENCE_S, "another one has come")
    owner.finish()
    await_markers(harness.target, topic)
    assert [len(values) for values in harness.copied(topic).values()] == [2]
    assert check_rows(harness, topic=topic) == 2


def test_there_is_one_for_each_shard(infrastructure: Stack, topic_name: str) -> None:
    harness = Harness(infrastructure, topic_name)
    topic = f"{topic_name}-canary"

    def config(shards: int) -> Config:
        values = harness.config(shards_per_route=shards).model_dump()
        return Config.model_validate(values | {"canary": {"enabled": True, "topic": topic}})

    for shards in (1, 3):
        made = config(shards)
        cluster = made.source_cluster(harness.route)
        CanaryWriter(made, cluster, [harness.route], "test").round()
        found = harness.source_admin.list_topics(topic, timeout=10).topics[TopicName(topic)].partitions
        leases = [harness.lease(made, shard=shard, shards=shards) for shard in range(shards)]
        held = [
            [number for number in found if lease.has(TopicPartition(TopicName(topic), number))]
            for lease in leases
        ]
        assert [len(numbers) for numbers in held] == [1] * shards
