"""`parallax serve` and the commands that ask it, on real brokers and Cassandra."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from parallax.adapters.cassandra.schema import Schema
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.client.client import OffsetClient, at_region
from parallax.config.config import Cassandra, Config
from parallax.domain import ids
from parallax.domain.index_rows import LineageRecord, RowBatch
from parallax.domain.runs import Run
from parallax.errors import StoreUnavailableError
from parallax.runtime.deadline import wall_clock_ms
from parallax.v1 import offsets_pb2 as pb
from tests.support import Stack, poll_until, unique_name
from tests.worlds.offset_servers import asked_by_many
from tests.worlds.processes import descendants
from tests.worlds.row_owner import RowOwner

CLOSED_PORT = "127.0.0.1:1"
RECORDS = 10
# Where each source's ten records begin. On a: those of a, then those of b. On b: the other way round.
RUNS = {"a->a": 0, "b->a": RECORDS, "b->b": 0, "a->b": RECORDS}


@dataclass
class Serving:
    """A service as a process of its own."""

    process: subprocess.Popen[str]
    grpc: str
    rest: str

    def ask(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command against it."""
        command = [sys.executable, "-m", "parallax", *arguments, "--service", self.grpc]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@contextmanager
def _serve(values: dict[str, Any], directory: Path) -> Iterator[Serving]:
    path = directory / f"{unique_name('parallax')}.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "parallax",
        "serve",
        "--config",
        str(path),
        "--region",
        "a",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            addresses = json.loads(process.stdout.readline())
            yield Serving(process, addresses["grpc"], addresses["rest"])
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


@pytest.fixture(scope="module")
def values(infrastructure: Stack) -> dict[str, Any]:
    """A configuration with a keyspace of this module's own, which has the schema."""
    regions: dict[str, Any] = {
        region: {
            kind: {"bootstrap_servers": infrastructure.bootstrap(f"{kind}-{region}")}
            for kind in ("regional", "aggregate")
        }
        for region in "ab"
    }
    regions["a"]["offsetsvc"] = {"grpc": "127.0.0.1:0", "rest": "127.0.0.1:0"}
    cassandra = {
        "contact_points": [infrastructure.cassandra_address()],
        "keyspace": unique_name("offsetsvc").replace("-", "_"),
        "request_timeout_ms": 20_000,
    }
    with closing(Schema(Cassandra.model_validate(cassandra))) as schema:
        schema.apply()
    return {
        "regions": regions,
        "cassandra": cassandra,
        "service": {"stale_after_ms": 3_600_000, "cluster_timeout_ms": 10_000, "deadline_ms": 60_000},
    }


@pytest.fixture(scope="module")
def topic(infrastructure: Stack, values: dict[str, Any]) -> str:
    """A topic in both aggregate clusters, with its index."""
    name = unique_name("offsetsvc")
    for region in "ab":
        bootstrap = infrastructure.bootstrap(f"aggregate-{region}")
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(name, 1)])[name].result(timeout=60)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(2 * RECORDS):
            producer.produce(name, str(number).encode())
        assert producer.flush(60) == 0
    config = Config.model_validate(values)
    with CassandraStores(config.cassandra, config.index) as stores:
        _index(stores, config, ids.TopicName(name))
    return name


def _index(stores: CassandraStores, config: Config, topic: ids.TopicName) -> None:
    owner = RowOwner(stores.index)
    for text, target_start in RUNS.items():
        route = ids.Route.parse(text)
        cluster = ids.aggregate_cluster(route.target)
        reader = KafkaCluster(cluster, config.cluster(cluster), timeout_ms=20_000)
        info = poll_until(lambda reader=reader: reader.topics().get(topic), 60, f"{cluster} has the topic")
        lineage = ids.Lineage(ids.TopicId(f"{topic}-{route.source}"), info.topic_id)
        item = ids.RoutePartition(route, ids.TopicPartition(topic, 0))
        first = ids.SourceOffset(0), ids.TargetOffset(0)
        stores.index.write_lineages([LineageRecord(item, lineage, 0, *first, None, 1)])
        end = 2 * RECORDS
        rows = (
            Run(ids.SourceOffset(0), ids.TargetOffset(target_start), RECORDS, ids.SourceOffset(0), 0),
            Run(ids.SourceOffset(RECORDS), ids.TargetOffset(end), 0, ids.SourceOffset(RECORDS), 0),
        )
        owner.write_rows([RowBatch(item, lineage, rows, (), wall_clock_ms(), 2)])


@pytest.fixture(scope="module")
def group(infrastructure: Stack, topic: str) -> str:
    """A group that has consumed all of a's records and half of b's in aggregate-a."""
    name = unique_name("offsetsvc")
    consumer = Consumer(
        {
            "bootstrap.servers": infrastructure.bootstrap("aggregate-a"),
            "group.id": name,
            "enable.auto.commit": False,
        }
    )
    consumer.commit(offsets=[TopicPartition(topic, 0, 15)], asynchronous=False)
    consumer.close()
    return name


