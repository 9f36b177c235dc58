"""How far a load is raised: the greatest that is carried, in few tries."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.bench.rows.load import carries, most_carried
from lab.bench.rows.steady import Steady


@pytest.mark.parametrize("limit", [0, 9_999, 10_000, 12_500, 19_999, 55_000, 79_000, 80_000, 1_000_000])
def test_what_is_found_is_carried_and_a_quarter_more_is_not(limit: int) -> None:
    tried: list[int] = []

    def carried(per_s: int) -> bool:
        tried.append(per_s)
        return per_s <= limit

    found = most_carried(carried, 10_000, 80_000)
    assert len(tried) <= 6
    assert max(tried) <= 80_000
    assert found <= limit
    assert (found == 0) == (limit < 10_000)
    if 0 < found < 80_000 and limit < 80_000:
        assert limit < 1.25 * found


FINE = Steady(15_000, 5.0, 40.0, 100.0, 1.0, 1.0, 0, 0, 0)


@pytest.mark.parametrize(
    ("found", "carried"),
    [
        (FINE, True),
        (replace(FINE, p99_ms=1_000.1), False),
        (replace(FINE, records=14_000), False),
        (replace(FINE, lost=1), False),
    ],
    ids=["fine", "it falls behind", "nobody could send so much", "records are lost"],
)
def test_a_load_is_carried_if_it_was_sent_and_all_of_it_came_soon(found: Steady, *, carried: bool) -> None:
    assert carries(1_000, 15.0, found) is carried
