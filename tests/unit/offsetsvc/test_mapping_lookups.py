"""What people and tools look up in the mapping."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from parallax.domain.ids import RegionName, Route, TopicName, TopicPartition, aggregate_cluster
from parallax.errors import UnreadableRowError
from parallax.runtime.deadline import Deadline
from parallax.v1 import offsets_pb2 as pb
from tests.worlds.offset_world import TOPIC, World

A = aggregate_cluster(RegionName("a"))
P0 = TopicPartition(TOPIC, 0)


@pytest.mark.parametrize(("record_offset", "complete"), [(4, True), (7, False)])
def test_an_offset_that_was_lost_and_given_again_is_not_told_of_by_the_rows_of_what_was_lost(
    record_offset: int, *, complete: bool
) -> None:
    world = World()
    world.copy("a", "a", 10)
    world.copy("b", "a", 10)
    world.watermarks()
    world.lose_tail("a", 5)
    with world.service() as service:
        found = service.mapping.origin(A, P0, record_offset)
        assert (found.found, found.complete) == (complete, complete)
        world.copy("b", "a", 5)
        world.copy("a", "a", 5)
    with world.service() as service:
        again = service.mapping.origin(A, P0, 7)
    assert (again.found, again.route) == (True, "b->a")


@pytest.mark.parametrize("table", ["lineages", "newest"])
def test_a_topic_of_which_a_row_cant_be_read_keeps_no_other_one_from_being_listed(
    monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    world = World()
    world.copy("a", "b", 10)
    world.copy("b", "b", 10)
    read = getattr(world.index, table)

    def unreadable(route: Route, topic: TopicName) -> Any:
        if route == Route.parse("a->b"):
            raise UnreadableRowError(f"{table} of a->b, trips-0, can't be read")
        return read(route, topic)

    monkeypatch.setattr(world.index, table, unreadable)
    with world.service() as service, capture_logs() as logs:
        listed = service.mapping.routes(Deadline.after_ms(5_000)).routes
    topics = {route.route: route.topics for route in listed}
    assert [topic.HasField("freshness_ms") for topic in topics["b->b"]] == [True]
    assert list(topics["a->b"]) == [pb.RouteTopic(topic=TOPIC)]
    assert [line["problem"] for line in logs if line["event"] == "route_topic_unreadable"] == [
        f"{table} of a->b, trips-0, can't be read"
    ]
