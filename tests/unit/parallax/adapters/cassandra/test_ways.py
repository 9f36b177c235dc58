"""The memory of ways: each offset gets the way that would be read for it, and not for long at a log's end."""

from __future__ import annotations

import pytest

from parallax.adapters.cassandra.coarse import DAY_MS, Order, Way
from parallax.adapters.cassandra.coarse_memory import (
    CLOSED_FOR_S,
    DAY_FOR_S,
    OPEN_FOR_S,
    CoarseDay,
    WayMemory,
)
from parallax.adapters.cassandra.codec import pack
from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.index_rows import StampedRow
from parallax.domain.runs import Run

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


def stored(place: int, at_ms: int) -> bytes:
    return pack(
        [Run(SourceOffset(1_000 + place), TargetOffset(place), 5, SourceOffset(1_000 + place), 0)], at_ms
    )


def day_of(places: list[int]) -> CoarseDay:
    """A day with a coarse row a minute; the last one has only just been written."""
    return CoarseDay([stored(place, 60_000 * number) for number, place in enumerate(places)])


@pytest.mark.parametrize("order", ORDERS)
def test_a_day_knows_the_ways_between_its_settled_rows(order: Order) -> None:
    day = day_of([100, 200, 300, 400])
    ways = {place: day.way(order, offset(order, place)) for place in (99, 100, 199, 200, 299, 300, 400)}
    found = {place: way and (way.lowest_target, way.highest_target) for place, way in ways.items()}
    assert found == {
        99: None,
        100: (100, 200),
        199: (100, 200),
        200: (200, 300),
        299: (200, 300),
        # One before the youngest may still be missing.
        300: None,
        400: None,
    }


def test_a_day_hands_out_rows_as_long_as_it_has_them() -> None:
    day = day_of([100, 200, 300, 400, 500])
    rows = day.rows_from(250, 3)
    assert rows is not None
    assert [(at_ms, fields[1]) for at_ms, fields in rows] == [(60_000, 200), (120_000, 300), (180_000, 400)]
    assert day.rows_from(250, 4) is None
    assert day.rows_from(99, 1) is None
    assert CoarseDay([]).rows_from(0, 1) is None
    assert CoarseDay([]).way("target", 0) is None


@pytest.mark.parametrize("order", ORDERS)
def test_a_remembered_day_shows_the_way_until_it_is_forgotten(order: Order) -> None:
    clock = Clock()
    memory = WayMemory(clock)
    memory.keep_days(KEY, [0])
    memory.keep_coarse_day(KEY, 0, day_of([100, 200, 300, 400]))
    way = memory.find(KEY, order, offset(order, 250))
    assert way is not None
    assert (way.lowest_target, way.highest_target) == (200, 300)
    assert memory.find(("a->b", "trips", 1, "source/target"), order, offset(order, 250)) is None
    clock.now_s += DAY_FOR_S
    assert memory.find(KEY, order, offset(order, 250)) is None
    assert memory.coarse_day(KEY, 0) is None


def test_a_day_is_worth_reading_once_a_second_way_of_it_is_asked_for() -> None:
    clock = Clock()
    memory = WayMemory(clock)
    assert not memory.is_asked_again(KEY, 7)
    assert not memory.is_asked_again(KEY, 8)
    assert memory.is_asked_again(KEY, 7)
    clock.now_s += DAY_FOR_S
    assert not memory.is_asked_again(KEY, 7)


def test_a_way_is_of_a_day_if_both_rows_are() -> None:
    def at(at_ms: int) -> StampedRow:
        return StampedRow(row(1).row, at_ms)

    assert Way(at(DAY_MS), at(2 * DAY_MS - 1), None).day == 1
    assert Way(at(DAY_MS - 1), at(DAY_MS), None).day is None
    assert Way(at(DAY_MS), None, at(DAY_MS)).day is None
    assert Way(None, at(DAY_MS), None).day is None
