"""How far the tail of a lineage goes back, by what its last writes held."""

from __future__ import annotations

import pytest

from parallax.adapters.cassandra.codec import pack
from parallax.adapters.cassandra.index_reader import TAIL_BATCHES, tail
from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.runs import Run


def writes(count: int, rows_each: int, every_ms: int) -> list[tuple[bytes, int]]:
    """The last writes of a lineage, the newest first: rows of one record each, a marker after every one."""
    found = []
    for number in range(count):
        first = number * rows_each
        rows = [
            Run(SourceOffset(at), TargetOffset(2 * at), 1, SourceOffset(at), 0)
            for at in range(first, first + rows_each)
        ]
        found.append((pack(rows, 1_000_000 + number * every_ms), 2 * first))
    return found[::-1]


@pytest.mark.parametrize(
    ("rows_each", "every_ms", "kept_writes"),
    [
        (1, 5_000, TAIL_BATCHES),  # a slow lineage: as many writes as ever
        (26, 200, TAIL_BATCHES),  # a busy one: thirteen seconds
        (10, 1_000, 26),  # one of hundreds of partitions: thirteen seconds are not enough rows
        (256, 60_000, 1),  # packed by a replay
    ],
)
def test_a_tail_goes_back_far_enough_and_no_further(rows_each: int, every_ms: int, kept_writes: int) -> None:
    last = writes(TAIL_BATCHES, rows_each, every_ms)
    found = tail([last], [])
    assert len(found.rows) == kept_writes * rows_each
    assert found.complete_from == last[kept_writes - 1][1] + 1
    assert found.rows[-1].target_start == last[0][1] + 2 * (rows_each - 1)


def test_an_hour_before_is_looked_into_as_far_as_the_newest_leaves_room() -> None:
    last = writes(100, 1, 200)
    assert len(tail([last[:10], last[10:74]], []).rows) == TAIL_BATCHES
    assert tail([[], []], []).rows == ()
