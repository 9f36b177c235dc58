"""Routes with topics of their own, and routes one behind the other, between real clusters."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka.admin import AdminClient

from parallax.config.config import Config
from parallax.domain.ids import Route
from replicator.graph_check import check_graph
from replicator.kafka.layout import ensure_layout
from replicator.lease import Lease
from replicator.shard import hold_lease
from tests.support import Stack, unique_name
from tests.worlds.shard_harness import PATIENCE_S, Harness, check_rows, content


def copy_now(config: Config, route: Route) -> int:
    """Copy the route to today's end; how many records."""
    deadline = int((time.time() + PATIENCE_S) * 1_000)
    lease = Lease(route, 0, 1, ensure_layout(config, route, 1).layout, 1, deadline, available_now=True)
    return hold_lease(lease, config, index=None, report=lambda _progress: None).records


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
