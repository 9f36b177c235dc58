"""The syncjob on real brokers, Cassandra, offset service and Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from structlog.testing import capture_logs

from offsetsvc.command import start
from parallax.adapters.cassandra.schema import Schema
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.adapters.spark.reporting import StatusTarget
from parallax.client.answer import ask
from parallax.config.config import Cassandra, Config, load
from parallax.domain import ids
from parallax.domain.index_rows import LineageRecord, RowBatch
from parallax.domain.metadata import decode
from parallax.domain.runs import Run
from parallax.runtime.deadline import Deadline
from parallax.wiring import open_client
from syncjob.query import SyncHolder
from syncjob.run import run_once, run_until
from tests.support import Stack, poll_until, unique_name
from tests.worlds.mirror_client import POLICIES, mirror_client
from tests.worlds.row_owner import RowOwner

RECORDS = 20
# On a: a0..9 b0..9. On b: b0..9 a0..9.
RUNS = {"a->a": 0, "b->a": 10, "b->b": 0, "a->b": 10}


@dataclass
class Synced:
    """A group, a topic in both aggregate clusters with its index, and an offset service."""

    config: Config
    config_path: Path
    stores: CassandraStores
    stack: Stack
    topic: str
    group: str
    consumers: list[Consumer] = field(default_factory=list)
    lookers: dict[str, Consumer] = field(default_factory=dict)

    def consumer(self, cluster: str) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self.stack.bootstrap(cluster),
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self.consumers.append(consumer)
        return consumer

    def committed(self, cluster: str, partition: int = 0) -> tuple[int, str]:
        if cluster not in self.lookers:
            self.lookers[cluster] = self.consumer(cluster)
        place = TopicPartition(self.topic, partition)

        def found() -> list[TopicPartition] | None:
            try:
                return self.lookers[cluster].committed([place], timeout=20)
            except KafkaException as error:
                # A cluster that never had a group creates its topic of offsets first.
                if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                    raise
                return None

        [item] = poll_until(found, 20, f"the coordinator of {self.group} on {cluster}")
        return item.offset, item.metadata or ""

    def commit(self, cluster: str, next_offset: int, partition: int = 0) -> None:
        """As a consumer that uses assign() does: the group has no member."""
        offset = TopicPartition(self.topic, partition, next_offset)
        self.consumer(cluster).commit(offsets=[offset], asynchronous=False)

    def parallax(self, *arguments: str) -> dict[str, Any]:
        command = [
            sys.executable,
            "-m",
            "parallax",
            "sync",
            "--config",
            str(self.config_path),
            "--json",
        ]
        result = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        assert result.returncode == 0, result.stderr
        values: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
        return values


@pytest.fixture(scope="module")
def cassandra(infrastructure: Stack) -> dict[str, Any]:
    """A keyspace of this module's own, with the schema; as the configuration says it."""
    values = {
        "contact_points": [infrastructure.cassandra_address()],
        "keyspace": unique_name("sync").replace("-", "_"),
        "request_timeout_ms": 20_000,
    }
    with closing(Schema(Cassandra.model_validate(values))) as schema:
        schema.apply()
    return values


@pytest.fixture
def synced(
    infrastructure: Stack, cassandra: dict[str, Any], topic_name: str, tmp_path: Path
) -> Iterator[Synced]:
    group = unique_name("sync")
    regions = {
        region: {
            kind: {"bootstrap_servers": infrastructure.bootstrap(f"{kind}-{region}")}
            for kind in ("regional", "aggregate")
        }
        for region in "ab"
    }
    values: dict[str, Any] = {
        "regions": regions,
        "cassandra": cassandra,
        "groups": {"include": [group]},
        "sync": {"interval_ms": 200, "status_address": "127.0.0.1:0"},
        "service": {"stale_after_ms": 3_600_000},
    }
    regions["a"]["offsetsvc"] = {"grpc": "127.0.0.1:0", "rest": "127.0.0.1:0"}
    with ExitStack() as stack:
        serving = Config.model_validate(values)
        stores = stack.enter_context(CassandraStores(serving.cassandra, serving.index))
        for region in "ab":
            _fill(infrastructure.bootstrap(f"aggregate-{region}"), topic_name)
        _index(stores, serving, topic_name)
        regions["a"]["offsetsvc"]["grpc"] = start(serving, ids.RegionName("a"), stack)["grpc"]
        path = tmp_path / "parallax.yaml"
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        found = Synced(load(path, {}), path, stores, infrastructure, topic_name, group)
        yield found
        for consumer in found.consumers:
            consumer.close()


