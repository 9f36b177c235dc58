"""A move that was interrupted after it had written, and is taken up again: nothing is read twice for that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from parallax.domain.commits import GroupCommit
from parallax.domain.ids import ClusterName, GroupName, RegionName, TargetOffset
from parallax.domain.primary import Change
from parallax.domain.progress import Progress
from parallax.errors import ConfigError, StoreUnavailableError, UnknownPartitionError
from parallax.failover.facts import MoveKind
from parallax.failover.journal import Step
from parallax.failover.plan import Ending
from parallax.failover.put_back import replaced_progress
from parallax.failover.rollback import plan_rollback, roll_back
from tests.worlds.failover_bench import P0, Bench, a_move, failover_bench, two_sources, unnoted
from tests.worlds.offset_world import GROUP, TOPIC

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")
AWAY = StoreUnavailableError("store: away")


@pytest.fixture
def bench() -> Iterator[Bench]:
    """The group has consumed b0..9 in b, was moved to a, and has consumed a0..4 there: in b it goes on at 15."""
    with failover_bench() as made:
        two_sources(made.world)
        came_from_b(made)
        yield made


def came_from_b(bench: Bench) -> None:
    bench.world.commit("b", 10)
    assert bench.move("b", "a", drain_ms=1_000).ending is Ending.MOVED
    bench.world.commit("a", 5)
    bench.world.now_ms += 1_000
    bench.world.groups.save_observed(
        [replace(item, observed_at_ms=bench.world.now_ms) for item in bench.observed()]
    )


def three_sources(bench: Bench) -> None:
    for target, order in (("a", "abc"), ("b", "bca"), ("c", "bac")):
        for source in order:
            bench.world.copy(source, target, 10)
    bench.world.watermarks()


def left(bench: Bench) -> Progress:
    return bench.world.groups.progress(GROUP, TOPIC)[0]


def interrupt(bench: Bench, kind: MoveKind = MoveKind.PLANNED) -> None:
    """The offsets are written, and the target can't be made primary."""
    bench.client.failing["set_primary settled"] = AWAY
    assert bench.move("a", "b", kind, drain_ms=1_000).ending is Ending.INTERRUPTED
    bench.client.failing.clear()
    assert (bench.commit("b"), left(bench).cluster) == (15, ON_B)


@pytest.mark.parametrize("kind", list(MoveKind))
def test_the_same_command_again_writes_the_same_offsets(bench: Bench, kind: MoveKind) -> None:
    interrupt(bench, kind)
    first = left(bench)

    result = bench.move("a", "b", kind, drain_ms=1_000)

    assert result.ending is Ending.MOVED, result.problem
    assert (bench.commit("b"), left(bench)) == (15, first)


def test_so_it_does_with_the_origin_gone(bench: Bench) -> None:
    bench.writer("a").away = True
    interrupt(bench, MoveKind.DISASTER)
    assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.MOVED
    assert bench.commit("b") == 15


def test_so_it_does_where_the_journal_does_not_know_that_it_had_written(bench: Bench) -> None:
    with unnoted(bench, Step.WRITTEN):
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
    assert bench.outside.journal.records(GROUP)[0].step is Step.FENCED
    assert left(bench).cluster == ON_B

    assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
    assert bench.commit("b") == 15


def test_so_it_does_where_it_was_stopped_while_it_put_back(bench: Bench) -> None:
    interrupt(bench)
    bench.client.failing["report_positions"] = AWAY
    assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
    bench.client.failing.clear()
    assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
    assert bench.commit("b") == 15


def test_so_it_does_where_a_rollback_was_stopped_before_it(bench: Bench) -> None:
    interrupt(bench)
    bench.client.failing["report_positions"] = AWAY
    with pytest.raises(StoreUnavailableError):
        roll_back(bench.outside, plan_rollback(bench.outside, GROUP))
    bench.client.failing.clear()
    assert bench.world.groups.progress(GROUP, TOPIC) == {}
    assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
    assert bench.commit("b") == 15


