"""One move in the hands of two processes: fencing numbers let only one of them end it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parallax.domain.ids import RegionName
from parallax.domain.primary import Change, Mode, Stage
from parallax.failover.journal import Step
from parallax.failover.plan import Ending, Result
from parallax.failover.rollback import plan_rollback, roll_back
from parallax.failover.timekeeper import Timekeeper
from tests.worlds.failover_bench import Bench, a_move
from tests.worlds.offset_world import GROUP


def another(bench: Bench) -> Result:
    """The same move by another process, with a clock of its own."""
    ours, waiting = bench.outside, bench.while_waiting
    old, bench.while_waiting = ours.time, lambda _turn: None
    bench.outside = replace(ours, time=Timekeeper(old.now_ms, old.wait, old.clock))
    try:
        return bench.mover(drain_ms=10_000).move(a_move("a", "b"))
    finally:
        bench.outside, bench.while_waiting = ours, waiting


def test_who_was_overtaken_writes_nothing_and_leaves_the_record_alone(bench: Bench) -> None:
    others: list[Result] = []
    bench.writer("a").members[GROUP] = 1

    def finish_and_consume(turn: int) -> None:
        if turn == 1:
            bench.writer("a").members.clear()
            others.append(another(bench))
            bench.put("b", 9, GROUP)  # its consumers have gone on

    bench.while_waiting = finish_and_consume
    result = bench.move("a", "b", drain_ms=20_000)

    assert [item.ending for item in others] == [Ending.MOVED]
    assert result.ending is Ending.INTERRUPTED
    assert bench.commit("b") == 9
    (record,) = bench.outside.journal.records(GROUP)
    assert (record.step, record.fencing_number) == (Step.DONE, others[0].fencing_number)
    assert bench.assignment().decision.fencing_number == others[0].fencing_number


def test_one_of_two_who_change_the_publisher_together_does_it(bench: Bench) -> None:
    bench.decide(Change(GROUP, RegionName("a"), mode=Mode.ACTIVE_ACTIVE))
    others: list[Result] = []
    publish_from = bench.outside.services.publish_from

    def late(*arguments: Any) -> int:
        monkeypatched.undo()
        others.append(another(bench))
        return publish_from(*arguments)

    with pytest.MonkeyPatch.context() as monkeypatched:
        monkeypatched.setattr(bench.outside.services, "publish_from", late)
        result = bench.move("a", "b")

    assert [item.ending for item in others] == [Ending.MOVED]
    assert result.ending is Ending.REFUSED
    assert sorted(record.step.value for record in bench.outside.journal.records(GROUP)) == [
        "abandoned",
        "done",
    ]


def test_two_who_began_together_have_a_number_and_a_reason_each(bench: Bench) -> None:
    here, there = bench.mover(drain_ms=1_000), bench.mover(drain_ms=1_000)
    here.fence_ahead(a_move("a", "b"))
    first = bench.assignment().decision
    there.fence_ahead(a_move("a", "b"))
    second = bench.assignment().decision
    assert (first.stage, second.stage) == (Stage.MOVING, Stage.MOVING)
    assert first.fencing_number < second.fencing_number
    assert first.reason != second.reason

    assert there.move(a_move("a", "b")).ending is Ending.MOVED
    bench.put("b", 9, GROUP)
    assert here.move(a_move("a", "b")).ending is Ending.INTERRUPTED
    assert bench.commit("b") == 9
    assert [record.step for record in bench.outside.journal.records(GROUP)] == [Step.DONE]


def test_who_is_still_moving_a_group_writes_nothing_while_it_is_rolled_back(bench: Bench) -> None:
    """Else its offsets and its progress would stand there after the rollback, and its record over that of the rollback."""
    mover = bench.mover(drain_ms=1_000)
    mover.fence_ahead(a_move("a", "b"))
    fenced = bench.assignment().decision.fencing_number
    settle = bench.outside.services.settle
    others: list[Result] = []

    def late(*arguments: Any) -> int:
        monkeypatched.undo()
        others.append(mover.move(a_move("a", "b")))
        return settle(*arguments)

    with pytest.MonkeyPatch.context() as monkeypatched:
        monkeypatched.setattr(bench.outside.services, "settle", late)
        record = roll_back(bench.outside, plan_rollback(bench.outside, GROUP))

    assert [item.ending for item in others] == [Ending.INTERRUPTED]
    assert record.step is Step.ROLLED_BACK
    assert [item.step for item in bench.outside.journal.records(GROUP)] == [Step.ROLLED_BACK]
    assert not bench.world.cluster("b").committed(GROUP)
    decision = bench.assignment().decision
    assert (decision.primary, decision.stage, decision.fencing_number > fenced) == ("a", Stage.SETTLED, True)
