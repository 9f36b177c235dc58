"""Who produces to the regions of `tests.worlds.live`, and who consumes there. Records carry stream and sequence number."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import structlog
from confluent_kafka import Message, Producer

import lab.stack.guard
from parallax import FailoverConsumer, FailoverEvent
from tests.support import poll_until
from tests.worlds import member_process
from tests.worlds.live import PARTITIONS, WITHIN_S, Live
from tests.worlds.live_judgement import Record, parsed, record_of

_log = structlog.get_logger(__name__)

BATCH = 500

QUICK_MEMBER = {
    "topic.metadata.refresh.interval.ms": 1_000,
    "auto.commit.interval.ms": 500,
    # A member hears of a rebalance by its heartbeat, and one that died is missed for a session.
    "heartbeat.interval.ms": 500,
    "session.timeout.ms": 6_000,
}


def settings_of(live: Live, group: str, region: str = "a", services: str = "") -> dict[str, Any]:
    """How to make a `FailoverConsumer` that knows the offset services of these regions, or of all."""
    return {
        "config": {"group.id": group, **QUICK_MEMBER},
        "clusters": {name: live.bootstrap(key) for key, name in live.names.items()},
        "region": live.names[region],
        "services": live.targets(services),
        # After its usual 2.5 s it would go on, and say that a few may be read twice.
        "index_wait_ms": 10_000,
    }


class Member:
    """A FailoverConsumer that follows the group's primary, polled by a thread of its own.

    Args:
        live: the world.
        group: the consumer group.
        region: where it begins.
        topics: what it subscribes to; the world's topic by default.
        services: regions whose offset services it knows; all by default.
    """

    def __init__(
        self,
        live: Live,
        group: str,
        region: str = "a",
        *,
        topics: Sequence[str] = (),
        services: str = "",
    ) -> None:
        self.delivered: list[Record] = []
        self.times_s: list[float] = []
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.told: list[str] = []
        self.failure: BaseException | None = None
        self._ended = threading.Event()
        self._paused = threading.Event()
        self.consumer = FailoverConsumer(
            **settings_of(live, group, region, services),
            on_event=self._heard,
            follow_primary=True,
        )
        self._region = self.consumer.region
        self.consumer.subscribe(list(topics) or [live.topic])
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        try:
            while not self._ended.is_set():
                if self._paused.is_set():
                    self._ended.wait(0.02)
                    continue
                for message in self.consumer.consume(BATCH, 0.1):
                    if message.error() is None:
                        self._took(message)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.failure = error

    def _heard(self, event: FailoverEvent) -> None:
        self.told.append(f"{time.monotonic():.3f} s: {event}")

    def _took(self, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        if self._region != self.consumer.region:
            self._region = self.consumer.region
            self.next_offsets.clear()
        self.next_offsets[topic, partition] = offset + 1
        self.times_s.append(time.monotonic())
        self.delivered.append(record_of(message))

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


class MortalMember:
    """A member as a process of its own (`tests.worlds.member_process`), which can be killed."""

    def __init__(self, live: Live, group: str, region: str = "a") -> None:
        self.delivered: list[Record] = []
        self.times_s: list[float] = []
        self.next_offsets: dict[tuple[str, int], int] = {}
        self.failure: BaseException | None = None
        self._killed = False
        self._log = live.directory / "member.log"
        settings = settings_of(live, group, region)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", str(lab.stack.guard.__file__), str(os.getpid())),
                    *(sys.executable, str(Path(member_process.__file__))),
                    json.dumps({"settings": settings, "topics": [live.topic]}),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):  # it was killed in the middle of a word
                break
            topic, partition, offset, text = line.split()
            self.next_offsets[topic, int(partition)] = int(offset) + 1
            self.times_s.append(time.monotonic())
            self.delivered.append(parsed(text))
        if not self._killed:
            self.failure = RuntimeError(f"it has ended:\n{self._log.read_text(encoding='utf-8')[-4_000:]}")

    def kill(self) -> None:
        """SIGKILL; what it had said is read to the end."""
        self._killed = True
        with self._process as process:
            process.kill()
            self._thread.join(WITHIN_S)


class Traffic:
    """Producers in the regions until stopped; one sequence per stream.

    Args:
        live: the world.
        per_s: records per second, by region; its streams are those of the prefix, region and partition.
        prefix: of the streams' names.
        partitions: which ones.
        topic: where to; the world's by default.
    """

    def __init__(
        self,
        live: Live,
        per_s: Mapping[str, int],
        *,
        prefix: str = "",
        partitions: Sequence[int] = range(PARTITIONS),
        topic: str = "",
    ) -> None:
        self._live = live
        self._topic = topic or live.topic
        self._prefix = prefix
        self._partitions = partitions
        self._stopped = {region: threading.Event() for region in per_s}
        self.sent: Counter[str] = Counter()
        self.acknowledged: Counter[str] = Counter()
        self._held = threading.Event()
        self._idle: set[str] = set()
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
        """Send nothing for a while; returns once all that was sent is acknowledged."""
        self._idle.clear()
        self._held.set()
        working = {region for region, stopped in self._stopped.items() if not stopped.is_set()}
        poll_until(lambda: working <= self._idle, WITHIN_S, "idle producers")

    def go_on(self) -> None:
        """Send again."""
        self._held.clear()

    def flow(self, count: int) -> None:
        """Wait until so many more records are acknowledged."""
        wanted = self.acknowledged.total() + count
        poll_until(lambda: self.acknowledged.total() >= wanted, WITHIN_S, f"{count} more acknowledgements")

    def stop(self, *regions: str) -> Counter[str]:
        """End the producers of these regions, or all; how many records of each stream were acknowledged."""
        for region in regions or tuple(self._threads):
            self._stopped[region].set()
        for region in regions or tuple(self._threads):
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
            held = self._held.is_set()
            for _ in range(0 if held else max(1, per_s // 50)):
                self._send(producer, region, self._partitions[number % len(self._partitions)])
                number += 1
            producer.poll(0)
            if held and not len(producer):
                self._idle.add(region)
        assert producer.flush(30) == 0

    def _send(self, producer: Producer, region: str, partition: int) -> None:
        stream = f"{self._prefix}{region}{partition}"

        def told(error: object, _message: object) -> None:
            if error is None:
                self.acknowledged[stream] += 1
            else:  # those after it are counted for it: whoever misses it finds here why
                _log.warning("not_acknowledged", record=text, problem=str(error))

        text = f"{stream}:{self.sent[stream]}"
        self.sent[stream] += 1
        producer.produce(self._topic, text, partition=partition, on_delivery=told)


def burst(live: Live, count: int, *, prefix: str) -> Counter[str]:
    """Many records at once in every region; how many each stream has."""
    sent: Counter[str] = Counter()
    for region in live.sources:
        producer = Producer({"bootstrap.servers": live.bootstrap(region, "regional"), "linger.ms": 20})
        for number in range(count):
            stream = f"{prefix}{region}{number % PARTITIONS}"
            producer.produce(live.topic, f"{stream}:{sent[stream]}", partition=number % PARTITIONS)
            sent[stream] += 1
        assert producer.flush(60) == 0
    return sent


def meanwhile(members: Sequence[Member], action: Callable[[], object]) -> None:
    """Do something while no member polls."""
    for member in members:
        member.pause()
    action()
    for member in members:
        member.resume()
