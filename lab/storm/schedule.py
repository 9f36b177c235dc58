"""What happens in a storm, and in which order: drawn from a seed. Pure.

A schedule is a list of acts, played one after another. The faults are shuffled: one of each kind, and some more. What
is down, or stands still, is started again before an act that needs it, at the latest after two further faults, and before
the end. A fault that passes by itself is over when its act is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from lab.stack.layout import SPARK
from lab.stack.links import LinkState

REGIONS = ("a", "b")
_OTHER = {"a": "b", "b": "a"}
_LONGEST_DOWN = 2
"""A part stays down for so many further faults at most."""
_START_CHANCE = 0.35
_NARROW_CHANCE = 0.75
STORE = "cassandra"
_HOUR_MS = 3_600_000
_CLOCK_STEPS_MS = (_HOUR_MS, -_HOUR_MS, 15 * 24 * _HOUR_MS, -15 * 24 * _HOUR_MS)
_FROZEN_S = (10.0, 60.0)
_LINK_S = (8.0, 20.0)
_SLOW_ROUND_TRIP_MS = 500.0
_RESOLVER_LATE_MS = 8_000


class ActKind(StrEnum):
    """Kinds of acts; all but `START` are faults."""

    PLANNED = "planned"
    """A group is moved on purpose."""
    FAILBACK = "failback"
    """Every group whose last move left a region goes back there."""
    ALARM = "alarm"
    """A disaster failover of a group whose region lives."""
    CLUSTER_LOST = "cluster-lost"
    """SIGKILL of an aggregate cluster, disaster failover of its groups; it stays down."""
    REGION_LOST = "region-lost"
    """The same with everything that the region has."""
    AGGREGATE_KILLED = "aggregate-killed"
    """SIGKILL of an aggregate cluster, which is started again; its groups wait for it."""
    REGIONAL_KILLED = "regional-killed"
    SPARK_KILLED = "spark-killed"
    SERVICE_KILLED = "service-killed"
    """SIGKILL of a regional cluster, of the Spark application, of an offset service; it stays down."""
    CLUSTER_FROZEN = "cluster-frozen"
    """SIGSTOP of an aggregate cluster, disaster failover of its groups; it stands still until it is started."""
    BROKER_FROZEN = "broker-frozen"
    STORE_FROZEN = "store-frozen"
    SPARK_FROZEN = "spark-frozen"
    SERVICE_FROZEN = "service-frozen"
    """SIGSTOP of a cluster, of Cassandra, of the Spark application, of an offset service, which then goes on."""
    WORKER_KILLED = "worker-killed"
    """SIGKILL of one of Spark's Python processes, of which each copies a share of the partitions."""
    STORE_KILLED = "store-killed"
    """SIGKILL of Cassandra, which is started again."""
    DISK_FULL = "disk-full"
    """A cluster's broker can't write any more, and ends; it is started again when there is room."""
    LINK_CUT = "link-cut"
    LINK_ONE_WAY = "link-one-way"
    LINK_SLOW = "link-slow"
    """Nothing gets through between the services and a cluster or Cassandra; only in one direction; or all of it late."""
    CLOCK_STEP = "clock-step"
    """The clock of the Spark application's or of an offset service's Python steps, and back."""
    RESOLVER_HANGS = "resolver-hangs"
    """Every name takes the same processes eight seconds."""
    RIVAL_SYNC = "rival-sync"
    """A second sync job runs beside the first."""
    RUN_LOG_DELETED = "run-log-deleted"
    """A route's run log is deleted under it; the operator rebuilds it, with the Spark application stopped meanwhile."""
    TOPIC_RECREATED = "topic-recreated"
    """A topic is deleted in a region, and created again under its name."""
    TAIL_LOST = "tail-lost"
    """SIGKILL of an aggregate cluster, which comes back without the newest records of a topic."""
    GROUP_DELETED = "group-deleted"
    """A group is deleted wherever it is known, and begins anew."""
    RESTART = "restart"
    """A part, or a member of a group, is stopped and started again."""
    REWIND = "rewind"
    """A group's offsets are set back where it is primary."""
    START = "start"
    """What is down is started."""


