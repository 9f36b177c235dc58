"""How much memory a lease's process takes before a large backlog in many partitions."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from dataclasses import asdict, dataclass

import psutil

from lab.bench import BenchError
from lab.bench.data.batches import Shape, mean_batch, prepare
from lab.bench.data.loading import fill
from lab.bench.report import Measure, Round
from lab.bench.rows import Play, Row
from lab.bench.rows.watch import CopyWatch
from lab.bench.sides import Copier, CopierOptions

_SAMPLE_EVERY_S = 0.25
"""What rises and falls between two looks is not seen; each reads every process of the tree."""
_MIB = 2**20
_WORKER = "parallax.adapters.spark.daemon"
"""Each lease is held by a fork of this process."""
_SMOKE_BYTES = 50_000_000


@dataclass(frozen=True)
class MemoryRow(Row):
    """Memory while catching up, Parallax alone and with its defaults.

    Attributes:
        backlog_bytes: as it lies in the source's log, compressed.
        partitions: of the topic.
        window_s: so long, from the first record on the target, is looked.
    """

    backlog_bytes: int = 10**10
    partitions: int = 400
    window_s: float = 60.0

    def play(self, play: Play) -> None:
        """Start the replicator when the backlog is there, and look at its processes while it copies."""
        for number in play.missing_rounds:
            self._round(play, number)

    def _round(self, play: Play, number: int) -> None:
        stage, topic = play.stage, f"memory-{number}"
        stage.create_topic("regional-a", topic, self.partitions)
        batches = prepare(Shape())
        records, size = mean_batch(batches)
        wanted = _SMOKE_BYTES if play.settings.smoke else self.backlog_bytes
        per_partition = math.ceil(wanted / self.partitions / size * records)
        fill(stage.bootstrap("regional-a"), topic, self.partitions, [("memory", batches, per_partition)])
        play.tell(f"{topic}: {per_partition * self.partitions:,} records")
        copier = Copier(stage, "parallax", [topic], CopierOptions())
        copier.start()
        try:
            CopyWatch(stage, copier, topic, self.partitions, ["aggregate-a"]).await_first_record()
            found = _watch(copier, 2.0 if play.settings.smoke else self.window_s)
        finally:
            copier.stop()
        for cluster in ("regional-a", "aggregate-a"):
            stage.delete_topics(cluster, [topic])
        play.tell(f"largest process of a lease: {found.largest_mib:.0f} MiB at most")
        measures = (
            Measure(f"{self.name}: largest process of a lease, at most", "MiB", "lower", found.largest_mib),
            Measure(f"{self.name}: the whole process tree, at most", "MiB", "lower", found.tree_mib),
        )
        play.store.add(Round("parallax", number, measures, asdict(found)))


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory, what processes share counted in each.

    Attributes:
        largest_mib: the most that any one process of a lease had at any moment.
        tree_mib: the most that the replicator, Spark and all their processes had together.
        samples: how often it was looked.
    """

    largest_mib: float
    tree_mib: float
    samples: int


def _watch(copier: Copier, window_s: float) -> Memory:
    largest = tree = samples = 0
    until_s = time.monotonic() + window_s
    while time.monotonic() < until_s:
        copier.check_alive()
        sizes, workers = _sizes(copier.pids)
        largest, tree, samples = max(largest, *workers, 0), max(tree, sum(sizes)), samples + 1
        time.sleep(_SAMPLE_EVERY_S)
    if not largest:
        raise BenchError(f"{copier.name}: no process of a lease was found")
    return Memory(largest / _MIB, tree / _MIB, samples)


def _sizes(roots: list[int]) -> tuple[list[int], list[int]]:
    """Resident bytes of every process of the trees, and of those that may hold a lease."""
    sizes, workers = [], []
    for root in roots:
        with suppress(psutil.NoSuchProcess):
            top = psutil.Process(root)
            for process in (top, *top.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    size = process.memory_info().rss
                    sizes.append(size)
                    if _WORKER in process.cmdline():
                        workers.append(size)
    return sizes, workers
