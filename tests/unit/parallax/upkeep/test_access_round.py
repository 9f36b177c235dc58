"""A round of rules of access where a source tells less than all. Brokers can't be made to do so at will: they are stand-ins."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from parallax.cli import acl
from parallax.config.config import Config, parse
from parallax.domain.access_rules import AccessKind, AccessOperation, AccessRule, NameMatch
from parallax.domain.ids import RegionName, TopicId, TopicName
from parallax.errors import UnknownTopicError
from parallax.ports.clusters import TopicInfo
from parallax.upkeep import access
from parallax.upkeep.access import AccessKeeper, OwnedRule
from parallax.upkeep.board import UpkeepBoard
from parallax.upkeep.keeping import ACCESS, STATES, keeping, upkeeps
from tests.support import poll_until

TRIPS, RIDES = TopicName("trips"), TopicName("rides")


def allows(
    topic: str, principal: str = "User:reader", operation: AccessOperation = AccessOperation.READ
) -> AccessRule:
    return AccessRule(AccessKind.TOPIC, NameMatch.LITERAL, topic, principal, "*", operation, allow=True)


WRITES = allows("trips", "User:app", AccessOperation.WRITE)


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
    """The records of a compacted topic."""

    records: dict[str, bytes]

    def read(self) -> dict[str, bytes]:
        return self.records

    def write(self, records: dict[str, bytes | None]) -> None:
        for key, value in records.items():
            if value is None:
                self.records.pop(key, None)
            else:
                self.records[key] = value


def configured() -> Config:
    regions: dict[str, Any] = {
        name: {"cluster": {"bootstrap_servers": f"127.0.0.1:{port}"}}
        for port, name in enumerate(("a", "b", "t"), 9092)
    }
    return parse(
        {
            "regions": regions,
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": ["a->t", "b->t"],
            "topics": {"acl_sync": {"enabled": True}},
        }
    )


def keeper(
    monkeypatch: pytest.MonkeyPatch, sources: dict[str, Stand], target: Stand, owned: Collection[AccessRule]
) -> AccessKeeper:
    stands = {**sources, "aggregate-t": target}
    tables = {
        access.ACLS_TOPIC: Table({item.key: item.encoded() for item in map(OwnedRule, owned)}),
        access.WITHHELD_TOPIC: Table({}),
    }
    monkeypatch.setattr(access, "KafkaCluster", lambda cluster, *_a, **_s: stands[cluster])
    monkeypatch.setattr(access, "AccessDoor", lambda cluster, *_a, **_s: stands[cluster])
    monkeypatch.setattr(access, "CompactedTable", lambda _c, _s, topic, **_t: tables[topic])
    config = configured()
    names = {str(config.source_cluster(route)): route.source for route in config.all_routes()}
    stands |= {cluster: sources[region] for cluster, region in names.items()}
    monkeypatch.setattr(acl, "load", lambda _path: config)
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


@pytest.mark.parametrize("command", ["promote", "sync"])
def test_commands_tell_of_a_source_that_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "parallax.yaml"
    path.touch()
    keeper(monkeypatch, {"a": Stand([TRIPS], set()), "b": Stand([], set())}, Stand([TRIPS], set()), [])
    result = CliRunner().invoke(acl.app, [command, "--config", str(path), "--to", "t"])
    assert "b does not show its rules" in result.output
    assert result.exit_code == 1


@pytest.mark.parametrize("command", ["promote", "demote"])
def test_commands_refuse_a_topic_that_the_target_does_not_have(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    path = tmp_path / "parallax.yaml"
    path.touch()
    keeper(
        monkeypatch, {"a": Stand([TRIPS], {WRITES}), "b": Stand([RIDES], set())}, Stand([TRIPS], set()), []
    )
    arguments = [command, "--config", str(path), "--to", "t", "--execute"]
    with pytest.raises(UnknownTopicError, match="aggregate-t has no topic 'tirps'"):
        CliRunner().invoke(acl.app, [*arguments, "trips", "tirps"], catch_exceptions=False)


def test_what_was_promoted_of_a_topic_that_is_gone_can_be_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    first, target = Stand([TRIPS], {WRITES}), Stand([TRIPS], set())
    kept = keeper(monkeypatch, {"a": first, "b": Stand([RIDES], set())}, target, [])
    kept.promote(kept.promotion(kept.plan(), ["trips"]))
    first.listed = target.listed = [RIDES]
    kept.demote(kept.demotion(kept.plan(), ["trips"]))
    assert target.rules == set()


def test_what_was_changed_is_told_though_a_source_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Stand([TRIPS], {allows("trips")})
    second = Stand([RIDES], set(), unseen=frozenset({TopicName("others")}))
    target = Stand([TRIPS, TopicName("others")], set())
    keeper(monkeypatch, {"a": first, "b": second}, target, [])
    board = UpkeepBoard(STATES)
    (item,) = [of for of in upkeeps(configured(), [RegionName("t")]) if of.kind == ACCESS]
    with capture_logs() as logs, keeping([item], board):
        poll_until(lambda: bool(board.troubles()), 10, "a round")
    assert [entry["event"] for entry in logs] == ["kept_in_step", "upkeep_failed"]
    (state,) = board.state()[board.name]
    assert state["changes"] == 1


def test_what_is_withheld_can_be_promoted_once_the_source_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    first, target = Stand([TRIPS], {WRITES}), Stand([TRIPS], set())
    kept = keeper(monkeypatch, {"a": first, "b": Stand([RIDES], set())}, target, [])
    kept.carry_out(kept.plan())
    assert target.rules == set()
    first.listed = []  # it is away
    plan = kept.plan()
    assert list(plan.unreadable) == ["a"]
    kept.carry_out(plan)  # a round meanwhile forgets nothing
    rows = kept.promotion(kept.plan())
    assert [row.finding.rule for row in rows] == [WRITES]
    kept.promote(rows)
    assert target.rules == {WRITES}
    assert kept.promotion(kept.plan()) == []


def test_what_the_source_allows_no_more_is_remembered_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Stand([TRIPS], {WRITES})
    kept = keeper(monkeypatch, {"a": first, "b": Stand([RIDES], set())}, Stand([TRIPS], set()), [])
    kept.carry_out(kept.plan())
    first.rules.clear()
    kept.carry_out(kept.plan())
    first.listed = []
    assert kept.promotion(kept.plan()) == []


def test_what_a_source_that_is_away_never_allowed_is_not_promoted(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Stand([TRIPS], {allows("trips")})
    second = Stand([TRIPS], {allows("trips"), WRITES})
    kept = keeper(monkeypatch, {"a": first, "b": second}, Stand([TRIPS], set()), [])
    kept.carry_out(kept.plan())
    first.listed = []  # it is away
    plan = kept.plan()
    assert kept.promotion(plan) == []
    kept.carry_out(plan)
    assert kept.promotion(kept.plan()) == []


def test_what_a_source_that_answers_has_taken_back_is_not_promoted(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = Stand([TRIPS], {WRITES}), Stand([TRIPS], {WRITES})
    kept = keeper(monkeypatch, {"a": first, "b": second}, Stand([TRIPS], set()), [])
    kept.carry_out(kept.plan())
    first.listed = []  # it is away
    assert [row.finding.rule for row in kept.promotion(kept.plan())] == [WRITES]
    second.rules.clear()
    assert kept.promotion(kept.plan()) == []


def test_readers_of_a_copy_keep_their_right_while_its_topic_is_created_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, target = Stand([TRIPS, RIDES], {allows("trips"), WRITES}), Stand([TRIPS], set())
    kept = keeper(monkeypatch, {"a": first, "b": Stand([RIDES], set())}, target, [])
    kept.carry_out(kept.plan())
    first.listed = [RIDES]
    plan = kept.plan()
    kept.carry_out(plan)
    assert not plan.unreadable
    assert target.rules == {allows("trips")}
    assert [row.finding.rule for row in kept.promotion(kept.plan())] == [WRITES]
    first.rules.clear()
    kept.carry_out(kept.plan())
    assert target.rules == set()
    assert kept.promotion(kept.plan()) == []
