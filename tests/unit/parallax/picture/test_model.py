"""What a picture shows, held against worlds in which every record is known."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from parallax.errors import InvalidNameError
from parallax.picture.ask import PAGES, ROWS_A_PAGE, ask_picture
from parallax.picture.model import (
    NARROWEST,
    WIDEST,
    Picture,
    PieceState,
    SourceRows,
    Span,
    picture_of,
    range_from,
    windows,
)
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.offset_world import World
from tests.worlds.pictured import answer_of, busy_world

CONSUMED = {PieceState.CONSUMED, PieceState.SKIPPED}


def held_against_the_truth(world: World, picture: Picture, origin: str, target: str) -> Counter[PieceState]:
    """Every piece is what the logs hold, and every record that the windows show is in one piece."""
    logs = world.records(origin), world.records(target)
    next_offset = picture.next_offset or 0
    consumed = set(logs[0][:next_offset])
    shown: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
    found: Counter[PieceState] = Counter()
    for lane in picture.lanes:
        for piece in lane.pieces:
            found[piece.state] += 1
            records = [(lane.region, offset) for offset in range(piece.source.start, piece.source.end)]
            for number, place in ((0, piece.origin), (1, piece.target)):
                if place is None or (number and piece.state is PieceState.PENDING):
                    continue
                assert logs[number][place : place + len(records)] == records
                shown[number].update(range(place, place + len(records)))
            there = set(records) <= consumed
            if piece.state in CONSUMED or piece.state is PieceState.PENDING:
                assert there, piece
            if piece.state is PieceState.PENDING:
                assert not set(records) & set(logs[1])
                assert piece.target == lane.pending_from + piece.source.start - lane.pending.start
            if piece.state is PieceState.NEW:
                assert not set(records) & consumed, piece
            if piece.origin is not None:
                assert piece.consumed_at_origin == (piece.origin < next_offset)
    for number, view in enumerate((picture.origin, picture.target)):
        assert set(shown[number].values()) <= {1}
        visible = range(max(0, view.window.start), min(len(logs[number]), view.window.end))
        assert all(shown[number][at] for at in visible if logs[number][at] is not None)
    return found


@pytest.mark.parametrize("seed", range(12))
def test_a_picture_is_what_the_logs_hold(seed: int) -> None:
    draw = random.Random(seed)
    regions = ("a", "b", "c")[: draw.choice([2, 3])]
    world = busy_world(seed, regions=regions, rounds=draw.randint(5, 30))
    origin, target = draw.sample(regions, 2)
    next_offset = draw.randint(1, len(world.records(origin)))
    answer, runs = answer_of(world, next_offset, origin=origin, target=target)
    whole = Span(0, max(len(world.records(origin)), len(world.records(target))))

    for wanted in (None, whole, Span(whole.end // 3, whole.end // 2)):
        held_against_the_truth(world, ask_picture(runs, answer, wanted), origin, target)


def test_worlds_show_every_state() -> None:
    """Or the test above would say little."""
    found: Counter[PieceState] = Counter()
    for seed in range(6):
        world = busy_world(seed, rounds=20)
        answer, runs = answer_of(world, len(world.records("a")) * 2 // 3)
        found += held_against_the_truth(world, ask_picture(runs, answer), "a", "b")
        answer.complete_to = answer.resume_offset + 1  # as an answer is of which not all skip ranges fitted
        del answer.skip_ranges[:]
        found += Counter(piece.state for lane in ask_picture(runs, answer).lanes for piece in lane.pieces)
    assert set(found) == set(PieceState)


def test_position_and_resume_lie_below_each_other() -> None:
    world = busy_world(2)
    answer, runs = answer_of(world, 400)
    picture = ask_picture(runs, answer)

    assert picture.next_offset == 400
    assert picture.next_offset - picture.origin.window.start == picture.resume - picture.target.window.start
    assert picture.origin.window.width == picture.target.window.width
    assert picture.resume == answer.resume_offset
    assert sum(lane.decides for lane in picture.lanes) == 1


def test_the_window_reaches_back_to_what_is_consumed_and_late() -> None:
    """What the destination got late lies far back at the origin: bands without a beginning would tell nothing."""
    world = World()
    world.copy("a", "a", 100)
    world.copy("b", "a", 2_000)
    world.copy("b", "b", 2_000)
    world.copy("a", "b", 100)
    world.copy("b", "b", 10)
    world.watermarks()
    answer, runs = answer_of(world, 2_050)
    picture = ask_picture(runs, answer)

    (late,) = [piece for piece in picture.lanes[0].pieces if piece.state is PieceState.SKIPPED]
    assert (late.origin, late.target, picture.resume) == (0, 2_000, 1_950)
    assert picture.origin.window.start < 100
    assert windows(answer)[0].start > 100
    each = 2 * len(picture.lanes)
    assert runs.asked == 2 * each, "what lies further back is read once, however often the window grows"


def test_a_range_that_is_asked_for_is_shown() -> None:
    world = busy_world(2)
    answer, runs = answer_of(world, 400)
    picture = ask_picture(runs, answer, Span(100, 150))
    assert picture.target.window == Span(100, 150)
    assert any("lies before" in note or "outside" in note for note in picture.left_out)


def test_a_range_is_never_wider_than_a_picture() -> None:
    answer = pb.FailoverOffset(resume_offset=WIDEST, to=pb.ClusterPosition(cluster="aggregate-b"))
    getattr(answer, "from").MergeFrom(pb.ClusterPosition(cluster="aggregate-a", next_offset=5))
    _, shown = windows(answer, Span(0, 10 * WIDEST))
    assert shown.width == WIDEST
    assert shown.start <= WIDEST < shown.end


def test_the_end_of_all_offsets_is_a_range_too() -> None:
    answer = pb.FailoverOffset(resume_offset=5, to=pb.ClusterPosition(cluster="aggregate-b"))
    getattr(answer, "from").MergeFrom(pb.ClusterPosition(cluster="aggregate-a", next_offset=1_000))
    wanted = range_from(f"{2**63 - 100}:{2**63 - 1}")
    origin, shown = windows(answer, wanted)
    assert shown == wanted
    assert origin.width == wanted.width
    assert origin.end == 2**63


@pytest.mark.parametrize("text", [f"5:{2**63}", f"{'0' * 5_000}1:{'9' * 5_000}"], ids=["beyond", "long"])
def test_a_range_of_no_offsets_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError, match="no range of offsets"):
        range_from(text)


@pytest.mark.parametrize("next_offset", [None, 3])
def test_an_answer_without_logs_and_rows_is_a_picture_too(next_offset: int | None) -> None:
    """Both clusters are away, and the index has nothing."""
    answer = pb.FailoverOffset(
        group="billing",
        topic="trips",
        to=pb.ClusterPosition(cluster="aggregate-b"),
        outcome=pb.UNREACHABLE,
        sources=[pb.SourcePart(region="a", via="log_start", position=0)],
    )
    getattr(answer, "from").MergeFrom(
        pb.ClusterPosition(cluster="aggregate-a", next_offset=next_offset, regions_without_rows=["a"])
    )
    picture = picture_of(answer, {}, {})
    assert picture.next_offset == next_offset
    assert picture.target.high is None
    assert picture.target.window.width >= 1
    assert picture.lanes[0].pieces == ()
    assert picture.left_out == ("The index has no row of a at aggregate-a.",)


def test_records_of_another_topic_of_the_name_or_another_leader_epoch_are_not_the_same() -> None:
    answer = pb.FailoverOffset(
        to=pb.ClusterPosition(cluster="aggregate-b"), sources=[pb.SourcePart(region="a")]
    )
    getattr(answer, "from").MergeFrom(pb.ClusterPosition(cluster="aggregate-a", next_offset=50))

    def joined(topic_id: str, epoch: int) -> bool:
        run = pb.Run(source_start=0, target_start=0, count_records=10, source_leader_epoch=2)
        other = pb.Run(source_start=5, target_start=7, count_records=10, source_leader_epoch=epoch)
        picture = picture_of(
            answer, {"a": SourceRows((("one", run),))}, {"a": SourceRows(((topic_id, other),))}
        )
        return any(
            piece.origin is not None and piece.target is not None
            for lane in picture.lanes
            for piece in lane.pieces
        )

    assert joined("one", 2)
    assert joined("one", -1)
    assert not joined("one", 3)
    assert not joined("two", 2)


def test_what_was_lost_is_kept_with_its_lane() -> None:
    world = World()
    for target in ("a", "b"):
        world.copy("a", target, 10)
        world.lose("a", target, 7)
        world.copy("a", target, 10)
        world.copy("b", target, 5)
    world.watermarks()
    answer, runs = answer_of(world, 12)
    picture = ask_picture(runs, answer)
    assert picture.lanes[0].lost == (Span(10, 17),)
    assert picture.lanes[1].lost == ()


def test_too_many_runs_are_cut_and_that_is_said() -> None:
    world = World()
    for _ in range(PAGES * ROWS_A_PAGE + 300):
        for source in ("a", "b"):
            world.copy(source, "b", 1)
    world.copy("a", "a", 10)
    world.copy("b", "a", 10)
    world.watermarks()
    answer, runs = answer_of(world, 20)

    picture = ask_picture(runs, answer, Span(0, len(world.records("b"))))

    assert runs.asked <= 2 * PAGES * 2
    (note,) = [note for note in picture.left_out if "were not read" in note]
    last = max(piece.target or 0 for lane in picture.lanes for piece in lane.pieces)
    assert PAGES * ROWS_A_PAGE <= last < picture.target.window.end == len(world.records("b"))
    assert f"aggregate-b from offset {last + 1:,} on" in note or f"from offset {last + 2:,} on" in note


def test_a_range_is_written_with_a_colon() -> None:
    assert range_from("5:10") == Span(5, 10)
    for wrong in ("", "5", "5:", ":5", "5-10", "-5:10", "10:5", "5:5", "5:10:15", "\u0665:10", f"0:{2**63}"):
        with pytest.raises(InvalidNameError, match="range of offsets"):
            range_from(wrong)


def test_a_small_log_is_shown_whole() -> None:
    world = World()
    for target in ("a", "b"):
        world.copy("a", target, 10)
        world.copy("b", target, 10)
    world.watermarks()
    answer, runs = answer_of(world, 15)
    picture = ask_picture(runs, answer)
    assert picture.target.window.start == 0
    assert 20 <= picture.target.window.end <= NARROWEST
