"""What a move would do, and what forbids it."""

from __future__ import annotations

import pytest

from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
)
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Change, Stage
from parallax.failover.facts import MoveKind
from parallax.failover.plan import GapKind, make_plan
from tests.worlds.failover_bench import Bench, a_move, failover_bench
from tests.worlds.offset_world import GROUP, TOPIC


class TestPlan:
    def test_it_foretells_every_partition(self, bench: Bench) -> None:
        plan = make_plan(bench.outside.facts(a_move("a", "b")))

        (item,) = plan.partitions
        assert (item.origin_next_offset, item.basis, item.resume_offset) == (15, "committed", 5)
        assert ([skip.offsets for skip in item.skips], item.redelivery_records) == ([10], 10)
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
        assert "retention at aggregate-b" in plan.gaps[0].words
        assert plan.gaps[0].kind is GapKind.TRIMMED
        assert "--accept-gaps" in plan.refusals(accept_gaps=False)[0]
        assert plan.refusals(accept_gaps=True) == ()

    def test_a_lost_range_that_the_move_crosses_is_a_gap(self, bench: Bench) -> None:
        bench.world.copy("a", "a", 3)
        bench.world.lose("a", "b", 3)
        bench.world.copy("a", "b", 2)
        bench.world.watermarks()

        plan = make_plan(bench.outside.facts(a_move("a", "b")))

        assert any("[10, 13) of region a were lost to retention" in gap.words for gap in plan.gaps)

    def test_a_partition_that_the_target_lacks_is_a_gap(self, bench: Bench) -> None:
        del bench.writer("b").infos[TOPIC]

        plan = make_plan(bench.outside.facts(a_move("a", "b")))

        assert any("aggregate-b has no such partition" in gap.words for gap in plan.gaps)

    def test_a_dead_origin_is_for_disasters_alone(self, bench: Bench) -> None:
        bench.world.groups.save_observed(bench.observed())
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
            (  # it went on there, and its commits in aggregate-a are from before
                [Change(GROUP, RegionName("a"), cluster=ClusterName("aggregate-b"))],
                "parallax primary billing --set b",
            ),
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
                bench.decide(change)
            plan = make_plan(bench.outside.facts(a_move("a", "b")))
            assert any(says in text for text in plan.obstacles)

    @pytest.mark.parametrize(
        ("kind", "command"),
        [
            (MoveKind.PLANNED, "parallax primary billing --set b"),
            (MoveKind.DISASTER, "parallax primary billing --set b --disaster"),
        ],
    )
    def test_what_it_says_to_run_asks_no_region_that_is_gone(
        self, bench: Bench, kind: MoveKind, command: str
    ) -> None:
        bench.world.commit("a", 0)
        bench.decide(Change(GROUP, RegionName("a"), cluster=ClusterName("aggregate-b")))
        plan = make_plan(bench.outside.facts(a_move("a", "b", kind)))
        assert any(text.endswith(f"run {command}") for text in plan.obstacles)
