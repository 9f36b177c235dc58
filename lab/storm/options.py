"""How large a storm is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.storm.schedule import FAULTS, Schedule, draw_schedule
from lab.workload.plan import Phase, Plan, PlannedTransactions, on_and_off

_RATIO = 4
_BUSY_S = 8.0


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group: the region where it begins, and how many members it has."""

    home: str
    members: int


GROUPS: Mapping[str, GroupPlan] = {
    "pair-a": GroupPlan("a", 2),
    "solo-a": GroupPlan("a", 1),
    "solo-b": GroupPlan("b", 1),
}


@dataclass(frozen=True, slots=True)
class StormOptions:
    """Sizes and places.

    Attributes:
        seed: chooses what happens, in which order.
        faults: how many.
        records: at least so many in all. Half of them arrive at once, the others flow while the storm goes on.
        per_s: records a second of both regions together, on average. Region b produces four times as much as
            region a, which is idle for half of the time and twice as busy in the other.
        partitions: of the topic.
        at_most_s: the storm fails when it has not come to its end by then, stack included.
        directory: reports, logs and the stack's folder go here.
        keep: leave the stack running.
        dry_run: print the schedule and start nothing.
    """

    seed: int = 1
    faults: int = len(FAULTS)
    records: int = 50_000
    per_s: float = 200.0
    partitions: int = 4
    at_most_s: float = 1_800.0
    topic: str = "storm"
    directory: Path = field(default_factory=lambda: Path("build/storm"))
    keep: bool = False
    dry_run: bool = False

    @property
    def schedule(self) -> Schedule:
        """What the seed means.

        Raises:
            ValueError: too few faults.
        """
        return draw_schedule(self.seed, {name: group.home for name, group in GROUPS.items()}, self.faults)

    @property
    def per_s_of_a(self) -> float:
        """Region a's rate on average."""
        return self.per_s / (1 + _RATIO)

    def per_s_of(self, region: str) -> float:
        """A region's rate while it is busy."""
        return 2 * self.per_s_of_a if region == "a" else _RATIO * self.per_s_of_a

    def plan_of(self, region: str) -> Plan:
        """The work of one region's producer: region b's comes in transactions, of which some are aborted."""
        of_a = self.records // 2 // (1 + _RATIO)
        if region == "a":
            stretches = int(self.at_most_s / (2 * _BUSY_S))
            flow = on_and_off(self.per_s_of("a"), busy_s=_BUSY_S, idle_s=_BUSY_S, stretches=stretches)
            return Plan((Phase(of_a), *flow), at_most_s=self.at_most_s)
        flow = (Phase(round(self.per_s_of("b") * self.at_most_s), self.at_most_s),)
        transactions = PlannedTransactions(records=max(1, round(self.per_s_of("b") / 2)), abort_every=6)
        return Plan((Phase(self.records // 2 - of_a), *flow), transactions, at_most_s=self.at_most_s)
