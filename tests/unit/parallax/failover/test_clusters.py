"""What moves side by side ask a cluster alike: asked once, and failed once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

import pytest

from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.place import LogRange
from parallax.errors import ClusterUnavailableError, ConfigError
from parallax.failover.clusters import AggregateClusters, SharedView
from parallax.ports.clusters import ClusterWriter, GroupState, TopicInfo

P0, P1 = (TopicPartition(TopicName("trips"), number) for number in range(2))


class Cluster:
    """Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.now_s = 100.0
        self.away = False
        self.end = 10

    def groups(self) -> list[GroupState]:
        self._count("groups")
        return [
            GroupState(GroupName("billing"), "Stable", 2),
            GroupState(GroupName("secret"), "Stable", 1, refused="not allowed"),
        ]

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        self._count("topics")
        return {P0.topic: TopicInfo(P0.topic, TopicId("id"), 2)}

    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        self._count(f"logs of {len(partitions)}")
        return {item: LogRange(TargetOffset(0), TargetOffset(self.end)) for item in partitions if item == P0}

    def _count(self, what: str) -> None:
        self.asked.append(what)
        if self.away:
            self.now_s += 3.0  # a time-out
            raise ClusterUnavailableError("aggregate-b does not answer")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def view(cluster: Cluster) -> SharedView:
    return SharedView(cast("ClusterWriter", cluster), lambda: cluster.now_s)


def test_one_listing_of_groups_serves_all_for_half_a_second(cluster: Cluster) -> None:
    shared = view(cluster)
    state = shared.group(GroupName("billing"))
    assert state is not None
    assert state.members == 2
    assert shared.group(GroupName("other")) is None
    with pytest.raises(ConfigError, match="not allowed"):
        shared.group(GroupName("secret"))
    assert cluster.asked == ["groups"]
    cluster.now_s += 0.5
    shared.group(GroupName("other"))
    assert cluster.asked == ["groups", "groups"]


def test_log_ranges_are_asked_of_those_partitions_alone_that_nobody_has_just_asked_about(
    cluster: Cluster,
) -> None:
    shared = view(cluster)
    shared.log_ranges([P0])
    assert list(shared.log_ranges([P0, P1])) == [P0]  # the other one is not there
    shared.log_ranges([P1, P0])
    assert cluster.asked == ["logs of 1", "logs of 1"]
    cluster.end, cluster.now_s = 20, cluster.now_s + 0.5
    assert shared.log_ranges([P0, P1])[P0].high_watermark == 20
    assert cluster.asked[2:] == ["logs of 2"]


def test_topics_are_asked_about_anew_after_half_a_second(cluster: Cluster) -> None:
    shared = view(cluster)
    for _ in range(3):
        assert shared.topics()[P0.topic].topic_id == "id"
    assert cluster.asked == ["topics"]
    cluster.now_s += 0.5
    shared.topics()
    assert cluster.asked == ["topics", "topics"]


def test_a_time_out_is_waited_for_once(cluster: Cluster) -> None:
    cluster.away = True
    shared = view(cluster)
    for _ in range(3):
        with pytest.raises(ClusterUnavailableError, match="aggregate-b does not answer"):
            shared.log_ranges([P0])
        with pytest.raises(ClusterUnavailableError, match="aggregate-b does not answer"):
            shared.topics()
    assert cluster.asked == ["logs of 1"]
    cluster.away, cluster.now_s = False, cluster.now_s + 0.5
    assert list(shared.log_ranges([P0])) == [P0]


def test_topics_of_a_dead_cluster_are_not_asked_for_again_for_five_seconds(cluster: Cluster) -> None:
    name, writer = ClusterName("aggregate-b"), cast("ClusterWriter", cluster)
    clusters = AggregateClusters({name: writer}, lambda: cluster.now_s)
    cluster.away = True
    for _ in range(4):
        assert clusters.topics(name) is None
        cluster.now_s += 1.0
    assert cluster.asked == ["topics"]
    cluster.away, cluster.now_s = False, cluster.now_s + 5.0
    assert list(clusters.topics(name) or ()) == [P0.topic]
