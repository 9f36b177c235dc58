"""A small world for the offset service: aggregate logs whose every record is known, with their index."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from offsetsvc.resume.call import FailoverRequest
from offsetsvc.service import UseCases
from parallax.config.config import Config
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    GroupName,
    Lineage,
    RegionName,
    Route,
    RoutePartition,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
    aggregate_cluster,
    region_of,
)
from parallax.domain.index_rows import LineageRecord, RowBatch
from parallax.domain.place import KeptEpoch, LogRange
from parallax.domain.runs import LostRange, Run, watermark
from parallax.errors import ClusterUnavailableError, ConfigError, FencedError
from parallax.ports.clusters import GroupState, PositionTime, TopicInfo
from tests.memory.audit import MemoryAuditLog
from tests.memory.cql import MemoryKeyspace, WrittenStores
from tests.memory.groups import MemoryGroupStore, MemoryOperationJournal, MemoryPrimaryStore
from tests.memory.index import MemoryMappingIndex

TOPIC = TopicName("trips")
GROUP = GroupName("billing")
NOW_MS = 1_700_000_000_000

Record = tuple[RegionName, int]
"""Source region and source record offset."""


class Control(int):
    """The time of a control record, which ends a transaction: the broker's, when it wrote it."""


@dataclass
class FakeCluster:
    """A `ClusterReader` whose answers tests set; it may be away.

    ``times`` are the records'; ``epochs`` are where leader epochs began, 0 at the beginning unless they are set.
    """

    cluster: ClusterName
    infos: dict[TopicName, TopicInfo] = field(default_factory=dict)
    ranges: dict[TopicPartition, LogRange] = field(default_factory=dict)
    commits: dict[GroupName, dict[TopicPartition, GroupCommit]] = field(default_factory=dict)
    times: dict[TopicPartition, Sequence[int]] = field(default_factory=dict)
    open_transactions: dict[GroupName, frozenset[TopicPartition]] = field(default_factory=dict)
    refused: dict[GroupName, str] = field(default_factory=dict)
    members: dict[GroupName, int] = field(default_factory=dict)
    epochs: dict[TopicPartition, Mapping[int, int]] = field(default_factory=dict)
    away: bool = False
    asked: int = 0

    def _answer(self) -> None:
        self.asked += 1
        if self.away:
            raise ClusterUnavailableError(f"{self.cluster}: no broker answered")

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        self._answer()
        return self.infos

    def log_ranges(
        self, partitions: Collection[TopicPartition], *, fresh: bool = False
    ) -> Mapping[TopicPartition, LogRange]:
        del fresh  # it remembers nothing
        self._answer()
        return {item: self.ranges[item] for item in partitions if item in self.ranges}

    def kept_epochs(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, KeptEpoch]:
        self._answer()
        found = {}
        for item in [item for item in epochs if item in self.ranges]:
            began = {**self.epochs.get(item, {0: 0})}
            newest = max([epoch for epoch in began if epoch <= epochs[item]], default=min(began))
            later = [began[epoch] for epoch in began if epoch > newest]
            if epochs[item] <= max(began):
                found[item] = KeptEpoch(newest, TargetOffset(min([*later, self.ranges[item].high_watermark])))
        return found

    def time_at(self, partition: TopicPartition, position: TargetOffset) -> PositionTime | None:
        self._answer()
        log = self.ranges.get(partition)
        if log is None or not log.low_watermark <= position <= log.high_watermark:
            return None
        times = [None if isinstance(at_ms, Control) else at_ms for at_ms in self.times[partition]]
        above = [at_ms for at_ms in times[position:] if at_ms is not None]
        below = [at_ms for at_ms in times[log.low_watermark : position] if at_ms is not None]
        return PositionTime(above[0] if above else below[-1], not above) if above or below else None

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> TargetOffset | None:
        self._answer()
        log = self.ranges.get(partition)
        if log is None:
            return None
        for offset in range(log.low_watermark, log.high_watermark):
            if self.times[partition][offset] >= timestamp_ms:  # brokers count control records, too
                return TargetOffset(offset)
        return log.high_watermark

    def lay(self, partition: TopicPartition, times: Sequence[int], low: int = 0) -> None:
        """A log of records of these times, of which retention took those below ``low``."""
        self.times[partition] = times
        self.ranges[partition] = LogRange(TargetOffset(low), TargetOffset(len(times)))

    def groups(
        self, chosen: Callable[[GroupName], bool] | None = None, *, resting: Collection[GroupName] = ()
    ) -> Sequence[GroupState]:
        del resting  # more may be told of them
        self._answer()
        return [
            GroupState(group, "Empty", self.members.get(group, 0))
            for group in self.commits
            if chosen is None or chosen(group)
        ]

    def committed(self, group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
        self._answer()
        if group in self.refused:
            raise ConfigError(self.refused[group])
        return self.commits.get(group, {})

    def unsettled(self, group: GroupName) -> frozenset[TopicPartition]:
        self._answer()
        return self.open_transactions.get(group, frozenset())


@dataclass
class Writer(FakeCluster):
    """A cluster that can be written to; what happens around a write is the test's."""

    assigned: dict[GroupName, frozenset[TopicName]] = field(default_factory=dict)
    own_instances: set[str] = field(default_factory=set)
    written: list[Mapping[TopicPartition, GroupCommit]] = field(default_factory=list)
    after_write: Callable[[], None] = lambda: None

    def groups(
        self, chosen: Callable[[GroupName], bool] | None = None, *, resting: Collection[GroupName] = ()
    ) -> Sequence[GroupState]:
        del resting  # more may be told of them
        self._answer()
        return [
            GroupState(
                group,
                "Stable",
                members := self.members.get(group, 0),
                self.assigned.get(group, frozenset()) if members else frozenset(),
                frozenset(self.own_instances),
                self.refused.get(group, ""),
            )
            for group in self.commits
            if chosen is None or chosen(group)
        ]

    def committed(self, group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
        return dict(super().committed(group))

    def committed_each(
        self, groups: Collection[GroupName]
    ) -> Mapping[GroupName, Mapping[TopicPartition, GroupCommit] | ConfigError]:
        found: dict[GroupName, Mapping[TopicPartition, GroupCommit] | ConfigError] = {}
        for group in groups:
            try:
                found[group] = self.committed(group)
            except ConfigError as error:
                found[group] = error
        return found

    def dismiss(self, group: GroupName, instances: Collection[str]) -> None:
        self._answer()
        self.members[group] -= len(self.own_instances.intersection(instances))
        self.own_instances.difference_update(instances)

    def commit_for(self, group: GroupName, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        self._answer()
        if not commits:
            return
        if self.members.get(group):
            raise FencedError(f"{group} has members")
        self.commits.setdefault(group, {}).update(commits)
        self.written.append(dict(commits))
        self.after_write()


@dataclass
class _Copying:
    """How far one route is with one partition."""

    lineage: Lineage
    source_next: int = 0
    last_run_end: int = 0
    sequence: int = 0
    epoch: int = 0


class World:
    """Regions, each with an aggregate cluster; records are copied at the test's word.

    Args:
        regions: their names.
        partitions: of the topic in every aggregate cluster.
        lacking: regions and partitions that their regional cluster's topic does not have (`recreate_source` adds one).
        uncopied: regions of which no route has ever copied the topic.
        service: settings of this section.
        sync: likewise.
        rows_per_block: of the index.
    """

    def __init__(
        self,
        regions: Sequence[str] = ("a", "b"),
        *,
        partitions: int = 1,
        lacking: Collection[tuple[str, int]] = (),
        uncopied: Collection[str] = (),
        service: Mapping[str, Any] | None = None,
        sync: Mapping[str, Any] | None = None,
        drill: Mapping[str, Any] | None = None,
        rows_per_block: int = 8,
    ) -> None:
        self.regions = [RegionName(name) for name in regions]
        cluster = {"bootstrap_servers": "127.0.0.1:1"}
        self.config = Config.model_validate(
            {
                "regions": {name: {"regional": cluster, "aggregate": cluster} for name in regions},
                "cassandra": {"contact_points": ["127.0.0.1"]},
                "service": service or {},
                "sync": sync or {},
                "drill": drill or {},
            }
        )
        self.index = MemoryMappingIndex(rows_per_block)
        self.groups = MemoryGroupStore()
        self.primaries = MemoryPrimaryStore()
        self.operations = MemoryOperationJournal()
        self.status = WrittenStores(MemoryKeyspace()).status
        self.audit = MemoryAuditLog()
        self.clusters = {
            aggregate_cluster(region): FakeCluster(aggregate_cluster(region)) for region in self.regions
        }
        self.now_ms = NOW_MS
        self.logs: dict[tuple[ClusterName, int], list[Record | None]] = defaultdict(list)
        self._copying: dict[RoutePartition, _Copying] = {}
        self._leaders: dict[RegionName, list[int]] = {region: [0] for region in self.regions}
        self._version = 0
        self._lacking = set(lacking)
        self._uncopied = set(uncopied)
        for region in self.regions:
            self.create_topic(region, partitions)

    # --- what happens in it --------------------------------------------------------------------------------

    def let_write(self) -> None:
        """Make every cluster one at which the offsets of groups can be set."""
        for name, cluster in self.clusters.items():
            self.clusters[name] = Writer(name, cluster.infos, cluster.ranges)

    def create_topic(self, region: RegionName | str, partitions: int = 1, generation: str = "1") -> None:
        """The topic in a region's aggregate cluster, empty, with a lineage for every route into it."""
        name = aggregate_cluster(RegionName(region))
        target_id = TopicId(f"{name}-{generation}")
        self.clusters[name].infos[TOPIC] = TopicInfo(TOPIC, target_id, partitions)
        for partition in range(partitions):
            self.logs[name, partition] = []
            self._end_at(name, partition)
            for source in self.regions:
                if source in self._uncopied:
                    continue
                item = self.item(source, region, partition)
                before = self._copying.get(item)
                source_id = "" if (source, partition) in self._lacking else f"regional-{source}-1"
                lineage = Lineage(TopicId(source_id), target_id)
                copying = _Copying(lineage, sequence=0 if before is None else before.sequence + 1)
                self._copying[item] = copying
                self._open(item, copying, SourceOffset(0))

    def grow(self) -> None:
        """The topic gets another partition, everywhere, with a lineage for every route into it."""
        for name, cluster in self.clusters.items():
            info = cluster.infos[TOPIC]
            cluster.infos[TOPIC] = replace(info, partitions=info.partitions + 1)
            self.logs[name, info.partitions] = []
            self._end_at(name, info.partitions)
            for source in self.regions:
                item = self.item(source, region_of(name), info.partitions)
                lineage = Lineage(TopicId(f"regional-{source}-1"), info.topic_id)
                self._copying[item] = _Copying(lineage)
                self._open(item, self._copying[item], SourceOffset(0))

    def empty_topic(self, topic: TopicName, partitions: int = 1) -> None:
        """Another topic in every aggregate cluster, with no record and no row in the index."""
        for name, cluster in self.clusters.items():
            cluster.infos[topic] = TopicInfo(topic, TopicId(f"{name}-{topic}"), partitions)
            for partition in range(partitions):
                place = TopicPartition(topic, partition)
                cluster.ranges[place] = LogRange(TargetOffset(0), TargetOffset(0))

    def copy(self, source: str, target: str, count: int, partition: int = 0, *, skip: int = 0) -> None:
        """Copy the source's next ``count`` records, after ``skip`` offsets that hold none."""
        item, copying = self.item(source, target, partition), self.copying(source, target, partition)
        log = self.logs[aggregate_cluster(item.route.target), partition]
        start = copying.source_next + skip
        leaders = self._leaders[item.route.source]
        while count:
            epoch = bisect_right(leaders, start) - 1
            fitting = min(count, leaders[epoch + 1] - start) if epoch + 1 < len(leaders) else count
            before = SourceOffset(copying.last_run_end)
            run = Run(SourceOffset(start), TargetOffset(len(log)), fitting, before, epoch)
            log.extend((item.route.source, offset) for offset in range(start, start + fitting))
            start = copying.source_next = copying.last_run_end = run.source_end
            copying.epoch = epoch
            count -= fitting
            self._write(item, copying, [run])
        self._end_at(aggregate_cluster(item.route.target), partition)

    def marker(self, target: str, partition: int = 0) -> None:
        """A control record at the end of an aggregate partition."""
        name = aggregate_cluster(RegionName(target))
        self.logs[name, partition].append(None)
        self._end_at(name, partition)

    def watermark(self, source: str, target: str, partition: int = 0) -> None:
        """Say that the route has nothing more, up to the target's end."""
        item, copying = self.item(source, target, partition), self.copying(source, target, partition)
        row = watermark(
            source_next=SourceOffset(copying.source_next),
            target_end=TargetOffset(len(self.logs[aggregate_cluster(item.route.target), partition])),
            last_run_end=SourceOffset(copying.last_run_end),
            source_leader_epoch=copying.epoch,
        )
        self._write(item, copying, [row])

    def watermarks(self, partition: int = 0) -> None:
        """A watermark of every route."""
        for source in self.regions:
            for target in self.regions:
                self.watermark(source, target, partition)

    def lose(self, source: str, target: str, count: int, partition: int = 0) -> None:
        """Retention takes the source's next ``count`` records before they are copied."""
        item, copying = self.item(source, target, partition), self.copying(source, target, partition)
        end = len(self.logs[aggregate_cluster(item.route.target), partition])
        start = copying.source_next
        gap = LostRange(SourceOffset(start), SourceOffset(start + count), TargetOffset(end))
        copying.source_next = copying.last_run_end = start + count
        self._write(item, copying, [], [gap])

    def new_leader(self, source: str) -> None:
        """A new leader epoch at a source, from the first record on that nobody has copied yet."""
        region = RegionName(source)
        ends = [copying.source_next for item, copying in self._copying.items() if item.route.source == region]
        self._leaders[region].append(max(ends))

    def trim(self, target: str, low: int, partition: int = 0) -> None:
        """Retention on an aggregate cluster."""
        name = aggregate_cluster(RegionName(target))
        item = TopicPartition(TOPIC, partition)
        self.clusters[name].ranges[item] = LogRange(
            TargetOffset(low), self.clusters[name].ranges[item].high_watermark
        )

    def lose_tail(self, target: str, cut: int, partition: int = 0, lost_epoch: int = UNKNOWN_EPOCH) -> None:
        """An unclean leader election on an aggregate cluster: every route copies again from there, in a new lineage.

        What is written afterwards has the leader epoch ``lost_epoch``.
        """
        name = aggregate_cluster(RegionName(target))
        del self.logs[name, partition][cut:]
        self._end_at(name, partition)
        for source in self.regions:
            copying = self.copying(source, target, partition)
            copying.lineage = copying.lineage._replace(generation=copying.lineage.generation + 1)
            copying.sequence += 1
            kept = [record[1] + 1 for record in self.logs[name, partition] if record and record[0] == source]
            copying.source_next = copying.last_run_end = max(kept, default=0)
            item = self.item(source, target, partition)
            self._open(item, copying, SourceOffset(copying.source_next), lost_epoch)

    def recreate_source(self, source: str, generation: str = "2", partition: int = 0) -> None:
        """A source's topic is deleted and created anew: every route closes its lineage and begins another one."""
        for target in self.regions:
            item, copying = self.item(source, target, partition), self.copying(source, target, partition)
            (record,) = (
                found for found in self.index.lineages(item.route, TOPIC) if found.lineage == copying.lineage
            )
            self._version += 1
            ended = replace(record, closed_at=SourceOffset(copying.source_next), version=self._version)
            self.index.write_lineages([ended])
            lineage = copying.lineage._replace(source_topic_id=TopicId(f"regional-{source}-{generation}"))
            self._copying[item] = _Copying(lineage, sequence=copying.sequence + 1)
            self._open(item, self._copying[item], SourceOffset(0))

    def commit(
        self, target: str, next_offset: int, partition: int = 0, leader_epoch: int = UNKNOWN_EPOCH
    ) -> None:
        """The group commits at an aggregate cluster."""
        commits = self.clusters[aggregate_cluster(RegionName(target))].commits.setdefault(GROUP, {})
        commits[TopicPartition(TOPIC, partition)] = GroupCommit(TargetOffset(next_offset), leader_epoch, "")

    # --- what is asked of it -------------------------------------------------------------------------------

    def service(self, **options: Any) -> UseCases:
        """An offset service of the first region over this world."""
        return UseCases(
            self.config,
            self.regions[0],
            self.index,
            self.groups,
            self.clusters,
            self.primaries,
            self.operations,
            self.status,
            now_ms=lambda: self.now_ms,
            audit=self.audit,
            cache=options.pop("cache", False),
            writers={name: item for name, item in self.clusters.items() if isinstance(item, Writer)},
            **options,
        )

    def request(
        self, origin: str, target: str, next_offset: int | None = None, partition: int = 0
    ) -> FailoverRequest:
        """A question about one partition."""
        item = TopicPartition(TOPIC, partition)
        return FailoverRequest(
            GROUP,
            aggregate_cluster(RegionName(origin)),
            aggregate_cluster(RegionName(target)),
            {} if next_offset is None else {item: TargetOffset(next_offset)},
            only=item,
        )

    def records(self, target: str, partition: int = 0) -> list[Record | None]:
        """An aggregate log."""
        return self.logs[aggregate_cluster(RegionName(target)), partition]

    def cluster(self, region: str) -> FakeCluster:
        """A region's aggregate cluster."""
        return self.clusters[aggregate_cluster(RegionName(region))]

    def item(self, source: str, target: str, partition: int = 0) -> RoutePartition:
        """A partition of a route."""
        return RoutePartition(Route(RegionName(source), RegionName(target)), TopicPartition(TOPIC, partition))

    def copying(self, source: str, target: str, partition: int = 0) -> _Copying:
        """How far a route is."""
        return self._copying[self.item(source, target, partition)]

    def _open(
        self,
        item: RoutePartition,
        copying: _Copying,
        source_first: SourceOffset,
        lost_epoch: int = UNKNOWN_EPOCH,
    ) -> None:
        self._version += 1
        target_first = TargetOffset(
            len(self.logs[aggregate_cluster(item.route.target), item.topic_partition.partition])
        )
        self.index.write_lineages(
            [
                LineageRecord(
                    item,
                    copying.lineage,
                    copying.sequence,
                    source_first,
                    target_first,
                    None,
                    self._version,
                    lost_epoch,
                )
            ]
        )

    def _write(
        self, item: RoutePartition, copying: _Copying, rows: Sequence[Run], lost: Sequence[LostRange] = ()
    ) -> None:
        self._version += 1
        self.index.write_rows(
            [RowBatch(item, copying.lineage, tuple(rows), tuple(lost), self.now_ms, self._version)]
        )

    def _end_at(self, name: ClusterName, partition: int) -> None:
        item = TopicPartition(TOPIC, partition)
        before = self.clusters[name].ranges.get(item)
        low = TargetOffset(0) if before is None else before.low_watermark
        self.clusters[name].ranges[item] = LogRange(low, TargetOffset(len(self.logs[name, partition])))
