"""What preflight says of routes that don't fit together, or that ask for more than the replicator does."""

from __future__ import annotations

from typing import Any

from parallax.config.config import Config
from parallax.domain.ids import ClusterName, RegionName, Route, TopicName
from replicator.findings import Finding, Problem, Severity
from replicator.graph_check import check_graph

KAFKA = {"bootstrap_servers": "127.0.0.1:1"}
ONE = {"cluster": KAFKA}
BOTH = {"regional": KAFKA, "aggregate": KAFKA}
TRIPS = TopicName("trips")


def check(
    routes: list[Any], *, regions: dict[str, Any] | None = None, only: str | None = None, **topics: Any
) -> list[Finding]:
    config = Config.model_validate(
        {
            "regions": regions or {"a": ONE, "b": ONE, "c": ONE},
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": routes,
            "topics": topics,
        }
    )
    wanted = [route for route in config.all_routes() if only in (None, str(route))]
    seen = {ClusterName(f"regional-{name}"): {TRIPS} for name in config.regions}
    return list(check_graph(config, wanted, seen))


def problems(found: list[Finding]) -> set[tuple[Problem, str]]:
    return {(item.problem, item.where) for item in found}


def test_routes_of_regional_clusters_into_aggregate_ones_fit_by_themselves() -> None:
    assert check(["a->a", "b->a", "a->b", "b->b"], regions={"a": BOTH, "b": BOTH}) == []


def test_one_way_between_two_clusters_and_forwarding_with_copies_fit() -> None:
    assert check(["a->b"]) == []
    assert check(["a->b", {"route": "b->c", "copies": "all"}]) == []


def test_what_would_come_back_or_twice_is_an_error_of_the_routes_that_bring_it() -> None:
    everything = [{"route": route, "copies": "all"} for route in ("a->b", "b->a")]
    assert (Problem.CYCLE, "a->b, b->a") in problems(check(everything))
    three = [{"route": route, "copies": "all"} for route in ("a->b", "b->c", "a->c")]
    found = [item for item in check(three) if item.problem is Problem.TWO_PATHS]
    assert [(item.severity, item.where) for item in found[:1]] == [(Severity.ERROR, "a->c, b->c")]
    assert not any(item.problem is Problem.TWO_PATHS for item in check(three, only="a->b"))


def test_a_cycle_is_found_before_there_is_any_topic() -> None:
    config = Config.model_validate(
        {
            "regions": {"a": ONE, "b": ONE},
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": [{"route": "a->b", "copies": "all"}, {"route": "b->a", "copies": "all"}],
            "topics": {"include": ["payments\\..*"]},
        }
    )
    found = list(check_graph(config, [Route(RegionName("a"), RegionName("b"))], {}))
    assert found[0].problem is Problem.CYCLE
    assert found[0].topic == "payments.any-topic"


def test_own_records_go_both_ways_round_and_on() -> None:
    assert check(["a->b", "b->a"]) == []
    assert check(["a->b", "b->c", "c->a", "a->c"]) == []


def test_records_of_some_regions_are_told_apart_by_the_route_that_brought_them() -> None:
    assert (
        check(["a->b", "c->b", {"route": "b->d", "copies": ["a"]}], regions=dict.fromkeys("abcd", ONE)) == []
    )
    found = check(
        ["a->b", {"route": "b->c", "copies": "all"}, {"route": "c->d", "copies": ["a"]}],
        regions=dict.fromkeys("abcd", ONE),
    )
    assert problems(found) == {(Problem.NOT_REPLICATED_YET, "c->d")}
    assert "b->c brings records of these regions and of others together" in found[0].message


def test_a_filter_that_matches_nothing_is_a_warning() -> None:
    (found,) = check([{"route": "a->b", "topics": {"include": ["orders"]}}])
    assert (found.problem, found.severity, found.where) == (Problem.NO_TOPICS, Severity.WARNING, "a->b")


def test_topics_that_rules_leave_out_are_named() -> None:
    (found,) = check(["a->b", "b->a"][:1], residency=[{"match": "trips", "regions": ["a"]}])[1:]
    assert (found.problem, found.severity) == (Problem.TOPICS_LEFT_OUT, Severity.NOTE)
    assert found.message == "1 topics are not copied (trips): topics.residency keeps them out of region b"
