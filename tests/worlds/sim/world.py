"""One simulated life: routes whose processes pause, fail and die, on clusters that misbehave; then the judge looks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from random import Random

from parallax.config.config import Config
from parallax.domain.block_rows import StoredBlock
from parallax.domain.ids import Route, aggregate_cluster, regional_cluster
from parallax.domain.index_rows import LineageRecord
from parallax.errors import StoreUnavailableError
from replicator.kafka.rebuild import Rebuild
from replicator.lease import LeaseProgress
from tests.memory.index import MemoryMappingIndex
from tests.worlds.sim.actions import chosen_actions
from tests.worlds.sim.doors import Faults
from tests.worlds.sim.group import GroupLife
from tests.worlds.sim.judge import check_route
from tests.worlds.sim.layouts import layouts_in, rebuild_of
from tests.worlds.sim.route import Owner, RouteLife
from tests.worlds.sim.schedule import Schedule
from tests.worlds.sim.sides import TOPIC, Aggregate, Regional

STEPS = 400
STEPS_PER_FURTHER_ROUTE = 200
ROUTE = Route.parse("a->b")
"""Of a world with one."""
_EVENTFUL = 0.25
"""The probability that something happens at a step."""
_LOOK_EVERY_STEPS = 20
_PATIENCE_STEPS = 12_000
_LEASE_MS = 600_000


def sim_config(sources: Sequence[str] = ("a",), targets: Sequence[str] = ("b",)) -> Config:
    regions: dict[str, dict[str, object]] = {}
    for region in sources:
        regions.setdefault(region, {})["regional"] = {"bootstrap_servers": f"regional-{region}:1"}
    for region in targets:
        regions.setdefault(region, {})["aggregate"] = {"bootstrap_servers": f"aggregate-{region}:1"}
    return Config.model_validate(
        {
            "regions": regions,
            "cassandra": {"contact_points": ["none"]},
            "replicator": {
                "watermark_interval_ms": 200,
                # Transactions of several blocks: a real target's markers keep the next one waiting for about as long.
                "commit_min_interval_ms": 2,
                "snapshot_interval_ms": 1_000,
                "snapshot_interval_records": 10,
                "discovery_interval_ms": 500,
            },
        }
    )


class FlakyIndex(MemoryMappingIndex):
    """An index that is away now and then, in the middle of a write too; checks that it is never ahead."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world
        self.away_until_ms = 0.0

    def write_lineages(self, records: Sequence[LineageRecord]) -> None:
        self._may_be_away()
        super().write_lineages(records)

    def write_turn(self, route: Route, layout: int, shard: int, run_log_next: int, body: bytes) -> None:
        self._may_be_away()
        life = self._world.life_of(route)
        if not life.run_log_harmed:
            assert run_log_next <= life.committed_end(shard), "a turn tells more than the run log holds"
        super().write_turn(route, layout, shard, run_log_next, body)
        self._may_be_away()

    def write_blocks(self, blocks: Sequence[StoredBlock]) -> None:
        self._may_be_away()
        super().write_blocks(blocks[: len(blocks) // 2])
        self._may_be_away()
        super().write_blocks(blocks)

    def save_blocks_to(self, route: Route, layout: int, shard: int, term: int, run_log_next: int) -> None:
        self._may_be_away()
        life = self._world.life_of(route)
        if not life.run_log_harmed:
            assert run_log_next <= life.committed_end(shard), "the index claims more than the run log holds"
        super().save_blocks_to(route, layout, shard, term, run_log_next)

    def _may_be_away(self) -> None:
        schedule = self._world.schedule
        schedule.step()
        if schedule.calm:
            return
        if schedule.now_ms < self.away_until_ms or schedule.random.random() < 0.1:
            raise StoreUnavailableError("away")


class World:
    """Routes from every source to every target, one topic of two partitions, and everything that can go wrong.

    Args:
        seed: decides everything.
        faults: how doors misbehave; None: as the seed says.
        sources, targets: regions with such a cluster.
        group: how its consumer group behaves, ``skips`` or ``plain`` (`GroupLife`); None: there is none. It needs two targets.
        only: names of the rarer actions that take part; None: as the seed says.
        tell: is told what happens.
    """

    def __init__(
        self,
        seed: int,
        faults: Faults | None = None,
        *,
        sources: Sequence[str] = ("a",),
        targets: Sequence[str] = ("b",),
        group: str | None = None,
        only: Sequence[str] | None = None,
        tell: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.schedule = Schedule(seed)
        self.random = self.schedule.random
        self._tell = tell
        self.faults = faults or Faults(fail=self.random.choice((0.0, 0.01, 0.03)))
        self.config = sim_config(sources, targets)
        serials = itertools.count()
        self.regionals = [Regional(region, self.random, lambda: next(serials)) for region in sources]
        self.aggregates = [Aggregate(region, self.random) for region in targets]
        self.index = FlakyIndex(self)
        self.finish = False
        self.lease_ms = _LEASE_MS
        self._caught: set[Route] = set()
        self.report: Callable[[LeaseProgress], None] = lambda _progress: None
        self.lives = [
            RouteLife(self, regional, aggregate)
            for aggregate in self.aggregates
            for regional in self.regionals
        ]
        self.actions = chosen_actions(
            self.random, Random(f"apart {seed}"), only, with_group=group is not None
        )
        self._places = {
            self.config.cluster(aggregate_cluster(item.region)).bootstrap_servers: item.cluster
            for item in self.aggregates
        } | {
            self.config.cluster(regional_cluster(item.region)).bootstrap_servers: item.cluster
            for item in self.regionals
        }
        for regional in self.regionals:
            if self.random.random() < 0.8:
                regional.create()
            for _ in range(self.random.choice((0, 5))):
                regional.produce()
            if self.random.random() < 0.2 and TOPIC in regional.cluster.topics:
                regional.retain()
        for aggregate in self.aggregates:
            if self.random.random() < 0.5:
                aggregate.cluster.create(TOPIC, 2)
        self.group = None if group is None else GroupLife(self, skips=group == "skips")

    def life_of(self, route: Route) -> RouteLife:
        """The life of a route."""
        return next(life for life in self.lives if life.route == route)

    def tell(self, text: str) -> None:
        """Say what happened."""
        if text:
            self._tell(f"step {self.schedule.steps:5} at {self.schedule.now_ms / 1_000:9.3f} s  {text}")

    def in_memory(self) -> AbstractContextManager[None]:
        """Within it nothing of the outside is reached for."""
        return layouts_in(self.schedule, self._places)

    def rebuild_of(self, route: Route, *, anew: bool) -> Rebuild:
        """What an operator does to a route whose run log is lost."""
        return rebuild_of(self.schedule, self._places, self.config, route, self.index, anew=anew)

    # --- life --------------------------------------------------------------------------------------------------

    def live(self) -> None:
        """Everything goes wrong for a while; then one owner of each shard is left in peace until it has caught up."""
        steps = STEPS + STEPS_PER_FURTHER_ROUTE * (len(self.lives) - 1)
        with self.in_memory():
            self.schedule.on_step = self._something_happens
            shards = self.random.choice((1, 1, 2))
            for life in self.lives:
                life.shards = shards
                life.plan(shards)
            self.schedule.run(lambda: self.schedule.steps >= steps, at_most_steps=steps + 10_000)
            self._come_to_rest()

    def _come_to_rest(self) -> None:
        self.tell("everything calms down")
        self.schedule.calm = True
        for side in [*self.regionals, *self.aggregates]:
            side.calm_down()
        old = [owner for life in self.lives for owner in life.take_over()]
        zombies_until = self.schedule.steps + 150
        self.schedule.run(lambda: self.schedule.steps >= zombies_until, at_most_steps=1_000)
        for owner in old:
            owner.actor.doomed = True
        self.schedule.run(self._caught_up, at_most_steps=_PATIENCE_STEPS)
        self.finish = True
        self.schedule.run(
            lambda: all(actor.over for actor in self.schedule.actors), at_most_steps=_PATIENCE_STEPS
        )

    def _caught_up(self) -> bool:
        """Looked at now and then only: it reads every run log."""
        alive = any(not actor.over for actor in self.schedule.actors)
        if alive and self.schedule.steps % _LOOK_EVERY_STEPS:
            return False
        return self.caught_up()

    def caught_up(self) -> bool:
        """Whether every route has copied and indexed everything at some time since all is calm."""
        for life in self.lives:
            if life.route not in self._caught:
                if life.caught_up():
                    self._caught.add(life.route)
                else:
                    life.keep_going()
        return len(self._caught) == len(self.lives)

    def _something_happens(self) -> None:
        if self.schedule.calm or self.random.random() > _EVENTFUL:
            return
        action = self.random.choices(self.actions, [item.weight for item in self.actions])[0]
        told = action.do(self)
        if told:
            self.tell(f"{action.name}: {told}")

    def owners(self) -> list[Owner]:
        """Processes that hold a lease and live."""
        return [owner for life in self.lives for owner in life.owners if not owner.over]

    # --- the judge -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Everything that must hold of what was copied, whatever happened."""
        for life in self.lives:
            check_route(life, self.index)
        if self.group is not None:
            self.group.finish()

    def close(self) -> None:
        """Let go of what runs beside it."""
        if self.group is not None:
            self.group.close()
