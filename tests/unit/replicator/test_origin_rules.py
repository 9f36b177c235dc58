"""By which routes into its source a route tells records apart."""

from __future__ import annotations

from typing import Any

import pytest

from parallax.config.config import Config
from parallax.domain.ids import Route
from replicator.copying.origins import OriginRule
from replicator.origin_rules import origin_rule

KAFKA = {"bootstrap_servers": "127.0.0.1:1"}
ONE = {"cluster": KAFKA}
BOTH = {"regional": KAFKA, "aggregate": KAFKA}


def rule_of(route: str, routes: list[Any], regions: dict[str, Any] | None = None) -> OriginRule | None:
    config = Config.model_validate(
        {
            "regions": regions or dict.fromkeys("abcd", ONE),
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": routes,
        }
    )
    return origin_rule(config, Route.parse(route))


def test_where_nothing_leads_into_the_source_nobody_looks() -> None:
    assert rule_of("a->b", ["a->a", "a->b", "b->a"], {"a": BOTH, "b": BOTH}) is None


def test_all_records_need_no_look_up() -> None:
    assert rule_of("b->c", ["a->b", {"route": "b->c", "copies": "all"}]) is None
    settings = {"route": "b->c", "copies": ["a", "b"]}
    assert rule_of("b->c", ["a->b", settings]) is None


def test_own_ones_are_those_that_no_route_has_brought() -> None:
    routes = ["a->b", "c->b", "b->a"]
    assert rule_of("b->a", routes) == OriginRule(own=True, incoming={"a": False, "c": False})


def test_a_standby_looks_for_what_an_earlier_route_has_brought() -> None:
    assert rule_of("b->a", ["b->a"]) == OriginRule(own=True, incoming={})


@pytest.mark.parametrize(
    ("regions", "own", "incoming"),
    [(["a"], False, {"a": True, "c": False}), (["b", "c"], True, {"a": False, "c": True})],
)
def test_records_of_regions_are_those_of_the_routes_that_bring_no_others(
    regions: list[str],
    own: bool,  # noqa: FBT001 - a case
    incoming: dict[str, bool],
) -> None:
    routes = ["a->b", "c->b", {"route": "b->d", "copies": regions}]
    assert rule_of("b->d", routes) == OriginRule(own, incoming)  # type: ignore[arg-type] # names are text


def test_what_a_route_brings_is_followed_over_all_routes_before_it() -> None:
    """c->d has a's and b's records: b->c takes all, and a->b has brought a's to b."""
    routes = ["a->b", {"route": "b->c", "copies": "all"}, {"route": "c->d", "copies": ["a", "b"]}]
    assert rule_of("c->d", routes) == OriginRule(own=False, incoming={"b": True})  # type: ignore[dict-item] # as above
