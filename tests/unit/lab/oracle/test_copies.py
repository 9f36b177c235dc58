from __future__ import annotations

import random
from itertools import combinations

import pytest

from lab.oracle.copies import compare_copies
from lab.oracle.logs import Placed, TopicLog, count_inversions
from lab.workload.events import RecordId
from tests.worlds.topic_logs import topic_log


def log(cluster: str, *names: str, partition: int = 0) -> TopicLog:
    """Records such as ``a1`` at offsets 0, 1, ... of one partition."""
    return topic_log(
        cluster,
        [
            (partition, Placed(offset, RecordId(name[0], int(name[1:])), 0))
            for offset, name in enumerate(names)
        ],
    )


SOURCES = (log("regional-a", "a1", "a2", "a3"), log("regional-b", "b1", "b2"))


def test_a_faithful_copy_in_any_interleaving_is_faultless() -> None:
    verdict = compare_copies(SOURCES, log("aggregate-a", "b1", "a1", "a2", "b2", "a3"))
    assert verdict.faultless
    assert (verdict.source_records, verdict.target_records) == (5, 5)


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("b1", "a1", "b2", "a3"), {"lost_records": 1}),
        (("b1", "a1", "a2", "b2", "a2", "a3"), {"duplicated_records": 1, "disordered_records": 0}),
        (("b1", "a1", "a2", "b2", "a3", "a1"), {"duplicated_records": 1, "disordered_records": 1}),
        (("b1", "a2", "a1", "b2", "a3"), {"disordered_records": 1}),
        (("b1", "a1", "a2", "b2", "a3", "a4"), {"foreign_records": 1}),
    ],
)
def test_planted_faults_are_found(names: tuple[str, ...], fault: dict[str, int]) -> None:
    verdict = compare_copies(SOURCES, log("aggregate-a", *names))
    assert not verdict.faultless
    assert {name: getattr(verdict, name) for name in fault} == fault
    assert verdict.examples


def test_a_record_in_another_partition_is_found() -> None:
    target = topic_log(
        "aggregate-a",
        [
            (0, Placed(0, RecordId("a", 1), 0)),
            (1, Placed(0, RecordId("a", 2), 0)),
            (0, Placed(1, RecordId("a", 3), 0)),
            (0, Placed(2, RecordId("b", 1), 0)),
            (0, Placed(3, RecordId("b", 2), 0)),
        ],
    )
    verdict = compare_copies(SOURCES, target)
    assert (verdict.misplaced_records, verdict.lost_records) == (1, 0)


def test_inversions_of_a_drawn_example() -> None:
    first = log("aggregate-a", "a1", "a2", "b1", "b2")
    second = log("aggregate-b", "b1", "a1", "b2", "a2")
    # b1 comes before a1 and a2 over there, b2 before a2.
    assert count_inversions(first, second) == 3
    assert count_inversions(first, first) == 0


def test_inversions_are_all_pairs_in_opposite_order() -> None:
    draw = random.Random(11)
    names = [f"{region}{number}" for region in "ab" for number in range(30)]
    left, right = draw.sample(names, 60), draw.sample(names, 55)
    expected = sum(
        1
        for one, other in combinations([name for name in left if name in right], 2)
        if right.index(one) > right.index(other)
    )
    assert count_inversions(log("aggregate-a", *left), log("aggregate-b", *right)) == expected


def test_inversions_of_a_long_log() -> None:
    # Two sources of 3,000 records; the first comes 1,000 records later over there.
    first = [f"{region}{number}" for number in range(3_000) for region in "ab"]
    second = [f"b{number}" for number in range(1_000)]
    for number in range(2_000):
        second += [f"a{number}", f"b{number + 1_000}"]
    second += [f"a{number}" for number in range(2_000, 3_000)]
    expected = sum(min(1_000, 3_000 - number) for number in range(3_000))
    assert count_inversions(log("aggregate-a", *first), log("aggregate-b", *second)) == expected


def test_partitions_are_counted_apart() -> None:
    first = log("aggregate-a", "a1", "b1", partition=0)
    second = log("aggregate-b", "b1", "a1", partition=1)
    assert count_inversions(first, second) == 0
