"""`GetFailoverOffset` over a million runs of three sources in Cassandra, for offsets drawn from the whole log.

The service runs on one core. Each question names its own next offset, so no committed offset is asked for. All are about one group, so
that those under way at one time share the read of its last move. The service remembers all blocks of so many runs once they were asked
for: what is measured first is a warm one. Then one that may remember hardly any block reads almost all of them for each answer.
"""

from __future__ import annotations

import base64
import multiprocessing
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import yaml

from lab.bench import BenchError
from lab.bench.data.batches import Shape, prepare
from lab.bench.data.loading import fill
from lab.bench.report import Measure, Round, percentile
from lab.bench.rows import BenchPlace, Play, Row
from lab.bench.rows.asking import ask_service
from lab.bench.rows.history import HistorySize, batches, merged
from lab.bench.sides.parallax import service_spec
from lab.bench.stage import BenchStage
from lab.stack.services import build_config
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.config.config import Config, load
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
from parallax.domain.index_rows import LineageRecord
from replicator.mapping.block_writer import BlockWriter

TOPIC = "answers"
SOURCES = ("a", "b", "c")
_TARGETS = ("a", "b")
PARTITIONS = 16
_CALLERS = 16
_WRITE_AT_ONCE = 200
_CLUSTER_TIMEOUT_MS = 10_000
_ASKED_WITHIN_S = 600.0
_LAYOUT = 0
"""As the versions of rows say that are made up (`lab.bench.rows.history.batches`)."""
_COLD_MIB = 1
"""Some 140 blocks of the thousands that a million runs make, and the keys of all."""
_ON_ONE_CORE = (
    sys.executable,
    "-c",
    "import os, sys; os.sched_setaffinity(0, {0}); os.execv(sys.argv[1], sys.argv[1:])",
)
"""A command that becomes the one after it, bound to the first core."""


