"""Clusters that are written to and copied between, every record known by name: what a group has read is held against answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from offsetsvc.answers import FailoverAnswer
from offsetsvc.resume.call import FailoverRequest
from offsetsvc.resume.skip_updates import WatchRequest
from offsetsvc.service import UseCases
from parallax.config.config import Config
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    Lineage,
    RegionName,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.index_rows import LineageRecord, RowBatch
from parallax.domain.lineage_history import Stretch
from parallax.domain.place import LogRange
from parallax.domain.route_graph import CopiesKind
from parallax.domain.runs import Run
from parallax.ports.clusters import TopicInfo
from parallax.runtime.deadline import Deadline
from tests.memory.audit import MemoryAuditLog
from tests.memory.cql import MemoryKeyspace, WrittenStores
from tests.memory.groups import MemoryGroupStore, MemoryOperationJournal, MemoryPrimaryStore
from tests.memory.index import MemoryMappingIndex
from tests.worlds.offset_world import GROUP, NOW_MS, TOPIC, FakeCluster

Name = tuple[str, int]
"""Where a record was produced, and its number."""

ITEM = TopicPartition(TOPIC, 0)
_KAFKA = {"bootstrap_servers": "127.0.0.1:1"}
_CLUSTER, _REGIONAL, _AGGREGATE = ({kind: _KAFKA} for kind in ("cluster", "regional", "aggregate"))

GRAPHS: dict[str, tuple[dict[str, Any], list[Any], str]] = {
    "two-way": ({"x": _CLUSTER, "y": _CLUSTER}, ["x->y", "y->x"], "xy"),
    "two-way of three": (
        {"x": _CLUSTER, "y": _CLUSTER, "z": _CLUSTER},
        ["x->y", "y->x", "x->z", "z->x", "y->z", "z->y"],
        "xyz",
    ),
    "two-way and a third source": (
        {"x": _CLUSTER, "y": _CLUSTER, "z": _REGIONAL},
        ["x->y", "y->x", "z->x", "z->y"],
        "xy",
    ),
    "standby that nobody writes to": ({"x": _CLUSTER, "y": _AGGREGATE}, ["x->y"], "xy"),
    "standby that is written to": ({"x": _CLUSTER, "y": _CLUSTER}, ["x->y"], "xy"),
    "forwarding": (
        {"w": _REGIONAL, "x": _AGGREGATE, "y": _AGGREGATE},
        ["w->x", {"route": "x->y", "from": "aggregate"}],
        "xy",
    ),
    "one side in both roles": ({"x": _REGIONAL | _AGGREGATE, "y": _CLUSTER}, ["x->x", "y->x", "x->y"], "xy"),
}
"""By name: regions, routes, and the regions in which groups read."""


@dataclass(frozen=True, slots=True)
class Slot:
    """An offset of a log: a record, or None for a marker."""

    name: Name | None
    epoch: int
    produced: bool = False


@dataclass
class Log:
    """One cluster's partition."""

    slots: list[Slot] = field(default_factory=list)
    epoch: int = 0
    low: int = 0
    began: dict[int, int] = field(default_factory=lambda: {0: 0})
    """Where leader epochs began, as the leader remembers it."""

    def elect(self) -> None:
        """Another leader."""
        self.epoch += 1
        self.began[self.epoch] = len(self.slots)

    def lose(self, cut: int) -> None:
        """Another leader, which lacks what lies from an offset on."""
        del self.slots[cut:]
        self.began = {epoch: start for epoch, start in self.began.items() if start < cut or not start}
        self.elect()

    def end_of(self, epoch: int) -> int:
        """Where an epoch ends."""
        return min([start for it, start in self.began.items() if it > epoch], default=len(self.slots))


@dataclass
class Copier:
    """One route, as far as it is, and its rows that the index has not heard of."""

    item: RoutePartition
    source: str
    own: bool
    lineage: Lineage
    position: int = 0
    last_run_end: int = 0
    epoch: int = UNKNOWN_EPOCH
    target_epoch: int = 0
    """Of the target, whose leader held all that was written there."""
    sequence: int = 0
    untold: list[LineageRecord | RowBatch] = field(default_factory=list)
    written: list[Run] = field(default_factory=list)


