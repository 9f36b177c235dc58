"""Answers for a partition that not every region's topic has: one that is missing holds nothing back."""

from __future__ import annotations

import pytest

from offsetsvc.answers import FailoverAnswer
from offsetsvc.resume.explain import explain
from parallax.domain.outcome import Outcome
from parallax.domain.place import Via
from parallax.runtime.deadline import Deadline
from tests.worlds.offset_world import World

ADDED = 1
"""The partition that region a's topic has got and region b's has not."""


@pytest.fixture
def world() -> World:
    made = World(partitions=2, lacking={("b", ADDED)})
    made.watermarks(ADDED)
    for target in "ab":
        made.copy("a", target, 10, ADDED)
        made.marker(target, ADDED)
        made.copy("a", target, 10, ADDED)
    made.watermarks(ADDED)
    return made


def ask(world: World, next_offset: int, origin: str = "a", target: str = "b") -> FailoverAnswer:
    with world.service() as service:
        (answer,) = service.failover.answers(
            world.request(origin, target, next_offset, ADDED), Deadline.after_ms(10_000)
        )
    return answer


@pytest.mark.parametrize(("consumed", "resume"), [(0, 0), (4, 4), (10, 11), (13, 13), (21, 21)])
def test_the_regions_that_have_it_decide_alone(world: World, consumed: int, resume: int) -> None:
    answer = ask(world, consumed)
    assert (answer.outcome, answer.resume_offset, answer.pending_records) == (Outcome.OK, resume, 0)
    assert answer.redelivery_records == 0
    assert answer.origin.indexed_to == 21  # a move that has consumed everything need not wait


def test_without_any_row_a_source_might_have_been_copied_and_a_move_waits_for_one() -> None:
    world = World(partitions=2, lacking={("b", ADDED)})
    for target in "ab":
        world.copy("a", target, 10, ADDED)
    answer = ask(world, 10)
    assert answer.outcome is Outcome.EARLIEST_FALLBACK
    assert answer.origin.indexed_to is None
    assert (answer.origin.without_rows, answer.destination.without_rows) == (("b",), ("b",))
    # The first offset, from the smallest position on, that is not known to be consumed.
    assert [view.answer.position for view in answer.sources] == [10, 0]
    assert answer.resume_offset == 10
    assert explain(answer) == (
        "No usable row for source b in aggregate-b: it counts from the log start. "
        "The index has no row of source b in aggregate-a, so that what was consumed of it there is not known: its route "
        "has not run yet, or the index is not complete. "
        "Resume at 10 in aggregate-b: the smallest position is 0, of source b, and all that lies from 0 to 10 was "
        "consumed."
    )


def test_a_partition_that_the_region_gets_later_counts_from_its_first_record(world: World) -> None:
    world.recreate_source("b", "1", ADDED)
    world.watermarks(ADDED)
    for target, order in (("a", "ba"), ("b", "ab")):
        for source in order:
            world.copy(source, target, 5, ADDED)
    world.watermarks(ADDED)
    # Everything before, and the five of b: at the other side these lie above the five of a.
    answer = ask(world, 26)
    assert (answer.outcome, answer.resume_offset) == (Outcome.OK, 21)
    assert answer.skip_ranges == [(26, 31)]
    assert ask(world, 31).resume_offset == 31


def test_a_partition_that_one_side_has_not_seen_yet_is_pending(world: World) -> None:
    world.recreate_source("b", "1", ADDED)
    item, behind = world.item("b", "b", ADDED), world.copying("b", "b", ADDED)
    world.copy("b", "a", 5, ADDED)
    world.watermark("b", "a", ADDED)
    assert behind.source_next == 0, item
    answer = ask(world, 26)
    assert (answer.outcome, answer.pending_records) == (Outcome.PENDING, 5)
    assert answer.resume_offset == 21
    assert all(view.answer.via is not Via.LOG_START for view in answer.sources)
