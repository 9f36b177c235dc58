"""The groups of a storm: FailoverConsumers that follow their group's primary, each in a process of its own."""

from __future__ import annotations

from pathlib import Path

from lab.storm.options import GroupPlan
from lab.workload.playing import Stack
from lab.workload.worker import Worker, WorkerError

_ASSIGNED_S = 90.0
_CLOSED_S = 30.0


class StormGroup:
    """A group and its members, stopped and started as the storm wants it.

    Args:
        name: the group id.
        plan: its home and its size.
        stack: its clusters.
        topic: what it reads.
        folder: logs of its processes; the delivered records in ``*.log``.
    """

    def __init__(self, name: str, plan: GroupPlan, stack: Stack, topic: str, folder: Path) -> None:
        self.name, self.folder, self.size = name, folder, plan.members
        self._home, self._config, self._topic = plan.home, stack.config_path, topic
        self._members: list[Worker | None] = [None] * plan.members
        self._former: list[Worker] = []
        self._lives = 0

    def start(self) -> None:
        """Start all members, and wait until each has joined.

        Raises:
            WorkerError: one failed, or was given no partition in time.
        """
        self.begin()
        self.await_assigned()

    def begin(self) -> None:
        """Start all members."""
        for number in range(self.size):
            self._begin(number)

    def await_assigned(self) -> None:
        """Wait until each member has joined.

        Raises:
            WorkerError: one failed, or was given no partition in time.
        """
        for worker in self._members:
            if worker is not None:
                worker.wait_for("assigned", _ASSIGNED_S)

    def stop(self) -> None:
        """Stop all members; what they delivered is committed.

        Raises:
            WorkerError: one did not end by itself.
        """
        for number in range(self.size):
            self._end(number)

    def restart_one(self) -> None:
        """Stop the first member, and start another one in its place.

        Raises:
            WorkerError: as `stop` and `start`.
        """
        self._end(0)
        self._begin(0).wait_for("assigned", _ASSIGNED_S)

    def limit(self, per_s: float | None) -> None:
        """Hold the members to a rate, all together; None: as fast as they can. A new member has no limit.

        Raises:
            WorkerError: one is gone.
        """
        for worker in self._members:
            if worker is not None:
                worker.send("limit", per_s=None if per_s is None else per_s / self.size)

    def tell_stacks(self) -> None:
        """Let each member write what its threads are at into its log."""
        for worker in self.workers():
            worker.tell_stacks()

    def kill(self) -> None:
        """Make sure that nothing is left."""
        for worker in self.workers():
            worker.kill()

    def check(self) -> None:
        """Make sure that no process has failed.

        Raises:
            WorkerError: one has.
        """
        for worker in self.workers():
            worker.check()

    @property
    def delivered(self) -> int:
        """Deliveries so far."""
        return self._sum("delivered")

    @property
    def skipped(self) -> int:
        """Records dropped so far because they had been delivered elsewhere."""
        return self._sum("skipped")

    @property
    def clusters(self) -> str:
        """Which clusters its members read, as they last said."""
        found = {str(worker.status.get("cluster", "?")) for worker in self._members if worker is not None}
        return " and ".join(sorted(found)) or "none"

    def told(self) -> dict[str, int]:
        """How often its members told of each kind of event."""
        counts: dict[str, int] = {}
        for worker in self.workers():
            for event in worker.events("told"):
                counts[event["kind"]] = counts.get(event["kind"], 0) + 1
        return counts

    def _begin(self, number: int) -> Worker:
        self._lives += 1
        name = f"{self.name}-{number}-{self._lives}"
        arguments = ["failover", "--config", str(self._config), "--region", self._home]
        arguments += ["--topic", self._topic, "--group", self.name, "--log", str(self.folder / f"{name}.log")]
        worker = self._members[number] = Worker(name, arguments, self.folder / f"{name}.err").start()
        return worker

    def _end(self, number: int) -> None:
        worker, self._members[number] = self._members[number], None
        if worker is None:
            return
        self._former.append(worker)
        worker.stop(_CLOSED_S)
        if not worker.events("closed"):
            raise WorkerError(f"{worker.name} did not end within {_CLOSED_S:.0f} s; it was killed")

    def workers(self) -> list[Worker]:
        """Every process that it ever had."""
        return [*self._former, *(worker for worker in self._members if worker is not None)]

    def _sum(self, figure: str) -> int:
        return sum(int(worker.status.get(figure, 0)) for worker in self.workers())
