"""A round of rules of access where a source tells less than all. Brokers can't be made to do so at will: they are stand-ins."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from parallax.config.config import parse
from parallax.domain.access_rules import AccessKind, AccessOperation, AccessRule, NameMatch
from parallax.domain.ids import RegionName, TopicId, TopicName
from parallax.ports.clusters import TopicInfo
from parallax.upkeep import access
from parallax.upkeep.access import AccessKeeper, OwnedRule

TRIPS, RIDES = TopicName("trips"), TopicName("rides")


def allows(topic: str, principal: str = "User:reader") -> AccessRule:
    return AccessRule(
        AccessKind.TOPIC, NameMatch.LITERAL, topic, principal, "*", AccessOperation.READ, allow=True
    )


@dataclass
class Stand:
    """One cluster, in place of its client and its rules."""

    listed: Collection[TopicName]
    rules: set[AccessRule]
    cluster: str = "stand"
    unseen: frozenset[TopicName] = frozenset()
    table: dict[str, bytes] = field(default_factory=dict)

    def topics(self) -> dict[TopicName, TopicInfo]:
        return {name: TopicInfo(name, TopicId("1"), 1) for name in self.listed}

    def hidden(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        return self.unseen & frozenset(topics)

    def read(self) -> frozenset[AccessRule]:
        return frozenset(self.rules)

    def add(self, rules: Collection[AccessRule]) -> dict[AccessRule, str]:
        self.rules.update(rules)
        return {}

    def remove(self, rules: Collection[AccessRule]) -> dict[AccessRule, str]:
        self.rules.difference_update(rules)
        return {}


@dataclass
class Table:
    """The records of `parallax.acls`."""

    records: dict[str, bytes]

    def read(self) -> dict[str, bytes]:
        return self.records

    def write(self, records: dict[str, bytes | None]) -> None:
        for key, value in records.items():
            if value is None:
                self.records.pop(key, None)
            else:
                self.records[key] = value


def keeper(
    monkeypatch: pytest.MonkeyPatch, sources: dict[str, Stand], target: Stand, owned: Collection[AccessRule]
) -> AccessKeeper:
    stands = {**sources, "aggregate-t": target}
    table = Table({item.key: item.encoded() for item in map(OwnedRule, owned)})
    monkeypatch.setattr(access, "KafkaCluster", lambda cluster, *_a, **_s: stands[cluster])
    monkeypatch.setattr(access, "AccessDoor", lambda cluster, *_a, **_s: stands[cluster])
    monkeypatch.setattr(access, "CompactedTable", lambda *_a, **_s: table)
    regions: dict[str, Any] = {
        name: {"cluster": {"bootstrap_servers": f"127.0.0.1:{port}"}}
        for port, name in enumerate(("a", "b", "t"), 9092)
    }
    config = parse(
        {
            "regions": regions,
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": ["a->t", "b->t"],
        }
    )
    names = {str(config.source_cluster(route)): route.source for route in config.all_routes()}
    stands |= {cluster: sources[region] for cluster, region in names.items()}
    return AccessKeeper(config, RegionName("t"))


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(Stand([RIDES], set(), unseen=frozenset({TRIPS})), id="it hides the topic"),
        pytest.param(Stand([], set()), id="it lists nothing"),
    ],
)
def test_a_source_that_shows_no_topic_keeps_its_veto(monkeypatch: pytest.MonkeyPatch, second: Stand) -> None:
    first = Stand([TRIPS], {allows("trips")})
    ours = allows("trips", "User:other")
    target = Stand([TRIPS], {ours})
    plan = keeper(monkeypatch, {"a": first, "b": second}, target, [ours]).plan()
    assert not plan.merged.add
    assert not plan.merged.remove
    assert list(plan.unreadable) == ["b"]
