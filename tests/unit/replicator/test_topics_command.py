"""`parallax topics add`, over clusters that are dictionaries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs
from typer.testing import CliRunner

from parallax.cli import audited
from parallax.config.config import Config
from parallax.domain.audit import AuditStage
from parallax.domain.ids import ClusterName, Route, TopicId, TopicName
from parallax.errors import ClusterUnavailableError, UnknownRegionError, UnknownTopicError
from parallax.ports.audit import Auditor
from parallax.ports.clusters import TopicInfo
from parallax.runtime.deadline import wall_clock_ms
from replicator import topics_command as module
from replicator.topics_command import ADD, ADDED, REFUSED, THERE, app, plan_of
from tests.memory.audit import MemoryAuditLog

KAFKA = {"bootstrap_servers": "127.0.0.1:1"}
BOTH = {"regional": KAFKA, "aggregate": KAFKA}
VALUES: dict[str, Any] = {
    "regions": {"a": BOTH, "b": BOTH},
    "cassandra": {"contact_points": ["127.0.0.1"]},
    "routes": ["a->a", {"route": "a->b", "naming": "${source}.${topic}"}, "b->b"],
    "topics": {"new": "manual", "exclude": ["secret.*"]},
}
TRIPS, CARDS = TopicName("trips"), TopicName("cards")
AT = {"regional-a": "trips cards secret", "regional-b": "cards", "aggregate-a": "trips", "aggregate-b": ""}


def info(name: str) -> TopicInfo:
    return TopicInfo(TopicName(name), TopicId(f"id-{name}"), 3)


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """By route, which topics were created; b's aggregate takes none called ``cards``."""
    found: list[tuple[str, str]] = []

    class Admin:
        def __init__(self, cluster: ClusterName, _settings: object, **_more: object) -> None:
            self._cluster = cluster

        def topics(self) -> Mapping[TopicName, TopicInfo]:
            return {TopicName(name): info(name) for name in AT[self._cluster].split()}

    class Targets:
        def __init__(self, _config: Config, route: Route) -> None:
            self._route = str(route)

        def fit(self, source: TopicInfo) -> None:
            if (self._route, source.topic) == ("b->b", CARDS):
                raise ClusterUnavailableError("aggregate-b: no answer")
            found.append((self._route, source.topic))

    monkeypatch.setattr(module, "TopicAdmin", Admin)
    monkeypatch.setattr(module, "TargetTopics", Targets)
    return found


def test_each_route_that_copies_the_topic_is_planned_with_the_name_of_its_copy() -> None:
    config = Config.model_validate(VALUES)
    rows = [
        (str(row.route), row.topic, row.there.topic, row.state)
        for row in plan_of(config, [TRIPS, CARDS], None)
    ]
    assert rows == [
        ("a->a", "trips", "trips", THERE),
        ("a->b", "trips", "a.trips", ADD),
        ("a->a", "cards", "cards", ADD),
        ("a->b", "cards", "a.cards", ADD),
        ("b->b", "cards", "cards", ADD),
    ]
    assert [str(row.route) for row in plan_of(config, [CARDS], ["a"])] == ["a->a"]


def test_what_no_route_copies_is_refused() -> None:
    config = Config.model_validate(VALUES)
    for name in ("secret", "absent"):
        with pytest.raises(UnknownTopicError, match=f"a->a, a->b, b->b copies a topic '{name}'"):
            plan_of(config, [TRIPS, TopicName(name)], None)
    with pytest.raises(UnknownRegionError):
        plan_of(config, [TRIPS], ["nowhere"])


def test_nothing_is_created_without_the_word_and_what_is_refused_is_told(
    made: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = MemoryAuditLog()
    monkeypatch.setattr(audited, "open_auditor", lambda _config: nullcontext(Auditor(kept, wall_clock_ms)))
    file = tmp_path / "parallax.yaml"
    file.write_text(yaml.safe_dump(VALUES), encoding="utf-8")

    def ran(*arguments: str) -> tuple[int, dict[str, str]]:
        with capture_logs():  # in a process of its own a command logs to standard error
            result = CliRunner().invoke(
                app, ["add", "cards", "--config", str(file), "-o", "json", *arguments]
            )
        return result.exit_code, {row["route"]: row["state"] for row in json.loads(result.stdout)}

    assert ran() == (0, {"a->a": ADD, "a->b": ADD, "b->b": ADD})
    assert (made, kept.entries()) == ([], [])
    assert ran("--execute") == (1, {"a->a": ADDED, "a->b": ADDED, "b->b": REFUSED})
    assert made == [("a->a", "cards"), ("a->b", "a.cards")]
    intended, ended = kept.entries()
    assert (intended.call, intended.stage) == ("topics add", AuditStage.INTENDED)
    assert intended.after == dict.fromkeys(
        ("aggregate-a cards", "aggregate-b a.cards", "aggregate-b cards"), "3 partitions"
    )
    assert ended.stage is AuditStage.FAILED
    assert "aggregate-b cards: aggregate-b: no answer" in ended.problem
