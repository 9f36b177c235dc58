"""`parallax replicate` as a child process, with what feeds it and what reads behind it."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lab.stack.ports import HOST, PortReservations
from lab.stack.services import PARALLAX
from lab.workload.topics import create_topic
from parallax.runtime.class_data import cache_directory
from replicator.kafka.layout_record import LAYOUTS_TOPIC
from tests.support import Stack, poll_until, unique_name
from tests.worlds.processes import descendants, family, kill_all

PARTITIONS = 6

READY_WITHIN_S = 240.0
STOP_WITHIN_S = 60.0
CAUGHT_UP_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One record as a reader of an aggregate cluster met it."""

    region: str
    seq: int
    partition: int
    at_s: float


_reserved = PortReservations(cache_directory() / "ports")


def free_port() -> int:
    """A port that nobody listens on, kept for this process: until a server has it, and while that is started again."""
    return _reserved.get(unique_name("port"))


def write_config(stack: Stack, directory: Path, topic: str, **replicator: Any) -> Path:
    """A configuration for one topic, of routes that begin anew, with a keyspace of their own.

    An index that knows of a route's earlier run log says that the new one has lost its tail.
    """
    forget_layouts(stack)
    clusters = {
        region: {
            kind: {"bootstrap_servers": stack.bootstrap(f"{kind}-{region}")}
            for kind in ("regional", "aggregate")
        }
        for region in ("a", "b")
    }
    values = {
        "regions": clusters,
        "cassandra": {
            "contact_points": [stack.cassandra_address()],
            "keyspace": unique_name("replicate").replace("-", "_"),
        },
        "topics": {"include": [topic]},
        "replicator": {
            "status_address": f"{HOST}:{free_port()}",
            "run_log_topic_prefix": f"runs.{topic}",
            "discovery_interval_ms": 1_000,
            **replicator,
        },
    }
    path = directory / "parallax.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def forget_layouts(stack: Stack) -> None:
    """Tombstones for the layouts of tests before: each keeps its states in a run log of its own."""
    for target in ("a", "b"):
        bootstrap_servers = stack.bootstrap(f"aggregate-{target}")
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        if LAYOUTS_TOPIC not in admin.list_topics(timeout=30).topics:
            continue
        producer = Producer({"bootstrap.servers": bootstrap_servers})
        for source in ("a", "b"):
            producer.produce(LAYOUTS_TOPIC, value=None, key=f"{source}->{target}", partition=0)
        assert producer.flush(30) == 0


def parallax(*arguments: str, within_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*PARALLAX, *arguments], capture_output=True, text=True, check=False, timeout=within_s
    )


