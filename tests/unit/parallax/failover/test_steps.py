"""A planned move, step by step, over the real rule and use cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    TargetOffset,
    TopicName,
    TopicPartition,
)
from parallax.domain.metadata import decode
from parallax.domain.primary import Change, Stage
from parallax.errors import (
    StoreUnavailableError,
)
from parallax.failover.facts import MoveKind
from parallax.failover.journal import Step
from parallax.failover.plan import Ending, make_plan
from tests.worlds.failover_bench import P0, Bench, a_move, failover_bench
from tests.worlds.offset_world import GROUP, TOPIC

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")


class TestPlanned:
    def test_a_group_moves_with_exact_offsets(self, bench: Bench) -> None:
        result = bench.move("a", "b", drain_ms=1_000)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.commit("b") == 5
        metadata = decode(bench.writer("b").commits[GROUP][P0].metadata)
        assert [(item.start, item.end) for item in metadata.skips] == [(10, 20)]
        assert 0 < metadata.fencing_number < result.fencing_number
        assert bench.assignment().consumed_cluster == ON_B
        assert bench.assignment().decision.fencing_number == result.fencing_number
        assert bench.world.groups.progress(GROUP, TOPIC)[0].cluster == ON_B
        (record,) = bench.outside.journal.records(GROUP)
        assert (record.step, record.snapshot.commits[ON_A][P0].next_offset) == (Step.DONE, 15)

    def test_the_plans_offsets_are_written_for_a_group_that_stands_still(self, bench: Bench) -> None:
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        assert bench.client.calls.count("offsets") == 1
        assert bench.commit("b") == 5

    def test_an_old_plans_offsets_are_not_written(self, bench: Bench) -> None:
        bench.writer("a").members[GROUP] = 1

        def leave_late(_turn: int) -> None:
            bench.world.now_ms += 10_000
            bench.writer("a").members[GROUP] = 0

        bench.while_waiting = leave_late
        assert bench.move("a", "b", drain_ms=60_000).ending is Ending.MOVED
        assert bench.client.calls.count("offsets") == 2

    def test_the_age_of_a_plan_is_that_of_its_first_question(self, bench: Bench) -> None:
        begin = bench.client._begin

        def slowly(method: str) -> None:
            begin(method)
            if method == "get_primary" and bench.client.calls.count("get_primary") == 1:
                bench.world.now_ms += 9_500

        def leave(_turn: int) -> None:
            bench.world.now_ms += 1_000

        bench.client._begin = slowly  # type: ignore[method-assign] # a service that is slow once
        bench.while_waiting = leave
        assert bench.move("a", "b", drain_ms=60_000).ending is Ending.MOVED
        assert bench.client.calls.count("offsets") == 2

    def test_a_gap_that_opens_after_the_plan_is_seen(self, bench: Bench) -> None:
        bench.while_waiting = lambda _turn: bench.world.trim("b", 8)

        result = bench.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.ABANDONED
        assert "--accept-gaps" in result.problem
        assert bench.commit("b") is None

    def test_a_target_topic_made_anew_after_the_plan_is_asked_about(self, bench: Bench) -> None:
        def make_anew(turn: int) -> None:
            if turn == 1:
                bench.world.create_topic("b", generation="2")
                for source in ("b", "a"):
                    bench.world.copy(source, "b", 10)
                bench.world.watermarks()

        bench.while_waiting = make_anew
        assert bench.move("a", "b", drain_ms=10_000).ending is Ending.MOVED
        assert bench.client.calls.count("offsets") == 2

    def test_what_showed_that_all_has_arrived_is_what_is_written(self, bench: Bench) -> None:
        bench.writer("a").members[GROUP] = 1

        def commit_and_leave(_turn: int) -> None:
            bench.world.commit("a", 18)
            bench.writer("a").members[GROUP] = 0

        bench.while_waiting = commit_and_leave
        assert bench.move("a", "b", drain_ms=10_000).ending is Ending.MOVED
        assert bench.client.calls.count("offsets") == 2  # for the plan, and once the group had left
        assert bench.commit("b") == 8

    def test_a_commit_after_all_had_arrived_is_asked_about_anew(self, bench: Bench) -> None:
        writer = bench.writer("b")
        put = writer.commit_for

        def and_commit_at_the_last_moment(
            group: GroupName, commits: Mapping[TopicPartition, GroupCommit]
        ) -> None:
            put(group, commits)
            bench.world.commit("a", 18)

        writer.commit_for = and_commit_at_the_last_moment  # type: ignore[method-assign] # between two steps
        result = bench.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.commit("b") == 8
        assert bench.client.calls.count("offsets") == 2

    def test_it_waits_for_members_to_leave(self, bench: Bench) -> None:
        bench.writer("a").members[GROUP] = 3

        def leave(turn: int) -> None:
            assert not bench.assignment().is_primary(RegionName("a"))
            if turn == 4:
                bench.world.commit("a", 18)
                bench.writer("a").members[GROUP] = 0

        bench.while_waiting = leave
        result = bench.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.commit("b") == 8

    def test_members_that_stay_lift_the_fence(self, bench: Bench) -> None:
        bench.writer("a").members[GROUP] = 3

        result = bench.move("a", "b")

        assert result.ending is Ending.ABANDONED
        assert "3 member(s) in aggregate-a: stop them" in result.problem
        assert bench.commit("b") is None
        assert bench.assignment().consumed_cluster == ON_A
        assert bench.outside.journal.records(GROUP)[0].step is Step.ABANDONED

    def test_commits_without_members_keep_it_waiting(self, bench: Bench) -> None:
        def commit(turn: int) -> None:
            if turn < 4:
                bench.world.commit("a", 15 + turn)

        bench.while_waiting = commit
        result = bench.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.commit("b") == 8

    def test_an_open_transaction_s_commits_keep_it_waiting(self, bench: Bench) -> None:
        bench.writer("a").open_transactions[GROUP] = frozenset({P0})

        def end(turn: int) -> None:
            if turn == 4:
                bench.world.commit("a", 18)
                bench.writer("a").open_transactions.clear()

        bench.while_waiting = end
        result = bench.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.commit("b") == 8

    def test_a_transaction_that_stays_open_ends_this_move_alone(self, bench: Bench) -> None:
        bench.writer("a").open_transactions[GROUP] = frozenset({P0})
        result = bench.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.ABANDONED
        assert "commits in an open transaction in aggregate-a (trips-0)" in result.problem
        assert bench.outside.clusters.commits(GROUP, ON_A) is not None

    def test_it_waits_until_the_target_has_all_that_was_consumed(self, bench: Bench) -> None:
        bench.world.copy("a", "a", 5)
        bench.world.watermark("b", "a")
        bench.world.commit("a", 25)

        def arrive(turn: int) -> None:
            if turn == 3:
                bench.world.copy("a", "b", 5)
                bench.world.watermark("b", "b")

        bench.while_waiting = arrive
        result = bench.move("a", "b", drain_ms=10_000, catch_up_ms=10_000)

        assert result.ending is Ending.MOVED, result.problem
        assert result.plan is not None
        assert (result.plan.pending_records, result.plan.redelivery_records) == (0, 0)
        assert bench.commit("b") == 25

    def test_what_never_arrives_lifts_the_fence(self, bench: Bench) -> None:
        bench.world.copy("a", "a", 5)
        bench.world.watermark("b", "a")
        bench.world.commit("a", 25)

        result = bench.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.ABANDONED
        assert result.problem == (
            f"{TOPIC}-0: 5 consumed record(s) have not reached aggregate-b: look whether replication runs "
            "(parallax routes)"
        )
        assert bench.assignment().consumed_cluster == ON_A

    def test_a_source_whose_route_has_never_run_is_named(self) -> None:
        with failover_bench(("a", "b", "c")) as bench:
            bench.world.copy("a", "a", 5)
            bench.world.copy("a", "b", 5)
            for source, target in (("a", "a"), ("b", "a"), ("a", "b"), ("b", "b")):
                bench.world.watermark(source, target)
            bench.world.commit("a", 5)

            result = bench.move("a", "b", drain_ms=10_000)

            assert result.ending is Ending.ABANDONED
            assert "the index has no row of source c in aggregate-a" in result.problem
            assert "not reached" not in result.problem  # they have

    def test_a_group_that_is_there_already_is_left_alone(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        written = len(bench.writer("b").written)

        assert bench.move("a", "b").ending is Ending.ALREADY_THERE
        assert len(bench.writer("b").written) == written

    def test_services_that_have_not_heard_of_the_last_move_are_not_believed(self, bench: Bench) -> None:
        """A region's datacenter of the store that was away answers from before until it has caught up."""
        bench.move("a", "b", drain_ms=1_000)
        (record,) = bench.outside.journal.records(GROUP)
        later = replace(record, started_at_ms=record.started_at_ms + 1, operation_id="later")
        bench.outside.journal.keep(replace(later, fencing_number=record.fencing_number + 2))

        result = bench.move("a", "b")

        assert result.ending is Ending.REFUSED
        assert "has not caught up; run the command again" in result.problem

    def test_a_refused_move_changes_nothing(self, bench: Bench) -> None:
        bench.world.trim("b", 8)

        result = bench.move("a", "b")

        assert result.ending is Ending.REFUSED
        assert bench.client.service.primaries.get(GROUP) is None
        assert list(bench.outside.journal.records(GROUP)) == []
        assert bench.move("a", "b", drain_ms=1_000, accept_gaps=True).ending is Ending.MOVED

    def test_somebody_who_joins_at_the_target_meanwhile_lifts_the_fence(self, bench: Bench) -> None:
        def join(turn: int) -> None:
            bench.writer("b").commits.setdefault(GROUP, {})
            bench.writer("b").members[GROUP] = turn

        bench.while_waiting = join
        result = bench.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.ABANDONED
        assert "has joined in aggregate-b meanwhile" in result.problem
        assert bench.assignment().consumed_cluster == ON_A
        assert bench.world.groups.progress(GROUP, TOPIC) == {}

    def test_somebody_who_keeps_committing_at_the_target_stops_it(self, bench: Bench) -> None:
        writer = bench.writer("b")

        def overwrite() -> None:
            writer.commits[GROUP][P0] = GroupCommit(TargetOffset(19), -1, "mine")

        writer.after_write = overwrite
        result = bench.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.INTERRUPTED
        assert "somebody else commits" in result.problem

    def test_commits_at_the_origin_while_it_writes_are_taken_along(self, bench: Bench) -> None:
        def commit_once() -> None:
            bench.world.commit("a", 18)
            bench.writer("b").after_write = lambda: None

        bench.writer("b").after_write = commit_once
        result = bench.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.commit("b") == 8

    def test_somebody_who_keeps_committing_at_the_origin_stops_it(self, bench: Bench) -> None:
        offsets = iter(range(16, 20))
        bench.writer("b").after_write = lambda: bench.world.commit("a", next(offsets))

        result = bench.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.INTERRUPTED
        assert "goes on committing in aggregate-a without members" in result.problem
        assert "is fenced and consumes nowhere" in result.problem

    def test_a_member_that_joins_again_at_the_origin_lifts_the_fence(self, bench: Bench) -> None:
        bench.world.copy("a", "a", 5)
        bench.world.watermark("b", "a")
        bench.world.commit("a", 25)

        def join_again(turn: int) -> None:
            if turn == 2:
                bench.writer("a").members[GROUP] = 1
                bench.world.copy("a", "b", 5)
                bench.world.watermark("b", "b")

        bench.while_waiting = join_again
        result = bench.move("a", "b", drain_ms=10_000, catch_up_ms=10_000)

        assert result.ending is Ending.ABANDONED
        assert "1 member(s) in aggregate-a" in result.problem
        assert bench.assignment().consumed_cluster == ON_A
        assert bench.commit("b") is None

    def test_a_service_that_answers_from_memory_is_asked_again(self, bench: Bench) -> None:
        """Its offsets would be too early: safe, and not exact."""
        newest = bench.writer("a").commits[GROUP]
        bench.client.origin_commits = {P0: GroupCommit(TargetOffset(12), -1, "")}
        told = iter([12, 12, 12, 15])

        def remember(_turn: int) -> None:
            bench.client.origin_commits = {P0: GroupCommit(TargetOffset(next(told, 15)), -1, "")}

        bench.while_waiting = remember
        result = bench.move("a", "b", drain_ms=10_000, catch_up_ms=10_000)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.client.origin_commits == newest
        assert bench.commit("b") == 5

    def test_who_decides_meanwhile_is_not_overruled(self, bench: Bench) -> None:
        bench.writer("a").members[GROUP] = 3

        def decide_otherwise(_turn: int) -> None:
            bench.decide(Change(GROUP, RegionName("b"), disaster=True, reason="somebody else"))

        bench.while_waiting = decide_otherwise
        result = bench.move("a", "b", drain_ms=200)

        assert result.ending is Ending.ABANDONED
        assert "somebody else has decided meanwhile" in result.problem
        assert bench.assignment().decision.reason == "somebody else"

    def test_a_plan_that_others_have_overtaken_is_not_carried_out(self, bench: Bench) -> None:
        bench.decide(Change(GROUP, RegionName("a")))
        snapshot = bench.outside.snapshot

        def moved_meanwhile(*arguments: Any) -> Any:
            bench.decide(Change(GROUP, RegionName("b")))
            return snapshot(*arguments)

        bench.outside.snapshot = moved_meanwhile  # type: ignore[method-assign] # the moment before the fence
        result = bench.move("a", "b", drain_ms=1_000)

        assert result.ending is Ending.REFUSED
        assert "somebody else has decided meanwhile" in result.problem
        assert bench.assignment().consumed_cluster == ON_B
        assert bench.commit("b") is None

    def test_only_a_cluster_may_be_given_up(self, bench: Bench) -> None:
        bench.decide(Change(GROUP, RegionName("a")))
        here = replace(a_move("a", "b"), region=RegionName("a"))

        result = bench.mover(drain_ms=1_000).move(here)

        assert result.ending is Ending.MOVED, result.problem
        decision = bench.assignment().decision
        assert (decision.primary, decision.cluster) == ("a", ON_B)


