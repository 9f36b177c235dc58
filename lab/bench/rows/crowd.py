"""Fills the stores with many groups, and with two routes of many partitions: what lists are asked about."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from lab.bench.rows.answers import TOPIC
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.domain.commits import ObservedCommit
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    Route,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Mode, PrimaryDecision, Stage
from parallax.domain.replication_status import STOPPED, ShardPartition, ShardReport, ShardStatus
from parallax.domain.sync_status import GroupSyncStatus, SyncCycle, SyncTrouble
from parallax.failover.facts import Move, MoveKind
from parallax.failover.journal import MoveRecord, Snapshot, Step, note_of
from parallax.ports.groups import PrimaryLog, Reach

ROUTES = (Route(RegionName("a"), RegionName("b")), Route(RegionName("b"), RegionName("b")))
_A, _B = ClusterName("aggregate-a"), ClusterName("aggregate-b")
_SHARDS = 2
_PARTITIONS_PER_TOPIC = 100
_TROUBLED_EVERY = 10
_STOPPED_EVERY = 200
_WRITE_AT_ONCE = 500
_DECIDE_SIDE_BY_SIDE = 16


def name_of(number: int) -> GroupName:
    """The name of a group of the crowd."""
    return GroupName(f"crowd-{number:05}")


def fill_groups(stores: CassandraStores, groups: int) -> None:
    """Every group was seen at one place, has a primary, was looked at by the sync job and has moved once."""
    now_ms = stores.clock.now_ms()
    names = [name_of(number) for number in range(groups)]
    place = TopicPartition(TopicName(TOPIC), 0)
    for start in range(0, groups, _WRITE_AT_ONCE):
        some = names[start : start + _WRITE_AT_ONCE]
        stores.groups.save_observed(
            [ObservedCommit(name, _A, place, TopicId(""), TargetOffset(1), -1, now_ms) for name in some]
        )
        stores.status.save_groups([_status(number, name, now_ms) for number, name in enumerate(some)])
    tell_cycle(stores, groups)
    with ThreadPoolExecutor(_DECIDE_SIDE_BY_SIDE) as executor:
        list(executor.map(lambda name: _decide_and_move(stores, name, now_ms), names))


def tell_cycle(stores: CassandraStores, groups: int) -> None:
    """The sync job's last word, which gets old."""
    now_ms = stores.clock.now_ms()
    stores.status.save_cycle(SyncCycle("bench", now_ms, groups, groups // _TROUBLED_EVERY, (), ""))


def _status(number: int, name: GroupName, now_ms: int) -> GroupSyncStatus:
    well = GroupSyncStatus(
        group=name,
        outcome=Outcome.OK,
        since_ms=now_ms,
        told_at_ms=now_ms,
        reasons={"published": 1},
        active_at=(_A,),
        partitions=1,
        problem="",
        troubles=(),
        count_troubles=0,
    )
    if number % _TROUBLED_EVERY:
        return well
    trouble = SyncTrouble(
        TopicPartition(TopicName(TOPIC), 0),
        _B,
        "active_at_target",
        Outcome.ACTIVE_AT_TARGET,
        "1 member",
        "stop the members there",
    )
    return replace(well, outcome=Outcome.ACTIVE_AT_TARGET, troubles=(trouble,), count_troubles=1)


def _decide_and_move(stores: CassandraStores, name: GroupName, now_ms: int) -> None:
    region = RegionName("a")
    decision = PrimaryDecision(
        name, 2, Mode.ACTIVE_PASSIVE, region, _A, Stage.SETTLED, None, region, now_ms, reason="bench"
    )
    stores.primaries.append(decision, log=PrimaryLog((), 0), reach=Reach.HERE)
    move = Move(name, _B, _A, region, MoveKind.PLANNED)
    stores.operations.save_operation(
        note_of(
            MoveRecord(move, f"move-{name}", now_ms, now_ms * 1_000, Step.DONE, Snapshot({}, {}, 0, None))
        )
    )


def fill_routes(stores: CassandraStores, partitions: int) -> None:
    """Both routes were told of just now, with so many partitions each."""
    now_ms = stores.clock.now_ms()
    for route in ROUTES:
        stores.status.save_shards(
            [_shard(route, shard, partitions, now_ms) for shard in range(_SHARDS)],
        )


def _shard(route: Route, shard: int, partitions: int, now_ms: int) -> ShardReport:
    found = [_partition(number) for number in range(shard, partitions, _SHARDS)]
    return ShardReport(
        ShardStatus(
            route=route,
            shard=shard,
            shards=_SHARDS,
            told_at_ms=now_ms,
            owner="bench",
            partitions=len(found),
            stopped=_stopped(found),
            lag_records=sum(item.lag_records or 0 for item in found),
            latency_ms=12,
            index_lag_ms=200,
            records=len(found),
            size_bytes=len(found),
        ),
        tuple(found),
    )


def _stopped(partitions: Sequence[ShardPartition]) -> int:
    return sum(item.state == STOPPED for item in partitions)


def _partition(number: int) -> ShardPartition:
    place = TopicPartition(
        TopicName(f"topic-{number // _PARTITIONS_PER_TOPIC:03}"), number % _PARTITIONS_PER_TOPIC
    )
    stopped = number % _STOPPED_EVERY == 0
    return ShardPartition(
        place,
        STOPPED if stopped else "copying",
        "PARTITION_MISMATCH: the target has fewer partitions" if stopped else "",
        lag_records=number * 7 % 1_000,
        latency_ms=12,
        watermark_age_ms=500,
        source_next=SourceOffset(1_000_000 + number),
        records=number,
    )
