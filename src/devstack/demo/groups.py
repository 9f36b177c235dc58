"""The two consumer groups, each in processes of its own, and how an operator moves them."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from devstack.demo.gauges import rate
from devstack.workload.channel import Message
from devstack.workload.running import Stack
from devstack.workload.topics import committed_offsets
from devstack.workload.worker import Worker, wait_until

_READY_S = 60.0
_MOVE_S = 60.0
_LAST_WORD_S = 1.0
_RATE_OVER = 40


class DemoGroup(ABC):
    """A consumer group.

    Args:
        name: the group id.
        stack: its clusters.
        topic: what it reads.
        folder: logs of its processes; the delivered records in ``*.log``.
    """

    def __init__(self, name: str, stack: Stack, topic: str, folder: Path) -> None:
        self.name = name
        self.region = "a"
        self.stage = 0
        self._stack, self._topic, self.folder = stack, topic, folder
        self._delivered_before = 0
        self._per_s: float | None = None
        self._seen: deque[tuple[float, int]] = deque(maxlen=_RATE_OVER)

    @property
    @abstractmethod
    def workers(self) -> Sequence[Worker]:
        """Its processes."""

    @abstractmethod
    def start(self) -> None:
        """Start in region a."""

    @abstractmethod
    def fail_over(self, to: str) -> None:
        """Its cluster is gone: go on in the other region."""

    @abstractmethod
    def await_move(self) -> None:
        """Wait until it has begun to read there."""

    def limit(self, per_s: float | None) -> None:
        """Hold it to a rate, all processes together; None: as fast as it can."""
        self._per_s = per_s
        for worker in self.workers:
            if worker.running:
                worker.send("limit", per_s=self._share(len(self.workers)))

    def stop(self) -> None:
        """Stop its processes; what they delivered is committed."""
        for worker in self.workers:
            worker.stop()

    def kill(self) -> None:
        """Make sure that nothing is left."""
        for worker in self.workers:
            worker.kill()

    def check(self) -> None:
        """Make sure that no process has failed.

        Raises:
            WorkerError: one has.
        """
        for worker in self.workers:
            worker.check()

    @property
    def delivered(self) -> int:
        """Deliveries so far."""
        return self._delivered_before + sum(int(worker.status.get("delivered", 0)) for worker in self.workers)

    @property
    def next_offsets(self) -> dict[int, int]:
        """Where it stands in its cluster, as far as its processes have said."""
        found: dict[int, int] = {}
        for worker in self.workers:
            if worker.status.get("stage") == self.stage:
                found.update({int(key): value for key, value in worker.status["next_offsets"].items()})
        return found

    def per_s(self) -> float:
        """Deliveries a second of late; each call is a measurement."""
        self._seen.append((time.monotonic(), self.delivered))
        return rate(self._seen)

    def _share(self, processes: int) -> float | None:
        return None if self._per_s is None else self._per_s / processes


class FailoverGroup(DemoGroup):
    """One `FailoverConsumer`, which lives through everything."""

    def __init__(self, name: str, stack: Stack, topic: str, folder: Path) -> None:
        super().__init__(name, stack, topic, folder)
        arguments = ["failover", "--config", str(stack.config_path), "--region", self.region]
        arguments += ["--topic", topic, "--group", name, "--log", str(folder / "member.log")]
        self._worker = Worker(f"{name} (FailoverConsumer)", arguments, folder / "member.err")

    @property
    def workers(self) -> Sequence[Worker]:
        """The one process."""
        return (self._worker,)

    def start(self) -> None:
        """Start in region a."""
        self._worker.start().wait_for("assigned", _READY_S)

    def fail_over(self, to: str) -> None:
        """Tell it to move."""
        self.stage, self.region = self.stage + 1, to
        self._worker.send("move", to=to)

    def await_move(self) -> None:
        """Wait until it says that it has moved."""
        wait_until(
            lambda: self._moved(self.stage) is not None,
            _MOVE_S,
            f"{self._worker.name} has not moved to region {self.region} in {_MOVE_S:.0f} s",
        )

    @property
    def skipped_records(self) -> int:
        """Records that it dropped, having delivered them elsewhere."""
        return int(self._worker.status.get("skipped", 0))

    def pending_at_move(self, stage: int) -> int:
        """Records that it had consumed and that had not arrived where it went, at its move of that number."""
        event = self._moved(stage)
        return int(event["pending_records"]) if event is not None else 0

    def _moved(self, stage: int) -> Message | None:
        return next((event for event in self._worker.events("moved") if event["stage"] == stage), None)


class PlainGroup(DemoGroup):
    """Two plain `confluent_kafka.Consumer` processes, started anew wherever the group goes."""

    def __init__(self, name: str, stack: Stack, topic: str, folder: Path) -> None:
        super().__init__(name, stack, topic, folder)
        self._workers: list[Worker] = []

    @property
    def workers(self) -> Sequence[Worker]:
        """The processes of this stage."""
        return self._workers

    def start(self) -> None:
        """Start in region a, at the log start: the group is new."""
        self._begin("earliest")
        self.await_move()

    def fail_over(self, to: str) -> None:
        """Replace its processes by new ones that know only the other cluster."""
        for worker in self._workers:
            worker.stop(within_s=_LAST_WORD_S)
        self._go(to)

    def go_back(self, to: str) -> None:
        """Start at the cluster to which it returns; `stop` came before."""
        self._go(to)

    def await_move(self) -> None:
        """Wait until every process has partitions."""
        for worker in self._workers:
            worker.wait_for("assigned", _READY_S)

    def published(self, region: str, partitions: int) -> dict[int, int]:
        """The group's committed offsets in a region's aggregate cluster."""
        bootstrap = self._stack.bootstrap(f"aggregate-{region}")
        return committed_offsets(bootstrap, self.name, self._topic, range(partitions))

    def _go(self, to: str) -> None:
        self._delivered_before = self.delivered
        self.stage, self.region = self.stage + 1, to
        # From here on a partition without a published offset would start at the end, and lose records.
        self._begin("latest")

    def _begin(self, offset_reset: str) -> None:
        cluster = f"aggregate-{self.region}"
        self._workers = []
        for number in (1, 2):
            name = f"{self.name}-{self.region}{self.stage}-{number}"
            arguments = [
                "consume",
                "--bootstrap-servers",
                self._stack.bootstrap(cluster),
                "--cluster",
                cluster,
            ]
            arguments += ["--topic", self._topic, "--group", self.name, "--stage", str(self.stage)]
            arguments += ["--offset-reset", offset_reset, "--log", str(self.folder / f"{name}.log")]
            if (share := self._share(2)) is not None:
                arguments += ["--per-s", str(share)]
            self._workers.append(Worker(name, arguments, self.folder / f"{name}.err").start())