@pytest.fixture(scope="module")
def serving(
    values: dict[str, Any], topic: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    assert topic
    with _serve(values, tmp_path_factory.mktemp("offsetsvc")) as running:
        yield running


def test_a_group_is_answered_from_brokers_and_cassandra(serving: Serving, group: str, topic: str) -> None:
    with OffsetClient([serving.grpc], timeout_ms=60_000) as client:
        answer = client.get_group_failover_offsets(group, to=at_region("b")).offsets[0]

    # b's first five are consumed; the other five of b lie before a's ten, which are consumed too.
    assert (answer.resume_offset, answer.outcome) == (5, pb.OK)
    assert [(item.start, item.end) for item in answer.skip_ranges] == [(10, 20)]
    assert (getattr(answer, "from").next_offset, getattr(answer, "from").high_watermark) == (15, 20)
    assert answer.to.high_watermark == 20
    assert answer.topic == topic


def test_every_position_is_answered_rightly(serving: Serving, group: str, topic: str) -> None:
    def sources(place: int, first: str, second: str) -> dict[str, int]:
        return {first: min(place, RECORDS), second: max(0, place - RECORDS)}

    with OffsetClient([serving.grpc], timeout_ms=60_000) as client:
        for commit in range(2 * RECORDS + 1):
            answer = client.get_failover_offset(group, topic, 0, to=at_region("b"), next_offset=commit)
            consumed = sources(commit, "a", "b")
            skipped = {place for item in answer.skip_ranges for place in range(item.start, item.end)}
            for place in range(2 * RECORDS):
                region, offset = ("b", place) if place < RECORDS else ("a", place - RECORDS)
                passed = place < answer.resume_offset or place in skipped
                assert passed == (offset < consumed[region]), (commit, place)


def test_the_commands_tell_it_to_people_and_scripts(serving: Serving, group: str, topic: str) -> None:
    shown = serving.ask("offsets", group, "--to", "b", "--json")
    table = serving.ask("offsets", group)
    story = serving.ask("explain", group, topic, "0", "--to", "b")
    routes = serving.ask("routes")
    runs = serving.ask("runs", "a->b", topic, "0")

    assert json.loads(shown.stdout)["offsets"][0]["resume_offset"] == 5
    assert topic in table.stdout
    assert "OK" in table.stdout
    for part in ("resume 5", "source b", "decides the resume offset", "[0, 10) = aggregate-b [0, 10)"):
        assert part in story.stdout
    assert topic in routes.stdout
    assert "watermark" in runs.stdout
    assert [item.returncode for item in (shown, table, story, routes, runs)] == [0] * 5


def test_a_wrong_name_is_one_line_and_exit_code_1(serving: Serving, group: str) -> None:
    failed = serving.ask("explain", group, "no-such-topic", "0", "--to", "b")

    assert failed.returncode == 1
    assert failed.stderr.startswith("error [UNKNOWN_TOPIC]: topic 'no-such-topic'")
    assert len(failed.stderr.splitlines()) == 1


def test_rest_answers_beside_grpc(serving: Serving, group: str, topic: str) -> None:
    with httpx.Client(base_url=serving.rest, timeout=60) as http:
        assert http.get("/readyz").json()["status"] == "ready"
        answer = http.get(f"/v1/groups/{group}/topics/{topic}/partitions/0/failover-offset?to=b").json()

    assert answer["resume_offset"] == 5


def test_several_processes_answer_alike_and_one_that_ends_is_started_again(
    values: dict[str, Any], group: str, topic: str, tmp_path: Path
) -> None:
    request = pb.GetFailoverOffsetRequest(group=group, topic=topic, partition=0, to=at_region("b"))
    with _serve({**values, "service": {**values["service"], "processes": 2}}, tmp_path) as running:

        def counted(name: str) -> float:
            page = httpx.get(f"{running.rest}/metrics", timeout=60).text
            return sum(float(line.split()[-1]) for line in page.splitlines() if line.startswith(name))

        def asked() -> set[int]:
            answers, taken = asked_by_many(running.grpc, request, 16, running.process.pid)
            assert {pb.FailoverOffset.FromString(answer).resume_offset for answer in answers} == {5}
            return taken

        assert len(asked()) == 2
        assert counted("parallax_offsetsvc_requests_total") == 16
        for process in descendants(running.process.pid):
            process.kill()
        poll_until(
            lambda: (
                counted("parallax_offsetsvc_processes_started_again_total") == 1
                and counted("parallax_offsetsvc_processes ") == 2
            ),
            120,
            "the process is started again",
        )
        assert len(asked()) == 2
        assert counted("parallax_offsetsvc_requests_total") == 32


def test_a_dead_cluster_is_answered_without(
    serving: Serving, values: dict[str, Any], group: str, topic: str, tmp_path: Path
) -> None:
    with OffsetClient([serving.grpc], timeout_ms=60_000) as client:
        position = pb.PartitionPosition(topic=topic, partition=0, next_offset=15)
        client.report_positions(group, at=at_region("a"), positions=[position])
    dead = {**values["regions"]["a"], "aggregate": {"bootstrap_servers": CLOSED_PORT}}
    changed = {
        **values,
        "regions": {**values["regions"], "a": dead},
        "service": {**values["service"], "cluster_timeout_ms": 1_000},
    }

    with _serve(changed, tmp_path) as running, OffsetClient([running.grpc], timeout_ms=60_000) as client:
        answer = client.get_group_failover_offsets(group, to=at_region("b")).offsets[0]
        ready = httpx.get(f"{running.rest}/readyz", timeout=60)

    assert (answer.resume_offset, answer.outcome) == (5, pb.UNREACHABLE)
    assert getattr(answer, "from").basis == "observed"
    assert (ready.status_code, list(ready.json()["dependencies"])) == (503, ["store", "aggregate-a"])


def test_without_cassandra_it_starts_and_says_unavailable(
    values: dict[str, Any], group: str, topic: str, tmp_path: Path
) -> None:
    away = {"contact_points": [CLOSED_PORT], "request_timeout_ms": 1_000}

    with _serve({**values, "cassandra": away}, tmp_path) as running:
        with (
            OffsetClient([running.grpc], timeout_ms=8_000) as client,
            pytest.raises(StoreUnavailableError),
        ):
            client.get_failover_offset(group, topic, 0, to=at_region("b"))
        ready = httpx.get(f"{running.rest}/readyz", timeout=60)

    assert ready.status_code == 503
    assert ready.json()["dependencies"]["aggregate-a"] == "ok"
