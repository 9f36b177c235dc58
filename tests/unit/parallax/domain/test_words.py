"""The words that every part shares: outcomes, errors, names."""

from __future__ import annotations

import inspect
import re

import pytest

from parallax import errors
from parallax.domain.ids import (
    ClusterName,
    Lineage,
    RegionName,
    Route,
    TopicId,
    aggregate_cluster,
    next_offset,
    region_of,
    regional_cluster,
)
from parallax.domain.outcome import Outcome, gravest
from parallax.errors import InvalidNameError, ParallaxError


def test_outcomes_ascend_by_gravity() -> None:
    in_order = list(Outcome)
    # The proto has reserved 2.
    assert [outcome.value for outcome in in_order] == [1, *range(3, len(in_order) + 2)]
    assert in_order[0] is Outcome.OK
    # What a caller may ignore comes before what costs a re-read, that before what was lost or not done.
    milestones = [
        Outcome.PENDING,
        Outcome.EARLIEST_FALLBACK,
        Outcome.NEVER_DELIVERED,
        Outcome.DUAL_ACTIVE,
    ]
    assert sorted(milestones, key=in_order.index) == milestones


def test_gravest_outcome() -> None:
    assert gravest([]) is Outcome.OK
    assert gravest([Outcome.OK, Outcome.TRIMMED, Outcome.PENDING]) is Outcome.TRIMMED


def error_classes() -> list[type[ParallaxError]]:
    return [
        found
        for _, found in inspect.getmembers(errors, inspect.isclass)
        if issubclass(found, ParallaxError) and found.__module__ == errors.__name__
    ]


def test_the_drawn_tree_of_errors_is_the_tree_of_classes() -> None:
    drawn: dict[str, str] = {}
    above: dict[int, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^ {4}([│ ├└─]*)(\w+Error)\b", line)
        if found is None:
            continue
        depth, name = len(found.group(1)) // 4, found.group(2)
        above[depth] = name
        if depth:
            drawn[name] = above[depth - 1]
    real = {found.__name__: found.__bases__[0].__name__ for found in error_classes()}
    assert real.pop("ParallaxError") == "Exception"
    assert drawn == real


def test_every_error_has_a_word_of_its_own() -> None:
    codes = [found.code for found in error_classes()]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[A-Z][A-Z_]*", code) for code in codes)


def test_names_and_their_inverses() -> None:
    region = RegionName("eu-west")
    assert region_of(aggregate_cluster(region)) == region
    assert region_of(regional_cluster(region)) == region
    route = Route(region, RegionName("b"))
    assert Route.parse(str(route)) == route
    lineage = Lineage(TopicId("s-_1"), TopicId("t"), 3)
    assert Lineage.parse(str(lineage)) == lineage
    assert next_offset(41) == 42


@pytest.mark.parametrize("name", ["", "aggregate", "aggregate-", "aggregates-a", "-a"])
def test_cluster_names_that_can_not_exist(name: str) -> None:
    with pytest.raises(InvalidNameError, match="is not named"):
        region_of(ClusterName(name))


@pytest.mark.parametrize("text", ["", "a", "a->", "->b", "a-b"])
def test_routes_that_can_not_exist(text: str) -> None:
    with pytest.raises(InvalidNameError, match="source->target"):
        Route.parse(text)


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "a.b.1.2", "a.b.-1"])
def test_lineages_that_can_not_exist(text: str) -> None:
    with pytest.raises(InvalidNameError, match=r"source_id\.target_id\.generation"):
        Lineage.parse(text)
