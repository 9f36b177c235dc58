"""Planned moves that wait until plain clients would read few records again.

On a the group has a0..9 b0..9, on b the same records lie the other way round: from a's offset n up to 10 it would read n again.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from parallax.domain.ids import ClusterName, RegionName
from parallax.domain.primary import Change, Mode
from parallax.errors import StoreUnavailableError
from parallax.failover.facts import MoveKind
from parallax.failover.journal import Step
from parallax.failover.plan import Ending, MoveLimits, redelivered_beyond
from tests.worlds.failover_bench import Bench, a_move
from tests.worlds.offset_world import GROUP

ON_A = ClusterName("aggregate-a")


@pytest.mark.parametrize(("most", "waits"), [(10, False), (9, True)])
def test_it_waits_for_no_more_than_is_asked(bench: Bench, *, most: int, waits: bool) -> None:
    begun: list[bool] = []

    def read_on(turn: int) -> None:
        begun.append(bool(bench.outside.journal.records(GROUP)))
        if turn == 3:
            bench.world.commit("a", 20)

    bench.while_waiting = read_on
    result = bench.move("a", "b", drain_ms=1_000, max_redelivered=most)
    assert (result.ending, result.problem) == (Ending.MOVED, "")
    assert bench.commit("b") == (20 if waits else 5)
    assert begun.count(False) == (3 if waits else 0)


def test_in_vain_it_changes_nothing(bench: Bench) -> None:
    result = bench.move("a", "b", max_redelivered=9, redelivered_ms=3_000)
    assert result.ending is Ending.REFUSED
    assert "plain clients would read 10 record(s) again, and 9 are allowed" in result.problem
    assert "within 3 s" in result.problem
    assert bench.outside.journal.records(GROUP) == []
    assert "set_primary moving" not in bench.client.calls
    assert bench.waits == 12


def test_what_the_group_reads_while_it_is_stopped_counts_too(bench: Bench) -> None:
    bench.world.commit("a", 3)
    bench.writer("a").members[GROUP] = 1

    def leave(_turn: int) -> None:
        bench.world.commit("a", 8)
        bench.writer("a").members.clear()

    bench.while_waiting = leave
    result = bench.move("a", "b", drain_ms=10_000, max_redelivered=5)
    assert result.ending is Ending.ABANDONED
    assert (
        "would read 8 record(s) again, and 5 are allowed, from where the group has stopped" in result.problem
    )
    assert bench.assignment().consumed_cluster == ON_A
    assert bench.commit("b") is None


def test_a_group_that_is_fenced_already_is_not_waited_for(bench: Bench) -> None:
    bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
    assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
    bench.client.failing.clear()
    bench.waits = 0
    result = bench.move("a", "b", drain_ms=1_000, max_redelivered=9)
    assert (result.ending, bench.waits) == (Ending.ABANDONED, 1)  # for its commits to stand still
    assert bench.outside.journal.records(GROUP)[0].step is Step.ABANDONED
    assert bench.assignment().consumed_cluster == ON_A


def test_what_forbids_the_move_is_told_at_once(bench: Bench) -> None:
    bench.put("b", 1, GROUP)
    bench.writer("b").members[GROUP] = 2
    result = bench.move("a", "b", max_redelivered=9)
    assert (result.ending, bench.waits) == (Ending.REFUSED, 0)
    assert "2 member(s) in aggregate-b already" in result.problem


def test_a_number_that_can_not_be_known_is_not_few(bench: Bench) -> None:
    plan = bench.mover().plan(a_move("a", "b"))
    (item,) = plan.partitions
    unknown = replace(plan, partitions=(replace(item, redelivery_records=None),))
    assert "can't be known" in redelivered_beyond(unknown, MoveLimits(max_redelivered=10**9))
    assert redelivered_beyond(unknown, MoveLimits()) == ""


@pytest.mark.parametrize("kind", MoveKind)
def test_a_disaster_and_a_change_of_publisher_wait_for_nothing(bench: Bench, kind: MoveKind) -> None:
    limits = MoveLimits(max_redelivered=0)
    plan = bench.mover().plan(a_move("a", "b", kind))
    assert bool(redelivered_beyond(plan, limits)) is (kind is MoveKind.PLANNED)
    bench.decide(Change(GROUP, RegionName("a"), mode=Mode.ACTIVE_ACTIVE))
    assert redelivered_beyond(bench.mover().plan(a_move("a", "b", kind)), limits) == ""
