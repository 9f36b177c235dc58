"""Rebuilds what a route's run log said: a new layout, whose first snapshots come from the index and from both clusters.

It changes the layout as `replicator.kafka.layout` does: the new one is announced, whoever copies is fenced, also who comes later,
and the snapshots are written with the layout's record in one transaction. Shards whose run log is sound keep their states as they are. What is decided for each
partition of the others, and why that loses nothing, is in `replicator.copying.rebuild`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from parallax.config.config import Config
from parallax.domain.ids import (
    ClusterName,
    Route,
    TargetOffset,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.index_rows import LineageRecord, layout_of
from parallax.domain.runs import Run
from parallax.errors import ParallaxError, RefusedError
from parallax.ports.clusters import TopicInfo
from parallax.ports.index import MappingIndex
from parallax.runtime.deadline import Deadline
from replicator.copying.rebuild import PartitionSide, Remains, Restored, last_of, restored
from replicator.copying.recovery import RunLogError, RunLogProblem
from replicator.copying.session_end import SessionError
from replicator.copying.state import PartitionState
from replicator.kafka.kept_records import KeptRecords, RecordOffsets
from replicator.kafka.layout import (
    FIRST_LAYOUT,
    PATHS,
    Writer,
    change_of_layout,
    fence_shards,
    other_run_log,
    read_layout,
    shard_in,
    snapshots,
    topics_chosen,
    unexplained_in,
)
from replicator.kafka.layout_record import LAYOUTS_TOPIC, LayoutRecord
from replicator.kafka.run_log import KafkaRunLog, SystemClock, load_states, run_log_topic
from replicator.kafka.spans import Span, count_of, row_spans, spans_of, without
from replicator.kafka.topics import TopicAdmin, compacted_plan, ranges_of_all, run_log_plan
from replicator.kafka.transactions.hanging import settle
from replicator.kafka.transactions.hanging_changes import settle_changes
from replicator.lease import Lease, shard_of
from replicator.mapping.feed import IndexFeed

log = structlog.get_logger(__name__)

_TIMEOUT_MS = 30_000


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What a rebuild does, or has done.

    Attributes:
        layout: the number of the new layout.
        shards: into how many shards it cuts the route.
        refused: why the run log of a shard is refused, by shard of the present layout.
        kept: the states of shards whose run log is sound.
        partitions: how each partition of the other shards goes on.
        notes: what could not be known.
    """

    route: Route
    layout: int
    shards: int
    refused: Mapping[int, RunLogError]
    kept: Mapping[TopicPartition, PartitionState]
    partitions: Sequence[Restored]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def twice(self) -> int | None:
        """At most so many records come twice in all; None: of some partition nobody knows."""
        counts = [item.twice for item in self.partitions]
        return None if None in counts else sum(count for count in counts if count is not None)

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON types."""
        return {
            "route": str(self.route),
            "layout": self.layout,
            "shards": self.shards,
            "refused": {str(shard): str(error) for shard, error in self.refused.items()},
            "kept_partitions": len(self.kept),
            "records_twice_at_most": self.twice,
            "notes": list(self.notes),
            "partitions": [
                {
                    "topic": item.topic_partition.topic,
                    "partition": item.topic_partition.partition,
                    "going_on": item.going_on.value,
                    "source_next": item.source_next,
                    "records_twice_at_most": item.twice,
                    "why": item.why,
                }
                for item in self.partitions
            ],
        }


class Rebuild:
    """Rebuilds one route.

    Args:
        config: all configuration.
        route: the route.
        index: what is known of it.
        open_cluster: the clusters of its two ends.
        record_offsets: reads the target.
        anew: copy everything again that the sources hold, in the shards whose run log is refused.
    """

    def __init__(
        self,
        config: Config,
        route: Route,
        index: MappingIndex,
        open_cluster: Callable[[ClusterName], TopicAdmin],
        record_offsets: RecordOffsets,
        *,
        anew: bool = False,
    ) -> None:
        self._config = config
        self._route = route
        self._index = index
        self._source = open_cluster(config.source_cluster(route))
        self._target = open_cluster(aggregate_cluster(route.target))
        self._record_offsets = record_offsets
        self._anew = anew
        self._kept = KeptRecords(index, record_offsets, self._others)
        self._run_log = run_log_topic(config, route.source)

    def plan(self) -> RebuildPlan:
        """What would be done now; nothing is changed. The route may still be copied meanwhile.

        Raises:
            RefusedError: nothing is to be rebuilt.
            UnavailableError: the index or a cluster does not answer.
        """
        return self._plan(read_layout(self._config, self._route), self._found())

    def execute(self) -> RebuildPlan:
        """Announce the new layout, fence whoever copies the route, and write the layout with its first snapshots.

        Is to be called again after a crash: once the layout is announced nobody copies until it is settled.

        Returns:
            What was done.

        Raises:
            RefusedError: nothing is to be rebuilt.
            FencedError: another process is changing the layout of the same route.
            UnavailableError: the index or a cluster does not answer.
        """
        config, route = self._config, self._route
        replicas = config.cluster(self._target.cluster).replication_factor
        self._target.create(compacted_plan(LAYOUTS_TOPIC, replicas), Deadline.after_ms(_TIMEOUT_MS))
        settle_changes(config, self._target.cluster)
        with change_of_layout(config, route) as writer:
            found = self._found()
            current = self._announced(writer, found)
            self._end_owners(current or self._forgotten_layout())
            plan = self._plan(current, found)
            topic = self._topic(plan.shards)
            settled = LayoutRecord(
                plan.layout,
                plan.shards,
                settled=True,
                run_log=self._run_log,
                run_log_id=topic.topic_id,
                topics=topics_chosen(config, route),
            )
            states = dict(plan.kept)
            states |= {item.topic_partition: item.state for item in plan.partitions if item.state is not None}
            changes = [change for item in plan.partitions for change in item.changes]
            writer.commit(
                [*snapshots(config, route, settled, states, changes), writer.layout_record(settled)]
            )
        log.info(
            "run_log_rebuilt",
            route=str(route),
            layout=plan.layout,
            partitions=len(states),
            records_twice_at_most=plan.twice,
        )
        return plan

    def _announced(self, writer: Writer, found: TopicInfo | None) -> LayoutRecord | None:
        """The layout that follows, not settled: who begins to copy from now on finds it, and leaves.

        Without a layout record nobody begins to copy.

        Raises:
            RefusedError: the run log is sound.
        """
        current = read_layout(self._config, self._route)
        if current is None or not current.settled:
            return current
        self._end_owners(current)  # what hangs could not be read; who copies a sound shard begins again
        if not self._refused(current, found)[0]:
            raise self._sound()
        following = replace(current, layout=current.layout + 1, settled=False, previous_shards=current.shards)
        writer.commit([writer.layout_record(following)])
        return following

    def _sound(self) -> RefusedError:
        return RefusedError(
            f"{self._target.cluster}: the run log of {self._route} is sound: there is nothing to rebuild"
        )

    # --- the run log that there is -------------------------------------------------------------------------------

    def _found(self) -> TopicInfo | None:
        return self._target.topics().get(self._run_log)

    def _topic(self, shards: int) -> TopicInfo:
        found = self._found()
        if found is None:
            replicas = self._config.cluster(self._target.cluster).replication_factor
            retention_ms = self._config.replicator.run_log_retention_ms
            plan = run_log_plan(self._run_log, shards, retention_ms, replicas)
            found = self._target.create(plan, Deadline.after_ms(_TIMEOUT_MS))
        if found.partitions < shards:
            found = self._target.grow(self._run_log, shards, Deadline.after_ms(_TIMEOUT_MS))
        return found

    def _forgotten_layout(self) -> LayoutRecord:
        """What stands in for a layout record that is gone: the newest layout that wrote a row."""
        versions = [
            record.version
            for topic in self._index.topics(self._route)
            for record in self._index.lineages(self._route, topic)
        ]
        newest = max((layout_of(version) for version in versions), default=FIRST_LAYOUT)
        found = self._found()
        shards = max(self._config.replicator.shards_per_route, 0 if found is None else found.partitions)
        run_log_id = "" if found is None else found.topic_id
        return LayoutRecord(newest, shards, settled=True, run_log=self._run_log, run_log_id=run_log_id)  # type: ignore[arg-type]

    def _leases(self, layout: LayoutRecord, route: Route | None = None) -> list[Lease]:
        """The shards that hold the newest states: those of the layout before, while a change is not settled."""
        number, shards = layout.copied_as
        return [Lease(route or self._route, shard, shards, number, 0, 0) for shard in range(shards)]

    def _end_owners(self, layout: LayoutRecord) -> None:
        """Fence whoever copies, and finish what they have left."""
        fence_shards(self._config, self._route, *layout.copied_as)
        self._topic(layout.shards)  # without one nothing that hangs could be ended
        self._finish(layout)

    def _finish(self, layout: LayoutRecord) -> None:
        """End what hangs, and index what is left of the run log: the layout that follows looks for neither."""
        for lease in self._leases(layout):
            reader = KafkaRunLog(self._config, self._route, lease.shard)
            topic_id = reader.topic_id()
            if topic_id is None:
                continue
            with suppress(SessionError):
                settle(self._config, lease, PATHS)
            if topic_id != layout.run_log_id:
                continue
            feed = IndexFeed(
                self._index,
                reader,
                route=self._route,
                layout=lease.layout,
                shard=lease.shard,
                clock=SystemClock(),
            )
            feed.note_end(reader.end())
            with suppress(SessionError):
                while not feed.complete:
                    feed.turn()

    def _refused(
        self, current: LayoutRecord | None, found: TopicInfo | None
    ) -> tuple[dict[int, RunLogError], dict[TopicPartition, PartitionState]]:
        """The shards whose run log is refused, each with why, and the states of the others."""
        if current is None:
            where = f"{self._target.cluster}: {self._route}"
            error = RunLogError(
                RunLogProblem.LAYOUT_MISSING, where, f"{LAYOUTS_TOPIC} has no record of the route"
            )
            return dict.fromkeys(range(self._config.replicator.shards_per_route), error), {}
        if found is None or found.topic_id != current.run_log_id:
            error = other_run_log(current, None if found is None else found.topic_id, self._route)
            return {lease.shard: error for lease in self._leases(current)}, {}
        refused: dict[int, RunLogError] = {}
        states: dict[TopicPartition, PartitionState] = {}
        for lease in self._leases(current):
            reader = KafkaRunLog(self._config, self._route, lease.shard)
            known_end = self._index.indexed_up_to(self._route, lease.layout, lease.shard)
            try:
                states |= load_states(
                    reader,
                    shard_in(current, lease),
                    unexplained=unexplained_in(self._config, lease),
                    known_end=known_end,
                )[0]
            except RunLogError as error:
                if error.problem is RunLogProblem.RUN_LOG_NEWER:
                    raise  # nothing is lost: a rebuild would throw away what only the newer release can read
                refused[lease.shard] = error
        return refused, states

    # --- what is left to know ------------------------------------------------------------------------------------

    def _plan(self, current: LayoutRecord | None, found: TopicInfo | None) -> RebuildPlan:
        refused, kept = self._refused(current, found)
        if not refused and not (current is not None and current.is_rebuilt):
            raise self._sound()
        known = current or self._forgotten_layout()
        old_shards = len(self._leases(known)) if current is not None else len(refused)
        notes: list[str] = []
        remains = self._remains(lambda item: shard_of(item, old_shards) in refused, notes)
        return RebuildPlan(
            self._route,
            known.layout + 1 if known.settled else known.layout,
            known.shards if current is not None else self._config.replicator.shards_per_route,
            refused,
            kept,
            [restored(item, anew=self._anew) for item in remains],
            notes,
        )

    def _remains(self, wanted: Callable[[TopicPartition], bool], notes: list[str]) -> list[Remains]:
        sources, targets = self._source.topics(), self._target.topics()
        records: dict[TopicPartition, list[LineageRecord]] = defaultdict(list)
        newest: dict[tuple[TopicPartition, Any], Run] = {}
        for topic in self._index.topics(self._route):
            for record in self._index.lineages(self._route, topic):
                records[record.partition.topic_partition].append(record)
            for (partition, lineage), stamped in self._index.newest(self._route, topic).items():
                newest[TopicPartition(topic, partition), lineage] = stamped.row
        names = self._config.route_topics(self._route)
        # By the names of their copies, as everything else here.
        sources = {copy: info for name, info in sources.items() if (copy := names.copy_of(name)) is not None}
        there = {
            TopicPartition(name, partition)
            for name, info in targets.items()
            if names.make(name)
            for partition in range(info.partitions)
        }
        items = sorted(item for item in {*records, *there} if wanted(item))
        # In this order: whatever lies below these ends is in some run log by the time that those are read.
        ends = ranges_of_all(self._target, [item for item in items if item in there])
        asked = {
            TopicPartition(sources[item.topic].topic, item.partition): item
            for item in items
            if item.topic in sources and item.partition < sources[item.topic].partitions
        }
        starts = {asked[own]: held for own, held in ranges_of_all(self._source, [*asked]).items()}
        unindexed = self._unindexed_spans(notes)
        policies = self._target.configs([*{item.topic for item in ends}])
        found = []
        for item in items:
            last = last_of(records[item]) if records[item] else None
            target = PartitionSide(targets[item.topic].topic_id, ends[item]) if item in ends else None
            source = PartitionSide(sources[item.topic].topic_id, starts[item]) if item in starts else None
            row = None if last is None else newest.get((item, last.lineage))
            cut = False
            compacted = "compact" in policies.get(item.topic, {}).get("cleanup.policy", "delete")
            kept_to = None
            if last is not None and target is not None and target.topic_id == last.lineage.target_topic_id:
                row, cut = self._within(last, row, TargetOffset(target.log.high_watermark))
                kept_to = self._kept.kept_to(last, row, target, unindexed, compacted=compacted)
                if kept_to is not None:
                    row, cut = self._within(last, row, kept_to)
            same = last is not None and target is not None and target.topic_id == last.lineage.target_topic_id
            floor = last.target_first if last is not None and same else TargetOffset(0)
            floor = row.target_end if row is not None and same else floor
            unexplained: int | None = 0
            if target is not None:
                unexplained = self._unexplained(item, target, floor, unindexed, compacted=compacted)
            if target is not None and kept_to is not None:
                # What follows is none of the lineage's: to it the target ends there.
                target = replace(target, log=replace(target.log, high_watermark=kept_to))
            found.append(Remains(item, records[item], row, cut, source, target, unexplained))
        return found

    def _within(self, last: LineageRecord, row: Run | None, end: TargetOffset) -> tuple[Run | None, bool]:
        """The newest row below the target's end, and whether the lineage has others above."""
        if row is None or row.target_end <= end:
            return row, False
        around = self._index.rows_at_target(last.partition, last.lineage, end)
        below = [item for item in around if item.target_start <= end]
        if not below:
            return None, True
        newest = below[-1]
        return replace(newest, count=min(newest.count, end - newest.target_start)), True

    def _unexplained(
        self,
        item: TopicPartition,
        target: PartitionSide,
        floor: TargetOffset,
        unindexed: Mapping[TopicPartition, Collection[Span]],
        *,
        compacted: bool,
    ) -> int | None:
        """How many records above the floor no row of another route explains; None: that can't be known."""
        end = target.log.high_watermark
        if end <= floor:
            return 0
        if target.log.low_watermark > floor or compacted:
            return None
        rows = [*unindexed.get(item, ()), *self._kept.spans_of_others(item, target, floor, end)]
        return count_of(without(spans_of(self._record_offsets(item, (floor, end))), rows))

    def _others(self) -> Iterator[Route]:
        return (route for route in self._config.routes_into(self._route.target) if route != self._route)

    def _unindexed_spans(self, notes: list[str]) -> Mapping[TopicPartition, Collection[Span]]:
        """The same of what other routes have committed, and the index does not have yet."""
        spans: dict[TopicPartition, list[Span]] = defaultdict(list)
        for route in self._others():
            try:
                layout = read_layout(self._config, route)
                if layout is None:
                    continue
                for lease in self._leases(layout, route):
                    reader = KafkaRunLog(self._config, route, lease.shard)
                    start = max(reader.start(), self._index.indexed_up_to(route, lease.layout, lease.shard))
                    records = reader.read(start, reader.stable_end())
                    for item, rows in row_spans(entry for _, entry in records if entry is not None).items():
                        spans[item] += rows
            except ParallaxError as error:
                notes.append(
                    f"the run log of {route} can't be read, so its newest records count as unexplained: {error}"
                )
        return spans
