"""Routes with topics of their own, and routes one behind the other, between real clusters."""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.context import SpawnProcess
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from parallax.config.config import Config
from parallax.domain.ids import Route
from replicator.graph_check import check_graph
from replicator.kafka.layout import ensure_layout
from replicator.lease import Lease
from replicator.shard import hold_lease
from tests.support import Stack, unique_name
from tests.worlds.shard_harness import PATIENCE_S, Harness, check_rows, content, ends, hold_in_process, until


def lease_of(config: Config, route: Route, *, available_now: bool = False) -> Lease:
    """A lease of the whole route."""
    deadline = int((time.time() + PATIENCE_S) * 1_000)
    return Lease(
        route, 0, 1, ensure_layout(config, route, 1).layout, 1, deadline, available_now=available_now
    )


def copy_now(config: Config, route: Route) -> int:
    """Copy the route to today's end; how many records."""
    lease = lease_of(config, route, available_now=True)
    return hold_lease(lease, config, index=None, report=lambda _progress: None).records


def in_process(config: Config, route: Route) -> SpawnProcess:
    """A replicator of the route that a test may kill."""
    owner = multiprocessing.get_context("spawn").Process(
        target=hold_in_process, args=(config.model_dump_json(by_alias=True), lease_of(config, route)), daemon=True
    )
    owner.start()
    return owner


def all_values(side: Harness, topic: str) -> list[str]:
    """The values at the side's target, of all partitions."""
    return [value for values in side.copied(topic).values() for value in values]


def test_a_route_copies_its_own_topics_and_none_of_kafkas_tools(
    infrastructure: Stack, topic_name: str
) -> None:
    harness = Harness(infrastructure, topic_name)
    config = harness.config()
    values: dict[str, Any] = {
        **config.model_dump(mode="json", include={"topics", "replicator"}),
        "regions": {
            harness.route.source: {"regional": {"bootstrap_servers": harness.source}},
            harness.route.target: {"aggregate": {"bootstrap_servers": harness.target}},
        },
        "cassandra": {"contact_points": ["127.0.0.1"]},
        "routes": [{"route": str(harness.route), "topics": {"exclude": [".*-other"]}}],
    }
    config = Config.model_validate(values)
    for name in (topic_name, f"{topic_name}-other", f"{topic_name}-changelog"):
        harness.create(topic=name)
        harness.produce([f"{name} {number}" for number in range(10)], topic=name)
    assert harness.copy_now(config).records == 10
    there = AdminClient({"bootstrap.servers": harness.target}).list_topics(timeout=10).topics
    assert [name for name in there if name.startswith(topic_name)] == [topic_name]
    assert check_rows(harness) == 10


KILLS = 3


def in_both_roles(
    infrastructure: Stack, kafkas: dict[str, str], routes: list[Any], topic: str, **more: Any
) -> Config:
    """Regions of one Kafka each, by region the broker of the stack that it is."""
    return Config.model_validate(
        {
            "regions": {
                region: {"cluster": {"bootstrap_servers": infrastructure.bootstrap(broker)}}
                for region, broker in kafkas.items()
            },
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": routes,
            "topics": {"include": [f"{topic}.*"]},
            "replicator": {"discovery_interval_ms": 1_000, "watermark_interval_ms": 300, **more},
        }
    )


@pytest.mark.parametrize("copy_path", ["batch", "record"])
def test_two_way_on_the_same_names_copies_each_record_once_and_nothing_back(
    infrastructure: Stack, topic_name: str, copy_path: str
) -> None:
    """Both replicators are killed in mid-transaction, again and again, while both sides are written to."""
    x, y = (unique_name(region) for region in "xy")
    kafkas = {x: "regional-a", y: "aggregate-a"}
    config = in_both_roles(
        infrastructure,
        kafkas,
        [f"{x}->{y}", f"{y}->{x}"],
        topic_name,
        copy_path=copy_path,
        commit_min_interval_ms=200,  # so that a transaction is open most of the time
    )
    sides = [
        Harness(infrastructure, topic_name, clusters=(kafkas[of], kafkas[to])) for of, to in ((x, y), (y, x))
    ]
    for side in sides:
        side.create(2)
    written = dict.fromkeys("xy", 0)

    def write() -> None:
        for name, side in zip("xy", sides, strict=True):
            first = written[name]
            side.produce([f"{name}{number}" for number in range(first, first + 40)], first // 40 % 2)
            written[name] += 40

    def is_open() -> bool:
        """Whether a copying transaction is; nobody else has any."""
        write()
        return all(
            ends(side.target, topic_name) != ends(side.target, topic_name, "read_committed") for side in sides
        )

    for kill in range(KILLS + 1):
        owners = [in_process(config, route) for route in config.all_routes()]
        try:
            if kill < KILLS:
                until(is_open, "transactions in both directions")
            else:
                until(
                    lambda: all(len(all_values(side, topic_name)) >= sum(written.values()) for side in sides),
                    "all copies",
                )
        finally:
            for owner in owners:
                owner.kill()
                owner.join(PATIENCE_S)
    wanted = sorted(f"{name}{number}" for name, count in written.items() for number in range(count))
    for route in config.all_routes():
        assert copy_now(config, route) == 0
    for side in sides:
        assert sorted(all_values(side, topic_name)) == wanted


def test_records_are_forwarded_over_a_cluster_in_both_roles(infrastructure: Stack, topic_name: str) -> None:
    """Three clusters, each one Kafka in both roles: x -> y -> z, and records that are produced at y go to z too."""
    x, y, z = (unique_name(region) for region in "xyz")
    kafkas = dict(zip((x, y, z), ("regional-a", "aggregate-a", "aggregate-b"), strict=True))
    config = Config.model_validate(
        {
            "regions": {
                region: {"cluster": {"bootstrap_servers": infrastructure.bootstrap(cluster)}}
                for region, cluster in kafkas.items()
            },
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": [f"{x}->{y}", {"route": f"{y}->{z}", "copies": "all"}],
            "topics": {"include": [topic_name]},
            "replicator": {"discovery_interval_ms": 1_000},
        }
    )
    first, second = config.all_routes()
    assert not [found for found in check_graph(config, config.all_routes(), {}) if found.blocks]
    near, far = (
        Harness(infrastructure, topic_name, clusters=(kafkas[a], kafkas[b])) for a, b in ((x, y), (y, z))
    )
    near.create(2)
    for partition in range(2):
        near.produce([f"x{partition} {number}" for number in range(100)], partition)
    assert copy_now(config, first) == 200
    far.produce([f"y {number}" for number in range(50)])
    assert copy_now(config, second) == 250
    near.produce(["x late"], 1)
    assert (copy_now(config, first), copy_now(config, second), copy_now(config, first)) == (1, 1, 0)
    wanted = {0: [f"x0 {n}" for n in range(100)] + [f"y {n}" for n in range(50)]}
    wanted[1] = [f"x1 {n}" for n in range(100)] + ["x late"]
    assert far.copied() == near.copied() == wanted
    assert sum(map(len, content(near.source, topic_name).values())) == 201
