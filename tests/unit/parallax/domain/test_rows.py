"""Rows and histories: what is refused and why, and what large histories cost."""

from __future__ import annotations

import time

import pytest

from parallax.domain.history import History, check_invariants
from parallax.domain.ids import Lineage, SourceOffset, TargetOffset, TopicId
from parallax.domain.runs import LostRange, Run
from parallax.errors import InvariantError

LINEAGE = Lineage(TopicId("source"), TopicId("target"))


def run(source: int, target: int, count: int, previous: int, epoch: int = 0) -> Run:
    return Run(SourceOffset(source), TargetOffset(target), count, SourceOffset(previous), epoch)


@pytest.mark.parametrize(
    ("letter", "rows"),
    [
        ("A", [run(5, 9, 0, 5), run(6, 8, 0, 6)]),
        ("B", [run(0, 0, 5, 0), run(3, 9, 5, 3)]),
        ("C", [run(0, 0, 5, 0), run(7, 9, 1, 4)]),
        ("E", [run(0, 0, 5, 0, epoch=2), run(5, 5, 1, 5, epoch=1)]),
    ],
)
def test_rows_that_contradict_each_other_are_refused_by_letter(letter: str, rows: list[Run]) -> None:
    with pytest.raises(InvariantError, match=f"^{letter}: "):
        check_invariants(rows)
    with pytest.raises(InvariantError):
        History(LINEAGE, rows)


def test_rows_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(InvariantError, match=r"^C: "):
        run(3, 0, 1, 4)
    with pytest.raises(InvariantError, match=r"^D: "):
        run(3, -1, 1, 3)
    with pytest.raises(InvariantError, match=r"^D: "):
        LostRange(SourceOffset(3), SourceOffset(3), TargetOffset(0))


def test_offsets_outside_of_a_run_are_not_converted() -> None:
    row = run(10, 20, 5, 10)
    assert row.to_target(SourceOffset(15)) == 25
    assert row.to_source(TargetOffset(20)) == 10
    with pytest.raises(InvariantError, match="not inside"):
        row.to_target(SourceOffset(16))
    with pytest.raises(InvariantError, match="not inside"):
        row.to_source(TargetOffset(19))


def test_a_large_history_takes_rows_and_answers_without_walking_through_all() -> None:
    """Appending to and asking a history of 200,000 rows takes about as long as with 2,000."""

    def seconds(count: int) -> float:
        history = History(LINEAGE, (run(3 * i, 4 * i, 3, 3 * i, i // 1_000) for i in range(count)))
        best = float("inf")
        for attempt in range(5):
            began = time.perf_counter()
            for i in range(count + 200 * attempt, count + 200 * attempt + 200):
                history.add(run(3 * i, 4 * i, 3, 3 * i, count // 1_000))
                history.floor_by_target(TargetOffset(2 * i))
                history.last_proven_by(SourceOffset(i))
                assert history.epoch_ends
            best = min(best, time.perf_counter() - began)
        return best

    assert seconds(200_000) < 20 * seconds(2_000)
