"""The memory of ways: each offset gets the way that would be read for it, and not for long at a log's end."""

from __future__ import annotations

import pytest

from parallax.adapters.cassandra.ways import CLOSED_FOR_S, OPEN_FOR_S, Order, Way, WayMemory
from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.run import Run
from parallax.ports import StampedRow

KEY = ("a->b", "trips", 0, "source/target")
ORDERS: tuple[Order, ...] = ("target", "source")


def row(place: int) -> StampedRow:
    run = Run(SourceOffset(1_000 + place), TargetOffset(place), 5, SourceOffset(1_000 + place), 0)
    return StampedRow(run, committed_at_ms=place)


def offset(order: Order, place: int) -> int:
    return place if order == "target" else 1_000 + place


class Clock:
    now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("order", ORDERS)
def test_a_way_serves_the_offsets_between_its_rows_alone(order: Order) -> None:
    memory = WayMemory(Clock())
    way = Way(row(100), row(200), row(900))
    memory.keep(KEY, order, way)
    served = [place for place in (99, 100, 199, 200) if memory.find(KEY, order, offset(order, place)) is way]
    assert served == [100, 199]
    assert memory.find(KEY, "source" if order == "target" else "target", offset(order, 150)) is None
    assert memory.find(("a->b", "trips", 1, "source/target"), order, offset(order, 150)) is None


@pytest.mark.parametrize("order", ORDERS)
def test_ways_without_a_row_on_one_side_reach_to_the_end(order: Order) -> None:
    memory = WayMemory(Clock())
    memory.keep(KEY, order, Way(None, row(200), row(900)))
    assert memory.find(KEY, order, 0) is not None
    assert memory.find(KEY, order, offset(order, 200)) is None
    memory.keep(KEY, order, Way(row(200), None, row(900)))
    assert memory.find(KEY, order, offset(order, 5_000)) is not None
    assert memory.find(KEY, order, offset(order, 199)) is None


@pytest.mark.parametrize(
    ("way", "lasts_s"), [(Way(row(1), None, None), OPEN_FOR_S), (Way(row(1), row(9), None), CLOSED_FOR_S)]
)
def test_a_way_is_forgotten_in_time(way: Way, lasts_s: float) -> None:
    clock = Clock()
    memory = WayMemory(clock)
    memory.keep(KEY, "target", way)
    clock.now_s += lasts_s * 0.9
    assert memory.find(KEY, "target", 5) is way
    clock.now_s += lasts_s * 0.2
    assert memory.find(KEY, "target", 5) is None


def test_days_are_remembered_for_a_while() -> None:
    clock = Clock()
    memory = WayMemory(clock)
    assert memory.days(KEY) is None
    memory.keep_days(KEY, [19_000, 19_001])
    assert memory.days(("a->b", "trips", 1, "source/target")) is None
    clock.now_s += CLOSED_FOR_S * 0.9
    assert memory.days(KEY) == [19_000, 19_001]
    clock.now_s += CLOSED_FOR_S * 0.2
    assert memory.days(KEY) is None
