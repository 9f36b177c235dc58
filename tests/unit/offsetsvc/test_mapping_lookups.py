"""What people and tools look up in the mapping."""

from __future__ import annotations

import pytest

from parallax.domain.ids import RegionName, TopicPartition, aggregate_cluster
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