FAULTS = tuple(kind for kind in ActKind if kind is not ActKind.START)
_CLUSTER_MOVES = (ActKind.CLUSTER_LOST, ActKind.CLUSTER_FROZEN, ActKind.REGION_LOST)
_MOVES = (ActKind.PLANNED, ActKind.ALARM, *_CLUSTER_MOVES)


@dataclass(frozen=True, slots=True)
class Act:
    """One act. What does not belong to its kind is empty.

    Attributes:
        target: of the route from ``region`` that is meant.
        part: the process, cluster or region (``region-a``) that is killed, stopped or started.
        group: whose offsets or members are meant; with moves of one group, the group.
        region: that groups leave; with a failback, to which they return.
        to: the region to which groups go.
        groups: the groups that move.
        records: how far to set back in each partition, in offsets.
        lag_s: seconds before a move for which its groups are slowed down, so that they leave records behind.
        narrow: the route from ``region`` to ``to`` is held back as well meanwhile, so that it falls behind the others.
        down_s: seconds that a fault lasts which passes with its act.
        link: what becomes of the link to ``part``.
        clock_ahead_ms, resolver_late_ms: of ``part``.
        pause_s: seconds of calm before the act.
    """

    kind: ActKind
    part: str = ""
    group: str = ""
    region: str = ""
    to: str = ""
    groups: tuple[str, ...] = ()
    records: int = 0
    lag_s: float = 0.0
    narrow: bool = False
    down_s: float = 0.0
    pause_s: float = 0.0
    link: LinkState | None = None
    target: str = ""
    clock_ahead_ms: int = 0
    resolver_late_ms: int = 0

    def told(self) -> str:
        """The act in words."""
        lag = f" after {self.lag_s} s of lag"
        if self.narrow:
            lag += f", the route {self.region}->{self.to} held back"
        region_wide = f"failover --region {self.region} --to {self.to} --disaster ({_listed(self.groups)})"
        frozen = f"{self.part} stands still for {self.down_s} s"
        link = f"the services' link to {self.part}"
        words = {
            ActKind.PLANNED: f"failover {self.group} --to {self.to}{lag}",
            ActKind.FAILBACK: f"failback --region {self.to} ({_listed(self.groups)}){lag}",
            ActKind.ALARM: f"failover {self.group} --to {self.to} --disaster, though all lives,{lag}",
            ActKind.CLUSTER_LOST: f"{self.part} is killed{lag}; {region_wide}",
            ActKind.REGION_LOST: f"{self.part} is killed{lag}; {region_wide}",
            ActKind.AGGREGATE_KILLED: f"{self.part} is killed, and started {self.down_s} s later",
            ActKind.REGIONAL_KILLED: f"{self.part} is killed",
            ActKind.SPARK_KILLED: f"{self.part} is killed",
            ActKind.SERVICE_KILLED: f"{self.part} is killed",
            ActKind.CLUSTER_FROZEN: f"{self.part} stands still{lag}; {region_wide}",
            ActKind.BROKER_FROZEN: frozen,
            ActKind.STORE_FROZEN: frozen,
            ActKind.SPARK_FROZEN: frozen,
            ActKind.SERVICE_FROZEN: frozen,
            ActKind.WORKER_KILLED: "a Python process of spark is killed",
            ActKind.STORE_KILLED: f"{self.part} is killed, and started {self.down_s} s later",
            ActKind.DISK_FULL: f"{self.part} has no room on its disk until it has ended",
            ActKind.LINK_CUT: f"{link} is cut for {self.down_s} s",
            ActKind.LINK_ONE_WAY: f"{link} is cut {self._direction} for {self.down_s} s",
            ActKind.LINK_SLOW: f"{link} takes 500 ms longer for {self.down_s} s",
            ActKind.CLOCK_STEP: f"the clock of {self.part} is {self.clock_ahead_ms / _HOUR_MS:+.0f} h off for {self.down_s} s",
            ActKind.RESOLVER_HANGS: f"each name takes {self.part} 8 s for {self.down_s} s",
            ActKind.RIVAL_SYNC: f"a second sync job runs for {self.down_s} s",
            ActKind.RUN_LOG_DELETED: f"the run log of {self.region}->{self.target} is deleted, and rebuilt",
            ActKind.TOPIC_RECREATED: f"a topic of region {self.region} is deleted, and created again",
            ActKind.TAIL_LOST: f"{self.part} loses the newest records of a topic that region {self.region} fills",
            ActKind.GROUP_DELETED: f"{self.group} is deleted, and begins anew",
            ActKind.RESTART: f"{self.part or f'a member of {self.group}'} is stopped and started",
            ActKind.REWIND: f"{self.group} is set back by {self.records} offsets",
            ActKind.START: f"{self.part} is started",
        }
        return words[self.kind]

    @property
    def _direction(self) -> str:
        return "towards them" if self.link is not None and self.link.forth else "towards it"


