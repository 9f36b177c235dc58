"""Routes with topics of their own, and routes one behind the other, between real clusters."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs
from typer.testing import CliRunner

from offsetsvc.metrics import ServiceMetrics
from offsetsvc.transport.grpc_server import GrpcServer
from parallax import FailoverConsumer
from parallax.cli import audited
from parallax.config.config import Config
from parallax.domain.audit import AuditStage
from parallax.domain.ids import Route, TopicName
from parallax.identity.identity import Identity
from parallax.ports.audit import Auditor
from parallax.runtime.deadline import wall_clock_ms
from replicator.copying.state import lost_of
from replicator.kafka.run_log import KafkaRunLog
from replicator.topics_command import app as topics_app
from tests.memory.audit import MemoryAuditLog
from tests.memory.index import MemoryMappingIndex
from tests.support import Stack, poll_until, unique_name
from tests.worlds.live_routes import (
    Writing,
    copy_now,
    in_both_roles,
    lease_of,
    read_at,
    service_over,
)
from tests.worlds.shard_harness import PATIENCE_S, Harness, Owner, await_markers, check_rows


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


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_new_topic_waits_until_somebody_adds_it(
    infrastructure: Stack, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    kept = MemoryAuditLog()
    monkeypatch.setattr(audited, "open_auditor", lambda _config: nullcontext(Auditor(kept, wall_clock_ms)))
    harness = Harness(infrastructure, topic_name)
    values: dict[str, Any] = {
        "regions": {
            harness.route.source: {"regional": {"bootstrap_servers": harness.source}},
            harness.route.target: {"aggregate": {"bootstrap_servers": harness.target}},
        },
        "cassandra": {"contact_points": ["127.0.0.1"]},
        "routes": [{"route": str(harness.route), "start": start}],
        "topics": {"include": [topic_name], "new": "manual"},
        "replicator": {"discovery_interval_ms": 500, "watermark_interval_ms": 300},
    }
    file = tmp_path / "parallax.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    config = Config.model_validate(values)
    at_target = AdminClient({"bootstrap.servers": harness.target})

    def add(*arguments: str) -> list[str]:
        command = ["add", topic_name, "--config", str(file), "-o", "json", *arguments]
        with capture_logs():  # in a process of its own a command logs to standard error
            result = CliRunner().invoke(topics_app, command)
        assert result.exit_code == 0, result.output
        return [row["state"] for row in json.loads(result.stdout)]

    harness.create(2)
    harness.produce(["old 0", "old 1"])
    assert harness.copy_now(config).records == 0
    owner = harness.own(config)
    try:
        poll_until(lambda: owner.progress, PATIENCE_S, "a report")
        assert add() == ["ADD"]
        assert topic_name not in at_target.list_topics(timeout=10).topics
        assert add("--execute") == ["ADDED"]
        assert len(at_target.list_topics(timeout=10).topics[topic_name].partitions) == 2
        assert add("--execute") == ["THERE"]
        poll_until(
            lambda: [part.topic for part in owner.progress[-1].partitions if part.status.value == "copying"],
            PATIENCE_S,
            "it is copied",
        )
        harness.produce(["new"])
        harness.wait_for({0: ["new"] if start == "latest" else ["old 0", "old 1", "new"]})
    finally:
        owner.finish()
    ended = [(entry.call, entry.stage) for entry in kept.entries() if entry.stage is not AuditStage.INTENDED]
    assert ended == [("topics add", AuditStage.DONE)]


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
    assert copy_now(config, first) == 10
    await_markers(near.target, renamed)
    assert copy_now(config, second) == 0
    near.produce([f"late {number}" for number in range(5)])
    assert copy_now(config, first) == 5
    await_markers(near.target, renamed)
    assert copy_now(config, second) == 5
    await_markers(far.target, renamed)
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


class Moving:
    """Routes that copy into an index, an offset service over it, and a group that reads at one of the regions."""

    def __init__(self, config: Config, topic: str, harness: Harness, stack: ExitStack) -> None:
        self.config = config
        self.topic = topic
        self._harness = harness
        self._index = MemoryMappingIndex()
        self._owners: dict[Route, Owner] = {}
        self.delivered: list[str] = []
        service = stack.enter_context(service_over(config, self._index))
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
                    clusters={name: read_at(config, name) for name in config.regions},
                    region=next(iter(config.regions)),
                    services=[f"127.0.0.1:{server.port}"],
                    # After its usual 2.5 s it would go on, and say that a few may be read twice.
                    index_wait_ms=PATIENCE_S * 1_000,
                )
            )
        )
        self._consumer.subscribe([topic])

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
        Writing(
            {x: side.source for x, side in zip("xy", sides[: 1 + (shape == "two-way")], strict=False)},
            topic_name,
        ) as writing,
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
