"""The picture of routes: every route once, from its cluster to its cluster, with its state in words."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest

from parallax.picture.style import PAGE_STYLE
from parallax.picture.ways import MOST, TONES, WIDTH, End, RouteWay, draw_ways

SVG = "{http://www.w3.org/2000/svg}"
ENDS = [End(f"{kind}-{name}", "up", "good") for kind in ("regional", "aggregate") for name in "abc"]
WAYS = [
    RouteWay(f"{source}->{target}", f"regional-{source}", f"aggregate-{target}", "copying", "good", "lag 0")
    for source in "abc"
    for target in "abc"
]


def drawn(ways: list[RouteWay], ends: list[End] = ENDS) -> ET.Element:
    return ET.fromstring(draw_ways(ends, ways))  # noqa: S314 - our own text


def arrows(svg: ET.Element) -> dict[str, tuple[float, float]]:
    """Of each route, the heights at which it begins and ends."""
    found = {}
    for item in svg.iter(f"{SVG}path"):
        if "way" in (item.get("class") or "").split():
            numbers = [float(number) for number in re.findall(r"[\d.]+", item.get("d") or "")]
            title = item.find(f"{SVG}title")
            assert title is not None
            found[(title.text or "").partition(":")[0]] = (numbers[1], numbers[-1])
    return found


def boxes(svg: ET.Element) -> dict[str, tuple[float, float]]:
    """Of each cluster of a side, from where to where it reaches."""
    rects = [item for item in svg.iter(f"{SVG}rect") if item.get("class") == "cluster"]
    names = [item for item in svg.iter(f"{SVG}text") if item.get("class") == "name"]
    found = {}
    for rect in rects:
        top, height, left = (float(rect.get(key) or 0) for key in ("y", "height", "x"))
        (name, *_) = [
            item.text or ""
            for item in names
            if top <= float(item.get("y") or 0) <= top + height and 0 < float(item.get("x") or 0) - left < 20
        ]
        found[name] = (top, top + height)
    return found


def test_each_route_leads_from_its_cluster_to_its_own_row_of_the_other_one() -> None:
    svg = drawn(WAYS)
    where, found = boxes(svg), arrows(svg)
    assert set(found) == {way.route for way in WAYS}
    for way in WAYS:
        begin, end = found[way.route]
        assert where[way.source][0] < begin < where[way.source][1]
        assert where[way.target][0] < end < where[way.target][1]
    assert len({end for _, end in found.values()}) == len(WAYS)


@pytest.mark.parametrize("count", [1, 2, MOST])
def test_nothing_lies_on_another_or_beyond_the_picture(count: int) -> None:
    ways = [
        RouteWay(f"s{n}->t{n % 7}", f"regional-s{n}", f"aggregate-t{n % 7}", "copying", "good")
        for n in range(count)
    ]
    svg = drawn(ways, [])
    width, height = (float(number) for number in (svg.get("viewBox") or "").split()[2:])
    assert width == WIDTH
    for side in ("regional", "aggregate"):
        places = sorted(place for name, place in boxes(svg).items() if name.startswith(side))
        assert places[-1][1] <= height
        assert all(one[1] < other[0] for one, other in pairwise(places))


def test_a_cluster_that_is_read_and_written_stands_on_both_sides() -> None:
    ways = [
        RouteWay("a->b", "aggregate-a", "aggregate-b", "copying", "good"),
        RouteWay("b->a", "aggregate-b", "aggregate-a", "waiting", "warn"),
    ]
    svg = drawn(ways)
    rects = [item for item in svg.iter(f"{SVG}rect") if item.get("class") == "cluster"]
    assert len(rects) == 4
    assert set(arrows(svg)) == {"a->b", "b->a"}


def test_all_of_it_is_told_in_words_whatever_the_names_are() -> None:
    hostile = "</desc><script>\x00\u202e'\""
    ways = [replace(WAYS[0], route=hostile, word=hostile, told=hostile, source=hostile, target=hostile)]
    svg = drawn([*ways, WAYS[1]], [End(hostile, hostile, "bad")])
    (words,) = (item.text or "" for item in svg.iter(f"{SVG}desc"))
    assert "a->b copying (lag 0)" in words
    assert "\\u202e" in words
    assert not list(svg.iter(f"{SVG}script"))


def test_what_copies_more_is_wider_and_what_is_unknown_is_not_zero_wide() -> None:
    rates = (None, 0.0, 10.0, 1_000.0, 1e12)
    ways = [replace(WAYS[0], route=f"r{number}", records_per_s=rate) for number, rate in enumerate(rates)]
    widths = [
        float(item.get("stroke-width") or 0)
        for item in drawn(ways).iter(f"{SVG}path")
        if "way" in (item.get("class") or "").split()
    ]
    assert widths == sorted(widths)
    assert 1 <= widths[0] == widths[1] < widths[2] < widths[3] < widths[4] <= 6


def test_every_tone_has_a_look_in_both_schemes() -> None:
    for name in TONES.values():
        assert PAGE_STYLE.count(f".picture .way.{name}{{stroke:") == 2
        assert PAGE_STYLE.count(f".picture .word.{name}{{fill:") == 2
