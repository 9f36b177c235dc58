"""Which groups of a region move, where to, and in which order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from parallax.domain.commits import ObservedCommit
from parallax.domain.ids import ClusterName, GroupName, RegionName, TargetOffset
from parallax.domain.primary import Change, Mode, Stage
from parallax.errors import (
    InvalidNameError,
    NotFoundError,
    ParallaxError,
    RefusedError,
    StoreUnavailableError,
    UnknownRegionError,
)
from parallax.failover import selection
from parallax.failover.facts import MoveKind
from parallax.failover.journal import Step
from parallax.failover.plan import Ending
from parallax.failover.selection import (
    groups_on,
    in_order,
    one_move,
    region_moves,
    side_by_side,
    way_back,
    ways_back,
)
from tests.worlds.failover_bench import (
    BILLING,
    FRAUD,
    MAPS,
    P0,
    Bench,
    a_move,
    failover_bench,
    region_bench,
    unnoted,
)
from tests.worlds.offset_world import GROUP, TOPIC

ON_A, ON_B = ClusterName("aggregate-a"), ClusterName("aggregate-b")


@pytest.fixture
def bench() -> Iterator[Bench]:
    with region_bench() as made:
        yield made


def everything(_group: GroupName) -> bool:
    return True


def nobody(group: GroupName, problem: str) -> None:
    pytest.fail(f"{group}: {problem}")


class TestWhichGroups:
    def test_those_with_commits_of_their_own_there(self, bench: Bench) -> None:
        assert groups_on(bench.outside, ON_A, everything, to=ON_B) == [BILLING, FRAUD, MAPS]
        assert groups_on(bench.outside, ON_B, everything, to=ON_A) == ["local-to-b"]

    def test_not_those_whose_commits_were_put_there_for_them(self, bench: Bench) -> None:
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        bench.world.primaries = type(bench.world.primaries)()

        with bench.world.service() as service:
            bench.client.service = service
            assert groups_on(bench.outside, ON_B, everything, to=ON_A) == ["local-to-b"]

    def test_what_is_recorded_outweighs_commits(self, bench: Bench) -> None:
        bench.decide(Change(BILLING, RegionName("b")))
        bench.decide(Change(FRAUD, RegionName("a"), mode=Mode.ACTIVE_ACTIVE))
        bench.decide(Change(GroupName("new"), RegionName("a")))
        bench.decide(Change(MAPS, RegionName("b"), stage=Stage.MOVING, moving_from=ON_A))

        assert groups_on(bench.outside, ON_A, everything, to=ON_B) == [FRAUD, MAPS, "new"]
        assert groups_on(bench.outside, ON_A, lambda group: group == MAPS, to=ON_B) == [MAPS]
        assert groups_on(bench.outside, ON_A, everything, to=ClusterName("aggregate-c")) == [FRAUD, "new"]
        assert FRAUD not in groups_on(bench.outside, ON_B, everything, to=ON_A)

    def test_of_a_dead_cluster_those_that_were_seen(self, bench: Bench) -> None:
        topic_id = bench.writer("a").infos[TOPIC].topic_id
        bench.world.groups.save_observed(
            [ObservedCommit(FRAUD, ON_A, P0, topic_id, TargetOffset(10), -1, bench.world.now_ms)]
        )
        bench.writer("a").away = True

        assert groups_on(bench.outside, ON_A, everything, to=ON_B) == [FRAUD]

    def test_one_that_may_not_be_seen_is_among_them(self, bench: Bench) -> None:
        bench.writer("a").refused[FRAUD] = "group fraud: not allowed to see it"
        moves = region_moves(bench.outside, "a", "b", everything, MoveKind.PLANNED)
        assert list(moves) == [BILLING, FRAUD, MAPS]
        told = bench.mover().move(moves[FRAUD])
        assert (told.ending, "not allowed to see it" in told.problem) == (Ending.REFUSED, True)

    def test_groups_are_asked_about_side_by_side(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        stored = bench.world.groups.stored
        together = threading.Barrier(3)

        def with_the_others(groups: Any, clusters: Any) -> Any:
            together.wait(10)
            return stored(groups, clusters)

        monkeypatch.setattr(selection, "_ASKED_TOGETHER", 1)
        monkeypatch.setattr(bench.world.groups, "stored", with_the_others)
        assert groups_on(bench.outside, ON_A, everything, to=ON_B) == [BILLING, FRAUD, MAPS]


class TestOrder:
    def test_groups_named_first_come_first(self) -> None:
        assert in_order([MAPS, BILLING, FRAUD], [MAPS, MAPS]) == [MAPS, BILLING, FRAUD]
        with pytest.raises(RefusedError, match="--first: nobody is not among"):
            in_order([MAPS], [GroupName("nobody")])

    def test_they_begin_in_order_and_results_keep_it(self) -> None:
        begun: list[GroupName] = []
        done: list[GroupName] = []

        def task(group: GroupName) -> int:
            begun.append(group)
            return len(group)

        results = side_by_side(
            [MAPS, BILLING, FRAUD], task, at_once=1, done=lambda group, _: done.append(group)
        )
        assert begun == [MAPS, BILLING, FRAUD]
        assert list(results.items()) == [(MAPS, 4), (BILLING, 7), (FRAUD, 5)]
        assert sorted(done) == sorted(begun)

    def test_an_error_ends_what_has_not_begun(self) -> None:
        begun: list[GroupName] = []

        def task(group: GroupName) -> None:
            begun.append(group)
            raise StoreUnavailableError("away")

        with pytest.raises(StoreUnavailableError):
            side_by_side([GroupName(str(number)) for number in range(100)], task, at_once=1)
        assert begun == ["0"]


class TestWhichMove:
    def test_the_origin_is_the_only_other_cluster_or_the_recorded_one(self, bench: Bench) -> None:
        options: dict[str, Any] = {
            "to_region": "b",
            "to_cluster": None,
            "origin": None,
            "kind": MoveKind.PLANNED,
        }
        assert one_move(bench.outside, GROUP, **options) == a_move("a", "b")
        bench.decide(Change(GROUP, RegionName("a")))
        assert one_move(bench.outside, GROUP, **options) == a_move("a", "b")
        bench.decide(Change(GROUP, RegionName("b"), stage=Stage.MOVING))
        assert one_move(bench.outside, GROUP, **options) == a_move("a", "b")
        bench.decide(Change(GROUP, RegionName("b")))
        assert one_move(bench.outside, GROUP, **{**options, "origin": "a"}) == a_move("a", "b")

    def test_a_cluster_alone_keeps_the_region(self, bench: Bench) -> None:
        found = one_move(
            bench.outside,
            GROUP,
            to_region=None,
            to_cluster="aggregate-b",
            origin=None,
            kind=MoveKind.DISASTER,
        )
        assert (found.region, found.target) == ("a", ON_B)

    def test_of_three_clusters_the_origin_must_be_named(self) -> None:
        with failover_bench(("a", "b", "c")) as bench:
            bench.decide(Change(MAPS, RegionName("c"), mode=Mode.ACTIVE_ACTIVE))
            options: dict[str, Any] = {"to_region": "b", "to_cluster": None, "kind": MoveKind.PLANNED}
            with pytest.raises(InvalidNameError, match="--from: say where"):
                one_move(bench.outside, GROUP, origin=None, **options)
            assert one_move(bench.outside, GROUP, origin="aggregate-c", **options).origin == "aggregate-c"
            assert one_move(bench.outside, MAPS, origin=None, **options).origin == "aggregate-c"

    def test_given_again_in_three_regions_the_group_is_there_already(self) -> None:
        with failover_bench(("a", "b", "c")) as bench:
            for target in "abc":
                for source in "abc":
                    bench.world.copy(source, target, 10)
            bench.world.watermarks()
            bench.world.commit("c", 15)
            bench.decide(Change(GROUP, RegionName("c")))
            options: dict[str, Any] = {"to_cluster": None, "origin": None, "kind": MoveKind.PLANNED}
            for ending in (Ending.MOVED, Ending.ALREADY_THERE):
                move = one_move(bench.outside, GROUP, to_region="b", **options)
                assert move == a_move("c", "b")
                bench.world.now_ms += 1_000
                assert bench.mover(drain_ms=1_000).move(move).ending is ending
            bench.decide(Change(MAPS, RegionName("c")))
            never_moved = one_move(bench.outside, MAPS, to_region="c", **options)
            assert bench.mover().move(never_moved).ending is Ending.ALREADY_THERE

    def test_where_another_region_is_to_be_primary_the_origin_must_be_named(self) -> None:
        with failover_bench(("a", "b", "c")) as bench:
            bench.decide(Change(GROUP, RegionName("a"), cluster=ON_B))
            options: dict[str, Any] = {"to_cluster": None, "origin": None, "kind": MoveKind.PLANNED}
            with pytest.raises(InvalidNameError, match="--from: say where"):
                one_move(bench.outside, GROUP, to_region="b", **options)

    @pytest.mark.parametrize(
        ("words", "error"),
        [
            ({"to_region": None}, InvalidNameError),
            ({"to_cluster": "aggregate-b"}, InvalidNameError),
            ({"to_region": "x"}, UnknownRegionError),
            ({"origin": "x"}, UnknownRegionError),
            ({"origin": "b"}, InvalidNameError),
        ],
    )
    def test_what_cannot_be_is_said(
        self, bench: Bench, words: dict[str, Any], error: type[ParallaxError]
    ) -> None:
        options = {"to_region": "b", "to_cluster": None, "origin": None, "kind": MoveKind.PLANNED, **words}
        with pytest.raises(error):
            one_move(bench.outside, GROUP, **options)

    def test_a_region_goes_and_comes_back(self, bench: Bench) -> None:
        going = region_moves(bench.outside, "a", "b", everything, MoveKind.PLANNED)
        assert list(going) == [BILLING, FRAUD, MAPS]
        for move in going.values():
            assert bench.mover(drain_ms=1_000).move(move).ending is Ending.MOVED

        back = ways_back(bench.outside, "a", everything, MoveKind.PLANNED, nobody)

        assert {group: (move.origin, move.target) for group, move in back.items()} == dict.fromkeys(
            going, (ON_B, ON_A)
        )
        assert way_back(bench.outside, FRAUD, MoveKind.PLANNED) == back[FRAUD]
        assert ways_back(bench.outside, "b", everything, MoveKind.PLANNED, nobody) == {}

    def test_ways_back_are_looked_up_side_by_side(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for move in region_moves(bench.outside, "a", "b", everything, MoveKind.PLANNED).values():
            assert bench.mover(drain_ms=1_000).move(move).ending is Ending.MOVED
        operations = bench.outside.journal.notes.operations
        together = threading.Barrier(3)

        def with_the_others(group: GroupName) -> Any:
            together.wait(10)
            return operations(group)

        monkeypatch.setattr(bench.outside.journal.notes, "operations", with_the_others)
        assert list(ways_back(bench.outside, "a", everything, MoveKind.PLANNED, nobody)) == [
            BILLING,
            FRAUD,
            MAPS,
        ]

    def test_a_move_whose_last_note_failed_has_a_way_back(self, bench: Bench) -> None:
        with unnoted(bench, Step.DONE):
            assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        assert bench.assignment().consumed_cluster == ON_B
        assert GROUP not in region_moves(bench.outside, "a", "b", everything, MoveKind.PLANNED)

        back = ways_back(bench.outside, "a", everything, MoveKind.PLANNED, nobody)

        assert back == {GROUP: a_move("b", "a")}
        assert way_back(bench.outside, GROUP, MoveKind.PLANNED) == back[GROUP]

    def test_so_it_has_where_its_way_back_was_interrupted(self, bench: Bench) -> None:
        with unnoted(bench, Step.DONE):
            assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
        assert bench.move("b", "a", drain_ms=1_000).ending is Ending.INTERRUPTED
        assert way_back(bench.outside, GROUP, MoveKind.PLANNED) == a_move("b", "a")

    def test_it_goes_not_back_by_the_move_before(self, bench: Bench) -> None:
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.MOVED
        with unnoted(bench, Step.DONE):
            assert bench.move("b", "a", drain_ms=1_000).ending is Ending.INTERRUPTED
        assert way_back(bench.outside, GROUP, MoveKind.PLANNED) == a_move("a", "b")

    def test_a_move_that_was_not_settled_has_none(self, bench: Bench) -> None:
        bench.client.failing["set_primary settled"] = StoreUnavailableError("store: away")
        assert bench.move("a", "b", drain_ms=1_000).ending is Ending.INTERRUPTED
        assert ways_back(bench.outside, "a", everything, MoveKind.PLANNED, nobody) == {}
        with pytest.raises(NotFoundError):
            way_back(bench.outside, GROUP, MoveKind.PLANNED)

    def test_without_a_move_there_is_no_way_back(self, bench: Bench) -> None:
        with pytest.raises(NotFoundError, match="no move to go back from"):
            way_back(bench.outside, GROUP, MoveKind.PLANNED)
        with pytest.raises(UnknownRegionError):
            ways_back(bench.outside, "x", everything, MoveKind.PLANNED, nobody)
        with pytest.raises(InvalidNameError):
            region_moves(bench.outside, "a", "a", everything, MoveKind.PLANNED)
