"""How large a proof is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lab.stack.spec import StackSpec
from lab.workload.plan import Phase, Plan, PlannedTransactions

_RATIO = 20


@dataclass(frozen=True, slots=True)
class ProveOptions:
    """Sizes and places.

    Attributes:
        records: committed records of both regions; region b produces twenty times as many as region a.
        partitions: of the topic.
        flow_s: a third of the records flows over this time; then a stretch in which region a is idle; then
            another third, in which the Spark application is killed; the rest arrives at once.
        least_inversions: fewer pairs of records in opposite order in the two aggregates make the proof worthless.
        narrow_bytes_per_s: the route from region a to region b gets no more in the first stretch and the idle one.
        threads: ask at the same time.
        store_lost: once all is copied, Cassandra loses all that it holds; the answers come from what the run logs give back.
        directory: reports, logs and the stack's folder go here.
        keep: leave the stack running.
    """

    records: int = 60_000
    partitions: int = 3
    flow_s: float = 12.0
    least_inversions: int = 1_000
    narrow_bytes_per_s: int = 500
    threads: int = 12
    store_lost: bool = False
    topic: str = "proof"
    directory: Path = field(default_factory=lambda: Path("build/prove"))
    keep: bool = False

    @property
    def stack(self) -> StackSpec:
        """What to run: replicators that keep each transaction open for 200 ms, so that a kill hits one."""
        return StackSpec(
            config={"replicator": {"commit_min_interval_ms": 200, "commit_max_interval_ms": 200}}
        )

    def plan_of(self, region: str) -> Plan:
        """The work of one region's producer: in transactions, of which some are aborted."""
        of_a = self.records // (1 + _RATIO)
        share = of_a if region == "a" else self.records - of_a
        flowing = share // 3
        idle = Phase(0 if region == "a" else share // 20, self.flow_s / 3)
        return Plan(
            (
                Phase(flowing, self.flow_s),
                idle,
                Phase(flowing, self.flow_s),
                Phase(share - 2 * flowing - idle.records),
            ),
            PlannedTransactions(records=max(2, share // 500), abort_every=6),
            at_most_s=300.0 + 3 * self.flow_s,
        )
