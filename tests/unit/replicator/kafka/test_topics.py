"""How a target's topic is made to fit its source, over clusters that are dictionaries."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from parallax.config.config import Config
from parallax.domain.ids import ClusterName, Route, TopicId, TopicName
from parallax.errors import ClusterUnavailableError, ConfigError, ParallaxError, PartitionStoppedError
from parallax.ports.clusters import TopicInfo
from parallax.runtime.deadline import Deadline
from replicator.kafka import topics as module
from replicator.kafka.topics import TargetTopics, TopicPlan

TRIPS = TopicName("trips")
TARGET = ClusterName("aggregate-b")


def info(partitions: int) -> TopicInfo:
    return TopicInfo(TRIPS, TopicId("id"), partitions)


@dataclass
class FakeAdmin:
    """A cluster with at most one topic; another route may be faster to create it, and growing may be refused."""

    there: TopicInfo | None = None
    faster: int | None = None
    refusal: ParallaxError | None = None
    grown: list[int] = field(default_factory=list)
    cluster: ClusterName = TARGET
    described: bool = True

    def topics(self) -> dict[TopicName, TopicInfo]:
        return {} if self.there is None else {TRIPS: self.there}

    def configs(self, topics: list[TopicName]) -> dict[TopicName, dict[str, str]]:
        return {name: {} for name in topics if self.described}

    def create(self, plan: TopicPlan, _deadline: Deadline) -> TopicInfo:
        self.there = info(self.faster or plan.partitions)
        return self.there

    def grow(self, _topic: TopicName, partitions: int, _deadline: Deadline) -> TopicInfo:
        if self.refusal is not None:
            raise self.refusal
        assert self.there is not None
        self.grown.append(partitions)
        self.there = replace(self.there, partitions=partitions)
        return self.there


def fit(
    target: FakeAdmin, monkeypatch: pytest.MonkeyPatch, *, source_partitions: int = 4, described: bool = True
) -> FakeAdmin:
    source = FakeAdmin(info(source_partitions), cluster=ClusterName("regional-a"), described=described)
    admins = {"regional-a": source, TARGET: target}

    def admin(cluster: ClusterName, *_settings: object, **_more: object) -> FakeAdmin:
        return admins[cluster]

    monkeypatch.setattr(module, "TopicAdmin", admin)
    server = {"bootstrap_servers": "127.0.0.1:1"}
    config = Config.model_validate(
        {
            "regions": {"a": {"regional": server}, "b": {"aggregate": server}},
            "cassandra": {"contact_points": ["127.0.0.1:1"]},
        }
    )
    TargetTopics(config, Route.parse("a->b")).fit(info(source_partitions))
    return target


@pytest.mark.parametrize(
    ("target", "grown"),
    [
        (FakeAdmin(), []),
        (FakeAdmin(info(2)), [4]),
        (FakeAdmin(info(6)), []),
        (FakeAdmin(faster=2), [4]),
    ],
    ids=["missing", "fewer", "more", "another route was faster, from a source with fewer"],
)
def test_a_target_has_at_least_as_many_partitions_as_its_source(
    target: FakeAdmin, grown: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fit(target, monkeypatch).grown == grown
    assert target.there is not None
    assert target.there.partitions >= 4


def test_a_target_that_can_not_grow_says_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FakeAdmin(info(2), refusal=ConfigError("aggregate-b: growing topic 'trips': not authorised"))
    with pytest.raises(PartitionStoppedError) as caught:
        fit(target, monkeypatch)
    told = str(caught.value)
    assert told.startswith(
        "PARTITION_MISMATCH: topic 'trips' has 4 partitions at the source and 2 on aggregate-b"
    )
    assert "not authorised" in told
    assert "--partitions 4" in told


def test_a_topic_whose_settings_no_broker_tells_yet_is_not_made_with_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = FakeAdmin()
    with pytest.raises(ClusterUnavailableError, match="regional-a: topic 'trips' is not known"):
        fit(target, monkeypatch, described=False)
    assert target.there is None
