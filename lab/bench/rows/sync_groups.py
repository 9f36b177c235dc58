"""What a sync job does for thousands of groups: from its start until all are published, while they stand, and while some move.

The sync job is a process of its own without Spark around it; it asks offset services, which are processes too, over gRPC. Records
are copied before, and the replicator has ended: what is measured is the job's.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from lab.bench import BenchError
from lab.bench.report import Measure, Round, percentile, slug
from lab.bench.rows import BenchPlace, Play, Row
from lab.bench.rows.many_groups import await_copied, fill_topics
from lab.bench.rows.moves import start_services
from lab.bench.sides import Copier, CopierOptions
from parallax.adapters.kafka.cluster import KafkaCluster
from parallax.config.config import load
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    GroupName,
    TargetOffset,
    TopicName,
    TopicPartition,
)
from parallax.runtime.deadline import Deadline
from syncjob.run import open_syncer

_ROUTES = (("a", "a"), ("b", "a"), ("a", "b"), ("b", "b"))
_ORIGIN, _TARGET = ClusterName("aggregate-a"), ClusterName("aggregate-b")
_COPIED_WITHIN_S = 600.0
_PUBLISHED_WITHIN_S = 1_800.0
_CYCLE_WITHIN_S = 600.0
_SETTLED_CYCLES = 3
"""After the last publication, before standing groups are measured: two reads have to agree."""
_COMMIT_SIDE_BY_SIDE = 8
_TIMEOUT_MS = 30_000
_LOOK_EVERY_S = 0.05
"""So far off a measured time may be."""
_MIB = 1024 * 1024


@dataclass(frozen=True)
class SyncGroupsRow(Row):
    """Groups without members, each with positions of its own on all partitions of one topic; MirrorMaker 2 has no such job to compare.

    Attributes:
        groups: how many.
        topics: shared out among them.
        partitions: of each topic.
        records: of each of two source regions in each partition.
        moving: so many of the groups commit anew every second in the last part.
        window_s: how long groups stand, and how long they move.
    """

    groups: int = 10_000
    topics: int = 5
    partitions: int = 10
    records: int = 2_000
    moving: int = 100
    window_s: float = 60.0

    @property
    def place(self) -> BenchPlace:
        """Two regions: one of them is passive."""
        return BenchPlace(("a", "b"))

    def play(self, play: Play) -> None:
        """Copy once; in every round other groups, and a sync job that knows none of them."""
        missing = play.missing_rounds
        if not missing:
            return
        row = self
        if play.settings.smoke:
            row = replace(self, groups=60, topics=1, records=500, moving=5, window_s=6.0)
        topics = [f"{slug(self.name)}-{number}" for number in range(row.topics)]
        fill_topics(play.stage, topics, row.partitions, row.records)
        for number in missing:
            found = _synced(row, play, topics, f"sync-{number}")
            play.store.add(Round("parallax", number, tuple(found.measures(self.name)), asdict(found)))


@dataclass(frozen=True, slots=True)
class SyncFigures:
    """What a round showed.

    Attributes:
        begun_s, begun_cpu_s: from the first cycle's begin until all offsets were published: time, the job's CPU seconds.
        begun_service_cpu_s: of both offset services, meanwhile.
        longest_begun_s: the longest of these cycles.
        standing_s, standing_cpu_s: of a cycle while all groups stand still, median.
        moving_s, moving_cpu_s: of a cycle while some move, median; ``longest_moving_s``: the longest.
        service_cores: of both offset services while some move.
        published_s: from a commit's acknowledgement to its offset's being seen at the target, p50; ``published_p99_s``.
        peak_mib: the most resident memory of the job's process.
        cycles: how many there were in all.
    """

    begun_s: float
    begun_cpu_s: float
    begun_service_cpu_s: float
    longest_begun_s: float
    standing_s: float
    standing_cpu_s: float
    moving_s: float
    moving_cpu_s: float
    longest_moving_s: float
    service_cores: float
    published_s: float
    published_p99_s: float
    peak_mib: float
    cycles: int

    def measures(self, name: str) -> Iterable[Measure]:
        """The figures, as reports list them."""
        yield Measure(f"{name}: all published", "s", "lower", self.begun_s)
        yield Measure(f"{name}: all published, the job's CPU", "CPU s", "lower", self.begun_cpu_s)
        yield Measure(f"{name}: all published, services' CPU", "CPU s", "lower", self.begun_service_cpu_s)
        yield Measure(f"{name}: a cycle while all stand", "s", "lower", self.standing_s)
        yield Measure(f"{name}: a cycle while all stand, CPU", "CPU s", "lower", self.standing_cpu_s)
        yield Measure(f"{name}: a cycle while some move", "s", "lower", self.moving_s)
        yield Measure(f"{name}: a cycle while some move, CPU", "CPU s", "lower", self.moving_cpu_s)
        yield Measure(f"{name}: the longest cycle while some move", "s", "lower", self.longest_moving_s)
        yield Measure(f"{name}: commit to published offset, p50", "s", "lower", self.published_s)
        yield Measure(f"{name}: commit to published offset, p99", "s", "lower", self.published_p99_s)
        yield Measure(f"{name}: resident memory of the job, at most", "MiB", "lower", self.peak_mib)


@dataclass(frozen=True, slots=True)
class _Cycle:
    """One cycle of the job: how long it took, what it cost, what it published, and how large the process is then."""

    took_s: float
    cpu_s: float
    published: int
    failed: int
    resident_bytes: int


def sync_in_cycles(path: Path, told: Connection) -> None:
    """Sync every ``sync.interval_ms`` until the process is ended, and tell of each cycle.

    Args:
        path: of the configuration.
        told: gets a tuple for each cycle, as in `_Cycle`.
    """
    config, process = load(path), psutil.Process()
    with open_syncer(config) as syncer:
        while True:
            next_at = Deadline.after_ms(config.sync.interval_ms)
            began_s, cpu_s = time.monotonic(), time.process_time()
            counts = syncer.cycle().counts
            told.send(
                (
                    time.monotonic() - began_s,
                    time.process_time() - cpu_s,
                    counts.get("published", 0),
                    counts.get("failed_groups", 0),
                    process.memory_info().rss,
                )
            )
            time.sleep(next_at.remaining_s)


class _Job:
    """The sync job's process, and its cycles so far."""

    def __init__(self, config: Path, clean_up: ExitStack) -> None:
        context = multiprocessing.get_context("spawn")
        self._told, there = context.Pipe(duplex=False)
        process = context.Process(target=sync_in_cycles, args=(config, there), daemon=True)
        process.start()
        there.close()
        clean_up.callback(process.join)
        clean_up.callback(process.kill)
        self.cycles: list[_Cycle] = []

    def next(self) -> _Cycle:
        """Wait for the next cycle's end."""
        try:
            if not self._told.poll(_CYCLE_WITHIN_S):
                raise BenchError(f"the sync job's cycle did not end within {_CYCLE_WITHIN_S:.0f} s")
            self.cycles.append(_Cycle(*self._told.recv()))
        except EOFError as error:
            raise BenchError("the sync job ended by itself; its last words are above") from error
        return self.cycles[-1]

    def for_s(self, duration_s: float) -> list[_Cycle]:
        """The cycles that end within so long."""
        deadline, found = Deadline.after_ms(duration_s * 1_000), []
        while not deadline.passed:
            found.append(self.next())
        return found


