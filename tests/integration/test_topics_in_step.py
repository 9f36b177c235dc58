"""Settings of target topics follow their sources', between real clusters, and beside MirrorMaker 2."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from structlog.testing import capture_logs
from typer.testing import CliRunner

from lab.bench.sides.mirrormaker import Flow, mirrormaker_spec, settings_of
from lab.stack.java import find_java
from lab.stack.process import Launcher, ManagedProcess
from parallax.adapters.kafka.compacted import CompactedTable
from parallax.adapters.kafka.topic_settings import SettingsDoor
from parallax.cli import audited
from parallax.cli.topics import app
from parallax.config.config import Cluster, Config
from parallax.config.mirror_maker import import_mirror_maker
from parallax.domain.audit import AuditStage
from parallax.domain.ids import ClusterName, RegionName, TopicName
from parallax.domain.mirror_maker import Heartbeat
from parallax.domain.topic_settings import Settings
from parallax.errors import ParallaxError
from parallax.ports.audit import Auditor
from parallax.runtime.deadline import wall_clock_ms
from parallax.upkeep.board import UpkeepBoard
from parallax.upkeep.heartbeats import HeartbeatKeeper
from parallax.upkeep.keeping import HEARTBEATS, SETTINGS, STATES, keeping, upkeeps
from parallax.upkeep.settings import SettingsKeeper, SettingsRow
from replicator.kafka.topics import TargetTopics
from tests.memory.audit import MemoryAuditLog
from tests.support import Stack, poll_until, unique_name
from tests.worlds.mirror_client import POLICIES, mirror_client

PATIENCE_S = 60.0
HOUR_MS = 3_600_000
CALL_MS = 10_000
T = TypeVar("T")


class Step:
    """A topic with one source or two, and a target, in regions of the test's own."""

    def __init__(self, stack: Stack, topic: str, *, sources: int = 1, **config_sync: Any) -> None:
        self.topic = TopicName(topic)
        self.target = RegionName(unique_name("t"))
        self.sources = [RegionName(unique_name(f"s{number}")) for number in range(sources)]
        self.addresses = dict(
            zip(
                (*self.sources, self.target),
                (
                    *(stack.bootstrap(f"regional-{name}") for name in "ab"[:sources]),
                    stack.bootstrap("aggregate-a"),
                ),
                strict=True,
            )
        )
        self.values: dict[str, Any] = {
            "regions": {
                **{name: {"regional": {"bootstrap_servers": self.addresses[name]}} for name in self.sources},
                self.target: {"aggregate": {"bootstrap_servers": self.addresses[self.target]}},
            },
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "topics": {"include": [topic], "config_sync": config_sync},
        }

    @property
    def config(self) -> Config:
        return Config.model_validate(self.values)

    def door(self, region: RegionName) -> SettingsDoor:
        at = Cluster(bootstrap_servers=self.addresses[region])
        return SettingsDoor(ClusterName(f"aggregate-{region}"), at, timeout_ms=CALL_MS)

    def make(self, region: RegionName, name: str = "", **settings: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.addresses[region]})
        topic = name or self.topic
        wanted = NewTopic(topic, 1, 1, config=named(settings))
        admin.create_topics([wanted])[topic].result(PATIENCE_S)
        poll_until(lambda: self.door(region).read([TopicName(topic)]).topics, PATIENCE_S, topic)

    def copy(self) -> None:
        """The target, as the replicator makes it."""
        route = next(iter(self.config.all_routes()))
        fit = TargetTopics(self.config, route)
        info = poll_until(lambda: fit._source.topics().get(self.topic), PATIENCE_S, "the source topic")
        fit.fit(info)

    def change(self, region: RegionName, name: str = "", **settings: str | None) -> None:
        """The broker has taken it; what it tells may be from before for a moment."""
        self.door(region).change(TopicName(name or self.topic), named(settings))

    def set(self, region: RegionName, **settings: str | None) -> None:
        self.change(region, **settings)
        self.shows(region, **settings)

    def shows(self, region: RegionName, **settings: str | None) -> None:
        """The broker tells these of the topic's own values by and by."""
        wanted = named(settings)

        def told() -> bool:
            seen = self.seen(region)
            return {key: seen[key].own for key in wanted} == wanted

        poll_until(told, PATIENCE_S, f"{self.topic} in {region} has {wanted}")

    def seen(self, region: RegionName, name: str = "") -> Settings:
        return self.door(region).read([TopicName(name or self.topic)]).topics[TopicName(name or self.topic)]

    def own(self, *keys: str) -> list[str | None]:
        settings = self.seen(self.target)
        return [settings[key.replace("_", ".")].own for key in keys]

    def round(self) -> dict[str, str]:
        """What a round says of each key that is not, or was not, in step: by a keeper that has just started."""
        keeper = SettingsKeeper(self.config, self.target)
        return states(keeper.carry_out(keeper.plan()))


