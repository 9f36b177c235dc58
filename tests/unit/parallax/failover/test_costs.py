"""What moves ask for, counted: a request more for each group is felt where a region's groups move at once.

A figure that grows needs a reason, and one that falls is put down here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from parallax.domain.ids import GroupName
from parallax.failover.facts import MoveKind
from parallax.failover.plan import Ending
from parallax.failover.selection import region_moves
from tests.worlds.counted_moves import CountedBench, counted_bench, of_kind


@pytest.fixture
def counted() -> Iterator[CountedBench]:
    with counted_bench(partitions=2) as made:
        yield made


def kinds(asked: dict[str, int]) -> dict[str, int]:
    return {
        "groups' store": of_kind(asked, "read", "write"),
        "index": of_kind(asked, "index"),
        "clusters": of_kind(asked, "ask"),
        "services": of_kind(asked, "call"),
    }


def test_a_first_move(counted: CountedBench) -> None:
    assert counted.move("a", "b", drain_ms=5_000).ending is Ending.MOVED
    assert counted.counts.pauses_ms == [200]
    asked = counted.counts.taken()
    assert asked == {
        # What the command asks for itself.
        "command: ask aggregate-a committed": 4,
        "command: ask aggregate-a groups": 1,
        "command: ask aggregate-a unsettled": 2,
        "command: ask aggregate-b commit_for": 1,
        "command: ask aggregate-b committed": 2,
        "command: ask aggregate-b groups": 1,
        "command: ask aggregate-b log_ranges": 1,
        "command: ask aggregate-b topics": 1,
        "command: call get_primary": 1,
        "command: call offsets": 1,
        "command: call report_positions": 1,
        "command: call set_primary": 2,
        "command: read group_progress": 1,
        "command: read operations": 2,
        "command: write audit": 2,
        "command: write group_observed": 1,
        "command: write known_groups": 1,
        "command: write operation_weeks": 1,
        "command: write operations": 4,
        "command: write operations_by_week": 4,
        # What the services ask for because of it.
        "service: ask aggregate-a committed": 1,
        "service: ask aggregate-a log_ranges": 1,
        "service: ask aggregate-a topics": 1,
        "service: ask aggregate-b log_ranges": 2,
        "service: ask aggregate-b topics": 2,
        "service: index blocks": 4,
        "service: index keys_below": 8,
        "service: index lost_ranges": 8,
        "service: index reached": 4,
        "service: index told_topics": 8,
        "service: index turns": 4,
        "service: read group_progress": 2,
        "service: read primary_decisions": 1,
        "service: read primary_decisions, serial": 2,
        "service: write assigned_groups": 1,
        "service: write audit": 6,
        "service: write group_progress": 1,
        "service: write known_groups": 1,
        "service: write primary_decisions, transaction": 2,
    }
    assert kinds(asked) == {"groups' store": 32, "index": 36, "clusters": 20, "services": 5}


def test_a_second_move_and_a_way_back(counted: CountedBench) -> None:
    counted.move("a", "b", drain_ms=5_000)
    for origin, target, commit in (("b", "a", 12), ("a", "b", 20)):
        counted.world.now_ms += 3_000
        for partition in range(2):
            counted.world.commit(origin, commit, partition)
        counted.counts.taken()
        assert counted.move(origin, target, drain_ms=5_000).ending is Ending.MOVED
        assert counted.counts.pauses_ms == [200]
        assert kinds(counted.counts.taken()) == {
            "groups' store": 33,
            "index": 16,
            "clusters": 20,
            "services": 5,
        }


def test_a_disaster(counted: CountedBench) -> None:
    counted.outside.groups.save_observed(counted.observed())
    counted.writer("a").away = True
    counted.counts.taken()
    assert counted.move("a", "b", MoveKind.DISASTER).ending is Ending.MOVED
    assert counted.counts.pauses_ms == [1_000]
    assert kinds(counted.counts.taken()) == {
        "groups' store": 38,
        "index": 36,
        "clusters": 13,
        "services": 5,
    }


def test_which_groups_of_a_region_move(counted: CountedBench) -> None:
    """Of groups without a decision: whose commits on the cluster are their own."""
    names = [GroupName(f"group-{number:02}") for number in range(40)]
    for group in names:
        counted.put("a", 15, group)
    counted.counts.taken()
    found = region_moves(counted.outside, "a", "b", names.__contains__, MoveKind.PLANNED)
    assert list(found) == names
    assert kinds(counted.counts.taken()) == {
        "groups' store": 47,
        "index": 0,
        "clusters": 3,
        "services": 1,
    }


def test_a_pause_is_no_longer_than_what_is_missing(counted: CountedBench) -> None:
    """Commits that have stood still meanwhile are not waited for, and what arrives soon is looked for soon."""
    fence = counted.client.set_primary

    def slowly(*arguments: Any, **options: Any) -> Any:
        counted.world.now_ms += 150
        return fence(*arguments, **options)

    counted.client.set_primary = slowly  # type: ignore[method-assign] # a store that takes its time
    counted.world.copy("a", "a", 5)
    counted.world.watermark("b", "a")
    counted.world.commit("a", 25)

    def arrive(turn: int) -> None:
        if turn == 4:
            counted.world.copy("a", "b", 5)
            counted.world.watermark("b", "b")

    counted.while_waiting = arrive
    result = counted.move("a", "b", drain_ms=5_000, catch_up_ms=10_000)
    assert result.ending is Ending.MOVED, result.problem
    assert counted.counts.pauses_ms == [50, 20, 40, 80]
