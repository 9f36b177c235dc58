"""Moves as a whole: disasters, there and back, and what was interrupted goes on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from parallax.domain.commits import GroupCommit
from parallax.domain.ids import (
    ClusterName,
    RegionName,
    TargetOffset,
)
from parallax.domain.metadata import decode
from parallax.domain.primary import Change, Mode, Stage, decide
from parallax.errors import (
    NotFoundError,
    StoreUnavailableError,
)
from parallax.failover.facts import MoveKind
from parallax.failover.journal import Step, home_of
from parallax.failover.plan import Ending, make_plan
from parallax.failover.selection import one_move, way_back
from parallax.ports.groups import PrimaryLog, Reach
from tests.memory.groups import MemoryPrimaryStore
from tests.support import poll_until
from tests.worlds.failover_bench import P0, Bench, a_move, failover_bench, unnoted
from tests.worlds.offset_world import GROUP, NOW_MS, TOPIC

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")


class TestDisaster:
    def test_nothing_of_the_dead_side_is_needed(self, bench: Bench) -> None:
        bench.world.groups.save_observed(bench.observed())
        bench.writer("a").away = True

        result = bench.move("a", "b", MoveKind.DISASTER)

        assert result.ending is Ending.MOVED, result.problem
        assert bench.commit("b") == 5
        assert bench.assignment().decision.disaster
        assert ON_A not in bench.outside.journal.records(GROUP)[0].snapshot.commits

    def test_a_group_of_which_nothing_more_was_heard_is_asked_about_once(self, bench: Bench) -> None:
        bench.world.groups.save_observed(bench.observed())
        bench.writer("a").away = True

        assert bench.move("a", "b", MoveKind.DISASTER).ending is Ending.MOVED
        assert bench.client.calls.count("offsets") == 1

    def test_a_service_that_sees_the_origin_is_asked_again(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only this command can't reach it: what consumers commit there meanwhile the store does not know."""
        bench.world.groups.save_observed(bench.observed())
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
        bench.world.groups.save_observed(bench.observed())
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
        bench.world.groups.save_observed(bench.observed())
        bench.writer("a").away = True

        def report(_turn: int) -> None:
            assert bench.assignment().decision.stage is Stage.MOVING
            later = [
                replace(item, next_offset=TargetOffset(18), observed_at_ms=NOW_MS * 2)
                for item in bench.observed()
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
                    replace(item, next_offset=TargetOffset(18), observed_at_ms=at_ms, reported=True)
                    for item in bench.observed()
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
        bench.decide(Change(GROUP, RegionName("a"), disaster=True))
        elsewhere = MemoryPrimaryStore()
        site = replace(bench.client.service.primaries.site, decided_in=RegionName("b"))
        decision = decide(Change(GROUP, RegionName("b"), disaster=True), [], site, 1)
        assert elsewhere.append(decision, log=PrimaryLog((), 0), reach=Reach.HERE)
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
        bench.world.groups.save_observed(bench.observed())
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
        bench.world.groups.save_observed(bench.observed())

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

    def test_one_whose_last_note_failed_says_that_the_group_may_have_arrived(self, bench: Bench) -> None:
        with unnoted(bench, Step.DONE):
            result = bench.move("a", "b", drain_ms=1_000)
        assert result.ending is Ending.INTERRUPTED
        assert "its offsets stand in aggregate-b, and unless it is primary there already" in result.problem

    def test_a_move_that_died_before_its_last_note_is_noted_as_done(self, bench: Bench) -> None:
        bench.move("a", "b", drain_ms=1_000)
        (record,) = bench.outside.journal.records(GROUP)
        bench.outside.journal.keep(replace(record, step=Step.WRITTEN))

        assert bench.move("a", "b").ending is Ending.ALREADY_THERE
        assert bench.outside.journal.records(GROUP)[0].step is Step.DONE


class TestElsewhereInTheMiddle:
    """A move that was interrupted goes to another place: the group's home is where it was before both."""

    @pytest.fixture
    def interrupted(self) -> Iterator[Bench]:
        """The group of region a is fenced on its way to b."""
        with failover_bench(("a", "b", "c")) as bench:
            for target in "abc":
                for source in "abc":
                    bench.world.copy(source, target, 10)
            bench.world.watermarks()
            bench.world.commit("a", 15)
            bench.decide(Change(GROUP, RegionName("a")))
            bench.writer("a").members[GROUP] = 1
            bench.while_waiting = lambda _turn: bench.outside.time.stop.set()
            assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
            bench.outside.time.stop.clear()
            bench.while_waiting = lambda _turn: None
            bench.writer("a").members.clear()
            yield bench

    def test_its_way_back_leads_home(self, interrupted: Bench) -> None:
        assert interrupted.move("a", "c", MoveKind.DISASTER).ending is Ending.MOVED
        assert way_back(interrupted.outside, GROUP, MoveKind.PLANNED) == a_move("c", "a")

    def test_abandoned_it_is_at_home_again(self, interrupted: Bench) -> None:
        def join(_turn: int) -> None:
            interrupted.writer("c").members[GROUP] = 1

        interrupted.while_waiting = join
        result = interrupted.move("a", "c", MoveKind.DISASTER, handover_ms=1_000)
        assert result.ending is Ending.ABANDONED, result.problem
        decision = interrupted.assignment().decision
        assert (decision.primary, decision.cluster) == ("a", ON_A)

    def test_where_a_cluster_alone_is_given_up_home_stays_primary(self, interrupted: Bench) -> None:
        words = {"to_region": None, "to_cluster": "aggregate-c", "origin": None}
        found = one_move(interrupted.outside, GROUP, **words, kind=MoveKind.DISASTER)
        assert found == replace(a_move("a", "c", MoveKind.DISASTER), region=RegionName("a"))

    def test_home_may_be_another_region_than_the_clusters(self, interrupted: Bench) -> None:
        record = interrupted.outside.journal.records(GROUP)[0]
        at_c = replace(record, snapshot=replace(record.snapshot, primary=RegionName("c")))
        assert home_of(interrupted.assignment(), at_c) == "c"
        assert home_of(interrupted.assignment(), replace(at_c, step=Step.ABANDONED)) == "a"
        assert home_of(interrupted.assignment(), None) == "a"


class TestPublisher:
    """An active/active group whose change of publisher was decided, and whose answer did not arrive."""

    @pytest.fixture
    def unheard(self, bench: Bench) -> Bench:
        bench.decide(Change(GROUP, RegionName("a"), mode=Mode.ACTIVE_ACTIVE))
        decide_on = bench.client.set_primary

        def lost(change: Change, *, actor: str = "") -> None:
            decide_on(change, actor=actor)
            raise StoreUnavailableError("store: timed out")

        bench.client.set_primary = lost  # type: ignore[method-assign,assignment] # for this once
        assert bench.move("a", "b").ending is Ending.INTERRUPTED
        bench.client.set_primary = decide_on  # type: ignore[method-assign] # as before
        assert bench.assignment().decision.primary == "b"
        return bench

    def test_the_same_command_again_notes_it(self, unheard: Bench) -> None:
        words = {"to_region": "b", "to_cluster": None, "origin": None}
        again = one_move(unheard.outside, GROUP, **words, kind=MoveKind.PLANNED)
        assert again == a_move("a", "b")
        assert unheard.mover().move(again).ending is Ending.ALREADY_THERE
        assert unheard.outside.journal.records(GROUP)[0].step is Step.DONE

    def test_it_has_a_way_back(self, unheard: Bench) -> None:
        assert way_back(unheard.outside, GROUP, MoveKind.PLANNED) == a_move("b", "a")

    def test_what_others_have_decided_is_no_move_of_this_command(self, unheard: Bench) -> None:
        unheard.decide(Change(GROUP, RegionName("b"), renew=True, reason="by hand"))
        with pytest.raises(NotFoundError):
            way_back(unheard.outside, GROUP, MoveKind.PLANNED)