def _fill(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 2, 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(30) == 0


def _index(stores: CassandraStores, config: Config, topic: str) -> None:
    name = ids.TopicName(topic)
    owner = RowOwner(stores.index)
    for route in config.all_routes():
        cluster = ids.aggregate_cluster(route.target)
        target_id = KafkaCluster(cluster, config.cluster(cluster), timeout_ms=20_000).topics()[name].topic_id
        lineage = ids.Lineage(ids.TopicId(f"source-{route.source}"), target_id)
        for partition in (0, 1):
            item = ids.RoutePartition(route, ids.TopicPartition(name, partition))
            stores.index.write_lineages(
                [LineageRecord(item, lineage, 0, ids.SourceOffset(0), ids.TargetOffset(0), None, 1)]
            )
            count = 10 if partition == 0 else 0
            start_at = RUNS[str(route)] if partition == 0 else 0
            row = Run(ids.SourceOffset(0), ids.TargetOffset(start_at), count, ids.SourceOffset(0))
            end = Run(ids.SourceOffset(count), ids.TargetOffset(2 * count), 0, ids.SourceOffset(count))
            rows = (row, end) if count else (end,)
            owner.write_rows([RowBatch(item, lineage, rows, (), time.time_ns() // 1_000_000, 1)])


def decision_of(values: dict[str, Any], to: str, partition: int = 0) -> dict[str, Any]:
    found = [
        item
        for item in values["decisions"]
        if (item["to"], item["partition"]) == (f"aggregate-{to}", partition)
    ]
    assert len(found) == 1, values
    decision: dict[str, Any] = found[0]
    return decision


def test_a_plain_group_finds_its_place_in_the_other_cluster_and_back(synced: Synced) -> None:
    synced.commit("aggregate-a", 15)  # all of a, b0..4
    planned = synced.parallax("--dry-run")
    assert (decision_of(planned, "b")["offset"], decision_of(planned, "b")["reason"]) == (5, "published")
    assert synced.committed("aggregate-b")[0] < 0

    done = synced.parallax("--once")
    assert decision_of(done, "b") == {
        "group": synced.group,
        "topic": synced.topic,
        "partition": 0,
        "from": "aggregate-a",
        "to": "aggregate-b",
        "offset": 5,
        "reason": "published",
        "outcome": "OK",
    }
    assert decision_of(done, "b", 1)["outcome"] == "NO_COMMIT"
    offset, metadata = synced.committed("aggregate-b")
    assert offset == 5
    assert [(item.start, item.end) for item in decode(metadata).skips] == [(10, 20)]
    assert synced.committed("aggregate-b", 1)[0] == 0
    assert decision_of(synced.parallax("--once"), "b")["reason"] == "unchanged"

    # A member of the group starts there, without a word to anybody.
    member = synced.consumer("aggregate-b")
    member.subscribe([synced.topic])
    values = [int(message.value()) for message in _consume(member, 3)]
    assert values == [5, 6, 7]
    assert decision_of(synced.parallax("--once"), "b")["reason"] == "active_at_target"
    member.commit(offsets=[TopicPartition(synced.topic, 0, 8)], asynchronous=False)
    moved = synced.parallax("--once")
    assert moved["counts"]["moves"] == 1
    assert (decision_of(moved, "a")["from"], decision_of(moved, "a")["offset"]) == ("aggregate-b", 18)
    assert synced.committed("aggregate-a")[0] == 18


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("propagate", ("published", "REWOUND", 0)), ("refuse", ("rewind_refused", "REWOUND", 5))],
)
def test_an_operators_rewind_is_followed_or_refused(
    synced: Synced, policy: str, expected: tuple[str, str, int]
) -> None:
    values = yaml.safe_load(synced.config_path.read_text(encoding="utf-8"))
    values["sync"]["on_rewind"] = policy
    synced.config_path.write_text(yaml.safe_dump(values), encoding="utf-8")
    synced.commit("aggregate-a", 15)  # all of a, b0..4
    assert decision_of(synced.parallax("--once"), "b")["offset"] == 5

    synced.commit("aggregate-a", 3)  # as an operator does: from a3 on again

    found = decision_of(synced.parallax("--once"), "b")
    assert (found["reason"], found["outcome"], found["offset"]) == expected
    assert synced.committed("aggregate-b")[0] == found["offset"]
    member = synced.consumer("aggregate-b")
    member.subscribe([synced.topic])
    left = RECORDS - found["offset"]
    read = {record_at("b", int(message.value())) for message in _consume(member, left)}
    before_it = {record_at("a", place) for place in range(3)}
    missing = {record_at("a", place) for place in range(RECORDS)} - read - before_it
    # Who refuses a rewind goes on where the group was: b0..4 had been consumed by then.
    assert missing == (set() if policy == "propagate" else {("b", number) for number in range(5)})


def record_at(region: str, place: int) -> tuple[str, int]:
    """The source record at a place in an aggregate cluster."""
    own, other = ("a", "b") if region == "a" else ("b", "a")
    return (own, place) if place < RECORDS // 2 else (other, place - RECORDS // 2)


def _consume(consumer: Consumer, count: int) -> Sequence[Any]:
    found: list[Any] = []

    def enough() -> bool:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None, message.error()
            found.append(message)
        return len(found) >= count

    poll_until(enough, 30, "records arrive")
    return found


def test_the_loop_goes_on_through_a_store_that_was_away(
    synced: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced.commit("aggregate-a", 15)
    stop = threading.Event()
    monkeypatch.setattr(stop, "wait", lambda _seconds: None)
    nowhere = synced.config.model_copy(
        update={"cassandra": synced.config.cassandra.model_copy(update={"contact_points": ("127.0.0.1:1",)})}
    )
    totals = run_until(nowhere, Deadline.after_ms(60_000), stop, lambda *_: stop.set())
    assert totals["failed_cycles"] >= 1
    assert synced.committed("aggregate-b")[0] < 0
    done = threading.Event()

    def told(counts: Mapping[str, int], *_: object) -> None:
        if counts.get("published", 0) >= 2:
            done.set()

    totals = run_until(synced.config, Deadline.after_ms(60_000), done, told)
    assert totals["cycles"] >= 1
    assert totals["published"] == 2
    assert synced.committed("aggregate-b")[0] == 5


def test_the_command_publishes_from_spark_until_it_is_stopped(synced: Synced, tmp_path: Path) -> None:
    synced.commit("aggregate-a", 12)
    command = [
        sys.executable,
        "-m",
        "parallax",
        "sync",
        "--config",
        str(synced.config_path),
        "--json",
    ]
    log = tmp_path / "sync.log"
    with log.open("wb") as stderr, subprocess.Popen(command, stderr=stderr) as process:
        try:
            poll_until(lambda: synced.committed("aggregate-b")[0] == 2, 150, "the first offset is published")
            synced.commit("aggregate-a", 15)
            poll_until(lambda: synced.committed("aggregate-b")[0] == 5, 30, "progress is published")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        except AssertionError as error:
            error.add_note(log.read_text(encoding="utf-8", errors="replace")[-8_000:])
            raise
        finally:
            process.kill()


def test_a_lease_ends_at_its_deadline_and_tells_what_it_did(synced: Synced) -> None:
    synced.commit("aggregate-a", 15)
    lease = {"epoch": 1, "deadline_unix_ms": time.time_ns() // 1_000_000 + 6_000}
    nobody = StatusTarget("127.0.0.1", 9, "")
    with capture_logs() as logs:
        counts = SyncHolder(synced.config, nobody).hold(lease)
    begun = [(item["lease"], item["process"]) for item in logs if item["event"] == "lease_begun"]
    assert begun == [("sync", os.getpid())]
    assert counts["published"] == 2
    assert counts["cycles"] >= 1


def test_mirror_makers_own_client_translates_as_the_offset_service_answers(synced: Synced) -> None:
    values = yaml.safe_load(synced.config_path.read_text(encoding="utf-8"))
    # Names of its own: another test's checkpoints lie at the same cluster.
    aliases = {"a": unique_name("a"), "b": unique_name("b")}
    values["mm2_export"] = {"checkpoints": True, "alias": aliases}
    synced.config_path.write_text(yaml.safe_dump(values), encoding="utf-8")
    config = load(synced.config_path, {})
    pair = (ids.aggregate_cluster(ids.RegionName("a")), ids.aggregate_cluster(ids.RegionName("b")))
    target = synced.stack.bootstrap("aggregate-b")
    with mirror_client() as client, open_client(config) as service:
        for consumed in (15, 18, 15):  # on, and back
            synced.commit("aggregate-a", consumed)
            run_once(config, dry_run=False)
            answers = ask(service, ids.GroupName(synced.group), pair, [ids.TopicName(synced.topic)])
            expected = {
                (item.topic, item.partition): (answer.resume_offset, "")
                for item, answer in answers.items()
                if answer.origin_next_offset is not None
            }
            assert set(expected) == {(synced.topic, 0)}
            for policy in POLICIES:
                assert client.translated(target, policy, aliases["a"], synced.group) == expected