def test_so_does_a_group_that_is_fenced_ahead_of_others(bench: Bench) -> None:
    interrupt(bench, MoveKind.DISASTER)
    mover = bench.mover()
    mover.fence_ahead(a_move("a", "b", MoveKind.DISASTER))
    assert mover.move(a_move("a", "b", MoveKind.DISASTER)).ending is Ending.MOVED
    assert bench.commit("b") == 15


def test_abandoned_the_second_time_the_group_is_as_before(bench: Bench) -> None:
    before = left(bench)
    interrupt(bench)
    bench.writer("a").members[GROUP] = 1
    bench.world.now_ms += 1_000  # members are listed at most twice a second
    assert bench.move("a", "b", drain_ms=1_000).ending is Ending.ABANDONED
    assert left(bench) == before
    bench.writer("a").members.clear()
    assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
    assert bench.commit("b") == 15


@pytest.mark.parametrize("ahead", [False, True])
def test_a_gap_that_is_none_once_it_is_put_back_does_not_refuse_it(bench: Bench, *, ahead: bool) -> None:
    interrupt(bench, MoveKind.DISASTER)
    bench.world.trim("b", 5)
    bench.world.now_ms += 1_000
    mover, move = bench.mover(), a_move("a", "b", MoveKind.DISASTER)
    plan = mover.plan(move)
    assert plan.refusals(accept_gaps=False) == ()
    assert any("below its log start 5: judged again" in words for words in plan.unknown)
    if ahead:
        mover.fence_ahead(move)
    result = mover.move(move)
    assert result.ending is Ending.MOVED, result.problem
    assert bench.commit("b") == 15


def test_a_gap_that_is_still_one_then_lifts_the_fence(bench: Bench) -> None:
    before = left(bench)
    interrupt(bench, MoveKind.DISASTER)
    bench.world.trim("b", 17)
    result = bench.move("a", "b", MoveKind.DISASTER)
    assert result.ending is Ending.ABANDONED
    assert "below its log start 17 (accept it with --accept-gaps)" in result.problem
    assert (bench.assignment().consumed_cluster, left(bench)) == (ON_A, before)


