"""Groups that are moved to and fro by the real executor: what plain clients read again is what the plan foretold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from offsetsvc.messages import group_to_pb
from offsetsvc.resume import commits as service_commits
from offsetsvc.resume.call import FailoverRequest
from parallax.client.answer import Pair, ResumeAnswer, answers_from_pb
from parallax.domain.ids import GroupName, TopicName, TopicPartition
from parallax.domain.metadata import decode
from parallax.errors import StoreUnavailableError
from parallax.failover import steps as steps_module
from parallax.failover.facts import MoveKind
from parallax.failover.plan import Ending
from parallax.failover.rollback import plan_rollback, roll_back
from parallax.failover.steps import Moving
from parallax.ports.audit import Auditor
from parallax.runtime.deadline import Deadline
from syncjob import cycle as cycle_module
from syncjob.cycle import Syncer
from syncjob.rewinds import Void
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
class Renew:
    """The group's commit is gone, or set back to ``to``; the group then begins anew there.

    Attributes:
        to: from 0 to 1, of the way that it had come; None: deleted, or expired, and begun anew from the earliest offset.
        seen: the sync job looks at it in between, for long enough.
        consume: what the new life has read before anything else happens.
    """

    to: float | None
    seen: bool
    consume: int


@dataclass(frozen=True)
class Go:
    """The group is moved.

    Attributes:
        undo: and put back.
        broken: the store is away in the middle, and the move is taken up again.
    """

    target: str
    kind: MoveKind
    undo: bool
    broken: bool = False


STEPS = st.lists(
    st.one_of(
        st.builds(Copy, st.sampled_from(REGIONS), st.sampled_from(REGIONS), st.integers(1, 4)),
        st.builds(Consume, st.integers(1, 12)),
        st.builds(Renew, st.none() | st.floats(0, 1), st.booleans(), st.integers(0, 12)),
        st.builds(Go, st.sampled_from(REGIONS), st.sampled_from(MoveKind), st.booleans(), st.booleans()),
    ),
    min_size=3,
    max_size=30,
)


@dataclass
class Group:
    """A plain group: it reads from its commit on, and knows nothing of skip ranges.

    Attributes:
        syncer: looks on.
        consumed: by its present life.
    """

    bench: Bench
    syncer: Syncer
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
        self.look()

    def look(self) -> None:
        """The sync job looks."""
        self.bench.world.now_ms += 1_000
        self.syncer.cycle()

    def renew(self, step: Renew) -> None:
        """Nothing counts but what lies below the commit then."""
        at = self.bench.commit(self.region)
        assert at is not None
        to = 0 if step.to is None else int(at * step.to)
        if to == at and not (step.to is None and step.seen):
            return  # nobody could tell
        if step.to is None:
            for region in REGIONS:
                self.bench.writer(region).commits.pop(GROUP, None)
        else:
            self.bench.put(self.region, to, GROUP)
        if step.seen:
            for _ in range(1 + self.bench.world.config.sync.rewind_confirm_ms // 1_000):
                self.look()
        end = min(to + step.consume, len(self.log(self.region)) if step.seen else at - 1)
        self.bench.put(self.region, end, GROUP)
        self.consumed = {record for record in self.log(self.region)[:end] if record is not None}

    def go(self, step: Go) -> None:
        if step.target == self.region:
            return
        self.bench.world.watermarks()
        before = self.bench.commit(self.region)
        if step.broken:
            self.bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
            first = self.bench.move(self.region, step.target, step.kind, drain_ms=1_000)
            assert first.ending is Ending.INTERRUPTED, first.problem
            self.bench.client.failing.clear()
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


def syncer_of(bench: Bench) -> Syncer:
    """A sync job over the same world."""
    world, service = bench.world, bench.client.service

    def ask(
        group: GroupName, pair: Pair, topics: Sequence[TopicName]
    ) -> Mapping[TopicPartition, ResumeAnswer]:
        request = FailoverRequest(group, *pair, topics=tuple(topics))
        return answers_from_pb(group_to_pb(service.failover.answers(request, Deadline.after_ms(10_000))))

    writers = [bench.writer(region) for region in REGIONS]
    return Syncer(
        world.config,
        writers,
        world.groups,
        world.primaries,
        ask,
        now_ms=lambda: world.now_ms,
        auditor=Auditor(world.audit, lambda: world.now_ms),
        clock=lambda: world.now_ms / 1_000,
    )


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_nothing_is_lost_and_what_is_read_again_was_foretold(
    steps: list[Copy | Consume | Renew | Go],
) -> None:
    play(steps)


def play(steps: list[Copy | Consume | Renew | Go]) -> None:
    with capture_logs(), failover_bench(REGIONS) as bench, closing(syncer_of(bench)) as syncer:
        group = Group(bench, syncer)
        for step in [Copy("a", "a", 2), Copy("b", "a", 2), *steps]:
            if isinstance(step, Copy):
                bench.world.copy(step.source, step.target, step.count)
            elif isinstance(step, Consume):
                bench.world.watermarks()
                group.consume(step.count)
            elif isinstance(step, Renew):
                if bench.commit(group.region) is not None:
                    group.renew(step)
            elif bench.commit(group.region) is not None:
                group.go(step)


BEGUN_ANEW_UNSEEN: list[Copy | Consume | Renew | Go] = [
    Consume(1),
    Go("b", MoveKind.DISASTER, undo=False),
    Copy("a", "b", 2),
    Consume(2),
    Renew(None, seen=False, consume=0),
    Go("a", MoveKind.PLANNED, undo=False),
]
DELETED_AT_ONCE: list[Copy | Consume | Renew | Go] = [
    Consume(1),
    Go("b", MoveKind.DISASTER, undo=False),
    Renew(None, seen=True, consume=0),
    Go("a", MoveKind.PLANNED, undo=False),
]
BACK_IN_TWO_ATTEMPTS: list[Copy | Consume | Renew | Go] = [
    Copy("b", "b", 2),
    Copy("a", "b", 2),
    Consume(2),
    Go("b", MoveKind.PLANNED, undo=False),
    Go("a", MoveKind.PLANNED, undo=False, broken=True),
]
MUTANTS = {
    "a move that is taken up again puts nothing back": (
        BACK_IN_TWO_ATTEMPTS,
        lambda patch: patch.setattr(steps_module, "put_back_progress", lambda *_: False),
    ),
    "the services hold no commit against what was seen": (
        BEGUN_ANEW_UNSEEN,
        lambda patch: patch.setattr(service_commits, "went_back", lambda *_: False),
    ),
    "a move does not say that its offsets stand": (
        DELETED_AT_ONCE,
        lambda patch: patch.setattr(Moving, "_note_seen", lambda *_: None),
    ),
    "the sync job makes nothing void": (
        DELETED_AT_ONCE,
        lambda patch: patch.setattr(cycle_module, "void_of", lambda *_: Void((), (), ())),
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_dies(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    steps, patch = MUTANTS[name]
    play(steps)
    patch(monkeypatch)
    with pytest.raises(AssertionError):
        play(steps)