class OwnWorld:
    """A graph of clusters, and a group that reads, commits and moves between them.

    Args:
        seed: of all that happens.
        graph: of `GRAPHS`.
        told: rows are known as soon as they are written, and no log loses its tail: then nothing may be read twice.
    """

    def __init__(self, seed: int, graph: str, *, told: bool) -> None:
        self.draw = Random(seed)
        self.graph = graph
        self.told = told
        self.loses_tails = not told and self.draw.random() < 0.5
        # Of a position without an epoch nobody can tell what a lost tail took of it.
        self.epochs_known = told or self.loses_tails
        regions, routes, homes = GRAPHS[graph]
        self.config = Config.model_validate(
            {"regions": regions, "routes": routes, "cassandra": {"contact_points": ["127.0.0.1"]}}
        )
        self.homes = [aggregate_cluster(RegionName(name)) for name in homes]
        self.index = MemoryMappingIndex(self.draw.randint(2, 9))
        self.clusters = {
            name: FakeCluster(name, {TOPIC: TopicInfo(TOPIC, TopicId(f"{self.key(name)}-1"), 1)})
            for name in self.config.aggregate_clusters()
        }
        self.logs = {self.key(name): Log() for name in self.config.clusters()}
        self.copiers: list[Copier] = []
        for item in self.config.route_settings():
            route = item.parsed()
            source = self.key(self.config.source_cluster(route))
            target = self.key(aggregate_cluster(route.target))
            lineage = Lineage(TopicId(f"{source}-1"), TopicId(f"{target}-1"))
            own = item.copied().kind is CopiesKind.OWN
            copier = Copier(RoutePartition(route, ITEM), source, own, lineage)
            self.copiers.append(copier)
            self._open(copier, 0)
        self.version = 0
        self.produced = 0
        self.delivered: list[Name] = []
        self.read_here: set[int] = set()
        """Offsets of the present log below the position that the group has passed since it came."""
        self.at = self.draw.choice(self.homes)
        self.origin: ClusterName | None = None
        self.position = 0
        self.skips: list[Stretch] = []
        self.known_to: int | None = None
        self.left: FailoverAnswer | None = None
        self.violations: list[str] = []
        self.groups = MemoryGroupStore()
        self.service = self.new_service()
        self._read(0)

    def new_service(self) -> UseCases:
        """An offset service that remembers nothing of clusters that were away."""
        return UseCases(
            self.config,
            RegionName(homes_region(self.homes[0])),
            self.index,
            self.groups,
            self.clusters,
            MemoryPrimaryStore(),
            MemoryOperationJournal(),
            WrittenStores(MemoryKeyspace()).status,
            now_ms=lambda: NOW_MS,
            audit=MemoryAuditLog(),
            cache=False,
        )

    def key(self, cluster: ClusterName) -> str:
        """The Kafka that a name stands for."""
        return str(self.config.one_kafka(cluster))

    def log(self, cluster: ClusterName) -> Log:
        """A cluster's log."""
        return self.logs[self.key(cluster)]

    # --- what happens ------------------------------------------------------------------------------------------

    def step(self) -> None:
        """One thing."""
        kinds: list[Callable[[], None]] = [self._produce, self._copy, self._copy, self._watermark, self._tell]
        kinds += [self._read, self._read]
        if self.draw.random() < 0.2:
            kinds += [self._new_leader, self._trim]
        if self.loses_tails and self.draw.random() < 0.05:
            kinds = [self._lose_tail]
        self.draw.choice(kinds)()
        if self.told:
            self._tell(everything=True)

    def _produce(self, cluster: str | None = None) -> None:
        producing = sorted({self.key(name) for name in self.config.producing_clusters()})
        log = self.logs[cluster or self.draw.choice(producing)]
        where = next(name for name, known in self.logs.items() if known is log)
        if where not in producing:
            return
        for _ in range(self.draw.randint(1, 4)):
            self.produced += 1
            log.slots.append(Slot((where, self.produced), log.epoch, produced=True))
        if self.draw.random() < 0.2:
            log.slots.append(Slot(None, log.epoch))

    def _copy(self, copier: Copier | None = None, most: int | None = None) -> None:
        copier = copier or self.draw.choice(self.copiers)
        source, target = self.logs[copier.source], self._target(copier)
        most = self.draw.randint(1, 12) if most is None else most
        rows: list[Run] = []
        for slot in source.slots[copier.position : copier.position + most]:
            if slot.name is not None and (slot.produced or not copier.own):
                self._append(copier, slot, target, rows)
                if self.draw.random() < 0.1:
                    self._produce(self.key(aggregate_cluster(copier.item.route.target)))
            if slot.name is not None:
                copier.epoch = slot.epoch
            copier.position += 1
        if not rows:
            return
        if self.draw.random() < 0.1:
            self._produce(self.key(aggregate_cluster(copier.item.route.target)))
        target.slots.append(Slot(None, target.epoch))
        self._write(copier, rows)

    def _append(self, copier: Copier, slot: Slot, target: Log, rows: list[Run]) -> None:
        last = rows[-1] if rows else None
        place = len(target.slots)
        target.slots.append(Slot(slot.name, target.epoch))
        if (
            last is not None
            and (last.source_end, last.target_end) == (copier.position, place)
            and last.source_leader_epoch == slot.epoch
        ):
            rows[-1] = replace(last, count=last.count + 1)
        else:
            rows.append(
                Run(
                    SourceOffset(copier.position),
                    TargetOffset(place),
                    1,
                    SourceOffset(copier.last_run_end),
                    slot.epoch,
                )
            )
        copier.last_run_end = copier.position + 1

    def _watermark(self, copier: Copier | None = None) -> None:
        copier = copier or self.draw.choice(self.copiers)
        end = TargetOffset(len(self._target(copier).slots))
        row = Run(
            SourceOffset(copier.position), end, 0, SourceOffset(copier.last_run_end), self._epoch_of(copier)
        )
        self._write(copier, [row])

    def _epoch_of(self, copier: Copier) -> int:
        return copier.epoch

    def _tell(self, *, everything: bool = False) -> None:
        for copier in self.copiers:
            count = len(copier.untold) if everything else self.draw.randint(0, len(copier.untold))
            told, copier.untold = copier.untold[:count], copier.untold[count:]
            for item in told:
                if isinstance(item, RowBatch):
                    self.index.write_rows([item])
                else:
                    self.index.write_lineages([item])

    def _new_leader(self) -> None:
        """Not above what was not copied yet, if nothing may be read twice: nobody knows where in it the former epoch ends."""
        logs = [
            log
            for where, log in self.logs.items()
            if not self.told
            or all(copier.position == len(log.slots) for copier in self.copiers if copier.source == where)
        ]
        if logs:
            self.draw.choice(logs).elect()

    def _trim(self) -> None:
        where = self.draw.choice(list(self.logs))
        log = self.logs[where]
        readers = [copier.position for copier in self.copiers if copier.source == where]
        if self.log(self.at) is log:
            readers.append(self.position)
        read = set(self.delivered)
        unread = (place for place, slot in enumerate(log.slots) if slot.name and slot.name not in read)
        log.low = max(log.low, self.draw.randint(0, min([*readers, len(log.slots), next(unread, 10**9)])))

    def _lose_tail(self) -> None:
        """An unclean election. Replicators see at once what concerns them, and the index hears of that at once."""
        where = self.draw.choice(list(self.logs))
        log = self.logs[where]
        end = len(log.slots)
        if end <= log.low:
            return
        cut = self.draw.randint(max(log.low, end - 10), end - 1)
        log.lose(cut)
        if self.log(self.at) is log:
            # Consumers see that by leader epochs; what they had committed stays.
            self.position = min(self.position, cut)
            self.known_to = None if self.known_to is None else min(self.known_to, cut)
            self.skips = [(start, min(end, cut)) for start, end in self.skips]
        for copier in self.copiers:
            written_to = max([row.target_end for row in copier.written], default=0)
            if self._target(copier) is log and log.end_of(copier.target_epoch) < written_to:
                kept = [row for row in copier.written if row.target_start < cut]
                position = 0
                if kept:
                    position = int(kept[-1].source_end - max(0, kept[-1].target_end - cut))
                self._begin_again(copier, position, copier.target_epoch + 1)
            if copier.source == where and copier.position > cut:
                self._begin_again(copier, cut, UNKNOWN_EPOCH)
        self._tell(everything=True)

    def _begin_again(self, copier: Copier, position: int, lost_epoch: int) -> None:
        copier.lineage = copier.lineage._replace(generation=copier.lineage.generation + 1)
        copier.sequence += 1
        copier.position, copier.last_run_end = min(position, copier.position), 0
        before = self.logs[copier.source].slots[: copier.position]
        copier.epoch = next((slot.epoch for slot in reversed(before) if slot.name), UNKNOWN_EPOCH)
        self._open(copier, copier.position, lost_epoch)
        copier.written = []
        self._watermark(copier)

    def _open(self, copier: Copier, source_first: int, lost_epoch: int = UNKNOWN_EPOCH) -> None:
        self.version = getattr(self, "version", 0) + 1
        copier.untold.append(
            LineageRecord(
                copier.item,
                copier.lineage,
                copier.sequence,
                SourceOffset(source_first),
                TargetOffset(len(self._target(copier).slots)),
                None,
                self.version,
                lost_epoch,
            )
        )

    def _write(self, copier: Copier, rows: Sequence[Run]) -> None:
        self.version += 1
        copier.written += rows
        copier.target_epoch = self._target(copier).epoch
        copier.untold.append(RowBatch(copier.item, copier.lineage, tuple(rows), (), NOW_MS, self.version))

    def _target(self, copier: Copier) -> Log:
        return self.log(aggregate_cluster(copier.item.route.target))

    # --- the group ---------------------------------------------------------------------------------------------

    def _read(self, most: int | None = None) -> None:
        """The group reads on, skips what it is told to skip, and commits."""
        log = self.log(self.at)
        self.position = max(self.position, log.low)
        for _ in range(self.draw.randint(1, 12) if most is None else most):
            if self.position >= len(log.slots) or not self._is_known(self.position):
                break
            slot = log.slots[self.position]
            skipped = any(start <= self.position < end for start, end in self.skips)
            if slot.name is not None and not skipped:
                if self.told and slot.name in self.delivered:
                    self.violations.append(f"{slot.name} twice, at {self.position} of {self.at}")
                self.delivered.append(slot.name)
            if slot.name is not None and skipped and slot.name not in self.delivered:
                self.violations.append(f"{slot.name} skipped, at {self.position} of {self.at}")
            self.position += 1
        before = [slot.epoch for slot in log.slots[: self.position] if slot.name is not None]
        known = bool(before) and (self.epochs_known or self.draw.random() < 0.7)
        epoch = before[-1] if known else UNKNOWN_EPOCH
        commits = self.clusters[self.at].commits.setdefault(GROUP, {})
        commits[ITEM] = GroupCommit(TargetOffset(self.position), epoch, "")

    def _is_known(self, offset: int) -> bool:
        """Whether it is known of the offset whether to skip it; asks for more if not."""
        if self.known_to is None or offset < self.known_to:
            return True
        assert self.left is not None
        request = WatchRequest(
            ITEM,
            self.at,
            self.left.destination.topic_id,
            self.left.progress,
            TargetOffset(self.known_to),
            self.origin,
        )
        self._set_ends()
        for page in self.service.skips.updates(request, Deadline.after_ms(10_000), lambda _s: True):
            self.skips += page.skip_ranges
            self.known_to = page.complete_to
        return self.known_to is None or offset < self.known_to

    def move(self) -> None:
        """The group moves, and the answer is held against what it has read."""
        destination = self.draw.choice([name for name in self.homes if name != self.at])
        if not self.may_move(self.at, destination):
            return
        if self.told:
            for copier in self.copiers:
                self._watermark(copier)
            self._tell(everything=True)
        self._set_ends()
        here = self.log(self.at).slots[: self.position]
        epochs = [slot.epoch for slot in here if slot.name is not None]
        self.clusters[self.at].away = self.draw.random() < 0.1
        positions = {}
        named = {}
        if self.clusters[self.at].away or self.draw.random() < 0.3:
            positions = {ITEM: TargetOffset(self.position)}
            if epochs and self.epochs_known:
                named = {ITEM: epochs[-1]}
        request = FailoverRequest(GROUP, self.at, destination, positions, only=ITEM, read_epochs=named)
        with self.new_service() if self.clusters[self.at].away else nullcontext(self.service) as service:
            (answer,) = service.failover.answers(request, Deadline.after_ms(10_000), record_move=True)
        self.clusters[self.at].away = False
        self._judge(answer)
        self.origin, self.at, self.left = self.at, destination, answer
        self.position = int(answer.resume_offset)
        self.skips = list(answer.skip_ranges)
        self.known_to = None if answer.complete_to is None else int(answer.complete_to)
        commits = self.clusters[self.at].commits.setdefault(GROUP, {})
        commits[ITEM] = GroupCommit(TargetOffset(self.position), UNKNOWN_EPOCH, "")

    def may_move(self, origin: ClusterName, destination: ClusterName) -> bool:
        """Whether what is produced at the one comes to the other."""
        produced = self.config.is_produced_at(origin)
        return not produced or self.config.route_from_log(origin, destination) is not None

    def _judge(self, answer: FailoverAnswer) -> None:
        log = self.log(answer.destination.cluster)
        read = set(self.delivered)
        for offset, slot in enumerate(log.slots):
            if slot.name is None or slot.name in read or offset < log.low:
                continue
            inside = any(start <= offset < end for start, end in answer.skip_ranges)
            if offset < answer.resume_offset or inside:
                self.violations.append(
                    f"{slot.name} at {offset} of {answer.destination.cluster} was never read: resume {answer.resume_offset}, "
                    f"skip {answer.skip_ranges}, of a group at {answer.origin.next_offset} of {answer.origin.cluster}"
                )

    def finish(self) -> None:
        """Everything is copied and told, and the group reads to the end: all that lies there, it has read."""
        for _ in range(len(self.copiers) + 1):
            for copier in self.copiers:
                self._copy(copier, 10**9)
        for copier in self.copiers:
            self._watermark(copier)
        self._tell(everything=True)
        self._read(10**9)
        log = self.log(self.at)
        if self.position < len(log.slots):
            self.violations.append(f"stands still at {self.position} of {len(log.slots)} of {self.at}")
        read = set(self.delivered)
        left_out = [slot.name for slot in log.slots[log.low :] if slot.name and slot.name not in read]
        if left_out:
            self.violations.append(f"never read at {self.at}: {left_out}")

    def _set_ends(self) -> None:
        for name, cluster in self.clusters.items():
            log = self.log(name)
            cluster.ranges[ITEM] = LogRange(TargetOffset(log.low), TargetOffset(len(log.slots)))
            cluster.epochs[ITEM] = log.began


def homes_region(cluster: ClusterName) -> str:
    """The region of a cluster's name."""
    return cluster.partition("-")[2]


def play(seed: int, graph: str, *, told: bool, steps: int = 60) -> Iterator[str]:
    """A world from its seed; what it did wrong."""
    world = OwnWorld(seed, graph, told=told)
    with world.service:
        for _ in range(steps):
            world.step()
            if world.draw.random() < 0.12:
                world.move()
            if world.violations:
                break
        if not world.violations:
            world.finish()
    yield from world.violations