def named(settings: Mapping[str, T]) -> dict[str, T]:
    """The settings by Kafka's names."""
    return {key.replace("_", "."): value for key, value in settings.items()}


def test_a_new_target_has_replicas_of_its_own_number(infrastructure: Stack, topic_name: str) -> None:
    """On one broker no topic can have two; run logs go by the cluster's number in any case."""
    step = Step(infrastructure, topic_name)
    (source,) = step.sources
    step.make(source)
    step.values["regions"][step.target]["aggregate"]["replication_factor"] = 2
    with pytest.raises(ParallaxError, match="replication factor"):
        step.copy()
    step.values["topics"]["config_sync"]["replication_factor"] = 1
    step.copy()
    admin = AdminClient({"bootstrap.servers": step.addresses[step.target]})
    [partition] = admin.list_topics(topic_name, timeout=10).topics[topic_name].partitions.values()
    assert len(partition.replicas) == 1


def states(rows: list[SettingsRow]) -> dict[str, str]:
    return {row.finding.key: row.state for row in rows}


def test_a_target_follows_its_source_and_keeps_what_is_its_own(
    infrastructure: Stack, topic_name: str
) -> None:
    step = Step(infrastructure, topic_name)
    (source,) = step.sources
    step.make(source, retention_ms=str(4 * HOUR_MS), segment_ms=str(HOUR_MS))
    step.copy()
    assert step.round() == {"segment.ms": "CHANGED"}
    step.shows(step.target, retention_ms=str(4 * HOUR_MS), segment_ms=str(HOUR_MS))
    assert step.round() == {}

    step.set(source, retention_ms=str(8 * HOUR_MS), segment_ms=None, min_insync_replicas="1")
    step.set(step.target, flush_ms="5000", max_message_bytes="2000000")
    assert step.round() == {
        "retention.ms": "CHANGED",
        "segment.ms": "CHANGED",
        "flush.ms": "CONFIG_DRIFT",
        "max.message.bytes": "CONFIG_DRIFT",
    }
    step.shows(step.target, retention_ms=str(8 * HOUR_MS), segment_ms=None)
    assert step.own("flush_ms", "max_message_bytes", "min_insync_replicas") == ["5000", "2000000", None]

    step.set(source, max_message_bytes="3000000")
    assert step.round() == {"flush.ms": "CONFIG_DRIFT", "max.message.bytes": "CONFIG_CONFLICT"}
    step.set(step.target, flush_ms=None, max_message_bytes="3000000")
    assert step.round() == {}


def test_of_two_sources_the_wider_counts_and_what_is_refused_is_told_alone(
    infrastructure: Stack, topic_name: str
) -> None:
    overrides = [{"match": topic_name, "settings": {"segment.bytes": "1", "segment.ms": "7200000"}}]
    step = Step(infrastructure, topic_name, sources=2, overrides=overrides)
    for region, retention, policy in zip(
        step.sources, ("3600000", "7200000"), ("delete", "compact"), strict=True
    ):
        step.make(region, retention_ms=retention, cleanup_policy=policy)
    step.make(step.target)
    found = SettingsKeeper(step.config, step.target)
    rows = {row.finding.key: row for row in found.carry_out(found.plan())}
    assert {key: row.state for key, row in rows.items()} == {
        "retention.ms": "CHANGED",
        "segment.ms": "CHANGED",
        "cleanup.policy": "CONFIG_CONFLICT",
        "segment.bytes": "CONFIG_REFUSED",
    }
    assert "segment.bytes" in rows["segment.bytes"].finding.problem
    step.shows(step.target, retention_ms="7200000", segment_ms="7200000")
    assert step.own("cleanup_policy") == [None]


