"""Moves of groups, step by step, over the real rule and use cases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from parallax.domain.commits import GroupCommit, ObservedCommit
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.metadata import CommittedMetadata, decode, encode
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Change, Stage, decide
from parallax.domain.skips import SkipRange
from parallax.errors import (
    ClusterUnavailableError,
    FencedError,
    NotFoundError,
    RefusedError,
    StoreUnavailableError,
)
from parallax.failover.facts import MoveKind
from parallax.failover.journal import Step, mark_of, note_of, record_of, without_skips
from parallax.failover.plan import Ending, make_plan
from parallax.failover.rollback import plan_rollback, roll_back
from parallax.ports.groups import Reach
from parallax.runtime.deadline import Deadline
from tests.memory.groups import MemoryPrimaryStore
from tests.support import poll_until
from tests.worlds.failover_bench import P0, Bench, a_move, failover_bench, two_sources
from tests.worlds.offset_world import GROUP, NOW_MS, TOPIC

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")


@pytest.fixture
def bench() -> Iterator[Bench]:
    """The group has consumed a0..9 and b0..4 on a."""
    with failover_bench() as made:
        two_sources(made.world)
        made.world.commit("a", 15)
        yield made


def decided(bench: Bench, change: Change) -> None:
    bench.client.service.primaries.set(change, Deadline.after_ms(1_000))


class TestPlan:
    def test_it_foretells_every_partition(self, bench: Bench) -> None:
        plan = make_plan(bench.outside.facts(a_move("a", "b")))

        (item,) = plan.partitions
        assert (item.origin_next_offset, item.basis, item.resume_offset) == (15, "committed", 5)
        assert ([skip.count for skip in item.skips], item.redelivery_records) == ([10], 10)
        assert (item.pending_records, item.settled, item.freshness_ms) == (0, True, 0)
        assert plan.refusals(accept_gaps=False) == ()
        assert (plan.outcome, plan.redelivery_records, plan.unknown) == (Outcome.OK, 10, ())

    def test_what_is_pending_is_waited_for(self, bench: Bench) -> None:
        bench.world.copy("a", "a", 5)
        bench.world.watermark("b", "a")
        bench.world.commit("a", 25)

        plan = make_plan(bench.outside.facts(a_move("a", "b")))

        assert plan.pending_records == 5
        assert not plan.partitions[0].settled
        assert any("5 consumed record(s) have reached aggregate-b" in text for text in plan.waits_for)

    def test_a_trimmed_target_is_a_gap_that_must_be_accepted(self, bench: Bench) -> None:
        bench.world.trim("b", 8)

        plan = make_plan(bench.outside.facts(a_move("a", "b")))

        assert len(plan.gaps) == 1
        assert "retention at aggregate-b" in plan.gaps[0]
        assert "--accept-gaps" in plan.refusals(accept_gaps=False)[0]
        assert plan.refusals(accept_gaps=True) == ()

    def test_a_lost_range_that_the_move_crosses_is_a_gap(self, bench: Bench) -> None:
        bench.world.copy("a", "a", 3)
        bench.world.lose("a", "b", 3)
        bench.world.copy("a", "b", 2)
        bench.world.watermarks()

        plan = make_plan(bench.outside.facts(a_move("a", "b")))

        assert any("[10, 13) of region a were lost to retention" in gap for gap in plan.gaps)

    def test_a_partition_that_the_target_lacks_is_a_gap(self, bench: Bench) -> None:
        del bench.writer("b").infos[TOPIC]

        plan = make_plan(bench.outside.facts(a_move("a", "b")))

        assert any("aggregate-b has no such partition" in gap for gap in plan.gaps)

    def test_a_dead_origin_is_for_disasters_alone(self, bench: Bench) -> None:
        bench.world.groups.save_observed(list(_observed(bench)))
        bench.writer("a").away = True

        planned = make_plan(bench.outside.facts(a_move("a", "b")))
        disaster = make_plan(bench.outside.facts(a_move("a", "b", MoveKind.DISASTER)))

        assert any("with --disaster" in text for text in planned.obstacles)
        assert disaster.obstacles == ()
        assert any("the position 15 was seen" in text for text in disaster.unknown)
        assert disaster.partitions[0].resume_offset == 5

    def test_a_dead_target_can_not_be_moved_to(self, bench: Bench) -> None:
        bench.writer("b").away = True

        plan = make_plan(bench.outside.facts(a_move("a", "b")))

        assert any("aggregate-b does not answer" in text for text in plan.obstacles)

    def test_members_at_the_target_are_an_obstacle(self, bench: Bench) -> None:
        bench.writer("b").commits[GROUP] = {}
        bench.writer("b").members[GROUP] = 2

        plan = make_plan(bench.outside.facts(a_move("a", "b")))

        assert any("2 member(s) in aggregate-b already" in text for text in plan.obstacles)

    def test_a_group_that_nobody_knows_has_a_problem_not_a_plan(self, bench: Bench) -> None:
        plan = make_plan(bench.outside.facts(a_move("a", "b", group=GroupName("nobody"))))

        assert plan.partitions == ()
        assert any("UNKNOWN_GROUP" in text for text in plan.obstacles)

    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ([Change(GROUP, RegionName("a"), cluster=ClusterName("aggregate-c"))], "consumes aggregate-c"),
            (
                [
                    Change(GROUP, RegionName("a")),
                    Change(GROUP, RegionName("c"), stage=Stage.MOVING),
                ],
                "on its way from aggregate-a to aggregate-c",
            ),
        ],
    )
    def test_what_was_decided_stands(self, changes: list[Change], says: str) -> None:
        with failover_bench(("a", "b", "c")) as bench:
            bench.world.commit("a", 0)
            for change in changes:
                decided(bench, change)
            plan = make_plan(bench.outside.facts(a_move("a", "b")))
            assert any(says in text for text in plan.obstacles)


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
        assert "look whether replication runs" in result.problem
        assert bench.assignment().consumed_cluster == ON_A

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
            decided(bench, Change(GROUP, RegionName("b"), disaster=True, reason="somebody else"))

        bench.while_waiting = decide_otherwise
        result = bench.move("a", "b", drain_ms=200)

        assert result.ending is Ending.ABANDONED
        assert "somebody else has decided meanwhile" in result.problem
        assert bench.assignment().decision.reason == "somebody else"

    def test_a_plan_that_others_have_overtaken_is_not_carried_out(self, bench: Bench) -> None:
        decided(bench, Change(GROUP, RegionName("a")))
        snapshot = bench.outside.snapshot

        def moved_meanwhile(*arguments: Any) -> Any:
            decided(bench, Change(GROUP, RegionName("b")))
            return snapshot(*arguments)

        bench.outside.snapshot = moved_meanwhile  # type: ignore[method-assign] # the moment before the fence
        result = bench.move("a", "b", drain_ms=1_000)

        assert result.ending is Ending.REFUSED
        assert "somebody else has decided meanwhile" in result.problem
        assert bench.assignment().consumed_cluster == ON_B
        assert bench.commit("b") is None

    def test_only_a_cluster_may_be_given_up(self, bench: Bench) -> None:
        decided(bench, Change(GROUP, RegionName("a")))
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


class TestDisaster:
    def test_nothing_of_the_dead_side_is_needed(self, bench: Bench) -> None:
        bench.world.groups.save_observed(list(_observed(bench)))
        bench.writer("a").away = True

        result = bench.move("a", "b", MoveKind.DISASTER)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.commit("b") == 5
        assert bench.assignment().decision.disaster
        assert ON_A not in bench.outside.journal.records(GROUP)[0].snapshot.commits

    def test_a_group_of_which_nothing_more_was_heard_is_asked_about_once(self, bench: Bench) -> None:
        bench.world.groups.save_observed(list(_observed(bench)))
        bench.writer("a").away = True

        assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.MOVED
        assert bench.client.calls.count("offsets") == 1

    def test_a_service_that_sees_the_origin_is_asked_again(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only this command can't reach it: what consumers commit there meanwhile the store does not know."""
        bench.world.groups.save_observed(list(_observed(bench)))
        ask = bench.outside.clusters._ask
        monkeypatch.setattr(
            bench.outside.clusters,
            "_ask",
            lambda cluster, what: None if cluster == ON_A else ask(cluster, what),
        )
        bench.while_waiting = lambda _turn: bench.world.commit("a", 18)

        assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.MOVED
        assert bench.commit("b") == 8

    def test_many_groups_wait_for_a_dead_cluster_once(self, bench: Bench) -> None:
        writer = bench.writer("a")
        writer.away = True
        writer.asked = 0
        with ThreadPoolExecutor(8) as threads:
            told = list(threads.map(lambda _: bench.outside.clusters.members(GROUP, ON_A), range(8)))
        assert told == [None] * 8
        assert writer.asked == 1

    def test_progress_of_earlier_moves_is_kept_with_the_origin_gone(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        bench.move("b", "a", drain_ms=1_000)
        before = bench.world.groups.progress(GROUP, TOPIC)
        bench.world.groups.save_observed(list(_observed(bench)))
        bench.writer("a").away = True
        bench.writer("b").commits.clear()

        assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.MOVED

        assert bench.outside.journal.records(GROUP)[0].snapshot.progress == {P0: before[0]}

    def test_pending_records_do_not_hold_it_up(self, bench: Bench) -> None:
        bench.world.copy("a", "a", 5)
        bench.world.watermark("b", "a")
        bench.world.commit("a", 25)

        result = bench.move("a", "b", MoveKind.DISASTER)

        assert result.ending is Ending.MOVED, result.problem
        assert result.plan is not None
        assert result.plan.pending_records == 5
        assert decode(bench.writer("b").commits[GROUP][P0].metadata).complete_to is not None

    def test_consumers_are_given_time_to_report_what_they_have_delivered(self, bench: Bench) -> None:
        bench.world.groups.save_observed(list(_observed(bench)))
        bench.writer("a").away = True

        def report(_turn: int) -> None:
            assert bench.assignment().decision.stage is Stage.MOVING
            later = [
                replace(item, next_offset=TargetOffset(18), observed_at_ms=NOW_MS * 2)
                for item in _observed(bench)
            ]
            bench.world.groups.save_observed(later)

        bench.while_waiting = report
        result = bench.move("a", "b", MoveKind.DISASTER, handover_ms=5_000)

        assert result.ending is Ending.MOVED, result.problem
        assert (bench.waits, bench.commit("b")) == (1, 8)

    @pytest.mark.parametrize(("age_ms", "resume"), [(0, 8), (60_000, 5)])
    def test_what_is_reported_after_the_fence_outweighs_commits_of_a_cluster_that_lives(
        self, bench: Bench, age_ms: int, resume: int
    ) -> None:
        def report(_turn: int) -> None:
            at_ms = bench.world.now_ms - age_ms
            bench.world.groups.save_observed(
                [
                    replace(item, next_offset=TargetOffset(18), observed_at_ms=at_ms)
                    for item in _observed(bench)
                ]
            )

        bench.while_waiting = report
        result = bench.move("a", "b", MoveKind.DISASTER)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.commit("b") == resume

    def test_a_group_that_was_fenced_ahead_does_not_wait_again(self, bench: Bench) -> None:
        mover = bench.mover(handover_ms=1_500)
        move = a_move("a", "b", MoveKind.DISASTER)

        mover.fence_ahead(move)
        assert bench.assignment().decision.stage is Stage.MOVING
        number = bench.assignment().decision.fencing_number
        bench.world.now_ms += 1_500
        result = mover.move(move)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.waits == 0
        metadata = decode(bench.writer("b").commits[GROUP][P0].metadata)
        assert metadata.fencing_number == number

    def test_a_group_that_was_fenced_ahead_is_not_planned_again(self, bench: Bench) -> None:
        begin, asked = bench.client._begin, list[str]()

        def noted(method: str) -> None:
            asked.append(method)
            begin(method)

        bench.client._begin = noted  # type: ignore[method-assign] # to see what is asked
        mover = bench.mover()
        mover.fence_ahead(a_move("a", "b", MoveKind.DISASTER))
        assert mover.move(a_move("a", "b", MoveKind.DISASTER)).ending is Ending.MOVED
        assert asked.count("offsets") == 2  # the plan, and the final offsets
        assert asked.count("set_primary moving") == 1

    def test_what_can_not_be_fenced_ahead_is_told_by_the_move(self, bench: Bench) -> None:
        mover = bench.mover()
        bench.client.failing["get_primary"] = StoreUnavailableError("store: away")
        mover.fence_ahead(a_move("a", "b", MoveKind.DISASTER))
        bench.world.trim("b", 8)
        bench.client.failing.clear()
        mover.fence_ahead(a_move("a", "b", MoveKind.DISASTER))
        assert bench.client.service.primaries.get(GROUP) is None
        assert mover.move(a_move("a", "b", MoveKind.DISASTER)).ending is Ending.REFUSED

    def test_a_dual_group_is_settled_by_it(self, bench: Bench) -> None:
        decided(bench, Change(GROUP, RegionName("a"), disaster=True))
        elsewhere = MemoryPrimaryStore()
        site = replace(bench.client.service.primaries.site, decided_in=RegionName("b"))
        decision = decide(Change(GROUP, RegionName("b"), disaster=True), [], site, 1)
        assert elsewhere.append(decision, after=0, reach=Reach.HERE)
        bench.world.primaries.absorb(elsewhere)
        assert bench.assignment().dual_active
        assert bench.move("a", "b").ending is Ending.REFUSED
        assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.MOVED
        assert not bench.assignment().dual_active


class TestThereAndBack:
    def test_failback_right_after_is_exact(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)

        result = bench.move("b", "a", drain_ms=1_000)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.commit("a") == 15

    def test_unconsumed_records_that_never_left_the_origin_are_consumed_after_failback(
        self, bench: Bench
    ) -> None:
        bench.world.copy("a", "a", 5)  # on a at 20..24, never copied to b before the disaster
        bench.world.watermark("b", "a")
        bench.world.groups.save_observed(list(_observed(bench)))
        bench.writer("a").away = True
        assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.MOVED
        bench.world.copy("b", "b", 4)
        bench.world.watermark("b", "b")
        bench.world.commit("b", 24)
        bench.writer("a").away = False
        bench.world.copy("a", "b", 5)  # the replicator is back: a10..14 at b 24..28
        bench.world.copy("b", "a", 4)
        bench.world.watermarks()

        # Both sides look only now and then whether a cluster is back; until then the move is refused.
        def moved_back() -> bool:
            result = bench.move("b", "a", drain_ms=1_000, catch_up_ms=1_000)
            assert result.ending is Ending.MOVED or "aggregate-a" in result.problem
            return result.ending is Ending.MOVED

        poll_until(moved_back, within_s=20, what="the way back")
        assert bench.commit("a") == 20  # a10..14 were consumed nowhere

    def test_three_regions_in_a_circle(self) -> None:
        with failover_bench(("a", "b", "c")) as bench:
            for target, order in (("a", "abc"), ("b", "cab"), ("c", "bca")):
                for source in order:
                    bench.world.copy(source, target, 10)
            bench.world.watermarks()
            bench.world.commit("a", 15)  # a0..9 b0..4
            for origin, target in (("a", "b"), ("b", "c"), ("c", "a")):
                assert bench.move(origin, target, drain_ms=1_000).ending is Ending.MOVED
            assert bench.commit("a") == 15


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


class TestClocks:
    @pytest.mark.parametrize("off_by_ms", [-86_400_000, 86_400_000])
    def test_an_operators_clock_that_is_off_takes_nothing_back(self, bench: Bench, off_by_ms: int) -> None:
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        right = bench.outside.time.now_ms
        bench.outside.time.now_ms = lambda: right() + off_by_ms
        assert bench.move("b", "a", drain_ms=1_000).ending is Ending.MOVED
        assert bench.world.groups.progress(GROUP, TOPIC)[0].cluster == ON_A
        bench.outside.time.now_ms = right
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        assert bench.world.groups.progress(GROUP, TOPIC)[0].cluster == ON_B
        assert [record.move.target for record in bench.outside.journal.records(GROUP)] == [ON_B, ON_A, ON_B]


class TestRemnants:
    """A cluster that was away lists the members that it had, until they leave or their sessions end."""

    @pytest.fixture
    def returned(self, bench: Bench) -> Bench:
        """The group has moved to b, and a has come back with its members."""
        assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.MOVED
        bench.writer("a").members[GROUP] = 2
        bench.world.now_ms += 1_000  # members are listed at most twice a second
        return bench

    @pytest.mark.parametrize("kind", list(MoveKind))
    def test_the_way_back_waits_for_them_while_the_group_goes_on(
        self, returned: Bench, kind: MoveKind
    ) -> None:
        stages: list[Stage] = []

        def leave(turn: int) -> None:
            if turn <= 4:
                stages.append(returned.assignment().decision.stage)
            if turn == 4:
                returned.writer("a").members.clear()

        returned.while_waiting = leave
        plan = make_plan(returned.outside.facts(a_move("b", "a", kind)))
        assert plan.refusals(accept_gaps=False) == ()
        assert any("2 member(s) that aggregate-a still lists" in text for text in plan.waits_for)

        back = returned.move("b", "a", kind, drain_ms=10_000)

        assert back.ending is Ending.MOVED, back.problem
        assert set(stages) == {Stage.SETTLED}
        assert returned.assignment().consumed_cluster == ON_A

    def test_members_that_stay_are_told_and_nothing_has_changed(self, returned: Bench) -> None:
        number = returned.assignment().decision.fencing_number
        back = returned.move("b", "a", drain_ms=1_000)
        assert back.ending is Ending.REFUSED
        assert "aggregate-a still lists 2 member(s)" in back.problem
        assert returned.assignment().decision.fencing_number == number

    def test_places_that_failover_consumers_made_for_themselves_are_given_up_for_them(
        self, returned: Bench
    ) -> None:
        returned.writer("a").own_instances = {"parallax-consumer-1", "parallax-consumer-2"}

        def time_passes(_turn: int) -> None:
            returned.world.now_ms += 1_000  # members are listed at most twice a second

        returned.while_waiting = time_passes
        assert returned.move("b", "a", drain_ms=10_000).ending is Ending.MOVED
        assert returned.writer("a").own_instances == set()

    def test_a_target_that_goes_away_again_is_told(self, returned: Bench) -> None:
        def go_away(_turn: int) -> None:
            returned.world.now_ms += 1_000  # members are listed at most twice a second
            returned.writer("a").away = True

        returned.while_waiting = go_away
        back = returned.move("b", "a", drain_ms=10_000)
        assert (back.ending, "stopped answering" in back.problem) == (Ending.REFUSED, True)

    def test_a_refused_command_tells_that_an_earlier_one_has_fenced_the_group(self, bench: Bench) -> None:
        bench.client.failing["set_primary settled"] = StoreUnavailableError("gone")
        assert bench.move("a", "b", drain_ms=10_000).ending is Ending.INTERRUPTED
        bench.world.trim("b", 8)
        again = bench.move("a", "b", drain_ms=10_000)
        assert again.ending is Ending.INTERRUPTED
        assert "--accept-gaps" in again.problem
        assert "the group is fenced and consumes nowhere" in again.problem


class TestInterruption:
    @pytest.mark.parametrize(
        "method", ["offsets", "get_primary", "set_primary moving", "set_primary settled"]
    )
    def test_it_goes_on_where_a_service_did_not_answer(self, bench: Bench, method: str) -> None:
        bench.client.failing[method] = StoreUnavailableError("store: away")
        first = bench.move("a", "b", drain_ms=1_000)
        assert first.ending in {Ending.INTERRUPTED, Ending.REFUSED}
        bench.client.failing.clear()
        bench.world.now_ms += 5_000

        second = bench.move("a", "b", drain_ms=1_000)

        assert second.ending is Ending.MOVED, second.problem
        assert bench.commit("b") == 5
        newest = bench.outside.journal.records(GROUP)[0]
        assert (newest.step, newest.problem) == (Step.DONE, "")

    def test_the_snapshot_is_that_of_the_beginning(self, bench: Bench) -> None:
        bench.writer("b").commits[GROUP] = {P0: GroupCommit(TargetOffset(2), -1, "before")}
        bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        bench.client.failing.clear()

        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED

        (record,) = bench.outside.journal.records(GROUP)
        assert record.snapshot.commits[ON_B][P0].metadata == "before"

    def test_a_planned_move_may_be_finished_as_a_disaster(self, bench: Bench) -> None:
        bench.world.groups.save_observed(list(_observed(bench)))

        def die(_turn: int) -> None:
            bench.writer("a").away = True
            bench.client.failing["set_primary settled"] = StoreUnavailableError("store: no majority")

        bench.while_waiting = die
        assert bench.move("a", "b", drain_ms=50).ending is Ending.INTERRUPTED
        bench.client.failing.clear()
        bench.while_waiting = lambda _turn: None

        result = bench.move("a", "b", MoveKind.DISASTER)

        assert result.ending is Ending.MOVED, result.problem
        assert len(bench.outside.journal.records(GROUP)) == 1

    def test_what_another_command_has_finished_meanwhile_stays_finished(self, bench: Bench) -> None:
        bench.client.failing["report_positions"] = StoreUnavailableError("store: away")
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        bench.client.failing.clear()
        bench.writer("b").members[GROUP] = 1
        bench.world.now_ms += 1_000
        others: list[Ending] = []

        def finish_it(_turn: int) -> None:
            bench.while_waiting = lambda _turn: None
            bench.writer("b").members.clear()
            bench.world.now_ms += 1_000
            others.append(bench.move("a", "b", drain_ms=1_000).ending)

        bench.while_waiting = finish_it
        result = bench.move("a", "b", drain_ms=10_000)

        assert others == [Ending.MOVED]
        assert result.ending is Ending.REFUSED
        assert "another command has gone on with this move meanwhile" in result.problem
        newest = bench.outside.journal.records(GROUP)[0]
        assert newest.step is Step.DONE
        assert newest.written

    def test_a_move_that_died_before_its_last_note_is_noted_as_done(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        (record,) = bench.outside.journal.records(GROUP)
        bench.outside.journal.keep(replace(record, step=Step.WRITTEN))

        assert bench.move("a", "b").ending is Ending.ALREADY_THERE
        assert bench.outside.journal.records(GROUP)[0].step is Step.DONE


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
        decided(bench, Change(GROUP, RegionName("b"), renew=True))

        with pytest.raises(FencedError):
            roll_back(bench.outside, plan)

        assert bench.assignment().consumed_cluster == ON_B

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
        decided(bench, Change(GROUP, RegionName("b"), renew=True))
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


def test_the_journal_is_small_although_metadata_is_long(bench: Bench) -> None:
    partitions = 10
    skips = tuple(SkipRange(TargetOffset(at), TargetOffset(at + 1)) for at in range(6, 3_000, 2))
    published = CommittedMetadata(
        0, TopicId("aggregate-b-1"), TargetOffset(5), {}, skips, TargetOffset(3_000)
    )
    commit = GroupCommit(TargetOffset(5), -1, encode(published))
    assert len(commit.metadata) > 2_000
    places = [TopicPartition(TOPIC, number) for number in range(partitions)]
    bench.writer("b").commits[GROUP] = dict.fromkeys(places, commit)
    move = a_move("a", "b")
    snapshot = bench.outside.snapshot(move, None)
    marks = {place: mark_of(commit) for place in places}
    record = replace(bench.outside.journal.begin(move, snapshot, None), written=marks)

    note = note_of(record)

    assert len(note.body) < 300 * partitions
    assert record_of(note) == record
    kept = decode(snapshot.commits[ON_B][places[0]].metadata)
    assert (kept.resume_offset, kept.skips, kept.complete_to) == (5, (), 5)
    assert mark_of(commit) != mark_of(replace(commit, metadata=""))


def test_somebody_elses_metadata_is_kept_as_it_is() -> None:
    for text in ("", "mine", "plx?"):
        commit = GroupCommit(TargetOffset(5), -1, text)
        assert without_skips(commit) == commit


def test_a_record_survives_the_journal(bench: Bench) -> None:
    bench.move("a", "b", drain_ms=1_000)
    bench.move("b", "a", drain_ms=1_000)
    for record in bench.outside.journal.records(GROUP):
        assert record.snapshot.commits
        assert record_of(note_of(record)) == record
    assert bench.outside.journal.records(GROUP)[0].snapshot.progress


def _observed(bench: Bench) -> Iterator[ObservedCommit]:
    for item, commit in bench.writer("a").commits[GROUP].items():
        topic_id = bench.writer("a").infos[TOPIC].topic_id
        yield ObservedCommit(GROUP, ON_A, item, topic_id, commit.next_offset, -1, bench.world.now_ms - 700)
