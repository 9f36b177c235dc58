"""Two whole regions on real brokers and Cassandra, without Spark: leases are held by threads of the test.

Services are processes of their own, the commands too. The regions' names are new each time, so that tests share
brokers and nothing else.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.replication import free_port
from tests.support import Stack, poll_until, unique_name

from offsetsvc.client import OffsetClient
from offsetsvc.failover_consumer import FailoverConsumer, FailoverEvent
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.runtime.config import Config, load
from parallax.runtime.deadline import Deadline
from replicator.layout import ensure_layout
from replicator.lease import Lease
from replicator.shard import hold_lease
from syncjob.run import run_until

PARALLAX = (sys.executable, "-m", "parallax.cli.main")
WITHIN_S = 120.0
LIFETIME_S = 1_200.0

Record = tuple[str, int]
"""Stream and sequence number."""


@dataclass
class Live:
    """Two regions at work.

    Attributes:
        names: the regions' names, of which the first is called a here, the second b.
        services: the offset service of each region, while it runs.
    """

    stack: Stack
    directory: Path
    topic: str
    names: dict[str, str]
    config: Config
    config_path: Path
    stores: CassandraStores
    services: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def group(self, name: str) -> str:
        """A group of this world."""
        return f"{self.names['a']}-{name}"

    def bootstrap(self, region: str, kind: str = "aggregate") -> str:
        return self.stack.bootstrap(f"{kind}-{region}")

    def targets(self) -> list[str]:
        """Addresses of the services."""
        found = [self.config.region(self._name(region)).offsetsvc for region in "ab"]
        return [item.grpc for item in found if item is not None]

    def _name(self, region: str) -> Any:
        return self.names[region]

    @contextmanager
    def client(self) -> Iterator[OffsetClient]:
        """A client of both services."""
        with OffsetClient(self.targets(), timeout_ms=20_000) as client:
            yield client

    # --- parts --------------------------------------------------------------------------------------------

    def serve(self, region: str) -> None:
        """Start a region's offset service."""
        log = (self.directory / f"serve-{region}.log").open("a")
        command = [
            *PARALLAX,
            "serve",
            "--config",
            str(self.config_path),
            "--region",
            self.names[region],
            "--json",
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()
        self.services[region] = process
        assert process.stdout is not None
        assert process.stdout.readline(), (self.directory / f"serve-{region}.log").read_text()[-4_000:]

    def kill_service(self, region: str) -> None:
        """SIGKILL."""
        process = self.services.pop(region)
        with process:
            process.kill()

    def replicate(self) -> None:
        """Hold the lease of every route."""
        for route in self.config.all_routes():
            layout = ensure_layout(self.config, route, 1).layout
            lease = Lease(route, 0, 1, layout, 1, int((time.time() + LIFETIME_S) * 1_000))
            self._run(
                f"lease {route}",
                lambda lease=lease: hold_lease(
                    lease,
                    self.config,
                    index=self.stores.index,
                    report=lambda _progress: None,
                    end_asked=self.ended.is_set,
                ),
            )

    def sync(self) -> None:
        """Run the sync job."""
        self._run("sync", lambda: run_until(self.config, Deadline.after_ms(LIFETIME_S * 1_000), self.ended))

    def _run(self, name: str, work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self.threads.append(thread)

    def close(self) -> None:
        """End everything."""
        self.ended.set()
        for process in self.services.values():
            with process:
                process.send_signal(signal.SIGTERM)
        for thread in self.threads:
            thread.join(WITHIN_S)

    # --- commands -----------------------------------------------------------------------------------------

    def parallax(self, *arguments: str, code: int = 0) -> Any:
        """Run a command and read its JSON; regions are called a and b."""
        done = self.start(*arguments)
        out, err = done.communicate(timeout=WITHIN_S)
        assert done.returncode == code, f"{arguments}: {done.returncode}\n{out}\n{err}"
        return json.loads(out)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command and don't wait for it."""
        named = [self.names.get(item, item) for item in arguments]
        return subprocess.Popen(
            [*PARALLAX, *named, "--config", str(self.config_path), "--json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    # --- consumers ----------------------------------------------------------------------------------------

    def member(self, group: str, region: str = "a", **config: Any) -> Member:
        """A member of a group that follows the group's primary."""
        return Member(self, group, region, config)

    def plain(self, group: str, region: str) -> Consumer:
        """A consumer that knows nothing of us, subscribed."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap(region),
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        consumer.subscribe([self.topic])
        return consumer


def record_of(message: Message) -> Record:
    """The record in a message."""
    value = message.value()
    assert value is not None
    stream, _, number = value.decode().partition(":")
    return stream, int(number)


class Member:
    """A FailoverConsumer that is polled by a thread of its own."""

    def __init__(self, live: Live, group: str, region: str, config: Mapping[str, Any]) -> None:
        self.delivered: list[Record] = []
        self.times_s: list[float] = []
        self.events: list[tuple[float, FailoverEvent]] = []
        self.failure: BaseException | None = None
        self._ended = threading.Event()
        self._paused = threading.Event()
        self.consumer = FailoverConsumer(
            {
                "group.id": group,
                "topic.metadata.refresh.interval.ms": 1_000,
                "auto.commit.interval.ms": 500,
                **config,
            },
            clusters={live.names[name]: live.bootstrap(name) for name in "ab"},
            region=live.names[region],
            services=live.targets(),
            on_event=lambda event: self.events.append((time.monotonic(), event)),
            follow_primary=True,
        )
        self.consumer.subscribe([live.topic])
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        try:
            while not self._ended.is_set():
                if self._paused.is_set():
                    self._ended.wait(0.02)
                    continue
                for message in self.consumer.consume(500, 0.1):
                    if message.error() is None:
                        self.delivered.append(record_of(message))
                        self.times_s.append(time.monotonic())
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.failure = error

    def pause(self) -> None:
        """Poll no more, as an application does that is busy."""
        self._paused.set()

    def resume(self) -> None:
        """Poll again."""
        self._paused.clear()

    def close(self) -> None:
        """End; what the polling thread raised is raised here."""
        self._ended.set()
        self._thread.join(WITHIN_S)
        self.consumer.close()
        if self.failure is not None:
            raise self.failure


class Traffic:
    """Producers in both regions until stopped; one sequence per region and partition."""

    def __init__(self, live: Live, *, partitions: int, per_s: Mapping[str, int]) -> None:
        self._live = live
        self._partitions = partitions
        self._stopped = {region: threading.Event() for region in per_s}
        self.sent: Counter[str] = Counter()
        self.acknowledged: Counter[str] = Counter()
        self._held = threading.Event()
        self._threads = {
            region: threading.Thread(target=self._run, args=(region, rate), daemon=True)
            for region, rate in per_s.items()
        }

    def __enter__(self) -> Self:
        for thread in self._threads.values():
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def hold(self) -> None:
        """Send nothing for a while."""
        self._held.set()

    def go_on(self) -> None:
        """Send again."""
        self._held.clear()

    def stop(self, *regions: str) -> Counter[str]:
        """End the producers of these regions, or all; how many records of each stream were acknowledged."""
        for region in regions or tuple(self._threads):
            self._stopped[region].set()
            self._threads[region].join(WITHIN_S)
        return self.acknowledged

    def _run(self, region: str, per_s: int) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._live.bootstrap(region, "regional"),
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        number = 0
        while not self._stopped[region].wait(0.02):
            for _ in range(0 if self._held.is_set() else max(1, per_s // 50)):
                stream = f"{region}{number % self._partitions}"
                producer.produce(
                    self._live.topic,
                    f"{stream}:{self.sent[stream]}",
                    partition=number % self._partitions,
                    on_delivery=lambda error, _message, stream=stream: self.acknowledged.update(
                        {stream: 1} if error is None else {}
                    ),
                )
                self.sent[stream] += 1
                number += 1
            producer.poll(0)
        assert producer.flush(30) == 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of the records that were acknowledged."""

    lost: list[Record]
    again: list[Record]
    total: int


def judge(members: Sequence[Member], acknowledged: Mapping[str, int]) -> Verdict:
    """Which records no member had, and which were had more than once."""
    counts = Counter(record for member in members for record in member.delivered)
    lost = [
        (stream, n) for stream, end in acknowledged.items() for n in range(end) if (stream, n) not in counts
    ]
    return Verdict(lost, [record for record, count in counts.items() if count > 1], counts.total())


def wait_for_all(members: Sequence[Member], acknowledged: Mapping[str, int]) -> None:
    """Wait until every record has been delivered, and none has come for two seconds."""

    def all_there() -> bool:
        for member in members:
            if member.failure is not None:
                raise member.failure
        return not judge(members, acknowledged).lost

    poll_until(all_there, WITHIN_S, "all records")
    quiet = 2.0
    poll_until(
        lambda: all(time.monotonic() - member.times_s[-1] > quiet for member in members if member.times_s),
        WITHIN_S,
        "nothing more",
    )


@contextmanager
def live_world(
    stack: Stack, cassandra: Mapping[str, Any], directory: Path, *, partitions: int, **sections: Any
) -> Iterator[Live]:
    """Two regions over the brokers of a stack, with their services, leases and sync job."""
    base = unique_name("r")
    names = {"a": f"{base}a", "b": f"{base}b"}
    topic = unique_name("trips")
    values: dict[str, Any] = {
        "regions": {
            name: {
                **{
                    kind: {"bootstrap_servers": stack.bootstrap(f"{kind}-{region}")}
                    for kind in ("regional", "aggregate")
                },
                "offsetsvc": {
                    "grpc": f"127.0.0.1:{free_port()}",
                    "rest": f"127.0.0.1:{free_port()}",
                },
            }
            for region, name in names.items()
        },
        "cassandra": dict(cassandra),
        "topics": {"include": [f"{topic}.*"]},
        "groups": {"include": [f"{base}.*"]},
        "replicator": {"discovery_interval_ms": 1_000, "watermark_interval_ms": 300},
        **sections,
    }
    path = directory / "parallax.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    config = load(path, {})
    for region in "ab":
        admin = AdminClient({"bootstrap.servers": stack.bootstrap(f"regional-{region}")})
        for future in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            future.result(60)
    with ExitStack() as opened:
        stores = opened.enter_context(CassandraStores(config.cassandra, config.index))
        live = Live(stack, directory, topic, names, config, path, stores)
        opened.callback(live.close)
        for region in "ab":
            live.serve(region)
        live.replicate()
        live.sync()
        yield live
