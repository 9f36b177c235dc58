"""One route: the processes that cut it into shards, hold its leases and carry its mapping into the index."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from parallax.domain.ids import Lineage, Route, TopicPartition
from parallax.domain.runs import LostRange
from parallax.errors import ClusterUnavailableError, FencedError, RefusedError, StoreUnavailableError
from parallax.runtime.retry import RetryPolicy
from parallax.v1.runlog_pb2 import Entry
from replicator.copying.recovery import RunLogError, RunLogProblem
from replicator.copying.session_end import SessionError
from replicator.copying.state import lineage_of, lost_of, topic_partition_of
from replicator.kafka.layout import ensure_layout
from replicator.kafka.layout_record import LAYOUTS_TOPIC, LayoutRecord
from replicator.kafka.rebuild import RebuildPlan
from replicator.kafka.run_log import run_log_topic
from replicator.lease import Lease, LeaseProgress, shard_of
from replicator.mapping.feed import IndexFeed
from replicator.shard import copy_until_over, earlier_feeds
from tests.worlds.sim.doors import SimClock, SimConnector
from tests.worlds.sim.kafka import Log
from tests.worlds.sim.run_logs import SimRunLog, Written, entry_of
from tests.worlds.sim.schedule import Actor
from tests.worlds.sim.sides import TOPIC, Aggregate, Regional

if TYPE_CHECKING:
    from tests.worlds.sim.world import World

_FEED_BOUND_ENTRIES = 8
_RETRY_MS = 300


@dataclass(eq=False)
class Owner:
    """A process that holds a lease.

    Attributes:
        clock: its own.
    """

    lease: Lease
    actor: Actor
    clock: SimClock

    @property
    def over(self) -> bool:
        return self.actor.over


class RouteLife:
    """A route of a world, from its first layout to its last lease."""

    def __init__(self, world: World, regional: Regional, aggregate: Aggregate) -> None:
        self.world = world
        self.regional = regional
        self.aggregate = aggregate
        self.route = Route(regional.region, aggregate.region)
        self.run_log = run_log_topic(world.config, regional.region)
        self.owners: list[Owner] = []
        self.run_log_harmed = False
        self.gone_lost_ranges: list[tuple[TopicPartition, Lineage, LostRange]] = []
        """What entries told that the run log has lost, perhaps before they were indexed."""
        self.shards = 1
        self.refused = False
        """Whether a process has said that it stands still because the run log was harmed, and nobody has mended that."""
        self.ever_refused = False
        self.rebuilt: list[RebuildPlan] = []
        """What operators did about it."""
        self._planners: list[Actor] = []
        self._operators: list[Actor] = []
        self._started = 0
        self._checked_at = -1

    # --- processes ---------------------------------------------------------------------------------------------

    def plan(self, shards: int) -> None:
        """A driver starts: it sees to the layout, then leases are held."""

        def work() -> None:
            while not self.world.finish:
                try:
                    layout = ensure_layout(
                        self.world.config,
                        self.route,
                        shards,
                        reached=lambda _step: self.world.schedule.step(),
                    )
                except FencedError:
                    return
                except RunLogError as error:  # this route is left out until somebody has mended it
                    self._note(str(error))
                    return
                except (ClusterUnavailableError, SessionError) as error:
                    self._note(str(error))
                    self.world.schedule.sleep(_RETRY_MS)
                else:
                    self.own_all(layout)
                    return

        self._planners.append(self.world.schedule.spawn(f"driver of {self.route}", work))

    def rebuild(self, *, anew: bool) -> None:
        """An operator makes the run log anew, and starts the replicator again."""
        world = self.world

        def work() -> None:
            while not world.finish:
                try:
                    self.rebuilt.append(world.rebuild_of(self.route, anew=anew).execute())
                except FencedError:
                    return
                except RefusedError:
                    self.refused = False
                    return
                except (ClusterUnavailableError, SessionError, StoreUnavailableError) as error:
                    world.tell(f"rebuild of {self.route}: {error}")
                    world.schedule.sleep(_RETRY_MS)
                else:
                    self.refused = False
                    world.tell(f"rebuilt: {self.rebuilt[-1].to_json()}")
                    self.plan(self.rebuilt[-1].shards)
                    return

        self._operators.append(world.schedule.spawn(f"operator of {self.route}", work))

    def drivers(self) -> list[Actor]:
        """Processes that are seeing to the layout."""
        return [actor for actor in (*self._planners, *self._operators) if not actor.over]

    def own_all(self, layout: LayoutRecord) -> None:
        """Start a holder for each shard of a layout."""
        for shard in range(layout.shards):
            self.own(layout, shard)

    def own(self, layout: LayoutRecord, shard: int) -> None:
        """Start a holder for a shard; whoever holds it is fenced."""
        world = self.world
        self._started += 1
        deadline_ms = int(world.schedule.now_ms) + world.lease_ms
        lease = Lease(self.route, shard, layout.shards, layout.layout, self._started, deadline_ms)
        connector = SimConnector(
            world.schedule, self.regional.cluster, self.aggregate.cluster, world.config, world.faults
        )
        feed = IndexFeed(
            world.index,
            SimRunLog(world.schedule, self.aggregate.cluster, self.run_log, shard),
            route=self.route,
            layout=lease.layout,
            shard=shard,
            clock=connector.clock,
            bound_entries=_FEED_BOUND_ENTRIES,
        )

        def report(progress: LeaseProgress) -> None:
            self._note(progress.waiting_for)
            world.report(progress)

        def hold() -> None:
            with suppress(FencedError):
                copy_until_over(
                    lease,
                    world.config,
                    connector,
                    feed=feed,
                    report=report,
                    end_asked=lambda: world.finish,
                    retries=RetryPolicy(random=world.random),
                )

        actor = world.schedule.spawn(f"owner {lease}", hold)
        self.owners.append(Owner(lease, actor, connector.clock))
        world.schedule.spawn(f"index {lease}", lambda: self._carry(lease, connector, feed, actor))

    def _carry(self, lease: Lease, connector: SimConnector, feed: IndexFeed, owner: Actor) -> None:
        """What `IndexThread` does, until its process is gone or has nothing left to do."""
        earlier: list[IndexFeed] | None = None
        while not (owner.doomed and owner.over):
            with suppress(StoreUnavailableError, ClusterUnavailableError, SessionError):
                if earlier is None:
                    earlier = list(earlier_feeds(lease, connector, self.world.index))
                while earlier:
                    earlier[0].turn()
                    if not earlier[0].complete:
                        break
                    earlier[0].finish()
                    earlier.pop(0)
                else:
                    feed.turn()
            complete = not earlier and feed.complete
            if owner.over and (complete or (self.world.finish and self.ever_refused)):
                with suppress(StoreUnavailableError):
                    feed.finish()
                return
            self.world.schedule.sleep(100)

    # --- what is known of it -------------------------------------------------------------------------------------

    def layout(self) -> LayoutRecord | None:
        """The layout record, read without any door."""
        found = None
        topic = self.aggregate.cluster.topics.get(LAYOUTS_TOPIC)
        for slot in topic.logs[0].committed() if topic is not None else ():
            assert isinstance(slot.value, Written)
            if slot.value.key == str(self.route).encode() and slot.value.value is not None:
                found = LayoutRecord.decoded(slot.value.value)
        return found

    def entries(self) -> Iterator[tuple[int, int, Entry]]:
        """Every entry of the run log as (shard, offset, entry): layouts in order, within a shard as written."""
        topic = self.aggregate.cluster.topics.get(self.run_log)
        found = [
            (shard, slot.offset, entry)
            for shard, log in enumerate(topic.logs if topic is not None else ())
            for slot in log.committed()
            if (entry := entry_of(slot.value)) is not None
        ]
        return iter(sorted(found, key=lambda item: (item[2].layout, item[0], item[1])))

    def committed_end(self, shard: int) -> int:
        """Up to where entries may have been told to be committed: some still hang where their markers were left out."""
        log = self.aggregate.cluster.topics[self.run_log].logs[shard]
        return log.end if self.aggregate.has_forgotten else log.stable_end

    @property
    def twice_told(self) -> float:
        """So many records come twice at most, as rebuilds have told; infinite where one could not know."""
        counts = [plan.twice for plan in self.rebuilt]
        return math.inf if None in counts else sum(count for count in counts if count is not None)

    def harm_run_log(self, gone: Mapping[Log, tuple[int, int]]) -> None:
        """The run log is about to lose what lies in these spans."""
        self.run_log_harmed = True
        for log, (start, end) in gone.items():
            entries = (entry_of(slot.value) for slot in log.committed(start, end))
            for part in (part for entry in entries if entry is not None for part in entry.partitions):
                item, lineage = topic_partition_of(part), lineage_of(part)
                self.gone_lost_ranges += [(item, lineage, lost) for lost in lost_of(part)]

    def _note(self, problem: str) -> None:
        """See to what a process has said: only what was harmed may be refused.

        What another route has copied looks like this one's own, unheard of, where that one's run log has lost what explained it.
        """
        own, others = self.run_log_harmed, any(life.run_log_harmed for life in self._beside())
        names = [
            problem
            for problem in RunLogProblem
            if own or (others and problem is RunLogProblem.RUN_LOG_TRUNCATED)
        ]
        if problem.startswith(tuple(name.value for name in names)):
            self.refused = self.ever_refused = True

    def _beside(self) -> Iterator[RouteLife]:
        """Routes into the same cluster."""
        return (life for life in self.world.lives if life is not self and life.aggregate is self.aggregate)

    # --- the end -------------------------------------------------------------------------------------------------

    def take_over(self) -> list[Owner]:
        """The last owners start; those before are still there for a while. Whose turn is over is told."""
        before = list(self.owners)
        layout = self.layout()
        if layout is None or not layout.settled:
            self.plan(self.shards if layout is None else layout.shards)
        else:
            self.own_all(layout)
        return before

    def caught_up(self) -> bool:
        """Whether everything is copied and indexed."""
        layout = self.layout()
        return layout is not None and layout.settled and self._held(layout) and self._copied(layout)

    def keep_going(self) -> None:
        """Start the operator, the driver and the owners that are missing."""
        if self.refused:
            if all(operator.over for operator in self._operators):
                self.rebuild(anew=False)
            return
        layout = self.layout()
        if layout is None or not layout.settled:
            if all(planner.over for planner in self._planners):
                self.plan(self.shards if layout is None else layout.shards)
            return
        for shard in range(layout.shards):
            if all(owner.over for owner in self.owners if self._is_of(owner, layout, shard)):
                self.own(layout, shard)

    def _held(self, layout: LayoutRecord) -> bool:
        return all(
            any(not owner.over for owner in self.owners if self._is_of(owner, layout, shard))
            for shard in range(layout.shards)
        )

    def _copied(self, layout: LayoutRecord) -> bool:
        source = self.regional.cluster.topics[TOPIC]
        target = self.aggregate.cluster.topics.get(TOPIC)
        if target is None:
            return False
        last: dict[int, int] = {}
        positions: dict[TopicPartition, int] = {}
        for shard, offset, entry in self.entries():
            if entry.layout != layout.layout:
                continue
            last[shard] = offset
            for part in entry.partitions:
                if (part.source_topic_id, part.target_topic_id) == (source.topic_id, target.topic_id):
                    positions[topic_partition_of(part)] = 0 if part.closed else part.source_next
        indexed = all(
            self.world.index.indexed_up_to(self.route, layout.layout, shard) > last.get(shard, 10**9)
            for shard in range(layout.shards)
        )
        found = {item.partition: position for item, position in positions.items() if item.topic == TOPIC}
        # A position beyond the end is one of a log that the source has thrown away: that is still to be noticed.
        return indexed and all(found.get(number, -1) == log.end for number, log in enumerate(source.logs))

    @staticmethod
    def _is_of(owner: Owner, layout: LayoutRecord, shard: int) -> bool:
        return (owner.lease.layout, owner.lease.shard) == (layout.layout, shard)

    def shard_holding(self, item: TopicPartition, layout: LayoutRecord) -> int:
        """The shard of a partition."""
        return shard_of(item, layout.shards)

    def stale_layout(self, layout: LayoutRecord) -> LayoutRecord:
        """The layout before, as a driver may still know it."""
        return replace(
            layout, layout=layout.layout - 1, shards=layout.previous_shards, settled=True, previous_shards=0
        )
