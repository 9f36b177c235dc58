"""A whole region is lost under load, and returns."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from lab.oracle.logs import end_offsets
from lab.stack.errors import StackError
from lab.stack.layout import SPARK
from lab.workload.playing import Stack
from lab.workload.topics import EndOffsets
from parallax.config.config import load

_ANSWER_S = 10.0
_LOOK_EVERY_S = 0.1
"""Between two looks at something that only time brings."""
_LOOKS_BEFORE_ALARM = 3


@dataclass(frozen=True, slots=True)
class Uncertain:
    """What the replicator may not have indexed when it was killed together with the region.

    Attributes:
        starts: by partition of the region's aggregate cluster: what lay below could be consumed for a whole
            ``index.interval_ms`` before the kill.
        window_ms: from that moment to the kill; the interval, and as long as it took to ask and to kill.
    """

    starts: Mapping[int, int]
    window_ms: int


class Outage:
    """The loss of a region: its Kafka clusters and its offset service die at one moment.

    One Spark application replicates into both regions here, so it stands for those of the regions that live, and
    dies only if it is told to.

    Args:
        stack: where.
        region: is lost.
        other: lives.
        topic: what is copied.
        partitions: how many it has.
        replicator_dies: kill the Spark application as well.
    """

    def __init__(
        self, stack: Stack, *, region: str, other: str, topic: str, partitions: int, replicator_dies: bool
    ) -> None:
        self._stack, self._region, self._other, self._topic = stack, region, other, topic
        self._replicator_dies = replicator_dies
        self._parts = (f"region-{region}", SPARK) if replicator_dies else (f"region-{region}",)
        self._ends = EndOffsets(stack.bootstrap(f"aggregate-{region}"), topic, partitions)
        self._threads = ThreadPoolExecutor(len(self._parts), "outage")
        self._restart: Future[None] | None = None
        self.uncertain: Uncertain | None = None
        self.returned_at_ms = 0
        self.ends_at_return: Mapping[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown(wait=kind is None)

    @property
    def victims(self) -> str:
        """What dies, for people."""
        region = self._region
        clusters = [cluster.name for cluster in self._stack.layout.spec.clusters if cluster.region == region]
        found = ", ".join([*clusters, f"offsetsvc-{region}"])
        return f"{found} and the replicator" if self._replicator_dies else found

    def strike(self) -> None:
        """SIGKILL, for all at one moment.

        Raises:
            StackError: the aggregate cluster did not say where it ends.
        """
        if not self._replicator_dies:
            self._kill()
            return
        asked_at = time.monotonic()
        starts = self._ends.ask(committed=True, within_s=_ANSWER_S)
        if starts is None:
            raise StackError(f"aggregate-{self._region} did not say where it ends")
        # What came in the last interval is the question: it begins where the answer was given.
        time.sleep(load(self._stack.config_path).index.interval_ms / 1_000)
        self._kill()
        self.uncertain = Uncertain(starts, round((time.monotonic() - asked_at) * 1_000))

    def _kill(self) -> None:
        list(self._threads.map(self._stack.kill, self._parts))

    def await_alarm(self) -> None:
        """What an operator's monitor does: look a few times before it raises the alarm."""
        layout = self._stack.layout
        clusters = [
            layout.bootstrap(cluster.name)
            for cluster in layout.spec.clusters
            if cluster.region == self._region
        ]
        failed = 0
        while failed < _LOOKS_BEFORE_ALARM:
            failed = 0 if any(_accepts(bootstrap) for bootstrap in clusters) else failed + 1
            time.sleep(_LOOK_EVERY_S)

    def restart_replicator(self) -> None:
        """What a supervisor does with a process that died: start it, though the region is away."""
        if self._replicator_dies:
            self._restart = self._threads.submit(self._stack.start, SPARK)

    def end(self) -> None:
        """Start the region again, and wait until all of it answers.

        Raises:
            StackError: something did not come up.
        """
        cluster = f"aggregate-{self._other}"
        self.ends_at_return = end_offsets(cluster, self._stack.bootstrap(cluster), self._topic)
        self.returned_at_ms = int(time.time() * 1_000)
        self._stack.start(f"region-{self._region}")

    def await_replicator(self) -> None:
        """Wait until a replicator that was started again serves every route.

        Raises:
            StackError: it did not come up.
        """
        if self._restart is not None:
            self._restart.result()


def _accepts(bootstrap: str) -> bool:
    host, port = bootstrap.split(",", maxsplit=1)[0].rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
