"""Routes with topics of their own, and routes one behind the other, between real clusters."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Self

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.service import UseCases
from offsetsvc.transport.grpc_server import GrpcServer
from parallax import FailoverConsumer
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.cli.init import RouteMode
from parallax.config.config import Config
from parallax.domain.ids import RegionName, Route, TopicName, aggregate_cluster, regional_cluster
from parallax.identity.identity import Identity
from replicator.copying.state import lost_of
from replicator.graph_check import check_graph
from replicator.kafka.layout import ensure_layout
from replicator.kafka.run_log import KafkaRunLog
from replicator.lease import Lease
from replicator.shard import hold_lease
from tests.memory.audit import MemoryAuditLog
from tests.memory.cql import MemoryKeyspace, WrittenStores
from tests.memory.groups import MemoryGroupStore, MemoryOperationJournal, MemoryPrimaryStore
from tests.memory.index import MemoryMappingIndex
from tests.support import Stack, poll_until, unique_name
from tests.worlds.shard_harness import (
    PATIENCE_S,
    Harness,
    Owner,
    check_rows,
    content,
    create,
    ends,
    hold_in_process,
    until,
)


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
        target=hold_in_process,
        args=(config.model_dump_json(by_alias=True), lease_of(config, route)),
        daemon=True,
    )
    owner.start()
    return owner


class Writing:
    """Writes to the sources of both sides, record by record, until it is left."""

    def __init__(self, sides: list[Harness], topic: str) -> None:
        self._producers = [Producer({"bootstrap.servers": side.source, "linger.ms": 0}) for side in sides]
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self.values: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PATIENCE_S)

    def _write(self) -> None:
        while not self._over.wait(0.005):
            for name, producer in zip("xy", self._producers, strict=True):
                self.values.append(f"{name}{len(self.values)}")
                producer.produce(self._topic, value=self.values[-1], partition=len(self.values) // 2 % 2)
                producer.poll(0)
        for producer in self._producers:
            producer.flush(PATIENCE_S)


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


EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
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
        commit_max_interval_ms=400,
    )
    sides = [
        Harness(infrastructure, topic_name, clusters=(kafkas[of], kafkas[to])) for of, to in ((x, y), (y, x))
    ]
    for side in sides:
        side.create(2)

    def is_open() -> bool:
        """Whether a copying transaction is, in one direction at least; nobody else has any."""
        return any(
            ends(side.target, topic_name) != ends(side.target, topic_name, "read_committed") for side in sides
        )

    with Writing(sides, topic_name) as writing:
        for _ in range(KILLS):
            owners = [in_process(config, route) for route in config.all_routes()]
            try:
                until(is_open, "a transaction")
            finally:
                for owner in owners:
                    owner.kill()
                    owner.join(PATIENCE_S)
    wanted = sorted(writing.values)
    for _ in range(2):
        copied = [copy_now(config, route) for route in config.all_routes()]
    assert copied == [0, 0]
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


BROKERS = {
    "kafka-regional.a": "regional-a",
    "kafka-regional.b": "regional-b",
    "kafka-aggregate.a": "aggregate-a",
    "kafka-aggregate.b": "aggregate-b",
    "kafka-aggregate.c": "aggregate-a",
    "kafka.a": "regional-a",
    "kafka.b": "aggregate-a",
    "kafka.c": "aggregate-b",
}
"""Which broker of the stack stands for which address of the examples."""


def example_of(mode: RouteMode, infrastructure: Stack, topic: str) -> tuple[Config, dict[str, str]]:
    """The example with regions that no other test has, and these by their names in the example."""
    text = (EXAMPLES / f"{mode.value}.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    regions = {name: unique_name(name) for name in values["regions"]}
    for of in values["regions"].values():
        for kind in of.keys() & {"regional", "aggregate", "cluster"}:
            host = of[kind]["bootstrap_servers"].removesuffix(".example:9092")
            of[kind] = {"bootstrap_servers": infrastructure.bootstrap(BROKERS[host])}
    values["regions"] = {regions[name]: of for name, of in values["regions"].items()}
    for item in values.get("routes", ()):
        source, target = (item if isinstance(item, str) else item["route"]).split("->")
        route = f"{regions[source]}->{regions[target]}"
        if isinstance(item, str):
            values["routes"][values["routes"].index(item)] = route
        else:
            item["route"] = route
    values["topics"] = {"include": [topic]}
    values["replicator"] = {"discovery_interval_ms": 1_000}
    return Config.model_validate(values), regions


@pytest.mark.parametrize(
    ("mode", "at"),
    [
        (RouteMode.AGGREGATION, {"a": "ab", "b": "ab"}),
        (RouteMode.ACTIVE_STANDBY, {"a": "a", "b": "a"}),
        (RouteMode.TWO_WAY, {"a": "ab", "b": "ab"}),
        (RouteMode.FAN_OUT, {"b": "a", "c": "a"}),
        (RouteMode.FORWARDING, {"a": "a", "b": "ab", "c": "abc"}),
    ],
    ids=lambda of: of.value if isinstance(of, RouteMode) else "",
)
def test_each_example_copies_what_it_says(
    infrastructure: Stack, topic_name: str, mode: RouteMode, at: dict[str, str]
) -> None:
    """Every producing cluster writes records of its own; ``at``: whose records lie at the end where groups read."""
    config, regions = example_of(mode, infrastructure, topic_name)
    assert not [found for found in check_graph(config, config.all_routes(), {}) if found.blocks]
    producing = {name: regional_cluster(RegionName(regions[name])) for name in regions}
    producing = {
        name: cluster for name, cluster in producing.items() if cluster in config.producing_clusters()
    }
    for name, cluster in producing.items():
        address = config.cluster(cluster).bootstrap_servers
        create(AdminClient({"bootstrap.servers": address}), topic_name, 1, {})
        write(address, topic_name, [f"{name}{number}" for number in range(30)])
    for _ in range(2):
        copied = [copy_now(config, route) for route in config.all_routes()]
    assert not any(copied), "nothing is left, and nothing comes back"
    for name, whose in at.items():
        address = config.cluster(aggregate_cluster(RegionName(regions[name]))).bootstrap_servers
        there = [record[1].decode() for record in content(address, topic_name)[0]]  # type: ignore[union-attr] # each has a value
        assert sorted(there) == sorted(f"{origin}{number}" for origin in whose for number in range(30))


def test_a_route_reads_an_aggregate_cluster_renames_and_begins_where_it_says(
    infrastructure: Stack, topic_name: str
) -> None:
    x, y, z = (unique_name(region) for region in "xyz")
    config = Config.model_validate(
        {
            "regions": {
                x: {"regional": {"bootstrap_servers": infrastructure.bootstrap("regional-a")}},
                y: {"aggregate": {"bootstrap_servers": infrastructure.bootstrap("aggregate-a")}},
                z: {"aggregate": {"bootstrap_servers": infrastructure.bootstrap("aggregate-b")}},
            },
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": [
                {"route": f"{x}->{y}", "naming": "${source}.${topic}"},
                {"route": f"{y}->{z}", "from": "aggregate", "start": "latest"},
            ],
            "topics": {"include": [f"(.*\\.)?{topic_name}"]},
            "replicator": {"discovery_interval_ms": 1_000},
        }
    )
    first, second = config.all_routes()
    near = Harness(infrastructure, topic_name, clusters=("regional-a", "aggregate-a"))
    far = Harness(infrastructure, topic_name, clusters=("aggregate-a", "aggregate-b"))
    renamed = TopicName(f"{x}.{topic_name}")
    near.create(1)
    near.produce([f"early {number}" for number in range(10)])
    assert (copy_now(config, first), copy_now(config, second)) == (10, 0)
    near.produce([f"late {number}" for number in range(5)])
    assert (copy_now(config, first), copy_now(config, second)) == (5, 5)
    assert near.copied(renamed) == {0: [f"early {n}" for n in range(10)] + [f"late {n}" for n in range(5)]}
    assert far.copied(renamed) == {0: [f"late {n}" for n in range(5)]}
    run_log = KafkaRunLog(config, second, 0)
    entries = [entry for _, entry in run_log.read(run_log.start(), run_log.end()) if entry is not None]
    parts = [part for entry in entries for part in entry.partitions]
    assert {part.topic for part in parts} == {renamed}
    # The marker of the transaction that wrote the first ten is left, too.
    assert [(gap.source_start, gap.source_end) for part in parts for gap in lost_of(part)] == [(0, 11)]


def test_a_route_begins_at_a_time(infrastructure: Stack, topic_name: str) -> None:
    harness = Harness(infrastructure, topic_name)
    harness.create(1)
    producer = Producer({"bootstrap.servers": harness.source})
    for number in range(10):
        producer.produce(topic_name, value=str(number), partition=0, timestamp=1_700_000_000_000 + number)
    producer.flush()
    config = harness.config()
    values = config.model_dump(mode="json", by_alias=True, include={"regions", "topics", "replicator"})
    values["regions"] = {
        harness.route.source: {"regional": {"bootstrap_servers": harness.source}},
        harness.route.target: {"aggregate": {"bootstrap_servers": harness.target}},
    }
    values |= {
        "cassandra": {"contact_points": ["127.0.0.1"]},
        "routes": [{"route": str(harness.route), "start": 1_700_000_000_004}],
    }
    assert harness.copy_now(Config.model_validate(values)).records == 6
    assert harness.copied() == {0: [str(number) for number in range(4, 10)]}


def write(address: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value=value, partition=0)
    assert producer.flush(PATIENCE_S) == 0


class Moving:
    """Routes that copy into an index, an offset service over it, and a group that reads at one of the regions."""

    def __init__(self, config: Config, topic: str, harness: Harness, stack: ExitStack) -> None:
        self.config = config
        self.topic = topic
        self._harness = harness
        self._index = MemoryMappingIndex()
        self._owners: dict[Route, Owner] = {}
        self.delivered: list[str] = []
        clusters = {
            name: KafkaCluster(name, cluster, timeout_ms=10_000)
            for name, cluster in config.aggregate_clusters().items()
        }
        service = stack.enter_context(
            UseCases(
                config,
                RegionName(next(iter(config.regions))),
                self._index,
                MemoryGroupStore(),
                clusters,
                MemoryPrimaryStore(),
                MemoryOperationJournal(),
                WrittenStores(MemoryKeyspace()).status,
                now_ms=lambda: int(time.time() * 1_000),
                audit=MemoryAuditLog(),
            )
        )
        server = GrpcServer(
            service, ServiceMetrics(), address="127.0.0.1:0", identity=Identity(config.service.auth)
        )
        server.start()
        stack.callback(server.stop, 0.0)
        stack.callback(self.stop, *config.all_routes())
        self.start(*config.all_routes())
        self._consumer = stack.enter_context(
            closing(
                FailoverConsumer(
                    {"group.id": unique_name("group"), "auto.commit.interval.ms": 50},
                    clusters={name: self.address(name) for name in config.regions},
                    region=next(iter(config.regions)),
                    services=[f"127.0.0.1:{server.port}"],
                )
            )
        )
        self._consumer.subscribe([topic])

    def address(self, region: str) -> str:
        return self.config.cluster(aggregate_cluster(RegionName(region))).bootstrap_servers

    def start(self, *routes: Route) -> None:
        for route in routes:
            lease = lease_of(self.config, route)
            self._owners[route] = self._harness.own(self.config, self._index, lease)

    def stop(self, *routes: Route) -> None:
        for route in routes:
            if route in self._owners:
                self._owners.pop(route).finish()

    def read_until(self, reached: Callable[[], bool], what: str) -> None:
        """Deliver records until something holds."""

        def step() -> bool:
            for message in self._consumer.consume(100, 0.2):
                assert message.error() is None
                self.delivered.append((message.value() or b"").decode())
            return reached()

        poll_until(step, PATIENCE_S, what)

    def read_more(self, count: int) -> None:
        before = len(self.delivered)
        self.read_until(lambda: len(self.delivered) >= before + count, f"{count} more records")

    def move_to(self, region: str, late: Sequence[Route] = ()) -> None:
        """Move; routes that stood still begin again once the group is there."""
        self._consumer.move_to(region)
        self.read_until(lambda: self._consumer.region == region, f"the move to {region}")
        self.start(*late)
        self.read_more(50)


@pytest.mark.parametrize("shape", ["two-way", "standby"])
def test_a_group_moves_there_and_back_and_reads_each_record_once(
    infrastructure: Stack, topic_name: str, shape: str
) -> None:
    """Under load: once with both sides there, once while what it has read last is not copied, and back again."""
    x, y = (unique_name(region) for region in "xy")
    kafkas = {x: "regional-a", y: "aggregate-a"}
    out, back = f"{x}->{y}", f"{y}->{x}"
    config = in_both_roles(infrastructure, kafkas, [out, back] if shape == "two-way" else [out], topic_name)
    if shape == "standby":
        values = config.model_dump(mode="json", by_alias=True)
        values["regions"][y] = {"aggregate": values["regions"][y]["cluster"]}
        config = Config.model_validate(values)
    sides = [
        Harness(infrastructure, topic_name, clusters=(kafkas[of], kafkas[to])) for of, to in ((x, y), (y, x))
    ]
    for side in sides:
        side.create(2)
    with (
        ExitStack() as stack,
        Writing(sides if shape == "two-way" else [sides[0]] * 2, topic_name) as writing,
    ):
        group = Moving(config, topic_name, sides[0], stack)
        group.read_more(200)
        group.move_to(y)
        group.move_to(x)
        copying = Route.parse(out)
        group.stop(copying)
        group.read_more(200)
        group.move_to(y, late=[copying])
        group.move_to(x)
        writing.__exit__()
        group.read_until(lambda: len(group.delivered) >= len(writing.values), "all that was written")
    assert sorted(group.delivered) == sorted(writing.values)
