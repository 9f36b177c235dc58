"""Groups are put back as they were before their last move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    ClusterName,
    RegionName,
    TargetOffset,
)
from parallax.domain.primary import Change
from parallax.errors import (
    ClusterUnavailableError,
    FencedError,
    NotFoundError,
    RefusedError,
    StoreUnavailableError,
)
from parallax.failover.facts import MoveKind
from parallax.failover.journal import Step
from parallax.failover.plan import Ending
from parallax.failover.rollback import plan_rollback, roll_back
from parallax.failover.selection import way_back
from tests.worlds.failover_bench import P0, Bench, a_move, unnoted
from tests.worlds.offset_world import GROUP, TOPIC

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")


def test_a_rollback_reads_nothing_again_that_was_committed_while_the_group_was_being_stopped(
    bench: Bench,
) -> None:
    bench.writer("a").members[GROUP] = 1

    def leave(_turn: int) -> None:
        bench.world.commit("a", 18)
        bench.writer("a").members.clear()

    bench.while_waiting = leave
    assert bench.move("a", "b", drain_ms=10_000).ending is Ending.MOVED
    bench.publish("a", 3)  # for the group's way back
    bench.world.now_ms += 1_000
    roll_back(bench.outside, plan_rollback(bench.outside, GROUP))
    assert bench.commit("a") == 18


class TestRollbackOfAGroupThatHasGoneOnAtTheOrigin:
    """What the group has committed there itself since is not put back: it would read that again."""

    def test_while_it_was_being_stopped(self, bench: Bench) -> None:
        bench.writer("a").members[GROUP] = 1

        def leave(_turn: int) -> None:
            bench.world.commit("a", 18)
            bench.writer("a").members.clear()
            bench.outside.time.stop.set()

        bench.while_waiting = leave
        assert bench.move("a", "b", drain_ms=10_000).ending is Ending.INTERRUPTED
        bench.outside.time.stop.clear()
        self._rolled_back(bench, 18)

    def test_since_a_move_that_never_began(self, bench: Bench) -> None:
        bench.client.failing["set_primary moving"] = StoreUnavailableError("store: away")
        assert bench.move("a", "b", drain_ms=10_000).ending is Ending.INTERRUPTED
        bench.client.failing.clear()
        bench.world.commit("a", 20)
        self._rolled_back(bench, 20)

    def test_in_a_disaster_that_the_origin_has_survived(self, bench: Bench) -> None:
        bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
        bench.while_waiting = lambda _turn: bench.world.commit("a", 18)
        assert bench.move("a", "b", MoveKind.DISASTER, handover_ms=1_000).ending is Ending.INTERRUPTED
        bench.client.failing.clear()
        self._rolled_back(bench, 18)

    def _rolled_back(self, bench: Bench, stands_at: int) -> None:
        bench.while_waiting = lambda _turn: None
        bench.world.now_ms += 1_000
        plan = plan_rollback(bench.outside, GROUP)
        assert ON_A not in plan.restore
        assert roll_back(bench.outside, plan).step is Step.ROLLED_BACK
        assert bench.commit("a") == stands_at


class TestDecidedSince:
    """A move that was interrupted is not undone once somebody has decided otherwise: the group may have consumed since."""

    @pytest.fixture
    def bench(self, bench: Bench) -> Bench:
        bench.writer("b").commits[GROUP] = {P0: GroupCommit(TargetOffset(2), -1, "before")}
        return bench

    def _decided(self, bench: Bench) -> None:
        bench.client.failing.clear()
        bench.decide(Change(GROUP, RegionName("b")))
        bench.world.commit("b", 18)
        bench.world.now_ms += 10_000

    def _refused(self, bench: Bench) -> None:
        plan = plan_rollback(bench.outside, GROUP)
        assert any("somebody has decided about it since" in text for text in plan.obstacles)
        with pytest.raises(RefusedError):
            roll_back(bench.outside, plan)
        assert bench.commit("b") == 18
        assert bench.assignment().consumed_cluster == ON_B

    def test_before_its_fence(self, bench: Bench) -> None:
        bench.client.failing["set_primary moving"] = StoreUnavailableError("store: away")
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        self._decided(bench)
        self._refused(bench)

    def test_before_it_had_written(self, bench: Bench) -> None:
        bench.while_waiting = lambda _turn: bench.outside.time.stop.set()
        bench.writer("a").members[GROUP] = 1
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        bench.outside.time.stop.clear()
        bench.writer("a").members.clear()
        self._decided(bench)
        self._refused(bench)

    def test_after_it_had_written(self, bench: Bench) -> None:
        bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        self._decided(bench)
        self._refused(bench)

    @pytest.mark.parametrize("step", [Step.FENCED, Step.WRITTEN, Step.DONE])
    def test_what_the_move_decided_itself_is_undone_though_it_was_not_noted(
        self, bench: Bench, step: Step
    ) -> None:
        with unnoted(bench, step):
            assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        assert roll_back(bench.outside, plan_rollback(bench.outside, GROUP)).step is Step.ROLLED_BACK
        assert bench.assignment().consumed_cluster == ON_A
        assert bench.writer("b").commits[GROUP][P0].metadata == "before"

    @pytest.mark.parametrize("step", [Step.BEGUN, Step.FENCED])
    def test_so_is_what_a_rollback_of_it_decided(self, bench: Bench, step: Step) -> None:
        during = "set_primary moving" if step is Step.BEGUN else "set_primary settled"
        bench.client.failing[during] = StoreUnavailableError("store: away")
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        bench.client.failing.clear()
        with unnoted(bench, Step.ROLLED_BACK), pytest.raises(StoreUnavailableError):
            roll_back(bench.outside, plan_rollback(bench.outside, GROUP))
        assert roll_back(bench.outside, plan_rollback(bench.outside, GROUP)).step is Step.ROLLED_BACK
        assert bench.assignment().consumed_cluster == ON_A


class TestRollback:
    def test_it_puts_back_what_was(self, bench: Bench) -> None:
        bench.writer("b").commits[GROUP] = {P0: GroupCommit(TargetOffset(2), -1, "before")}
        bench.move("a", "b", drain_ms=1_000)
        plan = plan_rollback(bench.outside, GROUP)
        assert plan.obstacles == ()
        assert list(plan.restore) == [ON_B]

        record = roll_back(bench.outside, plan)

        assert bench.writer("b").commits[GROUP][P0].metadata == "before"
        assert bench.commit("a") == 15
        assert bench.assignment().consumed_cluster == ON_A
        assert bench.world.groups.progress(GROUP, TOPIC) == {}
        assert record.step is Step.ROLLED_BACK
        assert any("nothing to undo" in text for text in plan_rollback(bench.outside, GROUP).obstacles)

    def test_earlier_progress_is_put_back_too(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        bench.move("b", "a", drain_ms=1_000)
        before = bench.world.groups.progress(GROUP, TOPIC)
        bench.move("a", "b", drain_ms=1_000)
        bench.world.now_ms += 1_000

        roll_back(bench.outside, plan_rollback(bench.outside, GROUP))

        assert bench.world.groups.progress(GROUP, TOPIC) == before

    def test_a_commit_that_had_not_been_there_stays_and_is_said(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        plan = plan_rollback(bench.outside, GROUP)
        assert plan.kept == (P0,)
        roll_back(bench.outside, plan)
        assert bench.commit("b") == 5

    def test_once_the_group_has_committed_it_is_a_failback(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        bench.world.commit("b", 9)

        plan = plan_rollback(bench.outside, GROUP)

        assert any("use `parallax failback`" in text for text in plan.obstacles)
        with pytest.raises(RefusedError, match="failback"):
            roll_back(bench.outside, plan)
        assert bench.assignment().consumed_cluster == ON_B

    def test_a_commit_at_the_last_moment_leaves_the_group_there(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        plan = plan_rollback(bench.outside, GROUP)
        bench.world.commit("b", 9)

        with pytest.raises(RefusedError, match="has just committed"):
            roll_back(bench.outside, plan)

        assert bench.assignment().consumed_cluster == ON_B
        assert bench.commit("b") == 9

    def test_so_it_does_after_a_move_that_was_interrupted(self, bench: Bench) -> None:
        bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        bench.client.failing.clear()
        plan = plan_rollback(bench.outside, GROUP)
        bench.world.commit("b", 9)

        with pytest.raises(RefusedError, match="has just committed"):
            roll_back(bench.outside, plan)

        assert bench.assignment().consumed_cluster == ON_B
        assert bench.outside.journal.records(GROUP)[0].step is Step.DONE
        assert way_back(bench.outside, GROUP, MoveKind.PLANNED) == a_move("b", "a")

    def test_an_interrupted_rollback_goes_on(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
        with pytest.raises(StoreUnavailableError):
            roll_back(bench.outside, plan_rollback(bench.outside, GROUP))
        bench.client.failing.clear()

        plan = plan_rollback(bench.outside, GROUP)

        assert plan.obstacles == ()
        assert roll_back(bench.outside, plan).step is Step.ROLLED_BACK
        assert bench.assignment().consumed_cluster == ON_A

    def test_a_rollback_that_had_put_commits_back_goes_on(self, bench: Bench) -> None:
        bench.writer("b").commits[GROUP] = {P0: GroupCommit(TargetOffset(2), -1, "before")}
        bench.move("a", "b", drain_ms=1_000)
        bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
        with pytest.raises(StoreUnavailableError):
            roll_back(bench.outside, plan_rollback(bench.outside, GROUP))
        assert bench.commit("b") == 2
        bench.client.failing.clear()

        plan = plan_rollback(bench.outside, GROUP)

        assert plan.obstacles == ()
        assert roll_back(bench.outside, plan).step is Step.ROLLED_BACK

    def test_what_the_sync_job_wrote_at_the_last_moment_is_undone_too(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        plan = plan_rollback(bench.outside, GROUP)
        bench.publish("a", 11)

        roll_back(bench.outside, plan)

        assert bench.commit("a") == 15

    def test_a_decision_since_the_plan_stands(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        plan = plan_rollback(bench.outside, GROUP)
        bench.decide(Change(GROUP, RegionName("b"), renew=True))

        with pytest.raises(FencedError):
            roll_back(bench.outside, plan)

        assert bench.assignment().consumed_cluster == ON_B

    def test_one_of_two_who_roll_back_together_does_it(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        here, there = (plan_rollback(bench.outside, GROUP) for _ in range(2))
        assert roll_back(bench.outside, there).step is Step.ROLLED_BACK
        bench.world.commit("a", 18)  # its consumers have gone on

        with pytest.raises(FencedError):
            roll_back(bench.outside, here)

        assert bench.commit("a") == 18
        assert [record.step for record in bench.outside.journal.records(GROUP)] == [Step.ROLLED_BACK]

    def test_of_two_who_roll_back_one_after_the_others_fence_alone_goes_on(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        here = plan_rollback(bench.outside, GROUP)
        bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
        with pytest.raises(StoreUnavailableError):
            roll_back(bench.outside, plan_rollback(bench.outside, GROUP))
        bench.client.failing.clear()

        with pytest.raises(FencedError):
            roll_back(bench.outside, here)

    def test_an_unfinished_move_can_be_rolled_back(self, bench: Bench) -> None:
        bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
        bench.move("a", "b", drain_ms=1_000)
        bench.client.failing.clear()

        roll_back(bench.outside, plan_rollback(bench.outside, GROUP))

        assert bench.assignment().consumed_cluster == ON_A

    @pytest.mark.parametrize("region", ["a", "b"])
    def test_a_cluster_that_is_away_is_an_obstacle(self, bench: Bench, region: str) -> None:
        bench.move("a", "b", drain_ms=1_000)
        bench.writer(region).away = True
        plan = plan_rollback(bench.outside, GROUP)
        assert any(f"aggregate-{region} does not answer" in text for text in plan.obstacles)

    def test_members_and_later_decisions_are_obstacles(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        bench.writer("b").members[GROUP] = 1
        bench.world.now_ms += 1_000  # members are listed at most twice a second
        bench.decide(Change(GROUP, RegionName("b"), renew=True))
        obstacles = " ".join(plan_rollback(bench.outside, GROUP).obstacles)
        assert "1 member(s) in aggregate-b: stop them first" in obstacles
        assert "somebody has decided about it since" in obstacles

    def test_a_cluster_that_dies_at_the_last_moment_is_waited_for(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        plan = plan_rollback(bench.outside, GROUP)
        bench.writer("b").away = True
        with pytest.raises(ClusterUnavailableError, match="run the rollback again"):
            roll_back(bench.outside, plan)

    def test_a_group_that_was_never_moved_has_nothing_to_roll_back(self, bench: Bench) -> None:
        with pytest.raises(NotFoundError, match="never moved"):
            plan_rollback(bench.outside, GROUP)


class TestAGroupThatBeganAnew:
    """Group id, commits and journal are those of its former life: the progress is not."""

    def _came_from_b(self, bench: Bench) -> None:
        """b0..9 were consumed in b; the group moved to a, and consumed all there."""
        bench.writer("a").commits.clear()
        bench.world.commit("b", 10)
        assert bench.move("b", "a", drain_ms=1_000).ending is Ending.MOVED
        bench.world.commit("a", 20)
        bench.world.now_ms += 1_000
        bench.world.groups.save_observed(
            [replace(item, observed_at_ms=bench.world.now_ms) for item in bench.observed()]
        )
        bench.world.now_ms += 1_000

    def test_since_the_move_that_is_rolled_back(self, bench: Bench) -> None:
        self._came_from_b(bench)
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        bench.world.commit("a", 0)
        bench.world.now_ms += 1_000

        roll_back(bench.outside, plan_rollback(bench.outside, GROUP))

        assert bench.commit("a") == 0
        assert bench.world.groups.progress(GROUP, TOPIC) == {}

    def test_before_the_move_that_is_rolled_back_and_nobody_noted_it(self, bench: Bench) -> None:
        self._came_from_b(bench)
        bench.world.commit("a", 10)
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        bench.world.now_ms += 1_000

        roll_back(bench.outside, plan_rollback(bench.outside, GROUP))

        assert bench.commit("a") == 10
        assert bench.world.groups.progress(GROUP, TOPIC) == {}

    def test_a_planned_move_passes_nothing(self, bench: Bench) -> None:
        self._came_from_b(bench)
        bench.world.commit("a", 10)

        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED

        assert bench.commit("b") == 0  # b0..9 were read by the former life alone
