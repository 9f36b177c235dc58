"""`parallax topics where`: what reaches where, by which routes, and what is left where it is."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from parallax.cli import topics as module
from parallax.cli.main import app
from parallax.cli.topics import SeenCluster, where_of
from parallax.config.config import Config
from parallax.domain.ids import ClusterName, TopicName
from parallax.errors import UnknownTopicError

KAFKA = {"bootstrap_servers": "127.0.0.1:1"}


def config(routes: list[Any], regions: Mapping[str, Any] | None = None, **topics: Any) -> Config:
    both = {"regional": KAFKA, "aggregate": KAFKA}
    values: dict[str, Any] = {
        "regions": regions or {"a": both, "b": both},
        "cassandra": {"contact_points": ["127.0.0.1"]},
        "routes": routes,
        "topics": topics,
    }
    return Config.model_validate(values)


def seen(**topics: str) -> dict[ClusterName, SeenCluster]:
    """By cluster (``regional_a``), the topics that it has, parted by blanks."""
    return {
        ClusterName(name.replace("_", "-")): SeenCluster(name, {TopicName(item) for item in of.split()})
        for name, of in topics.items()
    }


def lines(found: module.Where) -> set[str]:
    values = found.to_json()
    reached = {
        f"{i['topic']}@{i['origin']} > {i['cluster']} as {i['name']} by {' '.join(i['routes'])}"
        for i in values["topics"]
    }
    return reached | {
        f"{i['topic']}@{i['cluster']} not by {i['route']}: {i['reason']}" for i in values["left_out"]
    }


def test_each_topic_is_shown_with_its_ways_and_what_leaves_it() -> None:
    routes = ["a->b", {"route": "a->a", "topics": {"exclude": ["eu.*"]}}]
    settings = config(routes, residency=[{"match": "eu\\..*", "regions": ["a"]}])
    found = where_of(settings, seen(regional_a="trips eu.cards app-changelog __x", aggregate_a=""), {})
    assert lines(found) == {
        "trips@regional-a > aggregate-a as trips by a->a",
        "trips@regional-a > aggregate-b as trips by a->b",
        "eu.cards@regional-a not by a->a: EXCLUDED",
        "eu.cards@regional-a not by a->b: RESIDENCY",
        "app-changelog@regional-a not by a->a: BUILTIN",
        "app-changelog@regional-a not by a->b: BUILTIN",
    }
    assert found.sound


def test_a_chain_is_followed_and_own_records_alone_stay() -> None:
    one = {"cluster": KAFKA}
    routes = ["a->b", {"route": "b->c", "copies": "all", "naming": "${source}.${topic}"}, "c->d"]
    settings = config(routes, {"a": one, "b": one, "c": one, "d": one})
    found = where_of(
        settings,
        seen(regional_a="trips", aggregate_a="trips", regional_b="", regional_c=""),
        {},
        [TopicName("trips")],
    )
    assert lines(found) == {
        "trips@regional-a > regional-b as trips by a->b",
        "trips@regional-a > regional-c as b.trips by a->b b->c",
        "trips@regional-c not by c->d: COPIES",
    }


def test_what_waits_to_be_added_is_shown_where_it_stops() -> None:
    one = {"cluster": KAFKA}
    routes = ["a->b", {"route": "b->c", "copies": "all", "naming": "${source}.${topic}"}]
    settings = config(routes, {"a": one, "b": one, "c": one}, new="manual")
    at_a = {"regional_a": "trips cards new", "regional_b": "trips cards", "regional_c": "b.trips"}
    found = where_of(settings, seen(**at_a), {}, [TopicName(name) for name in ("trips", "cards", "new")])
    assert lines(found) == {
        "trips@regional-a > regional-b as trips by a->b",
        "trips@regional-a > regional-c as b.trips by a->b b->c",
        "cards@regional-a > regional-b as cards by a->b",
        "cards@regional-b not by b->c: NOT_ADDED",
        "new@regional-a not by a->b: NOT_ADDED",
        # Whether what lies at b was produced there nobody can tell by its name.
        "trips@regional-b > regional-c as b.trips by b->c",
    }
    assert found.sound


def test_a_topic_that_no_producer_has_is_refused_unless_one_did_not_answer() -> None:
    settings, name = config(["a->b"]), TopicName("trips")
    with pytest.raises(UnknownTopicError, match="none of regional-a, regional-b has a topic 'trips'"):
        where_of(settings, seen(regional_a="other"), {}, [name])
    assert not where_of(settings, {}, {ClusterName("regional-a"): "away"}, [name]).sound


def test_the_command_exits_with_1_for_a_problem(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = """
regions: {a: {cluster: {bootstrap_servers: "127.0.0.1:1"}}, b: {cluster: {bootstrap_servers: "127.0.0.1:2"}}}
cassandra: {contact_points: ["127.0.0.1"]}
routes: [{route: a->b, copies: all}, {route: b->a, copies: all}]
"""
    path = tmp_path / "parallax.yaml"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(module, "_look", lambda _: (seen(regional_a="trips", aggregate_b=""), {}))
    result = CliRunner().invoke(app, ["topics", "where", "--config", str(path), "--json"])
    values = json.loads(result.stdout)
    assert (result.exit_code, values["ok"]) == (1, False)
    assert {item["problem"] for item in values["problems"]} == {"CYCLE", "NO_TOPICS"}
    shown = CliRunner().invoke(app, ["topics", "where", "--config", str(path)])
    assert "would come back to regional-a, where they have been, by a->b, b->a" in shown.stdout


def test_one_kafka_in_both_roles_is_asked_once() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    nobody = {"cluster": {"bootstrap_servers": f"127.0.0.1:{server.getsockname()[1]}"}}
    server.close()
    answered, failed = module._look(config(["a->b", "b->a"], {"a": nobody, "b": nobody}))
    assert (answered, list(failed)) == ({}, ["regional-a", "regional-b"])


def test_one_kafka_under_two_names_is_told_unless_it_is_meant() -> None:
    settings = config(["a->b"], {"a": {"regional": KAFKA}, "b": {"cluster": KAFKA}})
    same = {
        ClusterName(name): SeenCluster("id-1", {TopicName("t")}) for name in ("regional-b", "aggregate-b")
    }
    assert where_of(settings, same, {}).sound
    same[ClusterName("regional-a")] = SeenCluster("id-1", {TopicName("t")})
    found = where_of(settings, same, {})
    assert [item["problem"] for item in found.to_json()["problems"]] == ["SAME_CLUSTER"]
