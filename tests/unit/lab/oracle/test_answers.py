from __future__ import annotations

import random

import pytest

from lab.oracle.answers import TrueMapping, Violation
from lab.oracle.logs import Placed
from lab.oracle.outage import stalls_s
from lab.workload.delivered import DeliveredRecord
from lab.workload.events import RecordId

ORIGIN = ("a1", "b1", None, "a2", "b2", "a3")
DESTINATION = ("b1", "b2", "a1", None, "a2", "a3")


def rid(name: str) -> RecordId:
    return RecordId(name[0], int(name[1:]))


def placed(names: tuple[str | None, ...]) -> tuple[Placed, ...]:
    """Records at offsets 0, 1, ...; None is a control record."""
    return tuple(Placed(offset, rid(name), 0) for offset, name in enumerate(names) if name is not None)


@pytest.fixture
def mapping() -> TrueMapping:
    return TrueMapping(7, placed(ORIGIN), placed(DESTINATION))


@pytest.mark.parametrize(
    ("next_offset", "resume_offset", "skip_ranges"),
    [
        (0, 0, []),
        (1, 0, [(2, 3)]),  # a1 is consumed
        (2, 1, [(2, 3)]),  # b1 too
        (3, 1, [(2, 4)]),  # a range may hold a control record
        (4, 1, [(2, 3), (4, 5)]),
        (5, 5, []),
        (6, 6, []),
        (6, 2, [(2, 100)]),  # beyond the end is nothing
    ],
)
def test_right_answers_pass(
    mapping: TrueMapping, next_offset: int, resume_offset: int, skip_ranges: list[tuple[int, int]]
) -> None:
    assert mapping.check(next_offset, resume_offset, skip_ranges) is None


@pytest.mark.parametrize(
    ("next_offset", "resume_offset", "skip_ranges", "lost", "redelivered"),
    [
        (2, 2, [(2, 3)], ["b2"], []),  # one too far
        (2, 0, [(2, 3)], [], ["b1"]),  # one too early
        (2, 1, [], [], ["a1"]),  # nothing skipped
        (2, 1, [(1, 3)], ["b2"], []),  # skipped too much
        (0, 6, [], ["b1", "b2", "a1"], []),  # some of all that is lost
    ],
)
def test_wrong_answers_are_caught(
    mapping: TrueMapping,
    next_offset: int,
    resume_offset: int,
    skip_ranges: list[tuple[int, int]],
    lost: list[str],
    redelivered: list[str],
) -> None:
    assert mapping.check(next_offset, resume_offset, skip_ranges) == Violation(
        7, next_offset, tuple(map(rid, lost)), tuple(map(rid, redelivered))
    )


def test_every_answer_to_random_merges_is_judged_as_by_hand() -> None:
    draw = random.Random(5)
    names = [f"{region}{number}" for region in "ab" for number in range(20)]
    origin, destination = (draw.sample(names, 40) for _ in range(2))
    mapping = TrueMapping(0, placed(tuple(origin)), placed(tuple(destination)))
    judged = set()
    for _ in range(2_000):
        next_offset, resume_offset = draw.randrange(41), draw.randrange(41)
        bounds = sorted(draw.sample(range(41), 4))
        ranges = [(bounds[0], bounds[1]), (bounds[2], bounds[3])][: draw.randrange(3)]
        consumed = set(origin[:next_offset])
        passed = {
            name
            for place, name in enumerate(destination)
            if place < resume_offset or any(start <= place < end for start, end in ranges)
        }
        found = mapping.check(next_offset, resume_offset, ranges)
        assert (found is None) == (passed == consumed)
        if found is not None:
            assert bool(found.lost) == bool(passed - consumed)
            assert bool(found.redelivered) == bool(consumed - passed)
        judged.add(found is None)
    assert mapping.check(40, 40, []) is None
    assert False in judged


def test_a_reader_stalls_until_it_gets_a_record_from_beyond_the_open_transaction() -> None:
    def delivery(partition: int, offset: int, at_ms: int) -> DeliveredRecord:
        return DeliveredRecord(0, RecordId("a", offset), "aggregate-a", partition, offset, at_ms)

    deliveries = [
        delivery(0, 9, 900),
        delivery(0, 9, 1_200),  # was in flight
        delivery(1, 50, 1_300),  # another partition goes on
        delivery(0, 12, 4_500),
        delivery(0, 13, 4_600),
    ]
    assert stalls_s(deliveries, {0: 10, 2: 5}, killed_at_ms=1_000) == {0: 3.5, 2: None}
