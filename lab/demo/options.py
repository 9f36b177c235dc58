"""How large a demonstration is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lab.stack.spec import Mode
from lab.workload.plan import Phase, Plan, on_and_off

ONE_MEMBER, THREE_MEMBERS, PLAIN = "failover", "failover_three_members", "plain"
"""The groups."""
FOLLOWERS = (ONE_MEMBER, THREE_MEMBERS)
"""Those of `FailoverConsumer`s: they read nothing twice."""

_RATIO = 5
_FLOW_AT_MOST_S = 400.0


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Sizes and places.

    Attributes:
        records: at least so many in all. Three quarters arrive at once, as a backlog of half an hour; the rest
            flows, and the flow goes on until everything has been shown.
        per_s: records a second of both regions together, on average. Region b produces five times as much as
            region a, which is idle for half of the time and twice as busy in the other. A standby produces nothing.
        busy_s: length of one busy and of one idle stretch of region a.
        partitions: of the topic.
        mode: which clusters and routes the regions have (`StackSpec.mode`).
        directory: reports, logs and the stack's folder go here.
        keep: leave the stack running.
        replicator_dies: kill the replicator in the same instant as the region.
        secure: play it on a stack whose parts ask who is there, over TLS alone.
        failover_within_ms: a group that needs longer from the command to its first new record fails the demonstration,
        failover_within_starts: unless the machine is so slow, or so busy, that as many starts of a command take longer.
    """

    records: int = 240_000
    per_s: float = 600.0
    busy_s: float = 10.0
    partitions: int = 3
    topic: str = "trips"
    mode: Mode = "aggregation"
    directory: Path = field(default_factory=lambda: Path("build/demo"))
    keep: bool = False
    replicator_dies: bool = False
    secure: bool = False
    failover_within_ms: int = 10_000
    failover_within_starts: int = 5

    @property
    def backlog_records(self) -> int:
        """What arrives at once."""
        return self.records * 3 // 4

    @property
    def b_stands_by(self) -> bool:
        """Whether nobody produces in region b."""
        return self.mode == "active-standby"

    @property
    def per_s_of_a(self) -> float:
        """Region a's rate on average."""
        return self.per_s if self.b_stands_by else self.per_s / (1 + _RATIO)

    def backlog_of(self, region: str) -> int:
        """Records of the backlog that one region's producer writes before its share of the flow."""
        share = self.backlog_records if self.b_stands_by else self.backlog_records // (1 + _RATIO)
        return share if region == "a" else self.backlog_records - share

    def plan_of(self, region: str) -> Plan:
        """The work of one region's producer."""
        backlog = Phase(self.backlog_of(region), history_s=1_800)
        if region == "a":
            stretches = int(_FLOW_AT_MOST_S / (2 * self.busy_s))
            flow = on_and_off(
                2 * self.per_s_of_a,
                busy_s=self.busy_s,
                idle_s=self.busy_s,
                stretches=stretches,
                idle_first=True,
            )
        else:
            flow = (Phase(round(self.per_s_of_a * _RATIO * _FLOW_AT_MOST_S), _FLOW_AT_MOST_S),)
        return Plan((backlog, *flow), at_most_s=2 * _FLOW_AT_MOST_S)
