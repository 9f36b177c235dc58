"""A day's coarse rows are read when that pays, once, and never at the cost of the answer at hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from parallax.adapters.cassandra.coarse_memory import MOST_ROWS, WayMemory
from parallax.adapters.cassandra.coarse_reader import CoarseReader
from parallax.adapters.cassandra.codec import pack
from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.runs import Run
from parallax.errors import StoreUnavailableError

KEY = ("a->b", "trips", 0, "source/target")
STEP = 10


class Store:
    """One day of coarse rows, every ten offsets; ``pages`` counts how often all of them were read."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.pages = 0
        self.away = False

    def prepare(self, cql: str) -> str:
        return cql

    def run(self, cql: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.run_all([(cql, values)])[0]

    def run_all(self, requests: Iterable[tuple[str, Any]]) -> list[list[tuple[Any, ...]]]:
        return [self._answer(cql, values) for cql, values in requests]

    def _answer(self, cql: str, values: Any) -> list[tuple[Any, ...]]:
        if "coarse_days" in cql:
            return [(0,)]
        if "newest_rows" in cql:
            return [(self._row(self.rows - 1),)]
        if "_start >= ?" in cql:
            self.pages += 1
            if self.away:
                raise StoreUnavailableError("store: away")
            return [(self._row(number),) for number in range(min(self.rows, values[-1]))]
        floor = values[-1] // STEP
        number = floor if "<= ?" in cql else floor + 1
        return [(self._row(number),)] if 0 <= number < self.rows else []

    @staticmethod
    def _row(number: int) -> bytes:
        row = Run(SourceOffset(number * STEP), TargetOffset(number * STEP), 5, SourceOffset(0), 0)
        return pack([row], committed_at_ms=1_000 * number)


def reader(store: Store) -> CoarseReader:
    return CoarseReader(store, "k", WayMemory(lambda: 5.0))  # type: ignore[arg-type] # as much of one as it needs


def bounds(coarse: CoarseReader, offset: int) -> tuple[int, int]:
    way = coarse.way(KEY, "target", offset)
    return way.lowest_target, way.highest_target


def test_a_day_is_read_once_and_shows_further_ways() -> None:
    store = Store(200)
    coarse = reader(store)
    for offset in range(5, 1_900, 100):
        assert bounds(coarse, offset) == (offset - 5, offset + 5)
    assert store.pages == 1
    # Its end may still lack rows: those ways are read one by one, and the day not again.
    for offset in (1_955, 1_965, 1_975):
        assert bounds(coarse, offset) == (offset - 5, offset + 5)
    assert store.pages == 1


def test_a_day_of_too_many_rows_is_not_read_again_and_again() -> None:
    store = Store(MOST_ROWS + 1)
    coarse = reader(store)
    for offset in range(5, 2_000, 100):
        assert bounds(coarse, offset) == (offset - 5, offset + 5)
    assert store.pages == 1


@pytest.mark.parametrize("order", ["target", "source"])
def test_a_store_that_fails_meanwhile_costs_no_answer(order: Any) -> None:
    store = Store(200)
    store.away = True
    coarse = reader(store)
    assert [coarse.way(KEY, order, offset).lowest_target for offset in (5, 105, 205)] == [0, 100, 200]
    assert store.pages == 2
