"""Drills over a bench: canary records of the test's making."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from parallax.domain.ids import RegionName
from parallax.domain.primary import Assignment
from parallax.failover.drill.figures import CanaryDelivery, Samples
from parallax.failover.drill.run import DrillPlan
from parallax.failover.plan import MoveLimits
from tests.worlds.failover_bench import Bench
from tests.worlds.offset_world import GROUP, TOPIC

PLAN = DrillPlan(
    GROUP,
    TOPIC,
    RegionName("a"),
    RegionName("b"),
    (RegionName("a"), RegionName("b")),
    flow_ms=2_000,
    records=1,
    limits=MoveLimits(drain_ms=2_000, catch_up_ms=2_000),
)


class FakeCanary:
    """A consumer that is wherever its group is primary; each look at it is a moment in which a record comes."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.at_ms = 0.0
        self.acknowledged: dict[Any, float] = {}
        self.delivered: list[CanaryDelivery] = []
        self.open_calls = 0
        self.producing = False
        self.closed = 0
        self.drop: Callable[[int], bool] = lambda _number: False
        self.repeat: Callable[[int], bool] = lambda _number: False
        self.failure: Exception | None = None

    def open(self, drill_id: str) -> None:
        assert drill_id
        self.open_calls += 1
        self.producing = True

    def now_ms(self) -> float:
        return self.at_ms

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def samples(self) -> Samples:
        self.at_ms += 10
        if self.producing:
            self._come()
        return Samples(dict(self.acknowledged), tuple(self.delivered))

    def decided(self) -> Assignment | None:
        """Where the group is primary."""
        return self.bench.client.service.primaries.get(GROUP)

    def _come(self) -> None:
        found = self.decided()
        cluster = None if found is None else found.consumed_cluster
        region = "a" if cluster is None else str(cluster).removeprefix("aggregate-")
        number = len(self.acknowledged)
        for source in "ab":
            record = (source, number)
            self.acknowledged[record] = self.at_ms
            copies = 0 if self.drop(number) else 2 if self.repeat(number) else 1
            self.delivered += [CanaryDelivery(record, self.at_ms, region)] * copies

    def stop_producing(self) -> None:
        self.producing = False

    def close(self) -> None:
        self.producing = False
        self.closed += 1