def test_progress_of_a_partition_that_is_gone_holds_nothing_up(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(bench)
    report = bench.client.report_positions

    def refuse_once(*_args: Any, **_named: Any) -> Any:
        monkeypatch.setattr(bench.client, "report_positions", report)
        raise UnknownPartitionError("topic trips has 0 partitions")

    monkeypatch.setattr(bench.client, "report_positions", refuse_once)
    assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED


def test_putting_back_may_take_so_long_that_somebody_else_decides_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(bench)
    report = bench.client.report_positions

    def slowly(*args: Any, **named: Any) -> Any:
        bench.world.now_ms += 3_000
        bench.decide(Change(GROUP, RegionName("a"), disaster=True, reason="somebody else"))
        return report(*args, **named)

    monkeypatch.setattr(bench.client, "report_positions", slowly)
    result = bench.move("a", "b", drain_ms=1_000)
    assert result.ending is Ending.ABANDONED
    assert "somebody else has decided meanwhile" in result.problem


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("stopped", [False, True])
def test_a_group_that_goes_elsewhere_instead_goes_on_where_it_would_have(
    *, interrupted: bool, stopped: bool
) -> None:
    with failover_bench(("a", "b", "c")) as bench:
        three_sources(bench)
        came_from_b(bench)
        if interrupted:
            bench.client.failing["set_primary settled"] = AWAY
            assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.INTERRUPTED
            assert left(bench).cluster == ON_B
        if stopped:
            bench.client.failing["set_primary moving"] = AWAY
            assert bench.move("a", "c", MoveKind.DISASTER).ending is Ending.INTERRUPTED
        bench.client.failing.clear()

        assert bench.move("a", "c", MoveKind.DISASTER).ending is Ending.MOVED

        assert bench.commit("c") == 15
        records = bench.outside.journal.records(GROUP)
        assert records[0].snapshot.progress[P0].cluster == ON_A
        assert all(record.ended for record in records)
        if interrupted:
            words = f"superseded by move {records[0].operation_id} to aggregate-c"
            assert [record.problem for record in records if record.move.target == ON_B] == [words]


def test_a_move_that_was_not_done_leaves_the_one_before_open() -> None:
    with failover_bench(("a", "b", "c")) as bench:
        three_sources(bench)
        came_from_b(bench)
        bench.client.failing["set_primary settled"] = AWAY
        assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.INTERRUPTED
        assert bench.move("a", "c", MoveKind.DISASTER).ending is Ending.INTERRUPTED
        assert [record.ended for record in bench.outside.journal.records(GROUP)[:2]] == [False, False]
        bench.client.failing.clear()
        assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.MOVED
        assert bench.commit("b") == 10
        assert [record.step for record in bench.outside.journal.records(GROUP)[:3]] == [
            Step.DONE,
            Step.ABANDONED,
            Step.ABANDONED,
        ]


def test_what_cannot_be_noted_of_an_older_move_does_not_undo_one_that_is_done() -> None:
    with failover_bench(("a", "b", "c")) as bench:
        three_sources(bench)
        came_from_b(bench)
        bench.client.failing["set_primary settled"] = AWAY
        assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.INTERRUPTED
        bench.client.failing.clear()
        with unnoted(bench, Step.ABANDONED):
            assert bench.move("a", "c", MoveKind.DISASTER).ending is Ending.MOVED
        assert [record.step for record in bench.outside.journal.records(GROUP)[:2]] == [
            Step.DONE,
            Step.WRITTEN,
        ]


class TestWhatIsTheTruth:
    def _replaced(self, bench: Bench) -> dict[object, object]:
        return dict(replaced_progress(bench.outside, bench.outside.journal.records(GROUP)[0]))

    def test_what_nobody_has_touched_since_is_put_back(self, bench: Bench) -> None:
        before = left(bench)
        interrupt(bench)
        assert self._replaced(bench) == {P0: before}

    def test_a_cluster_that_does_not_show_the_group_shows_nothing(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = left(bench)
        interrupt(bench)

        def refuse(_group: GroupName) -> Any:
            raise ConfigError("not allowed to describe the group")

        for region in ("a", "b"):
            monkeypatch.setattr(bench.writer(region), "committed", refuse)
        assert self._replaced(bench) == {P0: before}

    def test_where_the_group_has_gone_on_at_the_target_it_stays(self, bench: Bench) -> None:
        interrupt(bench)
        bench.world.commit("b", 18)
        assert self._replaced(bench) == {}

    def test_a_commit_that_a_rollback_has_put_back_is_no_going_on(self, bench: Bench) -> None:
        bench.writer("b").commits[GROUP] = {P0: GroupCommit(TargetOffset(2), -1, "before")}
        interrupt(bench)
        bench.writer("b").commits[GROUP] = {P0: GroupCommit(TargetOffset(2), -1, "before")}
        assert list(self._replaced(bench)) == [P0]

    def test_a_group_that_was_set_back_at_the_origin_reads_all_again(self, bench: Bench) -> None:
        interrupt(bench)
        bench.world.commit("a", 3)
        assert self._replaced(bench) == {}
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        assert bench.commit("b") == 0

    def test_so_does_one_that_was_set_back_while_nobody_could_tell(self, bench: Bench) -> None:
        bench.writer("a").away = True
        interrupt(bench, MoveKind.DISASTER)
        bench.writer("a").away = False
        bench.world.now_ms += 10_000
        bench.world.commit("a", 3)
        assert self._replaced(bench) == {}

    def test_one_that_was_set_back_at_the_target_stays_so(self, bench: Bench) -> None:
        interrupt(bench)
        bench.world.groups.save_progress(
            GROUP, TOPIC, {0: left(bench).set_back}, moved_at_ms=left(bench).moved_at_ms + 1
        )
        assert self._replaced(bench) == {}

    def test_a_group_that_was_settled_at_the_target_since_is_there(self, bench: Bench) -> None:
        interrupt(bench)
        record = bench.outside.journal.records(GROUP)[0]
        bench.outside.services.settle(record.move, "by hand", record.fencing_number)
        there = left(bench)
        assert bench.move("b", "a", drain_ms=1_000).ending is Ending.MOVED
        assert bench.outside.journal.records(GROUP)[0].snapshot.progress == {P0: there}
        assert bench.commit("a") == 5