class TestAssignedTopics:
    """Topics that members consume and that the group has never committed on."""

    QUIET = TopicName("quiet")

    @pytest.fixture
    def consumed(self, bench: Bench) -> Bench:
        bench.world.empty_topic(self.QUIET)
        bench.writer("a").members[GROUP] = 1
        bench.writer("a").assigned[GROUP] = frozenset({TOPIC, self.QUIET})
        return bench

    def test_they_are_in_the_plan(self, consumed: Bench) -> None:
        plan = make_plan(consumed.outside.facts(a_move("a", "b")))

        assert [item.topic_partition.topic for item in plan.partitions] == [self.QUIET, TOPIC]
        assert (plan.partitions[0].basis, plan.partitions[0].origin_next_offset) == ("policy", None)

    def test_they_are_moved_although_their_members_have_left(self, consumed: Bench) -> None:
        def leave(_turn: int) -> None:
            consumed.writer("a").members[GROUP] = 0

        consumed.while_waiting = leave
        result = consumed.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.MOVED, result.problem
        assert consumed.writer("b").commits[GROUP][TopicPartition(self.QUIET, 0)].next_offset == 0

    def test_an_interrupted_move_still_knows_them(self, consumed: Bench) -> None:
        consumed.client.failing["set_primary settled"] = StoreUnavailableError("gone")
        consumed.while_waiting = lambda _turn: consumed.writer("a").members.clear()
        assert consumed.move("a", "b", drain_ms=10_000).ending is Ending.INTERRUPTED
        consumed.writer("b").commits.clear()
        consumed.client.failing.clear()

        result = consumed.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.MOVED, result.problem
        assert TopicPartition(self.QUIET, 0) in consumed.writer("b").commits[GROUP]

    def _interrupted(self, consumed: Bench) -> None:
        consumed.client.failing["set_primary moving"] = StoreUnavailableError("store: away")
        assert consumed.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        consumed.client.failing.clear()
        consumed.writer("a").members.clear()
        consumed.writer("a").assigned.clear()
        consumed.world.now_ms += 10_000

    def _delete(self, consumed: Bench, *regions: str) -> None:
        for region in regions:
            del consumed.writer(region).infos[self.QUIET]

    def test_an_interrupted_move_leaves_out_those_that_are_gone_from_both_sides(
        self, consumed: Bench
    ) -> None:
        self._interrupted(consumed)
        self._delete(consumed, "a", "b")

        result = consumed.move("a", "b", drain_ms=10_000)

        assert result.ending is Ending.MOVED, result.problem
        assert consumed.outside.journal.records(GROUP)[0].assigned == {TOPIC}
        assert list(consumed.writer("b").commits[GROUP]) == [P0]

    def test_but_none_that_one_side_still_has(self, consumed: Bench) -> None:
        self._interrupted(consumed)
        self._delete(consumed, "a")
        plan = consumed.mover().plan(a_move("a", "b"))
        assert self.QUIET in plan.facts.assigned

    def test_and_none_while_a_side_does_not_answer(self, consumed: Bench) -> None:
        self._interrupted(consumed)
        self._delete(consumed, "a", "b")
        consumed.writer("a").away = True
        plan = consumed.mover().plan(a_move("a", "b", MoveKind.DISASTER))
        assert self.QUIET in plan.facts.assigned