def _listed(groups: Sequence[str]) -> str:
    return ", ".join(groups)


@dataclass(frozen=True, slots=True)
class Schedule:
    """What a seed means.

    Attributes:
        homes: by group, the region where it begins.
    """

    seed: int
    homes: Mapping[str, str]
    acts: tuple[Act, ...]

    @property
    def faults(self) -> tuple[Act, ...]:
        """The acts that do harm."""
        return tuple(act for act in self.acts if act.kind is not ActKind.START)

    def lines(self) -> Iterator[str]:
        """The schedule for people."""
        for number, act in enumerate(self.acts, start=1):
            yield f"{number:>3}  {act.pause_s:3.1f} s later  {act.kind:<16}  {act.told()}"


def parts_of(name: str) -> tuple[str, ...]:
    """The processes and clusters that a part consists of: a region has several."""
    region = name.removeprefix("region-")
    return (f"regional-{region}", f"aggregate-{region}", f"offsetsvc-{region}") if region != name else (name,)


CLUSTERS = tuple(f"{kind}-{region}" for region in REGIONS for kind in ("regional", "aggregate"))
SERVICES = tuple(f"offsetsvc-{region}" for region in REGIONS)
_AGGREGATES = tuple(f"aggregate-{region}" for region in REGIONS)
_REGIONALS = tuple(f"regional-{region}" for region in REGIONS)

_KILLED_ALONE: Mapping[ActKind, tuple[str, ...]] = {
    ActKind.REGIONAL_KILLED: _REGIONALS,
    ActKind.SPARK_KILLED: (SPARK,),
    ActKind.SERVICE_KILLED: SERVICES,
}


PASSING: Mapping[ActKind, tuple[tuple[str, ...], tuple[float, float]]] = {
    ActKind.BROKER_FROZEN: (CLUSTERS, _FROZEN_S),
    ActKind.STORE_FROZEN: ((STORE,), _FROZEN_S),
    ActKind.SPARK_FROZEN: ((SPARK,), _FROZEN_S),
    ActKind.SERVICE_FROZEN: (SERVICES, _FROZEN_S),
    ActKind.AGGREGATE_KILLED: (_AGGREGATES, (2.0, 8.0)),
    ActKind.STORE_KILLED: ((STORE,), (2.0, 8.0)),
    ActKind.DISK_FULL: (CLUSTERS, (0.0, 0.0)),
    ActKind.LINK_CUT: ((*CLUSTERS, STORE), _LINK_S),
    ActKind.LINK_ONE_WAY: ((*CLUSTERS, STORE), _LINK_S),
    ActKind.LINK_SLOW: ((*CLUSTERS, STORE), _LINK_S),
    ActKind.CLOCK_STEP: ((SPARK, *SERVICES), (5.0, 12.0)),
    ActKind.RESOLVER_HANGS: ((SPARK, *SERVICES), (10.0, 20.0)),
}
"""Faults that pass by themselves: what they may strike, and how many seconds they last."""


