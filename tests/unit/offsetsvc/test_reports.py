"""What members report: positions are remembered where somebody can have been, and are enough to leave a dead cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from offsetsvc import positions as positions_module
from offsetsvc.answers import Basis, ReportedMove, ReportedPosition
from offsetsvc.claims import beyond_the_rows, known_end
from offsetsvc.clusters import ClusterView
from parallax.domain.ids import (
    NO_TOPIC,
    Lineage,
    RegionName,
    Route,
    RoutePartition,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    aggregate_cluster,
)
from parallax.domain.index_rows import LineageRecord, RouteTopic
from parallax.domain.outcome import Outcome
from parallax.domain.place import LogRange
from parallax.domain.progress import Progress, SourcePosition
from parallax.errors import InvalidOffsetError
from parallax.failover.facts import MoveKind
from parallax.failover.plan import Ending
from parallax.failover.selection import groups_on
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.counted_moves import counted_bench, of_kind
from tests.worlds.failover_bench import Bench, failover_bench, two_sources
from tests.worlds.offset_servers import serving
from tests.worlds.offset_world import GROUP
from tests.worlds.sync_bench import P0

A, B = (aggregate_cluster(RegionName(name)) for name in "ab")


@pytest.fixture
def bench() -> Iterator[Bench]:
    """a: a0..9 b0..9; b: b0..9 a0..9. The group has never committed."""
    with failover_bench() as made:
        two_sources(made.world)
        yield made


def report(bench: Bench, next_offset: int) -> None:
    position = ReportedPosition(P0, TargetOffset(next_offset))
    bench.client.service.positions.report(GROUP, A, [position], [])


def test_a_position_beyond_the_logs_end_is_refused(bench: Bench) -> None:
    with pytest.raises(InvalidOffsetError, match="beyond the end of its log in aggregate-a, 20"):
        report(bench, 21)
    assert bench.world.groups.observed(GROUP, A) == []
    report(bench, 20)


@pytest.mark.parametrize("asked_anew", [True, False])
def test_a_remembered_end_refuses_nobody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, asked_anew: bool
) -> None:
    ask = ClusterView.log_ranges

    def remembered(self: ClusterView, partitions: Any, *, fresh: bool = False) -> dict[Any, LogRange]:
        logs = ask(self, partitions, fresh=fresh)
        behind = not (fresh and asked_anew)
        return {
            item: replace(log, high_watermark=TargetOffset(18)) if behind else log
            for item, log in logs.items()
        }

    monkeypatch.setattr(ClusterView, "log_ranges", remembered)
    if asked_anew:
        report(bench, 20)
        (seen,) = bench.world.groups.observed(GROUP, A)
        assert seen.next_offset == 20
        with pytest.raises(InvalidOffsetError, match="in aggregate-a, 20"):
            report(bench, 21)
    else:
        with pytest.raises(InvalidOffsetError, match="in aggregate-a, 18"):
            report(bench, 20)


def test_so_is_a_move_to_a_place_beyond_it(bench: Bench) -> None:
    topic_id = TopicId("aggregate-a-1")
    move = ReportedMove(P0, topic_id, Progress(A, topic_id, TargetOffset(21), {}))
    with pytest.raises(InvalidOffsetError, match="nobody can have come so far"):
        bench.client.service.positions.report(GROUP, A, [], [move])
    assert bench.world.groups.progress(GROUP, P0.topic) == {}


def moved_to_a(bench: Bench, positions: dict[SourceId, SourcePosition]) -> None:
    topic_id = TopicId("aggregate-a-1")
    move = ReportedMove(P0, topic_id, Progress(A, topic_id, TargetOffset(0), positions))
    bench.client.service.positions.report(GROUP, A, [], [move])


def consumed(end: int, *ends: tuple[int, int]) -> SourcePosition:
    return SourcePosition(0, SourceOffset(end), tuple((epoch, SourceOffset(item)) for epoch, item in ends))


SOURCE = SourceId(RegionName("a"), TopicId("regional-a-1"))


@pytest.mark.parametrize("position", [consumed(11), consumed(5, (0, 11)), consumed(5, (7, 2**62))])
def test_so_is_progress_that_no_row_can_have_given(bench: Bench, position: SourcePosition) -> None:
    with pytest.raises(InvalidOffsetError, match="the rows tell of it up to 10"):
        moved_to_a(bench, {SOURCE: position})
    assert bench.world.groups.progress(GROUP, P0.topic) == {}
    moved_to_a(bench, {SOURCE: consumed(10, (0, 10))})
    assert bench.world.groups.progress(GROUP, P0.topic) != {}


def test_a_source_of_which_nothing_was_copied_was_not_consumed(bench: Bench) -> None:
    with pytest.raises(InvalidOffsetError, match="up to 0"):
        moved_to_a(bench, {SourceId(RegionName("c"), TopicId("regional-c-1")): consumed(1)})


def test_an_incarnation_that_rows_no_longer_tell_of_is_left_as_it_is(bench: Bench) -> None:
    older = SourceId(RegionName("a"), TopicId("regional-a-0"))
    moved_to_a(bench, {older: consumed(1_000), SOURCE: consumed(3)})
    assert bench.world.groups.progress(GROUP, P0.topic)[0].positions[older].source_next == 1_000


def test_rows_that_this_reader_has_not_seen_yet_are_waited_for(bench: Bench) -> None:
    """Another service has answered from them already."""
    bench.client.service.positions._sleep = lambda _seconds: bench.world.copy("a", "b", 5)
    moved_to_a(bench, {SOURCE: consumed(15)})
    assert bench.world.groups.progress(GROUP, P0.topic)[0].positions[SOURCE].source_next == 15


def test_what_rows_once_told_is_not_asked_again() -> None:
    """Of a claim that goes beyond it, and of a source that it does not know, the index as it is now has to tell."""
    unknown = SourceId(RegionName("a"), TopicId("regional-a-0"))
    with counted_bench(partitions=1) as bench:
        bench.client.service._index.route_topics(bench.world.config.all_routes(), P0.topic)
        bench.world.now_ms += 3_600_000
        bench.counts.taken()
        moved_to_a(bench, {SOURCE: consumed(10)})
        assert of_kind(bench.counts.taken(), "index") == 0
        moved_to_a(bench, {unknown: consumed(1), SOURCE: consumed(10)})
        assert of_kind(bench.counts.taken(), "index") > 0
        bench.world.copy("a", "b", 5)
        bench.world.now_ms += 3_600_000
        bench.counts.taken()
        moved_to_a(bench, {SOURCE: consumed(15)})
        assert of_kind(bench.counts.taken(), "index") > 0
        bench.world.now_ms += 3_600_000
        with pytest.raises(InvalidOffsetError, match="the rows tell of it up to 15"):
            moved_to_a(bench, {SOURCE: consumed(16)})


def test_of_a_partition_that_its_source_never_had_nothing_can_have_been_consumed() -> None:
    """Its lineage names no topic: nothing was copied, under whatever id."""
    route = Route.parse("a->b")
    lineage = Lineage(NO_TOPIC, TopicId("aggregate-b-1"))
    record = LineageRecord(
        RoutePartition(route, P0), lineage, 0, SourceOffset(0), TargetOffset(0), None, version=1
    )
    for records in ([], [record]):
        assert known_end(SOURCE, P0.partition, {route: RouteTopic(records, {})}) == 0
    of_another_topic = replace(record, lineage=lineage._replace(source_topic_id=TopicId("regional-a-0")))
    assert known_end(SOURCE, P0.partition, {route: RouteTopic([of_another_topic], {})}) is None


def _unbounded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(positions_module, "beyond_the_rows", lambda *_: [])


def _epochs_forgotten(patch: pytest.MonkeyPatch) -> None:
    def wrong(moves: Sequence[ReportedMove], topics: Any) -> list[str]:
        bare = [
            replace(
                move,
                progress=replace(
                    move.progress,
                    positions={
                        source: replace(position, epoch_ends=())
                        for source, position in move.progress.positions.items()
                    },
                ),
            )
            for move in moves
        ]
        return beyond_the_rows(bare, topics)

    patch.setattr(positions_module, "beyond_the_rows", wrong)


@pytest.mark.parametrize("mutant", [_unbounded, _epochs_forgotten])
def test_a_check_that_is_patched_away_is_noticed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, mutant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    mutant(monkeypatch)
    with pytest.raises(pytest.fail.Exception):
        test_so_is_progress_that_no_row_can_have_given(bench, consumed(5, (0, 11)))


def test_a_group_that_only_reported_leaves_a_dead_cluster(bench: Bench) -> None:
    report(bench, 12)
    bench.writer("a").away = True
    assert groups_on(bench.outside, A, lambda _group: True, to=B) == [GROUP]

    result = bench.move("a", "b", MoveKind.DISASTER)

    assert result.ending is Ending.MOVED, result.problem
    assert bench.commit("b") == 2  # a0..9 b0 b1


def test_what_was_reported_of_a_topic_is_no_position_in_one_made_anew_under_its_name(bench: Bench) -> None:
    report(bench, 12)

    def told() -> list[tuple[int, str]]:
        (here,) = [item for item in bench.client.service.positions.show(GROUP).clusters if item.cluster == A]
        return [(item.next_offset, item.basis) for item in here.positions]

    assert told() == [(12, "observed")]
    infos = bench.world.cluster("a").infos
    infos[P0.topic] = replace(infos[P0.topic], topic_id=TopicId("made-anew"))
    assert told() == []
    bench.world.cluster("a").away = True
    assert told() == [(12, "observed")]


def test_a_report_counts_no_further_than_the_rows_prove(bench: Bench) -> None:
    """The newest records of a are not indexed: the group may have had them, and gets them again."""
    bench.world.copy("b", "b", 5)
    write = bench.world.index.write_rows
    bench.world.index.write_rows = lambda _batches: None  # type: ignore[method-assign]
    bench.world.copy("b", "a", 5)
    bench.world.index.write_rows = write  # type: ignore[method-assign]
    report(bench, 25)
    bench.writer("a").away = True

    result = bench.move("a", "b", MoveKind.DISASTER)

    assert result.ending is Ending.MOVED, result.problem
    assert bench.commit("b") == 20  # b10..14 lie there


def test_the_services_answer_from_it_too(bench: Bench) -> None:
    report(bench, 12)
    bench.writer("a").away = True
    with serving(bench.world) as served, served.client() as client:
        answer = client.get_group_failover_offsets(GROUP, to=pb.Place(region="b"))

    (offset,) = answer.offsets
    assert (offset.resume_offset, getattr(offset, "from").basis) == (2, Basis.OBSERVED.value)


@pytest.mark.parametrize(("away", "outcome"), [(False, Outcome.NO_COMMIT), (True, Outcome.UNREACHABLE)])
def test_an_answer_without_offsets_says_why(bench: Bench, *, away: bool, outcome: Outcome) -> None:
    """The group is known, for it has reported of b; of a nothing is known."""
    bench.client.service.positions.report(GROUP, B, [ReportedPosition(P0, TargetOffset(3))], [])
    bench.writer("a").away = away
    with serving(bench.world) as served, served.http() as http, served.client() as client:
        told = http.get(f"/v1/groups/{GROUP}/failover-offsets", params={"from": "a", "to": "b"}).json()
        answer = client.get_group_failover_offsets(
            GROUP, origin=pb.Place(region="a"), to=pb.Place(region="b")
        )

    assert told == {"offsets": [], "outcome": outcome.name}
    assert (list(answer.offsets), pb.Outcome.Name(answer.outcome)) == ([], outcome.name)


def test_one_whose_cluster_lives_again_says_so_too(bench: Bench) -> None:
    report(bench, 12)
    with serving(bench.world) as served, served.client() as client:
        answer = client.get_group_failover_offsets(
            GROUP, origin=pb.Place(region="a"), to=pb.Place(region="b")
        )
    assert (list(answer.offsets), answer.outcome) == ([], pb.NO_COMMIT)
