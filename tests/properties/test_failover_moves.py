"""Groups that are moved to and fro by the real executor: what plain clients read again is what the plan foretold."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from parallax.domain.metadata import decode
from parallax.failover.facts import MoveKind
from parallax.failover.plan import Ending
from parallax.failover.rollback import plan_rollback, roll_back
from tests.worlds.failover_bench import P0, Bench, failover_bench
from tests.worlds.offset_world import GROUP, Record

REGIONS = ("a", "b", "c")


@dataclass(frozen=True)
class Copy:
    source: str
    target: str
    count: int


@dataclass(frozen=True)
class Consume:
    count: int


@dataclass(frozen=True)
class Go:
    target: str
    kind: MoveKind
    undo: bool


STEPS = st.lists(
    st.one_of(
        st.builds(Copy, st.sampled_from(REGIONS), st.sampled_from(REGIONS), st.integers(1, 4)),
        st.builds(Consume, st.integers(1, 12)),
        st.builds(Go, st.sampled_from(REGIONS), st.sampled_from(MoveKind), st.booleans()),
    ),
    min_size=3,
    max_size=30,
)


@dataclass
class Group:
    """A plain group: it reads from its commit on, and knows nothing of skip ranges."""

    bench: Bench
    region: str = "a"
    consumed: set[Record] = field(default_factory=set)
    moves: int = 0

    def log(self, region: str) -> list[Record | None]:
        return self.bench.world.records(region)

    def consume(self, count: int) -> None:
        start = self.bench.commit(self.region) or 0
        end = min(start + count, len(self.log(self.region)))
        self.consumed |= {record for record in self.log(self.region)[start:end] if record is not None}
        self.bench.put(self.region, end, GROUP)

    def go(self, step: Go) -> None:
        if step.target == self.region:
            return
        self.bench.world.watermarks()
        before = self.bench.commit(self.region)
        result = self.bench.move(self.region, step.target, step.kind, drain_ms=1_000)
        missing = self.consumed - {record for record in self.log(step.target) if record is not None}
        if step.kind is MoveKind.PLANNED and missing:
            assert result.ending is Ending.ABANDONED, result.problem
            assert self.bench.assignment().consumed_cluster == f"aggregate-{self.region}"
            return
        assert result.ending is Ending.MOVED, result.problem
        assert result.plan is not None
        self._check(step.target, result.plan.redelivery_records, result.plan.pending_records, len(missing))
        if step.undo:
            self.bench.world.now_ms += 1_000
            roll_back(self.bench.outside, plan_rollback(self.bench.outside, GROUP))
            assert self.bench.assignment().consumed_cluster == f"aggregate-{self.region}"
            assert self.bench.commit(self.region) == before
            return
        self.region = step.target
        self.moves += 1

    def _check(self, target: str, foretold: int | None, pending: int, missing: int) -> None:
        resume = self.bench.commit(target)
        assert resume is not None
        log = self.log(target)
        lost = [record for record in log[:resume] if record is not None and record not in self.consumed]
        assert lost == []
        again = [offset for offset in range(resume, len(log)) if log[offset] in self.consumed]
        assert (foretold, pending) == (len(again) + missing, missing)
        metadata = decode(self.bench.writer(target).commits[GROUP][P0].metadata)
        end = len(log) if metadata.complete_to is None else metadata.complete_to
        skipped = [offset for item in metadata.skips for offset in range(item.start, item.end)]
        assert [offset for offset in skipped if offset < end] == [offset for offset in again if offset < end]
        assert (metadata.complete_to is None) == (missing == 0)


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_nothing_is_lost_and_what_is_read_again_was_foretold(steps: list[Copy | Consume | Go]) -> None:
    with capture_logs(), failover_bench(REGIONS) as bench:
        group = Group(bench)
        for step in [Copy("a", "a", 2), Copy("b", "a", 2), *steps]:
            if isinstance(step, Copy):
                bench.world.copy(step.source, step.target, step.count)
            elif isinstance(step, Consume):
                bench.world.watermarks()
                group.consume(step.count)
            elif bench.commit(group.region) is not None:
                group.go(step)