def needs(act: Act) -> tuple[str, ...]:
    """What must be up when the act begins.

    One offset service is always up: a schedule never has both down. Moves on purpose and rewinds wait for all that was
    consumed to arrive elsewhere. Spark starts when every cluster answers, so nothing that it needs is killed with it.
    """
    if act.kind is ActKind.RESTART:
        return _needed_to_restart(act.part)
    if act.kind in PASSING:
        return _needed_to_pass(act.part)
    disaster = (
        *_AGGREGATES,
        SPARK,
        f"offsetsvc-{act.to}",
        *((f"regional-{act.region}",) if act.narrow else ()),
    )
    found: Mapping[ActKind, tuple[str, ...]] = {
        ActKind.PLANNED: (*CLUSTERS, SPARK),
        ActKind.FAILBACK: (*CLUSTERS, SPARK),
        ActKind.REWIND: (*CLUSTERS, SPARK),
        ActKind.GROUP_DELETED: (*CLUSTERS, SPARK, *SERVICES),
        ActKind.TOPIC_RECREATED: (*CLUSTERS, SPARK),
        ActKind.TAIL_LOST: (*CLUSTERS, SPARK),
        ActKind.RUN_LOG_DELETED: (*CLUSTERS, SPARK, *SERVICES),
        ActKind.ALARM: disaster,
        ActKind.CLUSTER_LOST: disaster,
        ActKind.CLUSTER_FROZEN: disaster,
        ActKind.REGION_LOST: (*CLUSTERS, SPARK, *SERVICES),
        ActKind.REGIONAL_KILLED: (*_REGIONALS, SPARK),
        ActKind.SPARK_KILLED: (*CLUSTERS, SPARK),
        ActKind.WORKER_KILLED: (SPARK,),
        ActKind.SERVICE_KILLED: SERVICES,
    }
    return found.get(act.kind, ())


def _needed_to_restart(part: str) -> tuple[str, ...]:
    if part in SERVICES:
        return SERVICES
    return (*CLUSTERS, SPARK)


def _needed_to_pass(part: str) -> tuple[str, ...]:
    """One aggregate cluster, one regional cluster and one service always live."""
    for alike in (_AGGREGATES, _REGIONALS, SERVICES):
        if part in alike:
            return alike
    return (part,)


def draw_schedule(seed: int, homes: Mapping[str, str], faults: int) -> Schedule:
    """The schedule of a seed: the same one each time.

    Args:
        seed: any number.
        homes: by group, the region where it begins.
        faults: how many; one of each kind at least.

    Raises:
        ValueError: too few faults for one of each kind.
    """
    if faults < len(FAULTS):
        raise ValueError(f"a storm has {len(FAULTS)} faults at least, one of each kind, not {faults}")
    return Schedule(seed, dict(homes), tuple(_Drawing(Random(seed), homes).acts(faults)))  # noqa: S311 - chance, not secrets


