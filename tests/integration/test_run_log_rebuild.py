"""A run log that is deleted under a running route, on real brokers: refused by name, rebuilt, gone on with."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from parallax.domain.ids import ClusterName, aggregate_cluster
from parallax.errors import FencedError
from replicator.kafka.rebuild import Rebuild
from replicator.kafka.run_log import run_log_topic
from replicator.kafka.run_log_check import check_route
from replicator.kafka.topics import RUN_LOG_SETTINGS, TopicAdmin
from replicator.run_log_command import record_offsets
from tests.memory.index import MemoryMappingIndex
from tests.support import Stack
from tests.worlds.shard_harness import Harness, until


@pytest.fixture(params=["batch", "record"])
def harness(infrastructure: Stack, topic_name: str, request: pytest.FixtureRequest) -> Harness:
    return Harness(infrastructure, topic_name, request.param)


def values(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


@pytest.mark.parametrize("kind", ["deleted", "stray_record"])
def test_a_run_log_lost_under_its_owner_is_refused_and_rebuilt_without_loss(
    harness: Harness, kind: str
) -> None:
    config, index = harness.config(), MemoryMappingIndex()
    harness.create(2)
    owner = harness.own(config, index)
    for partition in range(2):
        harness.produce(values(f"{partition}a", 50), partition)
    harness.wait_for({0: values("0a", 50), 1: values("1a", 50)})
    topic = run_log_topic(config, harness.route.source)
    admin = TopicAdmin(target_of(harness), config.cluster(target_of(harness)), timeout_ms=10_000)
    settings = admin.configs([topic])[topic]
    assert {name: settings[name] for name in RUN_LOG_SETTINGS} == RUN_LOG_SETTINGS
    until(lambda: index.indexed_up_to(harness.route, 1, 0), "the index")
    if kind == "deleted":
        harness.target_admin.delete_topics([topic])[topic].result()
        until(lambda: owner.progress[-1].waiting_for.startswith("RUN_LOG_"), "the refusal of the owner")
    else:
        producer = Producer({"bootstrap.servers": harness.target})
        producer.produce(topic, value="typed by somebody", partition=0)
        assert producer.flush(30) == 0
        owner.finish()
        owner = harness.own(config, index)
        until(
            lambda: owner.progress and owner.progress[-1].waiting_for.startswith("RUN_LOG_FOREIGN: "),
            "the refusal of the next owner",
        )
    for partition in range(2):
        harness.produce(values(f"{partition}b", 50), partition)
    found = check_route(config, harness.route, index.indexed_up_to)
    assert found.problems
    assert found.problems[0].startswith("RUN_LOG_")

    def rebuild() -> Rebuild:
        return Rebuild(
            config,
            harness.route,
            index,
            lambda cluster: TopicAdmin(cluster, config.cluster(cluster), timeout_ms=10_000),
            record_offsets(config, admin.cluster),
        )

    plan = rebuild().plan()
    assert plan.layout == 2
    done = rebuild().execute()
    assert done.twice is not None
    until(
        lambda: isinstance(owner.failure, FencedError),
        "the end of the owner, which a newer layout has replaced",
    )
    assert not check_route(config, harness.route, index.indexed_up_to).problems
    following = harness.own(config, index)
    expected = {number: values(f"{number}a", 50) + values(f"{number}b", 50) for number in range(2)}
    until(
        lambda: all(set(expected[number]) <= set(harness.copied().get(number, [])) for number in range(2)),
        "the rest",
    )
    following.finish()
    copied = harness.copied()
    again = sum(len(found) - len(set(found)) for found in copied.values())
    assert {number: set(found) for number, found in copied.items()} == {
        number: set(found) for number, found in expected.items()
    }, "lost"
    assert again <= done.twice, "more came twice than was told"
    if kind == "stray_record":  # all of it was indexed, or still in the run log
        assert again == 0


def target_of(harness: Harness) -> ClusterName:
    return aggregate_cluster(harness.route.target)
