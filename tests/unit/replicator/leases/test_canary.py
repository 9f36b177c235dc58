"""What is told of canaries: how long they took, and that none comes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from parallax.config.config import CanarySettings, Config
from parallax.domain.ids import RegionName, Route, TopicName
from parallax.errors import ConfigError
from replicator.kafka.canary import clusters_to_write_to
from replicator.lease import Lease, LeaseProgress, PartitionProgress, PartitionStatus
from replicator.leases.board import LeaseReport, ProgressBoard
from replicator.leases.canary import CanaryBoard, watched_topics
from tests.unit.replicator.leases.test_status import KEYS, ROUTE, FakeClock

TOPIC = TopicName("parallax-canary")
BACK = Route(RegionName("b"), RegionName("a"))


def heard(
    partition: int,
    latency_ms: float | None,
    topic: str = TOPIC,
    route: Route = ROUTE,
    status: PartitionStatus = PartitionStatus.COPYING,
) -> LeaseProgress:
    part = PartitionProgress(topic, partition, 1, 1, 1, 0, latency_ms, status)
    return LeaseProgress(Lease(route, partition, 2, 1, 1, 0), (part,), 1, 0, 0.0)


def board_of(clock: FakeClock) -> CanaryBoard:
    return CanaryBoard({ROUTE: TOPIC}, CanarySettings(enabled=True, late_after_s=60), clock)


def samples(board: CanaryBoard) -> dict[str, float]:
    found: dict[str, float] = {}
    families: list[Metric] = list(board.collect())
    for family in families:
        for sample in family.samples:
            assert sample.labels["source"] == "a"
            assert sample.labels["target"] == "b"
            name = sample.name.removeprefix("parallax_replicator_canary_")
            found[name + sample.labels.get("le", "")] = sample.value
    return found


def test_a_route_is_as_late_as_the_shard_that_brought_none_for_longest() -> None:
    clock = FakeClock()
    board = board_of(clock)
    clock.now_s += 60
    assert board.of(ROUTE) is not None
    assert (board.troubles(), samples(board)["late"]) == ([], 0)
    clock.now_s += 1
    [line] = board.troubles()
    assert line == "a->b: the canary is late: none was brought by every shard for 61 s"
    assert (samples(board)["late"], samples(board)["age_seconds"]) == (1, 61)
    board.heard(heard(0, 30.0))
    board.heard(heard(1, None))
    assert (board.troubles(), samples(board)["age_seconds"]) == ([], 0)
    clock.now_s += 61
    board.heard(heard(0, 40.0))
    assert board.troubles()
    assert board.state() == {"canary": {"a->b": {"age_ms": 61_000, "latency_ms": 40.0, "late": True}}}
    board.heard(heard(1, 20.0))
    assert not board.troubles()
    assert board.missing() == board.active_leases() == ()


def test_each_canary_is_counted_once_and_nothing_else_is() -> None:
    board = board_of(FakeClock())
    for latency_ms in (20.0, 20.0, None, 700.0):
        board.heard(heard(0, latency_ms))
    board.heard(heard(0, 20.0, topic="trips"))
    board.heard(heard(0, 20.0, route=BACK))
    found = samples(board)
    assert (found["latency_seconds_count"], found["latency_seconds_sum"]) == (3, pytest.approx(0.74))
    assert (found["latency_seconds_bucket0.025"], found["latency_seconds_bucket0.5"]) == (2, 2)
    assert found["latency_seconds_bucket1.0"] == 3
    assert board.of(BACK) is None


def test_reports_that_do_not_count_are_not_heard() -> None:
    told: list[LeaseProgress] = []
    board = ProgressBoard(KEYS, heard=told.append)
    first = LeaseReport(heard(0, 1.0), "first")
    board.record(first)
    board.record(replace(first, attempt="second"))
    board.record(first)
    assert len(told) == 2


def test_metrics_can_be_scraped() -> None:
    registry = CollectorRegistry()
    registry.register(board_of(FakeClock()))  # type: ignore[arg-type] # it collects, which is all that is asked for
    names = {sample.name for family in registry.collect() for sample in family.samples}
    assert {
        f"parallax_replicator_canary_{name}" for name in ("age_seconds", "late", "latency_seconds_sum")
    } <= names


def config(**values: object) -> Config:
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    return Config.model_validate(
        {
            "regions": {name: {"regional": cluster, "aggregate": cluster} for name in ("a", "b", "c")},
            "cassandra": {"contact_points": ["127.0.0.1:2"]},
            "canary": {"enabled": True},
            **values,
        }
    )


ROUTES = [
    {"route": "a->b"},
    {"route": "c->b", "topics": {"include": ["trips"]}},
    {"route": "b->c", "from": "aggregate", "naming": "${source}.${topic}"},
]


def test_canaries_are_written_where_producers_write_and_watched_where_they_are_copied() -> None:
    made = config(routes=ROUTES)
    routes = made.all_routes()
    assert clusters_to_write_to(made, routes) == {"regional-a": [routes[0]], "regional-c": [routes[1]]}
    assert watched_topics(made, routes) == {routes[0]: TOPIC, routes[2]: "b.parallax-canary"}
    off = config(routes=ROUTES, canary={})
    assert clusters_to_write_to(off, routes) == watched_topics(off, routes) == {}


def test_a_canary_is_never_late_before_the_next_is_due() -> None:
    with pytest.raises((ConfigError, ValueError), match="below two intervals"):
        config(canary={"interval_s": 31})
    assert config(canary={"interval_s": 30}).canary.late_after_s == 60


def test_a_partition_that_the_source_does_not_have_brings_no_canary_and_is_not_late() -> None:
    clock = FakeClock()
    board = board_of(clock)
    board.heard(heard(0, 30.0))
    board.heard(heard(1, None, status=PartitionStatus.ABSENT))
    clock.now_s += 61
    board.heard(heard(0, 30.0))
    assert board.troubles() == []