class _Drawing:
    """The world as it is after the acts drawn so far."""

    def __init__(self, draw: Random, homes: Mapping[str, str]) -> None:
        self._draw = draw
        self._places = dict(homes)
        self._left: dict[str, str] = {}  # by group, the region that its last move left
        self._down: dict[str, int] = {}  # by part, how many faults ago it was killed

    def acts(self, faults: int) -> Iterator[Act]:
        for kind in self._deck(faults):
            act = self._details(kind)
            yield from self._start([name for name in self._down if set(parts_of(name)) & set(needs(act))])
            yield act
            self._happened(act)
            chance = {name: self._draw.random() for name in self._down}
            yield from self._start(
                [
                    name
                    for name, age in self._down.items()
                    if age >= _LONGEST_DOWN or chance[name] < _START_CHANCE
                ]
            )
        yield from self._start(list(self._down))

    def _deck(self, faults: int) -> list[ActKind]:
        """Kinds in order; a failback comes after a move that it can undo."""
        deck: list[ActKind] = [*FAULTS, *self._draw.choices(FAULTS, k=faults - len(FAULTS))]
        self._draw.shuffle(deck)
        first_move = next(index for index, kind in enumerate(deck) if kind in _MOVES)
        early = [index for index, kind in enumerate(deck[:first_move]) if kind is ActKind.FAILBACK]
        for index in reversed(early):
            deck.insert(first_move, deck.pop(index))
        return deck

    def _details(self, kind: ActKind) -> Act:
        draw, pause_s = self._draw, round(self._draw.uniform(1.0, 4.0), 1)
        group = draw.choice(sorted(self._places))
        here = self._places[group]
        act = Act(kind, pause_s=pause_s)
        match kind:
            case ActKind.PLANNED | ActKind.ALARM:
                act = self._behind(replace(act, group=group, region=here, to=_OTHER[here], groups=(group,)))
            case ActKind.FAILBACK:
                to = draw.choice(sorted(set(self._left.values())))
                back = tuple(sorted(name for name, left in self._left.items() if left == to))
                act = self._behind(replace(act, region=_OTHER[to], to=to, groups=back))
            case ActKind.CLUSTER_LOST | ActKind.CLUSTER_FROZEN | ActKind.REGION_LOST:
                part = f"{'region' if kind is ActKind.REGION_LOST else 'aggregate'}-{here}"
                moved = tuple(sorted(name for name, place in self._places.items() if place == here))
                act = self._behind(replace(act, part=part, region=here, to=_OTHER[here], groups=moved))
            case ActKind.REWIND | ActKind.GROUP_DELETED:
                act = replace(act, group=group, region=here, records=draw.randrange(200, 2_001, 100))
            case (
                ActKind.RIVAL_SYNC | ActKind.RUN_LOG_DELETED | ActKind.TOPIC_RECREATED | ActKind.WORKER_KILLED
            ):
                source, target = draw.choices(REGIONS, k=2)
                act = replace(act, region=source, target=target, down_s=round(draw.uniform(8.0, 15.0), 1))
            case ActKind.TAIL_LOST:
                source, target = draw.choices(REGIONS, k=2)
                act = replace(act, region=source, part=f"aggregate-{target}")
            case ActKind.RESTART:
                part = draw.choice([*CLUSTERS, *SERVICES, SPARK, "", "", ""])
                act = replace(act, part=part) if part else replace(act, group=group)
            case _ if kind in PASSING:
                act = self._passing(act)
            case _:
                act = replace(act, part=draw.choice(_KILLED_ALONE[kind]))
        return act

    def _passing(self, act: Act) -> Act:
        parts, (least_s, most_s) = PASSING[act.kind]
        act = replace(
            act, part=self._draw.choice(parts), down_s=round(self._draw.uniform(least_s, most_s), 1)
        )
        match act.kind:
            case ActKind.LINK_CUT:
                return replace(act, link=LinkState(forth=False, back=False))
            case ActKind.LINK_ONE_WAY:
                forth = self._draw.choice((True, False))
                return replace(act, link=LinkState(forth=forth, back=not forth))
            case ActKind.LINK_SLOW:
                return replace(act, link=LinkState(round_trip_ms=_SLOW_ROUND_TRIP_MS))
            case ActKind.CLOCK_STEP:
                return replace(act, clock_ahead_ms=self._draw.choice(_CLOCK_STEPS_MS))
            case ActKind.RESOLVER_HANGS:
                return replace(act, resolver_late_ms=_RESOLVER_LATE_MS)
        return act

    def _behind(self, act: Act) -> Act:
        lag_s = round(self._draw.uniform(2.0, 5.0), 1)
        return replace(act, lag_s=lag_s, narrow=self._draw.random() < _NARROW_CHANCE)

    def _happened(self, act: Act) -> None:
        for group in act.groups:
            self._left[group], self._places[group] = self._places[group], act.to
        for name in self._down:
            self._down[name] += 1
        if act.kind in {*_CLUSTER_MOVES, *_KILLED_ALONE}:
            self._down[act.part] = 0

    def _start(self, names: Sequence[str]) -> Iterator[Act]:
        """Start parts: services and Spark only when every cluster is up."""
        wanted = list(names)
        if any(not _is_cluster(name) for name in wanted):
            wanted += [name for name in self._down if _is_cluster(name) and name not in wanted]
        for name in sorted(wanted, key=_rank):
            del self._down[name]
            yield Act(ActKind.START, part=name, pause_s=round(self._draw.uniform(1.0, 4.0), 1))


def _is_cluster(name: str) -> bool:
    return bool(set(parts_of(name)) & set(CLUSTERS))


def _rank(name: str) -> tuple[int, str]:
    return (0 if _is_cluster(name) else 2 if name == SPARK else 1), name
