"""`GetFailoverOffset` over a million runs of three sources in Cassandra, for offsets drawn from the whole log.

The service runs on one core. Each question names its own next offset, so no committed offset is asked for; few
questions meet a stretch of rows that another one has read, so nearly all of them read Cassandra.
"""

from __future__ import annotations

import base64
import multiprocessing
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import yaml

from bench.asking import ask_service
from bench.batches import Shape, prepare
from bench.cpu import cpu_s
from bench.errors import BenchError
from bench.history import HistorySize, batches, merged
from bench.loading import fill
from bench.stage import Stage
from bench.stats import percentile
from devstack.probes import http_probe
from devstack.process import ProcessSpec
from devstack.services import build_config, service_environment
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.ports import LineageRecord, RowBatch
from parallax.runtime.config import Config, load

ANSWERS_TOPIC = "answers"
_SOURCES = ("a", "b", "c")
_TARGETS = ("a", "b")
_PARTITIONS = 16
_CALLERS = 16
_WRITE_AT_ONCE = 200
_CLUSTER_TIMEOUT_MS = 10_000
_ASKED_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Answered:
    """What the service did.

    Attributes:
        runs: in the index.
        answers_per_s: as fast as it could, on one core.
        service_cpu_share: of that core, meanwhile.
        half_rate: questions a second in the second part.
        p50_ms, p99_ms: from when a question was due to its answer, at half the rate.
        outcomes: how often each was the gravest.
    """

    runs: int
    answers_per_s: float
    service_cpu_share: float
    half_rate: float
    p50_ms: float
    p99_ms: float
    outcomes: dict[str, int] = field(default_factory=dict)


def answering(
    stage: Stage, runs: int, seconds: float, tell: Callable[[str], None] = lambda _line: None
) -> Answered:
    """Fill the index, start the service, ask.

    Args:
        stage: with the regions a and b.
        runs: in the index, all routes together.
        seconds: of each part of the asking.
        tell: gets a line now and then.

    Raises:
        BenchError: the asking did not end.
        DevstackError: the service did not come up.
    """
    size = HistorySize(runs // (len(_SOURCES) * len(_TARGETS) * _PARTITIONS))
    end = size.end(len(_SOURCES))
    for region in _TARGETS:
        cluster = f"aggregate-{region}"
        stage.create_topic(cluster, ANSWERS_TOPIC, _PARTITIONS)
        fill(stage.bootstrap(cluster), ANSWERS_TOPIC, _PARTITIONS, [("log", prepare(Shape(variants=4)), end)])
    config_path = _write_config(stage)
    config = load(config_path)
    started = time.monotonic()
    with CassandraStores(config.cassandra, config.index) as stores:
        for region in _TARGETS:
            _write_history(stores, config, region, size, tell)
    tell(f"{runs:,} runs indexed in {time.monotonic() - started:.0f} s")
    service = stage.process(_service(stage, config_path))
    service.start()
    try:
        return _asked(stage, service.pid or 0, size, end, seconds)
    finally:
        service.stop()


def _asked(stage: Stage, service_pid: int, size: HistorySize, end: int, seconds: float) -> Answered:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    settings = {
        "address": stage.stack.layout.grpc_address("b"),
        "topic": ANSWERS_TOPIC,
        "partitions": _PARTITIONS,
        "end": end,
        "callers": _CALLERS,
        "seconds": seconds,
    }
    asker = context.Process(target=ask_service, args=(settings, there), daemon=True)
    asker.start()
    there.close()
    try:
        _next(here).recv_bytes()
        before = cpu_s({"service": [service_pid]})["service"]
        _next(here).recv_bytes()
        used = cpu_s({"service": [service_pid]})["service"] - before
        found = _next(here).recv()
    finally:
        asker.kill()
        asker.join()
    latencies = sorted(found["latencies_ms"])
    return Answered(
        runs=size.runs * len(_SOURCES) * len(_TARGETS) * _PARTITIONS,
        answers_per_s=found["answers"] / found["seconds"],
        service_cpu_share=used / found["seconds"],
        half_rate=found["half_rate"],
        p50_ms=percentile(latencies, 50),
        p99_ms=percentile(latencies, 99),
        outcomes=found["outcomes"],
    )


def _next(connection: Connection) -> Connection:
    try:
        ready = connection.poll(_ASKED_WITHIN_S)
    except (EOFError, OSError) as error:
        raise BenchError(f"the process that asks ended: {error!r}") from error
    if not ready:
        raise BenchError(f"the process that asks was silent for {_ASKED_WITHIN_S:.0f} s")
    return connection


def _write_config(stage: Stage) -> Path:
    """The stack's configuration with a third source: nobody asks the regional clusters here."""
    config = build_config(stage.stack.layout)
    config["regions"]["c"] = {"regional": {"bootstrap_servers": stage.bootstrap("regional-b")}}
    config["routes"] = [f"{source}->{target}" for target in _TARGETS for source in _SOURCES]
    path = stage.directory / "copiers" / "answers.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path


def _write_history(
    stores: CassandraStores, config: Config, region: str, size: HistorySize, tell: Callable[[str], None]
) -> None:
    cluster = ClusterName(f"aggregate-{region}")
    reader = KafkaCluster(cluster, config.cluster(cluster), timeout_ms=_CLUSTER_TIMEOUT_MS)
    target_id = reader.topics()[TopicName(ANSWERS_TOPIC)].topic_id
    now_ms = int(time.time() * 1_000)
    routes = [Route.parse(f"{source}->{region}") for source in _SOURCES]
    lineages = [Lineage(_source_topic_id(source), target_id) for source in _SOURCES]
    for number in range(_PARTITIONS):
        place = TopicPartition(TopicName(ANSWERS_TOPIC), number)
        stores.index.write_lineages(
            [
                LineageRecord(
                    RoutePartition(route, place), lineage, 0, SourceOffset(0), TargetOffset(0), None, 1
                )
                for route, lineage in zip(routes, lineages, strict=True)
            ]
        )
        # Another order on each target.
        histories = merged(size, len(_SOURCES), seed=_PARTITIONS * _TARGETS.index(region) + number)
        rows: list[RowBatch] = []
        for route, lineage, history in zip(routes, lineages, histories, strict=True):
            rows += batches(route, place, lineage, history, size, now_ms)
        for start in range(0, len(rows), _WRITE_AT_ONCE):
            stores.index.write_rows(rows[start : start + _WRITE_AT_ONCE])
    tell(f"{cluster}: history written")


def _source_topic_id(region: str) -> TopicId:
    """An id as Kafka writes it, the same each time."""
    made = uuid.uuid5(uuid.NAMESPACE_URL, f"regional-{region}/{ANSWERS_TOPIC}")
    return TopicId(base64.urlsafe_b64encode(made.bytes).decode("ascii").rstrip("="))


def _service(stage: Stage, config_path: Path) -> ProcessSpec:
    layout = stage.stack.layout
    command = [
        sys.executable,
        "-m",
        "parallax.cli.main",
        "serve",
        "--config",
        str(config_path),
        "--region",
        "b",
    ]
    return ProcessSpec(
        name="offsetsvc-b",
        command=[sys.executable, "-m", "bench.pinned", "0", *command],
        log=stage.directory / "copiers" / "offsetsvc-b.log",
        probe=http_probe(layout.ports["offsetsvc-b/rest"], "/readyz"),
        environment=service_environment(layout, stage.stack.java, "b"),
    )
