"""What processes tell of themselves: the real adapter on a keyspace in memory, and on Cassandra."""

from __future__ import annotations

from dataclasses import replace

import pytest

from parallax.adapters.cassandra.status import PACKING, pack_partitions, unpack_partitions
from parallax.domain.ids import ClusterName, GroupName, RegionName, Route, TopicName, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.domain.replication_status import ShardPartition, ShardReport, ShardStatus
from parallax.domain.sync_status import GroupSyncStatus, SyncCycle, SyncTrouble
from parallax.errors import UnreadableRowError
from parallax.ports.groups import NamePage
from parallax.ports.status import StatusStore
from tests.support import unique_name

ON_B = ClusterName("aggregate-b")


@pytest.fixture
def route() -> Route:
    return Route(RegionName(unique_name("a")), RegionName("b"))


def shard(route: Route, number: int, of: int = 2, at_ms: int = 1_000) -> ShardReport:
    partition = ShardPartition(TopicPartition(TopicName("trips"), number), "copying", lag_records=number)
    return ShardReport(ShardStatus(route, number, of, at_ms, "replicator@x:1", partitions=1), (partition,))


def group_status(name: str, troubles: int = 0) -> GroupSyncStatus:
    trouble = SyncTrouble(None, ON_B, "target_away", Outcome.UNREACHABLE)
    return GroupSyncStatus(
        GroupName(name),
        Outcome.OK,
        5,
        6,
        {"published": 1},
        troubles=(trouble,) * troubles,
        count_troubles=troubles,
    )


def test_a_route_is_what_its_shards_told_last(status: StatusStore, route: Route) -> None:
    assert not status.shards([route])[route].shards
    status.save_shards([shard(route, 0), shard(route, 1)])
    status.save_shards([shard(route, 1, at_ms=2_000)])
    told = status.shards([route])[route]
    assert [(item.shard, item.told_at_ms) for item in told.shards] == [(0, 1_000), (1, 2_000)]
    reports, problems = status.shard_reports(route)
    assert (list(reports), list(problems)) == ([shard(route, 0), shard(route, 1, at_ms=2_000)], [])


def test_shards_of_a_larger_layout_are_left_out(status: StatusStore, route: Route) -> None:
    status.save_shards([shard(route, number, of=3) for number in range(3)])
    status.save_shards([shard(route, 0, of=1, at_ms=2_000)])
    assert [item.shard for item in status.shards([route])[route].shards] == [0]
    assert [item.status.shard for item in status.shard_reports(route)[0]] == [0]


def test_groups_with_troubles_are_listed_until_they_have_none(status: StatusStore) -> None:
    prefix = unique_name("g")
    names = [f"{prefix}-{number:02}" for number in range(20)]
    status.save_groups([group_status(name, troubles=1) for name in names])
    first = status.troubled(NamePage(7, prefix))
    rest = status.troubled(NamePage(100, prefix, first[-1].group))
    assert [item.group for item in (*first, *rest)] == names
    status.save_groups([group_status(names[0])], solved=[GroupName(names[0])])
    status.forget_groups([GroupName(names[1])])
    assert [item.group for item in status.troubled(NamePage(100, prefix))] == names[2:]
    found = status.group_statuses([GroupName(name) for name in names[:3]])
    assert found == {names[0]: group_status(names[0]), names[2]: group_status(names[2], troubles=1)}


def test_the_sync_job_is_what_it_told_last(status: StatusStore) -> None:
    cycle = SyncCycle(unique_name("sync"), 7_000, 3, 1, (ON_B,), "no answer")
    for told in (cycle, replace(cycle, ended_at_ms=8_000, problem="")):
        status.save_cycle(told)
        assert status.cycle() == told


@pytest.mark.parametrize(
    ("blob", "says"),
    [
        (b"", "packed as nothing"),
        (bytes([PACKING + 1]) + pack_partitions([])[1:], "packed as 02"),
        (pack_partitions([])[:-3], "incomplete or truncated"),
    ],
)
def test_partitions_that_cant_be_read_say_why(blob: bytes, says: str, route: Route) -> None:
    with pytest.raises(UnreadableRowError, match=says):
        unpack_partitions(blob, route, 0)


def test_ten_thousand_partitions_take_little_room(route: Route) -> None:
    parts = [
        ShardPartition(
            TopicPartition(TopicName(f"topic-{number // 100}"), number % 100),
            "copying",
            lag_records=number * 7919 % 1_000,
            latency_ms=number * 31 % 50,
            watermark_age_ms=number * 17 % 900,
            records=number * 104_729 % 10**7,
        )
        for number in range(10_000)
    ]
    blob = pack_partitions(parts)
    assert list(unpack_partitions(blob, route, 0)) == parts
    assert len(blob) < 150_000
