"""The consumer groups, each in processes of its own, and what the move of a group asks of its operator."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from lab.demo.gauges import rate
from lab.workload.playing import Stack
from lab.workload.worker import Worker, wait_until

_READY_S = 60.0
_MOVE_S = 60.0
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
    def leave(self, *, cluster_lives: bool) -> None:
        """What has to be done before the group is moved away from its cluster."""

    @abstractmethod
    def arrive(self, at: str) -> None:
        """What has to be done once it has been moved to a region."""

    @abstractmethod
    def await_arrival(self) -> None:
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
    """Members that are `FailoverConsumer`s: they live through everything, and nobody has to tell them anything."""

    def __init__(self, name: str, stack: Stack, topic: str, folder: Path, *, members: int) -> None:
        super().__init__(name, stack, topic, folder)
        common = ["failover", "--config", str(stack.config_path), "--region", self.region]
        common += ["--topic", topic, "--group", name]
        self._workers = [
            Worker(
                f"{name}-{number} (FailoverConsumer)",
                [*common, "--log", str(folder / f"member-{number}.log")],
                folder / f"member-{number}.err",
            )
            for number in range(1, members + 1)
        ]

    @property
    def workers(self) -> Sequence[Worker]:
        """The members."""
        return self._workers

    def start(self) -> None:
        """Start in region a."""
        for worker in self._workers:
            worker.start()
        for worker in self._workers:
            worker.wait_for("assigned", _READY_S)

    def leave(self, *, cluster_lives: bool) -> None:
        """Nothing: they stop when they hear that their group is being moved."""

    def arrive(self, at: str) -> None:
        """Nothing: they know by themselves."""
        self.stage, self.region = self.stage + 1, at

    def await_arrival(self) -> None:
        """Wait until every member says that it reads there."""
        wait_until(
            lambda: all(worker.status.get("stage") == self.stage for worker in self._workers),
            _MOVE_S,
            f"a member of {self.name} has not gone to region {self.region} in {_MOVE_S:.0f} s",
        )

    @property
    def skipped_records(self) -> int:
        """Records that its members dropped, because the group had consumed them elsewhere."""
        return sum(int(worker.status.get("skipped", 0)) for worker in self._workers)


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
        self.await_arrival()

    def leave(self, *, cluster_lives: bool) -> None:
        """End its processes, which know no other cluster. To a dead one they could neither commit nor say good-bye."""
        if cluster_lives:
            self.stop()
        else:
            self.kill()

    def arrive(self, at: str) -> None:
        """Start processes that know only that region's cluster."""
        self._delivered_before = self.delivered
        self.stage, self.region = self.stage + 1, at
        # From here on a partition without a committed offset would start at the end, and lose records.
        self._begin("latest")

    def await_arrival(self) -> None:
        """Wait until every process has partitions."""
        for worker in self._workers:
            worker.wait_for("assigned", _READY_S)

    def _begin(self, offset_reset: str) -> None:
        cluster = f"aggregate-{self.region}"
        common = ["consume", "--bootstrap-servers", self._stack.bootstrap(cluster), "--cluster", cluster]
        common += ["--topic", self._topic, "--group", self.name, "--stage", str(self.stage)]
        common += ["--offset-reset", offset_reset]
        if (share := self._share(2)) is not None:
            common += ["--per-s", str(share)]
        self._workers = []
        for number in (1, 2):
            name = f"{self.name}-{self.region}{self.stage}-{number}"
            arguments = [*common, "--log", str(self.folder / f"{name}.log")]
            self._workers.append(Worker(name, arguments, self.folder / f"{name}.err").start())
