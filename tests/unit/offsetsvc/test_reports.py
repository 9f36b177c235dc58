"""What members report: positions are remembered where somebody can have been, and are enough to leave a dead cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from offsetsvc.answers import Basis, ReportedMove, ReportedPosition
from parallax.domain.ids import RegionName, TargetOffset, TopicId, aggregate_cluster
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress
from parallax.errors import InvalidOffsetError
from parallax.failover.facts import MoveKind
from parallax.failover.plan import Ending
from parallax.failover.selection import groups_on
from parallax.v1 import offsets_pb2 as pb
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


def test_so_is_a_move_to_a_place_beyond_it(bench: Bench) -> None:
    topic_id = TopicId("aggregate-a-1")
    move = ReportedMove(P0, topic_id, Progress(A, topic_id, TargetOffset(21), {}))
    with pytest.raises(InvalidOffsetError, match="nobody can have come so far"):
        bench.client.service.positions.report(GROUP, A, [], [move])
    assert bench.world.groups.progress(GROUP, P0.topic) == {}


def test_a_group_that_only_reported_leaves_a_dead_cluster(bench: Bench) -> None:
    report(bench, 12)
    bench.writer("a").away = True
    assert groups_on(bench.outside, A, lambda _group: True, to=B) == [GROUP]

    result = bench.move("a", "b", MoveKind.DISASTER)

    assert result.ending is Ending.MOVED, result.problem
    assert bench.commit("b") == 2  # a0..9 b0 b1


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