def _synced(row: SyncGroupsRow, play: Play, topics: Sequence[str], prefix: str) -> SyncFigures:
    stage = play.stage
    names = {f"{prefix}-{number:05}": topics[number % len(topics)] for number in range(row.groups)}
    with ExitStack() as clean_up:
        copier = Copier(stage, "parallax", topics, CopierOptions(routes=_ROUTES, groups=f"{prefix}-.*"))
        try:
            copier.start()
            for topic in topics:
                copier.await_topic(topic, [_ORIGIN, _TARGET], _COPIED_WITHIN_S)
            ends = {
                topic: await_copied(stage, copier, topic, row.partitions, 2 * row.records) for topic in topics
            }
        finally:
            copier.stop()
        services = start_services(stage, copier, clean_up)
        config = load(copier.config)
        origin, target = (
            KafkaCluster(name, config.cluster(name), timeout_ms=_TIMEOUT_MS) for name in (_ORIGIN, _TARGET)
        )
        committing = clean_up.enter_context(ThreadPoolExecutor(_COMMIT_SIDE_BY_SIDE))

        def commit(groups: Mapping[str, float]) -> None:
            """Each group has read that share of its topic."""
            list(
                committing.map(
                    lambda item: origin.commit_for(
                        GroupName(item[0]), _positions(names[item[0]], ends[names[item[0]]], item[1])
                    ),
                    groups.items(),
                )
            )

        commit({name: 0.1 + 0.4 * turn / row.groups for turn, name in enumerate(names)})
        play.tell(f"{prefix}: {row.groups:,} groups have committed")
        service_pids = [service.pid for service in services.values() if service.pid is not None]
        before = stage.cpu_s(services=service_pids)["services"]
        began_s = time.monotonic()
        job = _Job(copier.config, clean_up)
        wanted, there = row.groups * row.partitions, 0
        while there < wanted:
            there += job.next().published
            if time.monotonic() - began_s > _PUBLISHED_WITHIN_S:
                raise BenchError(f"{there:,} of {wanted:,} offsets were published")
        begun = list(job.cycles)
        begun_service_cpu_s = stage.cpu_s(services=service_pids)["services"] - before
        play.tell(f"{prefix}: all are published after {sum(item.took_s for item in begun):.1f} s")
        for _ in range(_SETTLED_CYCLES):
            job.next()
        standing = job.for_s(row.window_s)
        play.tell(
            f"{prefix}: a cycle takes {statistics.median(it.took_s for it in standing):.2f} s while all stand"
        )
        before = stage.cpu_s(services=service_pids)["services"]
        moving, taken_s = _moved(row, job, list(names)[: row.moving], commit, target)
        used = stage.cpu_s(services=service_pids)["services"] - before
    figures = SyncFigures(
        begun_s=sum(item.took_s for item in begun),
        begun_cpu_s=sum(item.cpu_s for item in begun),
        begun_service_cpu_s=begun_service_cpu_s,
        longest_begun_s=max(item.took_s for item in begun),
        standing_s=statistics.median(item.took_s for item in standing),
        standing_cpu_s=statistics.median(item.cpu_s for item in standing),
        moving_s=statistics.median(item.took_s for item in moving),
        moving_cpu_s=statistics.median(item.cpu_s for item in moving),
        longest_moving_s=max(item.took_s for item in moving),
        service_cores=used / row.window_s,
        published_s=percentile(taken_s, 50),
        published_p99_s=percentile(taken_s, 99),
        peak_mib=max(item.resident_bytes for item in job.cycles) / _MIB,
        cycles=len(job.cycles),
    )
    play.tell(f"{prefix}: {figures}")
    return figures