class TestStopping:
    """Ctrl-C: the step under way is finished, the next one is not begun, and the same command goes on."""

    def test_while_waiting_it_ends_fenced_and_goes_on_later(self, bench: Bench) -> None:
        bench.writer("a").members[GROUP] = 1
        bench.while_waiting = lambda turn: bench.outside.time.stop.set() if turn == 2 else None

        stopped = bench.move("a", "b", drain_ms=10_000)

        assert (stopped.ending, bench.waits) == (Ending.INTERRUPTED, 2)
        assert "stopped; the group is fenced and consumes nowhere (fencing number 2)" in stopped.problem
        assert bench.assignment().decision.stage is Stage.MOVING
        assert bench.commit("b") is None
        bench.outside.time.stop.clear()
        bench.writer("a").members.clear()
        assert bench.move("a", "b", drain_ms=10_000).ending is Ending.MOVED
        assert len(bench.outside.journal.records(GROUP)) == 1

    @pytest.mark.parametrize("during", ["set_primary moving", "offsets", "report_positions"])
    def test_it_stops_after_each_step(self, bench: Bench, during: str) -> None:
        begin = bench.client._begin
        calls: list[str] = []

        def and_stop(method: str) -> None:
            calls.append(method)
            if method == during:
                bench.outside.time.stop.set()
            begin(method)

        bench.client._begin = and_stop  # type: ignore[method-assign] # at the moment in question

        stopped = bench.move("a", "b", drain_ms=10_000)

        assert stopped.ending is not Ending.MOVED
        assert "set_primary settled" not in calls
        fenced = "set_primary moving" in calls
        assert stopped.ending is (Ending.INTERRUPTED if fenced else Ending.REFUSED)
        assert ("consumes nowhere" in stopped.problem) is fenced
        bench.outside.time.stop.clear()
        during = ""
        assert bench.move("a", "b", drain_ms=10_000).ending is Ending.MOVED

    def test_what_is_fenced_ahead_is_told_as_fenced(self, bench: Bench) -> None:
        mover = bench.mover()
        mover.fence_ahead(a_move("a", "b", MoveKind.DISASTER))
        bench.outside.time.stop.set()
        assert mover.move(a_move("a", "b", MoveKind.DISASTER)).ending is Ending.INTERRUPTED
        other = mover.move(a_move("a", "b", MoveKind.DISASTER, GroupName("other")))
        assert other.ending is Ending.REFUSED
        mover.fence_ahead(a_move("a", "b", MoveKind.DISASTER, GroupName("other")))
        assert bench.outside.journal.records(GroupName("other")) == []
