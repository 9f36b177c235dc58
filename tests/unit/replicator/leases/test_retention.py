"""What is told of the retention of sources: how long they may keep away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from parallax.domain.ids import ClusterName, TopicName
from parallax.domain.topic_settings import TopicSetting
from replicator.kafka.retention import retention_of
from replicator.lease import Lease, LeaseProgress, PartitionProgress, PartitionStatus
from replicator.leases.retention import RetentionBoard
from tests.unit.replicator.leases.test_canary import config
from tests.unit.replicator.leases.test_status import ROUTE

HOUR_MS = 3_600_000
SOURCE = ClusterName("regional-a")
TRIPS = TopicName("trips")


class Clock:
    now_ms = 1_000 * HOUR_MS

    def __call__(self) -> int:
        return self.now_ms


def part(partition: int, copied_until_ms: int | None, source_next: int = 5) -> PartitionProgress:
    return PartitionProgress(
        "a.trips",
        partition,
        0,
        0,
        source_next,
        0,
        None,
        PartitionStatus.COPYING,
        copied_until_ms=copied_until_ms,
    )


def told(*parts: PartitionProgress) -> LeaseProgress:
    return LeaseProgress(Lease(ROUTE, 0, 1, 1, 1, 0), parts, 1, 0, 0.0)


def board_of(clock: Clock) -> RetentionBoard:
    made = config(routes=[{"route": "a->b", "naming": "${source}.${topic}"}])
    return RetentionBoard(made, made.all_routes(), clock)


def test_a_route_is_as_near_as_the_partition_of_whose_retention_most_is_gone() -> None:
    clock = Clock()
    board = board_of(clock)
    assert (board.of(ROUTE), board.state(), board.sources) == (None, {"source_retention": {}}, [SOURCE])
    board.heard(told(part(0, clock.now_ms), part(1, clock.now_ms - HOUR_MS), part(2, None)))
    assert board.of(ROUTE) is None
    assert board.topics(SOURCE) == {TRIPS}
    board.learn(SOURCE, {TRIPS: 48 * HOUR_MS})
    clock.now_ms += 23 * HOUR_MS
    assert board.troubles() == []
    assert board.state() == {
        "source_retention": {
            "a->b": {"topic": "a.trips", "partition": 1, "left_ms": 24 * HOUR_MS, "used": 0.5}
        }
    }
    clock.now_ms += HOUR_MS
    assert board.troubles() == [
        "a->b: a.trips-1: what was written at the source in the last 25.0 h may not be copied, and its retention takes it in 23.0 h"
    ]
    clock.now_ms += 23 * HOUR_MS
    assert board.troubles()[0].endswith("takes it now")
    board.heard(told(part(1, clock.now_ms)))
    left = board.of(ROUTE)
    assert left is not None
    assert left.partition.partition == 0
    assert board.missing() == board.active_leases() == ()


def test_what_is_known_stands_until_it_is_copied_anew_or_gone() -> None:
    clock = Clock()
    board = board_of(clock)
    board.learn(SOURCE, {TRIPS: HOUR_MS})
    board.heard(told(part(0, clock.now_ms, source_next=9)))
    board.heard(told(replace(part(0, None, source_next=0), status=PartitionStatus.WAITING)))  # a new lease
    assert board.of(ROUTE) is not None
    board.heard(told(part(0, None, source_next=8)))
    assert board.of(ROUTE) is None
    board.heard(told(part(0, clock.now_ms, source_next=8)))
    assert board.of(ROUTE) is not None
    board.heard(told(replace(part(0, None), status=PartitionStatus.ABSENT)))
    assert board.of(ROUTE) is None


def test_what_time_does_not_take_has_no_sample() -> None:
    clock = Clock()
    board = board_of(clock)
    registry = CollectorRegistry()
    registry.register(board)  # type: ignore[arg-type] # it collects, which is all that is asked for
    board.heard(told(part(0, clock.now_ms - HOUR_MS)))
    board.learn(SOURCE, {TRIPS: None})
    assert not [sample for family in registry.collect() for sample in family.samples]
    board.learn(SOURCE, {TRIPS: 4 * HOUR_MS})
    found = {sample.name: sample.value for family in registry.collect() for sample in family.samples}
    prefix = "parallax_replicator_source_retention_"
    assert found == {f"{prefix}left_seconds": 3 * 3_600, f"{prefix}used_ratio": 0.25}
    board.learn(SOURCE, {TRIPS: None})
    assert not [sample for family in registry.collect() for sample in family.samples]


@pytest.mark.parametrize(
    ("settings", "kept_ms"),
    [
        ({"retention.ms": "5", "cleanup.policy": "delete"}, 5),
        ({"retention.ms": "5", "cleanup.policy": "compact,delete"}, 5),
        ({"retention.ms": "5", "cleanup.policy": "compact"}, None),
        ({"retention.ms": "-1", "cleanup.policy": "delete"}, None),
        ({}, None),
    ],
)
def test_only_a_policy_that_deletes_by_time_counts(settings: dict[str, str], kept_ms: int | None) -> None:
    seen = {key: TopicSetting(value, value, value, builtin=False) for key, value in settings.items()}
    assert retention_of(seen) == kept_ms
