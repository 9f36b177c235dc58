"""A round of settings where a cluster tells less than all. Brokers can't be made to do so at will: they are stand-ins."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from parallax.adapters.kafka.topic_settings import SeenSettings
from parallax.config.config import parse
from parallax.domain.ids import GroupName, RegionName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.place import LogRange
from parallax.domain.topic_settings import SettingState, TopicSetting
from parallax.ports.clusters import TopicInfo
from parallax.upkeep import settings as upkeep_settings
from parallax.upkeep.settings import SettingsKeeper

TRIPS = TopicName("trips")
COPY = TRIPS
GROUP = GroupName("billing")
SHORT = TopicSetting("3600000", "3600000", "604800000", builtin=False)
DELETE = TopicSetting("delete", None, "delete", builtin=True)
NOBODYS = TopicSetting("604800000", None, "604800000", builtin=True)


@dataclass
class State:
    group: GroupName
    refused: str = ""


@dataclass
class Commit:
    next_offset: int


@dataclass
class Stand:
    """One cluster, in place of its client, its settings and its table."""

    listed: dict[TopicName, int]
    settings: dict[TopicName, dict[str, TopicSetting]] = field(default_factory=dict)
    unseen: frozenset[TopicName] = frozenset()
    ranges: dict[int, LogRange] = field(default_factory=dict)
    commits: dict[int, int] = field(default_factory=dict)
    cluster: str = "stand"

    def topics(self) -> dict[TopicName, TopicInfo]:
        return {name: TopicInfo(name, TopicId("1"), count) for name, count in self.listed.items()}

    def hidden(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        return self.unseen & frozenset(topics)

    def read(self, topics: Collection[TopicName] | None = None) -> Any:
        if topics is None:
            return {}
        return SeenSettings({name: self.settings[name] for name in topics if name in self.settings}, {})

    def groups(self, _chosen: Callable[[GroupName], bool]) -> list[State]:
        return [State(GROUP)]

    def committed(self, _group: GroupName) -> Mapping[TopicPartition, Commit]:
        return {TopicPartition(COPY, number): Commit(offset) for number, offset in self.commits.items()}

    def log_ranges(self, places: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        return {place: self.ranges[place.partition] for place in places if place.partition in self.ranges}

    def offset_at(self, place: TopicPartition, _timestamp_ms: int) -> TargetOffset:
        return self.ranges[place.partition].high_watermark


def keeper(monkeypatch: pytest.MonkeyPatch, source: Stand, target: Stand) -> SettingsKeeper:
    def stand(cluster: str, *_args: Any, **_settings: Any) -> Stand:
        return target if cluster == "aggregate-b" else source

    for name in ("KafkaCluster", "SettingsDoor", "CompactedTable"):
        monkeypatch.setattr(upkeep_settings, name, stand)
    kafka = {"cluster": {"bootstrap_servers": "127.0.0.1:9092"}}
    config = parse(
        {
            "regions": {"a": kafka, "b": {"cluster": {"bootstrap_servers": "127.0.0.1:9093"}}},
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": ["a->b"],
        }
    )
    return SettingsKeeper(config, RegionName("b"))


@pytest.mark.parametrize(
    "source", [Stand({}, unseen=frozenset({TRIPS})), Stand({TRIPS: 1})], ids=["hidden", "no settings"]
)
def test_a_topic_that_its_source_does_not_show_is_unreadable(
    monkeypatch: pytest.MonkeyPatch, source: Stand
) -> None:
    """Hidden from this client, or listed and then unknown to DescribeConfigs."""
    plan = keeper(monkeypatch, source, Stand({COPY: 1}, {COPY: {}})).plan()
    assert [row.finding.state for row in plan.rows()] == [SettingState.CONFIG_UNREADABLE]


@pytest.mark.parametrize(
    ("ranges", "commits"),
    [
        pytest.param({0: (0, 9)}, {0: 9}, id="partition 1 has no leader"),
        pytest.param({0: (0, 9), 1: (0, 9)}, {0: 9}, id="nothing committed on partition 1"),
    ],
)
def test_what_may_be_unread_holds_shorter_retention_back(
    monkeypatch: pytest.MonkeyPatch, ranges: dict[int, tuple[int, int]], commits: dict[int, int]
) -> None:
    spans = {
        number: LogRange(TargetOffset(low), TargetOffset(high)) for number, (low, high) in ranges.items()
    }
    source = Stand({TRIPS: 2}, {TRIPS: {"retention.ms": SHORT, "cleanup.policy": DELETE}})
    target = Stand(
        {COPY: 2}, {COPY: {"retention.ms": NOBODYS, "cleanup.policy": DELETE}}, ranges=spans, commits=commits
    )
    plan = keeper(monkeypatch, source, target).plan(allow_shrink=False)
    assert [row.finding.state for row in plan.rows()] == [SettingState.CONFIG_SHRINK]


def test_a_shorter_retention_waits_with_the_policy_that_is_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    compact = TopicSetting("compact", "compact", "delete", builtin=False)
    source = Stand({TRIPS: 1}, {TRIPS: {"retention.ms": SHORT, "cleanup.policy": compact}})
    target = Stand(
        {COPY: 1},
        {COPY: {"retention.ms": NOBODYS, "cleanup.policy": DELETE}},
        ranges={0: LogRange(TargetOffset(0), TargetOffset(9))},
        commits={0: 3},
    )
    plan = keeper(monkeypatch, source, target).plan(allow_shrink=False)
    assert plan.changes() == []
    assert [row.finding.state for row in plan.rows()] == [SettingState.CONFIG_SHRINK] * 2