def test_nothing_is_changed_while_a_source_is_away(infrastructure: Stack, topic_name: str) -> None:
    step = Step(infrastructure, topic_name, sources=2)
    for region in (*step.sources, step.target):
        step.make(region)
    step.set(step.sources[0], retention_ms=str(HOUR_MS))
    there = step.values["regions"][step.sources[1]]["regional"]
    address, there["bootstrap_servers"] = there["bootstrap_servers"], "127.0.0.1:1"
    assert step.round() == {"": "CONFIG_UNREADABLE"}
    assert step.own("retention_ms") == [None]
    there["bootstrap_servers"] = address
    assert step.round() == {"retention.ms": "CHANGED"}  # the other one's, which is Kafka's default and wider


def test_records_that_a_group_has_not_read_do_not_go(infrastructure: Stack, topic_name: str) -> None:
    step = Step(infrastructure, topic_name)
    (source,) = step.sources
    step.make(source)
    step.copy()
    step.round()
    producer = Producer({"bootstrap.servers": step.addresses[step.target]})
    for number in range(10):
        producer.produce(topic_name, value=str(number), timestamp=wall_clock_ms() - 3 * HOUR_MS)
    producer.produce(topic_name, value="new")
    assert producer.flush(PATIENCE_S) == 0
    group = unique_name("group")
    consumer = Consumer({"bootstrap.servers": step.addresses[step.target], "group.id": group})

    def commit(offset: int) -> None:
        consumer.commit(offsets=[KafkaPartition(topic_name, 0, offset)], asynchronous=False)

    commit(4)
    step.set(source, retention_ms=str(HOUR_MS), segment_ms=str(2 * HOUR_MS))
    keeper = SettingsKeeper(step.config, step.target)
    rows = {row.finding.key: row for row in keeper.carry_out(keeper.plan())}
    assert {key: row.state for key, row in rows.items()} == {
        "retention.ms": "CONFIG_SHRINK",
        "segment.ms": "CHANGED",
    }
    assert group in rows["retention.ms"].finding.problem
    commit(10)
    assert step.round() == {"retention.ms": "CHANGED"}
    step.shows(step.target, retention_ms=str(HOUR_MS))
    consumer.close()


