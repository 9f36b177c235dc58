"""Moves in the background: agreed to, carried out, called off, gone on with by another process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from parallax.domain.audit import AuditStage
from parallax.domain.ids import RegionName
from parallax.domain.primary import Change, Stage
from parallax.errors import LimitError, PlanChangedError, RefusedError, StoreUnavailableError
from parallax.failover.desk import MoveDesk, MoveProgress, MoveState
from parallax.failover.facts import MoveKind
from parallax.failover.journal import Step
from parallax.failover.orders import MoveOrder, digest_of
from parallax.failover.plan import MoveLimits
from parallax.failover.timekeeper import Timekeeper
from tests.support import poll_until
from tests.worlds.failover_bench import OPERATOR, Bench, a_move, failover_bench, two_sources
from tests.worlds.offset_world import GROUP

BRIEF = MoveLimits(drain_ms=5_000, catch_up_ms=5_000)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with failover_bench() as made:
        two_sources(made.world)
        made.put("a", 15, GROUP)
        yield made


def order(bench: Bench, origin: str = "a", target: str = "b", kind: MoveKind = MoveKind.PLANNED) -> MoveOrder:
    return MoveOrder(a_move(origin, target, kind), accept_gaps=False, asked_at_ms=bench.world.now_ms)


def agreed(desk: MoveDesk, bench: Bench, asked: MoveOrder) -> str:
    return digest_of(desk.plan(bench.outside, asked), accept_gaps=asked.accept_gaps)


def ended(desk: MoveDesk, bench: Bench, asked: MoveOrder) -> MoveProgress:
    def look() -> MoveProgress | None:
        found = desk.progress(bench.outside.journal, asked)
        return None if found.state in {MoveState.RUNNING, MoveState.PLANNED} else found

    return poll_until(look, 20, "the move ends")


def fresh(bench: Bench) -> None:
    """The next call has a time of its own, as the service gives to each."""
    old = bench.outside.time
    bench.outside.time = Timekeeper(old.now_ms, old.wait, old.clock)


def test_what_was_agreed_to_is_carried_out_once(bench: Bench) -> None:
    desk, asked = MoveDesk(BRIEF), order(bench)
    assert desk.progress(bench.outside.journal, asked).state is MoveState.PLANNED
    digest = agreed(desk, bench, asked)
    desk.execute(bench.outside, asked, digest)
    found = ended(desk, bench, asked)
    assert (found.state, found.problem, found.actor) == (MoveState.MOVED, "", OPERATOR.name)
    assert found.record is not None
    assert (found.record.step, found.record.operation_id) == (Step.DONE, asked.operation_id)
    assert [words for _, words in found.events][-1] == "switching"
    assert bench.assignment().decision.cluster == "aggregate-b"
    again = desk.execute(bench.outside, asked, "anything")
    assert (again.state, len(bench.outside.journal.records(GROUP))) == (MoveState.MOVED, 1)


def test_what_has_changed_is_not_carried_out(bench: Bench) -> None:
    desk, asked = MoveDesk(BRIEF), order(bench)
    digest = agreed(desk, bench, asked)
    bench.decide(Change(GROUP, RegionName("a")))
    with pytest.raises(PlanChangedError, match="nothing was changed"):
        desk.execute(bench.outside, asked, digest)
    assert bench.outside.journal.newest(GROUP) is None
    desk.execute(bench.outside, asked, agreed(desk, bench, asked))
    assert ended(desk, bench, asked).state is MoveState.MOVED


def test_what_is_forbidden_is_not_begun(bench: Bench) -> None:
    desk, asked = MoveDesk(BRIEF), order(bench)
    bench.put("b", 1, GROUP)
    bench.writer("b").members[GROUP] = 2
    with pytest.raises(RefusedError, match="2 member"):
        desk.execute(bench.outside, asked, agreed(desk, bench, asked))
    assert bench.outside.journal.newest(GROUP) is None


def test_a_move_is_called_off_and_gone_on_with(bench: Bench) -> None:
    desk, asked = MoveDesk(), order(bench)
    bench.writer("a").members[GROUP] = 1  # it does not leave
    waits, go_on = threading.Event(), threading.Event()

    def held(_turn: int) -> None:
        waits.set()
        assert go_on.wait(20)

    bench.while_waiting = held
    desk.execute(bench.outside, asked, agreed(desk, bench, asked))
    assert waits.wait(20)
    other = replace(asked, asked_at_ms=asked.asked_at_ms + 1)
    digest = agreed(desk, bench, other)
    with pytest.raises(RefusedError, match="is being moved already"):
        desk.execute(bench.outside, other, digest)
    desk.cancel(bench.outside, asked)
    kept = [entry for entry in bench.world.audit.entries() if entry.call == "CancelMove"]
    assert [entry.stage for entry in kept] == [AuditStage.INTENDED, AuditStage.DONE]
    assert (kept[0].principal, kept[0].after) == (OPERATOR, {"move": asked.operation_id})
    go_on.set()
    found = ended(desk, bench, asked)
    assert found.state is MoveState.INTERRUPTED
    assert found.problem.startswith("interrupted: run again: the command was stopped")
    assert bench.assignment().decision.stage is Stage.MOVING

    fresh(bench)
    bench.writer("a").members[GROUP] = 0
    bench.world.now_ms += 60_000
    again = order(bench)
    desk.execute(bench.outside, again, agreed(desk, bench, again))
    assert ended(desk, bench, again).state is MoveState.MOVED
    assert [record.step for record in bench.outside.journal.records(GROUP)] == [Step.DONE]


def test_another_process_tells_how_far_it_is(bench: Bench) -> None:
    here, there, asked = MoveDesk(), MoveDesk(), order(bench)
    bench.writer("a").members[GROUP] = 1
    waits, go_on = threading.Event(), threading.Event()

    def held(turn: int) -> None:
        if turn == 40:  # ten seconds of the bench's clock
            waits.set()
            assert go_on.wait(20)

    bench.while_waiting = held
    here.execute(bench.outside, asked, agreed(here, bench, asked))
    assert waits.wait(20)
    told = there.progress(bench.outside.journal, asked)
    assert (told.state, told.actor) == (MoveState.RUNNING, OPERATOR.name)
    with pytest.raises(RefusedError, match="another process"):
        there.cancel(bench.outside, asked)
    bench.world.now_ms += 16_000  # and not a word
    told = there.progress(bench.outside.journal, asked)
    assert told.state is MoveState.INTERRUPTED
    assert told.problem.startswith("interrupted: run again: no process has told of it for 1")
    bench.outside.time.stop.set()
    go_on.set()
    here.close()


def test_a_store_that_is_away_interrupts(bench: Bench) -> None:
    desk, asked = MoveDesk(BRIEF), order(bench)
    digest = agreed(desk, bench, asked)
    bench.client.failing["set_primary settled"] = StoreUnavailableError("too few regions answer")
    desk.execute(bench.outside, asked, digest)
    found = ended(desk, bench, asked)
    assert (found.state, found.problem[:22]) == (MoveState.INTERRUPTED, "interrupted: run again")
    assert "too few regions answer" in found.problem


def test_a_group_is_put_back(bench: Bench) -> None:
    desk, asked = MoveDesk(BRIEF), order(bench)
    desk.execute(bench.outside, asked, agreed(desk, bench, asked))
    assert ended(desk, bench, asked).state is MoveState.MOVED
    fresh(bench)
    desk.roll_back(bench.outside, asked)
    assert ended(desk, bench, asked).state is MoveState.ROLLED_BACK
    assert bench.assignment().decision.cluster == "aggregate-a"
    fresh(bench)
    with pytest.raises(RefusedError, match="nothing to undo"):
        desk.roll_back(bench.outside, asked)


def test_a_service_that_ends_begins_nothing(bench: Bench) -> None:
    desk, asked = MoveDesk(BRIEF), order(bench)
    digest = agreed(desk, bench, asked)
    desk.close()
    with pytest.raises(RefusedError, match="ask another one"):
        desk.execute(bench.outside, asked, digest)


def test_the_page_of_an_older_move_puts_nothing_back(bench: Bench) -> None:
    desk, there = MoveDesk(BRIEF), order(bench)
    desk.execute(bench.outside, there, agreed(desk, bench, there))
    assert ended(desk, bench, there).state is MoveState.MOVED
    fresh(bench)
    bench.world.now_ms += 60_000
    back = order(bench, "b", "a")
    desk.execute(bench.outside, back, agreed(desk, bench, back))
    assert ended(desk, bench, back).state is MoveState.MOVED
    fresh(bench)
    before = bench.assignment().decision
    with pytest.raises(
        RefusedError, match="is not its last move, which went from aggregate-b to aggregate-a"
    ):
        desk.roll_back(bench.outside, there)
    assert bench.assignment().decision == before
    desk.roll_back(bench.outside, back)
    assert ended(desk, bench, back).state is MoveState.ROLLED_BACK


def test_without_a_thread_the_group_is_not_taken_for_one_that_moves(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk, asked = MoveDesk(BRIEF), order(bench)
    digest = agreed(desk, bench, asked)

    start = threading.Thread.start

    def none_left(thread: threading.Thread) -> None:
        if not thread.name.startswith("move-"):
            return start(thread)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        with pytest.raises(LimitError, match="no thread could be started"):
            desk.execute(bench.outside, asked, digest)
    assert desk.progress(bench.outside.journal, asked).state is MoveState.INTERRUPTED
    desk.execute(bench.outside, asked, digest)
    assert ended(desk, bench, asked).state is MoveState.MOVED


def test_what_another_process_has_done_since_is_told(bench: Bench) -> None:
    desk, asked = MoveDesk(BRIEF), order(bench)
    desk.execute(bench.outside, asked, agreed(desk, bench, asked))
    assert ended(desk, bench, asked).state is MoveState.MOVED
    fresh(bench)
    bench.world.now_ms += 60_000
    other = MoveDesk(BRIEF)
    other.roll_back(bench.outside, asked)
    assert ended(other, bench, asked).state is MoveState.ROLLED_BACK
    assert desk.progress(bench.outside.journal, asked).state is MoveState.ROLLED_BACK
