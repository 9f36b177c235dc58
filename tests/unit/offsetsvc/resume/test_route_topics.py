"""Answers for a topic that not every route copies: a region whose route leaves it out is no source of it."""

from __future__ import annotations

from typing import Any

import pytest

from offsetsvc.answers import FailoverAnswer
from parallax.config.config import Config
from parallax.domain.outcome import Outcome
from parallax.errors import RefusedError
from parallax.runtime.deadline import Deadline
from tests.worlds.offset_world import TOPIC, World

LEFT_OUT = {"exclude": [TOPIC]}


def with_routes(config: Config, *narrow: str) -> Config:
    """All four routes; those that are named leave the topic out."""
    routes = [
        {"route": str(route)} | ({"topics": LEFT_OUT} if str(route) in narrow else {})
        for route in config.all_routes()
    ]
    cluster = {"bootstrap_servers": "127.0.0.1:1"}
    return Config.model_validate(
        {
            "regions": {name: {"regional": cluster, "aggregate": cluster} for name in config.regions},
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": routes,
        }
    )


@pytest.fixture
def world() -> World:
    """Region a's records alone are copied, to both sides."""
    made = World(uncopied={"b"})
    for target in "ab":
        made.copy("a", target, 10)
        made.watermark("a", target)
    return made


def ask(world: World, next_offset: int) -> FailoverAnswer:
    with world.service() as service:
        (answer,) = service.failover.answers(world.request("a", "b", next_offset), Deadline.after_ms(10_000))
    return answer


def test_a_region_without_rows_counts_from_the_log_start_if_its_route_copies_the_topic(world: World) -> None:
    assert ask(world, 4).outcome is Outcome.EARLIEST_FALLBACK


def test_a_region_whose_route_leaves_the_topic_out_holds_nothing_back(world: World) -> None:
    world.config = with_routes(world.config, "b->b", "b->a")
    answer = ask(world, 4)
    assert (answer.outcome, answer.resume_offset) == (Outcome.OK, 4)
    assert [view.answer.source.region for view in answer.sources] == ["a"]


def test_what_was_copied_before_the_topic_was_left_out_still_counts() -> None:
    world = World()
    for source, target in (("a", "a"), ("b", "a"), ("b", "b"), ("a", "b")):
        world.copy(source, target, 5)
    for source in "ab":
        for target in "ab":
            world.watermark(source, target)
    asked = ask(world, 5).resume_offset, ask(world, 8).resume_offset
    world.config = with_routes(world.config, "b->b", "b->a")
    assert (ask(world, 5).resume_offset, ask(world, 8).resume_offset) == asked
    assert asked == (0, 3)


def test_where_no_route_ever_copied_the_topic_every_region_counts() -> None:
    world = World(uncopied={"a", "b"})
    world.config = with_routes(world.config, *map(str, world.config.all_routes()))
    assert ask(world, 4).outcome is Outcome.EARLIEST_FALLBACK


@pytest.mark.parametrize(
    "leaving", [{"naming": "${source}.${topic}"}, {"copies": ["a"]}], ids=["other names", "others' records"]
)
def test_no_group_leaves_a_cluster_whose_own_records_no_route_brings_along(
    world: World, leaving: dict[str, Any]
) -> None:
    kafka = {"bootstrap_servers": "127.0.0.1:1"}
    world.config = Config.model_validate(
        {
            "regions": {"a": {"regional": kafka, "aggregate": kafka}, "b": {"cluster": kafka}},
            "cassandra": {"contact_points": ["127.0.0.1"]},
            "routes": ["a->a", {"route": "b->a", **leaving}, "a->b"],
        }
    )
    world.commit("a", 6)
    world.commit("b", 6)
    with world.service() as service:
        with pytest.raises(
            RefusedError, match="NOT_REPLICATED: producers write to aggregate-b, and no route"
        ):
            service.failover.answers(world.request("b", "a"), Deadline.after_ms(5_000))
        assert service.failover.answers(world.request("a", "b"), Deadline.after_ms(5_000))