def test_rounds_go_on_by_themselves_and_commands_show_and_do_the_same(
    infrastructure: Stack, topic_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = MemoryAuditLog()  # the clusters alone are real here
    monkeypatch.setattr(audited, "open_auditor", lambda _config: nullcontext(Auditor(kept, wall_clock_ms)))
    step = Step(infrastructure, topic_name, interval_s=1)
    (source,) = step.sources
    step.make(source)
    step.copy()
    file = tmp_path / "parallax.yaml"
    file.write_text(yaml.safe_dump(step.values), encoding="utf-8")

    def ran(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
        with capture_logs():  # in a process of its own a command logs to standard error
            result = CliRunner().invoke(app, [*arguments, "--config", str(file), "-o", "json"])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, json.loads(result.stdout)

    assert ran("diff") == ran("sync", "--execute") == (0, [])
    step.set(source, retention_ms=str(HOUR_MS))
    code, rows = ran("sync", topic_name)
    assert (code, [row["state"] for row in rows]) == (0, ["CHANGE"])
    assert step.own("retention_ms") != [str(HOUR_MS)]
    code, rows = ran("sync", "--execute")
    assert (code, [row["state"] for row in rows]) == (0, ["CHANGED"])
    step.shows(step.target, retention_ms=str(HOUR_MS))
    step.set(step.target, retention_ms=str(2 * HOUR_MS))
    code, rows = ran("diff", "--to", step.target)
    assert (code, rows[0]["state"], rows[0]["target"], rows[0]["wanted"]) == (
        1,
        "CONFIG_DRIFT",
        str(2 * HOUR_MS),
        str(HOUR_MS),
    )

    board = UpkeepBoard(STATES)
    with keeping(upkeeps(step.config, [step.target]), board):
        told = poll_until(board.troubles, PATIENCE_S, "the drift is told")
        assert told[0].startswith(f"CONFIG_DRIFT: {topic_name} of aggregate-{step.target}: retention.ms")
        assert ran("sync", "--revert", "--execute")[0] == 0
        poll_until(lambda: not board.troubles(), PATIENCE_S, "it is in step")
        step.set(source, segment_ms=str(HOUR_MS))
        step.shows(step.target, segment_ms=str(HOUR_MS))
    (state,) = board.state()["upkeep"]
    assert (state["kind"], state["problem"], state["not_in_step"]) == (SETTINGS, "", [])
    ended = [entry for entry in kept.entries() if entry.stage is not AuditStage.INTENDED]
    assert [(entry.call, entry.stage) for entry in ended] == [("topics sync", AuditStage.DONE)] * 2


def test_mirror_makers_own_client_sees_who_is_upstream_and_how_far(infrastructure: Stack) -> None:
    names = [RegionName(unique_name(letter)) for letter in "xyz"]
    near, middle, far = names
    brokers = ("regional-a", "aggregate-a", "aggregate-b")
    addresses = {name: infrastructure.bootstrap(broker) for name, broker in zip(names, brokers, strict=True)}
    config = Config.model_validate(
        {
            "regions": {
                name: {"cluster": {"bootstrap_servers": address}} for name, address in addresses.items()
            },
            "routes": [f"{near}->{middle}", {"route": f"{middle}->{far}", "copies": "all"}],
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "mm2_export": {"heartbeats": True, "interval_s": 1},
        }
    )
    times = iter(range(1_000, 2_000))
    keepers = [HeartbeatKeeper(config, target, now_ms=lambda: next(times)) for target in (middle, far)]
    for _ in range(2):  # a beat on two routes needs two rounds
        for keeper in keepers:
            keeper.round()
    at = ClusterName(f"aggregate-{far}")
    copied = CompactedTable(
        at, config.cluster(at), TopicName(f"{middle}.{near}.heartbeats"), timeout_ms=CALL_MS
    )
    beat = Heartbeat(near, middle, 1_002)
    assert copied.read_since(0)[0] == {beat.key(): beat.value()}
    with mirror_client() as client:
        for policy in POLICIES:
            found = client.upstream_clusters(addresses[far], policy)
            assert found.intersection(names) == {near, middle}
            assert [client.hops(addresses[far], policy, name) for name in names] == [2, 1, -1]

    board = UpkeepBoard(STATES)
    with keeping([item for item in upkeeps(config, [middle]) if item.kind == HEARTBEATS], board):
        poll_until(
            lambda: board.state()["upkeep"][0]["last_good_round_age_ms"] is not None, PATIENCE_S, "a round"
        )


# --- beside MirrorMaker 2 -------------------------------------------------------------------------------------------

MEANT = {"compression.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"}
"""Keys in which a target topic of ours differs on purpose (docs/topics-in-step.md)."""


@contextmanager
def mirror_maker(step: Step, directory: Path, **more: str) -> Iterator[ManagedProcess]:
    """MirrorMaker 2 with names of its own for copies (``src.TOPIC``), on the same two clusters."""
    (source,) = step.sources
    flow = Flow("src", "dst", step.addresses[source], step.addresses[step.target], [step.topic], tasks=1)
    settings = settings_of([flow], "latency") | {
        "replication.policy.class": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
        "src->dst.sync.topic.configs.enabled": "true",
        "sync.topic.configs.interval.seconds": "2",
        "refresh.topics.interval.seconds": "2",
        "topic.creation.enable": "true",
        **more,
    }
    java, launcher = find_java(), Launcher()
    spec = mirrormaker_spec(
        "mirrormaker2",
        settings,
        java=java,
        directory=directory,
        environment=os.environ | {"JAVA_HOME": str(java.home)},
    )
    process = ManagedProcess(spec, launcher)
    try:
        process.start()
        yield process
    finally:
        process.kill()
        launcher.close()


def in_force(settings: Mapping[str, Any]) -> dict[str, str]:
    return {key: setting.value for key, setting in settings.items()}


@pytest.mark.heavy
def test_with_revert_both_bring_a_topic_to_the_same_values(
    infrastructure: Stack, topic_name: str, tmp_path: Path
) -> None:
    step = Step(infrastructure, topic_name, on_drift="revert")
    (source,) = step.sources
    theirs = f"src.{topic_name}"
    step.make(source, retention_ms=str(4 * HOUR_MS), segment_ms=str(HOUR_MS), compression_type="zstd")
    for other in ("-more", ".internal", ".replica"):
        step.make(source, topic_name + other)
    step.copy()
    step.round()
    with mirror_maker(step, tmp_path, **{"src->dst.topics": f"{topic_name}.*"}):
        door = step.door(step.target)
        poll_until(lambda: door.read([TopicName(theirs)]).topics, 2 * PATIENCE_S, "its topic")
        undone = {"flush_ms": "5000", "retention_ms": str(HOUR_MS)}  # set at the target, which both undo
        step.change(step.target, theirs, **undone)  # perhaps before anybody has seen it
        step.set(step.target, **undone)
        step.set(source, retention_ms=str(8 * HOUR_MS), segment_ms=None, cleanup_policy="compact,delete")
        step.set(source, unclean_leader_election_enable="true", min_insync_replicas="2")
        step.set(source, message_timestamp_type="LogAppendTime")
        poll_until(lambda: "CHANGED" not in step.round().values(), PATIENCE_S, "ours is in step")
        ours = in_force(step.seen(step.target))

        def differences() -> set[str]:
            other = in_force(step.seen(step.target, theirs))
            return {key for key in ours | other if ours.get(key) != other.get(key)}

        deadline = time.monotonic() + PATIENCE_S
        while differences() - MEANT and time.monotonic() < deadline:
            time.sleep(0.5)
        assert {
            key: (ours[key], in_force(step.seen(step.target, theirs))[key]) for key in differences() - MEANT
        } == {}
        assert "compression.type" in differences()
        assert ours["retention.ms"] == str(8 * HOUR_MS)
        poll_until(lambda: step.seen(step.target, f"{theirs}-more"), PATIENCE_S, "its other topic")
    assert in_force(step.seen(step.target, theirs))["retention.ms"] == str(8 * HOUR_MS)
    of_the_file(step, tmp_path / "mirrormaker2.properties")


def of_the_file(step: Step, file: Path) -> None:
    """By the imported file the same topics are copied, and get the same values, as MirrorMaker 2 has copied and given."""
    admin = AdminClient({"bootstrap.servers": step.addresses[step.target]})

    def there() -> set[str]:
        return {name for name in admin.list_topics(timeout=10).topics if step.topic in name} - {step.topic}

    names = there()
    before = {name: in_force(step.seen(step.target, name)) for name in names}
    for gone in admin.delete_topics(list(names)).values():
        gone.result(PATIENCE_S)
    poll_until(lambda: not there(), PATIENCE_S, "its topics are gone")

    text = file.read_text(encoding="utf-8")
    accepted = [key.key for key in import_mirror_maker(text).keys if key.blocks]
    config = Config.model_validate(import_mirror_maker(text, accepted).values)
    (route,) = config.all_routes()
    fit = TargetTopics(config, route)
    for name, info in fit._source.topics().items():
        copy = config.route_topics(route).copy_of(name)
        if copy is not None:
            fit.fit(replace(info, topic=copy))
    assert names == {f"src.{step.topic}{other}" for other in ("", "-more", ".internal")}
    names -= {f"src.{step.topic}.internal"}  # a built-in exclude of ours (docs/configuration.md)
    assert there() == names
    keeper = SettingsKeeper(config, route.target)
    keeper.carry_out(keeper.plan())
    after = {name: in_force(step.seen(step.target, name)) for name in names}
    different = {
        (name, key) for name in names for key in after[name] if after[name][key] != before[name].get(key)
    }
    assert {key for _, key in different} <= MEANT, different