def _moved(
    row: SyncGroupsRow,
    job: _Job,
    groups: Sequence[str],
    commit: Callable[[Mapping[str, float]], None],
    target: KafkaCluster,
) -> tuple[list[_Cycle], list[float]]:
    """The job's cycles while groups commit every second; sorted, how long each commit took to be published."""
    deadline, turn, taken_s = Deadline.after_ms(row.window_s * 1_000), 0, []
    names = [GroupName(group) for group in groups]
    with ThreadPoolExecutor(1) as watching:
        cycles = watching.submit(job.for_s, row.window_s)
        while not deadline.passed:
            next_at, turn = Deadline.after_ms(1_000), turn + 1
            stood = target.committed_each(names)
            commit(dict.fromkeys(groups, 0.5 + 0.4 * turn / (row.window_s + 1)))
            committed_s = time.monotonic()
            left = list(names)
            while left and time.monotonic() - committed_s < _CYCLE_WITHIN_S:
                found = target.committed_each(left)
                now_s = time.monotonic()
                changed = [name for name in left if found[name] != stood[name]]
                taken_s += [now_s - committed_s] * len(changed)
                left = [name for name in left if found[name] == stood[name]]
                time.sleep(_LOOK_EVERY_S)
            if left:
                raise BenchError(f"commits of {len(left)} groups were not published, of {left[0]} for one")
            time.sleep(max(0.0, next_at.remaining_s))
        return cycles.result(), sorted(taken_s)


def _positions(topic: str, ends: Mapping[int, int], share: float) -> Mapping[TopicPartition, GroupCommit]:
    return {
        TopicPartition(TopicName(topic), part): GroupCommit(TargetOffset(int(end * share)), UNKNOWN_EPOCH, "")
        for part, end in ends.items()
    }