class Application:
    """One `parallax replicate`."""

    def __init__(self, config: Path, log: Path, *arguments: str) -> None:
        self.log = log
        address = yaml.safe_load(config.read_text(encoding="utf-8"))["replicator"]["status_address"]
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*PARALLAX, "replicate", "--config", str(config), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "SPARK_LOCAL_IP": HOST},
            )

    def get(self, path: str) -> tuple[int, str] | None:
        """What the status server answers; None if it does not."""
        assert self._process.poll() is None, f"it has ended:\n{self.tail()}"
        connection = http.client.HTTPConnection(self._host, self._port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except OSError:
            return None
        finally:
            connection.close()

    def status(self) -> Mapping[str, Any]:
        """The whole picture; empty while there is none."""
        answer = self.get("/status")
        return {} if answer is None else json.loads(answer[1])

    def wait_ready(self) -> None:
        """Wait until every lease works."""
        poll_until(
            lambda: (answer := self.get("/readyz")) is not None and answer[0] == 200,
            READY_WITHIN_S,
            f"readiness ({self.log})",
        )

    def wait(self, within_s: float) -> int:
        """Wait for its end; the exit code."""
        return self._process.wait(within_s)

    def terminate(self) -> int:
        """SIGTERM to the process alone; the exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self.wait(STOP_WITHIN_S)

    def descendants(self) -> list[psutil.Process]:
        """Every process that it has started, as of now."""
        return descendants(self._process.pid)

    def kill_everything(self) -> None:
        """SIGKILL it and everything that it has started, as a machine that loses power would."""
        kill_all(family(self._process.pid))
        self._process.wait(STOP_WITHIN_S)

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-4_000:]


@contextmanager
def running(config: Path, log: Path, *arguments: str) -> Iterator[Application]:
    """An application that leaves nothing behind, whatever the test does."""
    application = Application(config, log, *arguments)
    try:
        yield application
    finally:
        if application._process.poll() is None:
            application.kill_everything()


@dataclass
class Feeder:
    """Produces numbered records to one regional cluster at a steady rate, on a thread of its own."""

    bootstrap_servers: str
    region: str
    topic: str
    per_s: float
    sent: int = 0
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
        )
        self._thread.start()

    def stop(self) -> None:
        """Send no more; everything sent is acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0
        assert not self.failed

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(0.01):
            due = int((time.monotonic() - began) * self.per_s)
            while self.sent < due:
                produce_one(self._producer, self.topic, self.region, self.sent, self.failed)
                self.sent += 1
            self._producer.poll(0)


def produce_one(producer: Producer, topic: str, region: str, seq: int, failed: list[str]) -> None:
    """Queue record number ``seq`` of a region."""
    producer.produce(
        topic,
        json.dumps({"region": region, "seq": seq}),
        f"{region}-{seq}",
        partition=seq % PARTITIONS,
        on_delivery=lambda error, _message: failed.append(str(error)) if error is not None else None,
    )


def produce(bootstrap_servers: str, region: str, topic: str, count: int) -> None:
    """Produce records 0 to ``count`` - 1 of a region."""
    failed: list[str] = []
    # Idempotent: another one may write in another order than it was told to, when it has to try again.
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 20})
    for seq in range(count):
        produce_one(producer, topic, region, seq, failed)
        if seq % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0
    assert not failed


class Reader:
    """Reads an aggregate topic as `read_committed` from its beginning, on a thread of its own."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.arrivals: list[Arrival] = []
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": f"reader-{topic}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def wait_for(self, count: int, within_s: float = CAUGHT_UP_WITHIN_S) -> None:
        """Wait until so many records have arrived."""
        poll_until(lambda: len(self.arrivals) >= count, within_s, f"{count} records")

    def longest_gap_s(self, since_s: float, until_s: float, partitions: Collection[int]) -> float:
        """The longest time without a record in any one of the partitions."""
        return max(
            longest_gap_s([item.at_s for item in self.arrivals if item.partition == number], since_s, until_s)
            for number in partitions
        )

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1_000, 0.05):
                if message.error() is None:
                    value = json.loads(message.value() or b"")
                    self.arrivals.append(
                        Arrival(value["region"], value["seq"], message.partition() or 0, time.monotonic())
                    )


def longest_gap_s(at_s: Sequence[float], since_s: float, until_s: float) -> float:
    """The longest time between two moments of a list that touches the window."""
    inside = [since_s, *(moment for moment in at_s if since_s <= moment <= until_s), until_s]
    return max(after - before for before, after in itertools.pairwise(inside))


def check_exactly_once(arrivals: Sequence[Arrival], produced: Mapping[str, int]) -> None:
    """Every record once, and in order for each source partition."""
    for region, count in produced.items():
        found = [item.seq for item in arrivals if item.region == region]
        lost = len(set(range(count)) - set(found))
        duplicated = len(found) - len(set(found))
        assert (region, lost, duplicated) == (region, 0, 0)
        for partition in range(PARTITIONS):
            in_order = [
                item.seq for item in arrivals if item.region == region and item.partition == partition
            ]
            assert in_order == list(range(partition, count, PARTITIONS))
    assert len(arrivals) == sum(produced.values())


def create_sources(stack: Stack, topic: str) -> None:
    """The topic on both regional clusters."""
    for region in ("a", "b"):
        create_topic(stack.bootstrap(f"regional-{region}"), topic, PARTITIONS)