@dataclass(frozen=True)
class AnswersRow(Row):
    """What one offset service answers on one core; MirrorMaker 2 has nothing like it.

    Attributes:
        runs: in the index.
        seconds: of asking as fast as possible, again at half of that rate, and again for a group's partitions in each call.
    """

    runs: int = 1_000_000
    seconds: float = 20.0

    @property
    def place(self) -> BenchPlace:
        """Two aggregate clusters."""
        return BenchPlace(("a", "b"))

    def play(self, play: Play) -> None:
        """Fill the index once; start a service and ask it in every round, then one that remembers little."""
        runs, seconds = (40_000, 4.0) if play.settings.smoke else (self.runs, self.seconds)
        size = HistorySize(runs // (len(SOURCES) * len(_TARGETS) * PARTITIONS))
        missing = play.missing_rounds
        config = fill_index(play.stage, size, play.tell) if missing else Path()
        for number in missing:
            found = _asked(play.stage, config, size, seconds)
            play.tell(
                f"{found.answers_per_s:,.0f} answers/s, p99 {found.p99_ms:.1f} ms at half of it: {found.outcomes}"
            )
            warm = (
                Measure(f"{self.name}: one core", "answers/s", "higher", found.answers_per_s),
                Measure(
                    f"{self.name}: service's share of the core", "cores", "none", found.service_cpu_share
                ),
                Measure(f"{self.name}: p50 at half that rate", "ms", "lower", found.p50_ms),
                Measure(f"{self.name}: p99 at half that rate", "ms", "lower", found.p99_ms),
                Measure(
                    f"{self.name}: one core, {PARTITIONS} partitions of a group in a call",
                    "answers/s",
                    "higher",
                    found.group_answers_per_s,
                ),
            )
            cold = _asked(play.stage, _with_memory(config, _COLD_MIB), size, seconds)
            play.tell(
                f"{cold.answers_per_s:,.0f} answers/s, p99 {cold.p99_ms:.1f} ms at half of it, with cold blocks: {cold.outcomes}"
            )
            measures = (
                *warm,
                Measure(f"{self.name}: one core, blocks cold", "answers/s", "higher", cold.answers_per_s),
                Measure(
                    f"{self.name}: one core, blocks cold, {PARTITIONS} partitions of a group in a call",
                    "answers/s",
                    "higher",
                    cold.group_answers_per_s,
                ),
            )
            play.store.add(Round("parallax", number, measures, {**asdict(found), "cold": asdict(cold)}))


@dataclass(frozen=True, slots=True)
class Answered:
    """What the service did.

    Attributes:
        runs: in the index.
        answers_per_s: as fast as it could, on one core.
        service_cpu_share: of that core, meanwhile.
        half_rate: questions a second in the second part.
        p50_ms, p99_ms: from when a question was due to its answer, at half the rate.
        group_answers_per_s: as fast as it could, an answer for each partition of a group in each call.
        outcomes: how often each was the gravest.
    """

    runs: int
    answers_per_s: float
    service_cpu_share: float
    half_rate: float
    p50_ms: float
    p99_ms: float
    group_answers_per_s: float
    outcomes: dict[str, int] = field(default_factory=dict)


def fill_index(stage: BenchStage, size: HistorySize, tell: Callable[[str], None]) -> Path:
    """Fill the topics and the index; returns the service's configuration file."""
    end = size.end(len(SOURCES))
    for region in _TARGETS:
        cluster = f"aggregate-{region}"
        stage.create_topic(cluster, TOPIC, PARTITIONS)
        fill(stage.bootstrap(cluster), TOPIC, PARTITIONS, [("log", prepare(Shape(variants=4)), end)])
    path = _write_config(stage)
    config = load(path)
    started = time.monotonic()
    with CassandraStores(config.cassandra, config.index) as stores:
        for region in _TARGETS:
            _write_history(stores, config, region, size, tell)
    tell(f"the index is filled after {time.monotonic() - started:.0f} s")
    return path


def _asked(stage: BenchStage, config: Path, size: HistorySize, seconds: float) -> Answered:
    """Start a service on one core and ask it."""
    service = stage.process(service_spec(stage.stack, config, "b", prefix=_ON_ONE_CORE))
    service.start()
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    settings = {
        "address": stage.stack.layout.grpc_address("b"),
        "topic": TOPIC,
        "partitions": PARTITIONS,
        "end": size.end(len(SOURCES)),
        "callers": _CALLERS,
        "seconds": seconds,
    }
    asker = context.Process(target=ask_service, args=(settings, there), daemon=True)
    asker.start()
    there.close()
    roots = [] if service.pid is None else [service.pid]
    try:
        _next(here).recv_bytes()
        before = stage.cpu_s(service=roots)["service"]
        _next(here).recv_bytes()
        used = stage.cpu_s(service=roots)["service"] - before
        found = _next(here).recv()
    except (EOFError, OSError) as error:
        raise BenchError(f"the process that asks ended: {error!r}") from error
    finally:
        asker.kill()
        asker.join()
        service.stop()
    latencies = sorted(found["latencies_ms"])
    return Answered(
        runs=size.runs * len(SOURCES) * len(_TARGETS) * PARTITIONS,
        answers_per_s=found["answers"] / found["seconds"],
        service_cpu_share=used / found["seconds"],
        half_rate=found["half_rate"],
        p50_ms=percentile(latencies, 50),
        p99_ms=percentile(latencies, 99),
        group_answers_per_s=found["group_answers"] / found["group_seconds"],
        outcomes=found["outcomes"],
    )


def _next(connection: Connection) -> Connection:
    if not connection.poll(_ASKED_WITHIN_S):
        raise BenchError(f"the process that asks was silent for {_ASKED_WITHIN_S:.0f} s")
    return connection


def _write_config(stage: BenchStage) -> Path:
    """The stack's configuration with a third source: nobody asks the regional clusters here."""
    config = build_config(stage.stack.layout)
    config["regions"]["c"] = {"regional": {"bootstrap_servers": stage.bootstrap("regional-b")}}
    config["routes"] = [f"{source}->{target}" for target in _TARGETS for source in SOURCES]
    path = stage.directory / "copiers" / "answers.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path


def _with_memory(config: Path, mib: int) -> Path:
    """The same configuration for a service that remembers so little."""
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    settings["index"] = {**settings.get("index", {}), "memory_mib": mib}
    path = config.with_name("answers-cold.yaml")
    path.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    return path


def _write_history(
    stores: CassandraStores, config: Config, region: str, size: HistorySize, tell: Callable[[str], None]
) -> None:
    cluster = ClusterName(f"aggregate-{region}")
    reader = KafkaCluster(cluster, config.cluster(cluster), timeout_ms=_CLUSTER_TIMEOUT_MS)
    target_id = reader.topics()[TopicName(TOPIC)].topic_id
    now_ms = int(time.time() * 1_000)
    routes = [Route.parse(f"{source}->{region}") for source in SOURCES]
    lineages = [Lineage(_source_topic_id(source), target_id) for source in SOURCES]
    # One lease a route, as by default: a service reads the turns of each.
    owners = [BlockWriter(stores.index, route, _LAYOUT, 0) for route in routes]
    written = [owner.begins_at for owner in owners]
    for number in range(PARTITIONS):
        place = TopicPartition(TopicName(TOPIC), number)
        stores.index.write_lineages(
            [
                LineageRecord(
                    RoutePartition(route, place), lineage, 0, SourceOffset(0), TargetOffset(0), None, 1
                )
                for route, lineage in zip(routes, lineages, strict=True)
            ]
        )
        # Another order on each target.
        histories = merged(size, len(SOURCES), seed=PARTITIONS * _TARGETS.index(region) + number)
        for copier, (route, lineage, history) in enumerate(zip(routes, lineages, histories, strict=True)):
            rows = list(batches(route, place, lineage, history, size, now_ms))
            for start in range(0, len(rows), _WRITE_AT_ONCE):
                some, first = rows[start : start + _WRITE_AT_ONCE], written[copier]
                written[copier] += len(some)
                owners[copier].write(some, first, written[copier], old=True)
    for owner in owners:
        owner.write_all()
    tell(f"{cluster}: history written")


def _source_topic_id(region: str) -> TopicId:
    """An id as Kafka writes it, the same each time."""
    made = uuid.uuid5(uuid.NAMESPACE_URL, f"regional-{region}/{TOPIC}")
    return TopicId(base64.urlsafe_b64encode(made.bytes).decode("ascii").rstrip("="))
