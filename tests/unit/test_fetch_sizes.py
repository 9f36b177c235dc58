"""Fetches grow while the copier waits for them, and shrink while it does not."""

from __future__ import annotations

from replicator.batches.fetch_size import FetchSizes

NEAR, FAR = 1, 2


def test_full_answers_that_were_waited_for_grow_to_the_bound() -> None:
    sizes = FetchSizes(8, 30)
    found = []
    for _ in range(4):
        found.append(sizes.of(FAR))
        sizes.answered(FAR, sizes.of(FAR) - 1, 0)
    assert found == [8, 16, 30, 30]
    assert sizes.of(NEAR) == 8


def test_answers_that_came_early_shrink_again_but_not_below_the_first_size() -> None:
    sizes = FetchSizes(8, 64)
    for _ in range(3):
        sizes.answered(FAR, sizes.of(FAR), 0)
    sizes.answered(FAR, 64, 64)  # as much waits as was asked for: that is just right
    assert sizes.of(FAR) == 64
    found = []
    for _ in range(4):
        sizes.answered(FAR, 64, sizes.of(FAR) + 1)
        found.append(sizes.of(FAR))
    assert found == [32, 16, 8, 8]


def test_answers_that_bring_little_change_nothing() -> None:
    sizes = FetchSizes(8, 64)
    sizes.answered(NEAR, 3, 0)
    sizes.answered(NEAR, 8, 1)
    assert sizes.of(NEAR) == 8


def test_the_bound_is_never_below_the_first_size() -> None:
    sizes = FetchSizes(8, 2)
    sizes.answered(NEAR, 8, 0)
    assert sizes.of(NEAR) == 8
