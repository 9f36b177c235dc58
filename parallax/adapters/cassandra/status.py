"""`StatusStore` in Cassandra: every row expires by itself, and is replaced by whoever tells it again.

The partitions of a shard lie in one blob: a byte that says how they are packed, and compressed JSON that has a list for each of their
attributes.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from parallax.adapters.cassandra.connection import CassandraConnection, Request, Row
from parallax.adapters.cassandra.groups import GroupList, bucket_of
from parallax.domain.formats import WHAT_TO_DO, read_text, stored_text
from parallax.domain.ids import ClusterName, GroupName, Route, SourceOffset, TopicName, TopicPartition
from parallax.domain.outcome import Outcome
from parallax.domain.replication_status import RouteStatus, ShardPartition, ShardReport, ShardStatus, present
from parallax.domain.sync_status import GroupSyncStatus, SyncCycle, SyncTrouble, UnreadableGroup
from parallax.errors import UnreadableRowError
from parallax.ports.groups import NamePage
from parallax.ports.status import LAST_WORD_KEPT_S, TROUBLES_KEPT_S

SHARD_FORMAT = 1
PARTITIONS_FORMAT = 1
GROUP_FORMAT = 1
CYCLE_FORMAT = 1
"""What is written, and the newest that is read."""

PACKING = 1
"""The first byte of packed partitions: how they are packed."""

_FAST = 1
"""zlib's level: written every few seconds."""

_AT_ONCE = 50
"""Groups in one request."""

_SYNC = "sync"


class CassandraStatusStore:
    """What processes tell of themselves.

    Args:
        connection: to the store.
        keyspace: of the tables.
    """

    def __init__(self, connection: CassandraConnection, keyspace: str) -> None:
        self._connection = connection
        self._troubled = GroupList(connection, f"{keyspace}.sync_problems", "body")
        of_route = f"FROM {keyspace}.replicator_status WHERE route = ?"
        self._shards_cql = f"SELECT shard, body {of_route}"
        self._partitions_cql = f"SELECT shard, body, partitions {of_route}"
        self._save_shard_cql = (
            f"INSERT INTO {keyspace}.replicator_status (route, shard, body, partitions) "
            "VALUES (?, ?, ?, ?) USING TTL ?"
        )
        self._groups_cql = (
            f"SELECT group_id, body FROM {keyspace}.group_status WHERE bucket = ? AND group_id IN ?"
        )
        tables = ("group_status", "sync_problems")
        self._save_group_cql, self._save_troubles_cql = (
            f"INSERT INTO {keyspace}.{table} (bucket, group_id, body) VALUES (?, ?, ?) USING TTL ?"
            for table in tables
        )
        self._delete_group_cql, self._delete_troubles_cql = (
            f"DELETE FROM {keyspace}.{table} WHERE bucket = ? AND group_id = ?" for table in tables
        )
        self._cycle_cql = f"SELECT body FROM {keyspace}.sync_status WHERE part = ?"
        self._save_cycle_cql = f"INSERT INTO {keyspace}.sync_status (part, body) VALUES (?, ?) USING TTL ?"

    def save_shards(self, reports: Sequence[ShardReport]) -> None:
        """Replace what was told of these shards."""
        insert = self._connection.prepare(self._save_shard_cql)
        self._connection.run_all(
            [
                (
                    insert,
                    (
                        str(report.status.route),
                        report.status.shard,
                        shard_to_text(report.status),
                        pack_partitions(report.partitions),
                        LAST_WORD_KEPT_S,
                    ),
                )
                for report in reports
            ]
        )

    def shards(self, routes: Collection[Route]) -> Mapping[Route, RouteStatus]:
        """What was told of each route: a read for each."""
        select = self._connection.prepare(self._shards_cql)
        answers = self._connection.run_all([(select, (str(route),)) for route in routes])
        return {route: _route_status(route, rows) for route, rows in zip(routes, answers, strict=True)}

    def shard_reports(self, route: Route) -> tuple[Sequence[ShardReport], Sequence[str]]:
        """The present shards of a route with their partitions: one read."""
        rows = self._connection.run(self._partitions_cql, str(route))
        status = _route_status(route, [row[:2] for row in rows])
        packed = {row[0]: row[2] for row in rows}
        found, problems = [], list(status.problems)
        for shard in status.shards:
            try:
                partitions = unpack_partitions(packed[shard.shard], route, shard.shard)
            except UnreadableRowError as error:
                problems.append(str(error))
            else:
                found.append(ShardReport(shard, partitions))
        return found, problems

    def save_groups(self, statuses: Sequence[GroupSyncStatus], *, solved: Collection[GroupName] = ()) -> None:
        """Replace what was told of these groups."""
        save, trouble, delete = map(
            self._connection.prepare,
            (self._save_group_cql, self._save_troubles_cql, self._delete_troubles_cql),
        )
        requests: list[Request] = []
        for item in statuses:
            key, text = (bucket_of(item.group), item.group), group_to_text(item)
            requests.append((save, (*key, text, LAST_WORD_KEPT_S)))
            if item.count_troubles:
                requests.append((trouble, (*key, text, TROUBLES_KEPT_S)))
        # Tombstones for all others would be what lists read most.
        requests += [(delete, (bucket_of(group), group)) for group in solved]
        self._connection.run_all(requests)

    def forget_groups(self, groups: Collection[GroupName]) -> None:
        """There are no such groups any more."""
        deletes = [
            self._connection.prepare(cql) for cql in (self._delete_group_cql, self._delete_troubles_cql)
        ]
        self._connection.run_all(
            [(delete, (bucket_of(group), group)) for group in groups for delete in deletes]
        )

    def group_statuses(
        self, groups: Collection[GroupName]
    ) -> Mapping[GroupName, GroupSyncStatus | UnreadableGroup]:
        """What was told of each group: a read for each bucket that has some of them."""
        select = self._connection.prepare(self._groups_cql)
        by_bucket: dict[int, list[GroupName]] = {}
        for group in dict.fromkeys(groups):
            by_bucket.setdefault(bucket_of(group), []).append(group)
        answers = self._connection.run_all(
            [
                (select, (bucket, names[start : start + _AT_ONCE]))
                for bucket, names in by_bucket.items()
                for start in range(0, len(names), _AT_ONCE)
            ]
        )
        found = {GroupName(name): text for answer in answers for name, text in answer}
        return {group: _group_status(group, found[group]) for group in groups if group in found}

    def troubled(self, page: NamePage) -> Sequence[GroupSyncStatus | UnreadableGroup]:
        """Groups with troubles, by name."""
        return [_group_status(GroupName(name), text) for name, text in self._troubled.rows(page)]

    def save_cycle(self, cycle: SyncCycle) -> None:
        """Replace what was told of the sync job."""
        self._connection.run(self._save_cycle_cql, _SYNC, cycle_to_text(cycle), LAST_WORD_KEPT_S)

    def cycle(self) -> SyncCycle | None:
        """What was told of the sync job."""
        rows = self._connection.run(self._cycle_cql, _SYNC)
        return cycle_from_text(rows[0][0]) if rows else None


def _route_status(route: Route, rows: Sequence[Row]) -> RouteStatus:
    shards, problems = [], []
    for shard, text in rows:
        try:
            shards.append(shard_from_text(route, shard, text))
        except UnreadableRowError as error:
            problems.append(str(error))
    return RouteStatus(present(shards), tuple(problems))


def _group_status(group: GroupName, text: str) -> GroupSyncStatus | UnreadableGroup:
    try:
        return group_from_text(group, text)
    except UnreadableRowError as error:
        return UnreadableGroup(group, str(error))


# --- shards ----------------------------------------------------------------------------------------------------

_SHARD_NAMES = (
    "shards",
    "told_at_ms",
    "owner",
    "problem",
    "waiting_for",
    "partitions",
    "stopped",
    "lag_records",
    "latency_ms",
    "index_lag_ms",
    "records",
    "size_bytes",
)
_CANARY_NAMES = ("canary_age_ms", "canary_latency_ms", "canary_late")
"""Written of routes that have canaries alone: whoever does not know the names does without."""


def shard_to_text(status: ShardStatus) -> str:
    """What the key of a shard does not say."""
    names = _SHARD_NAMES if status.canary_age_ms is None else _SHARD_NAMES + _CANARY_NAMES
    return stored_text({name: getattr(status, name) for name in names}, SHARD_FORMAT)


def shard_from_text(route: Route, shard: int, text: str) -> ShardStatus:
    """The shard of that key, written by `shard_to_text`; raises as `parallax.domain.formats.read_text` does."""

    def status(values: Mapping[str, Any]) -> ShardStatus:
        canary = {name: values[name] for name in _CANARY_NAMES if name in values}
        return ShardStatus(
            route=route, shard=shard, **{name: values[name] for name in _SHARD_NAMES}, **canary
        )

    return read_text(text, SHARD_FORMAT, status, _where(route, shard))


def partitions_to_text(partitions: Sequence[ShardPartition]) -> str:
    """The partitions of a shard, a list for each of their attributes."""
    return stored_text(
        {
            "topic": [item.topic_partition.topic for item in partitions],
            "partition": [item.topic_partition.partition for item in partitions],
            "state": [item.state for item in partitions],
            "reason": {str(place): item.reason for place, item in enumerate(partitions) if item.reason},
            "lag_records": [item.lag_records for item in partitions],
            "latency_ms": [item.latency_ms for item in partitions],
            "watermark_age_ms": [item.watermark_age_ms for item in partitions],
            "source_next": [item.source_next for item in partitions],
            "records": [item.records for item in partitions],
        },
        PARTITIONS_FORMAT,
    )


def partitions_from_text(text: str, route: Route, shard: int) -> tuple[ShardPartition, ...]:
    """The partitions of a shard, written by `partitions_to_text`; raises as `parallax.domain.formats.read_text` does."""
    return read_text(text, PARTITIONS_FORMAT, _partitions, f"{_where(route, shard)} partitions")


def _partitions(columns: Mapping[str, Any]) -> tuple[ShardPartition, ...]:
    reasons = columns["reason"]
    names = ("topic", "partition", "state", "lag_records", "latency_ms", "watermark_age_ms")
    rows = zip(*(columns[name] for name in (*names, "source_next", "records")), strict=True)
    return tuple(
        ShardPartition(
            TopicPartition(TopicName(topic), partition),
            state,
            reasons.get(str(place), ""),
            lag,
            latency,
            age,
            None if source_next is None else SourceOffset(source_next),
            records,
        )
        for place, (topic, partition, state, lag, latency, age, source_next, records) in enumerate(rows)
    )


def pack_partitions(partitions: Sequence[ShardPartition]) -> bytes:
    """The partitions of a shard as a blob."""
    return bytes([PACKING]) + zlib.compress(partitions_to_text(partitions).encode(), _FAST)


def unpack_partitions(blob: bytes, route: Route, shard: int) -> tuple[ShardPartition, ...]:
    """What `pack_partitions` has made.

    Raises:
        UnreadableRowError: it is damaged, or of a newer format.
    """
    where = f"{_where(route, shard)} partitions"
    if blob[:1] != bytes([PACKING]):
        raise UnreadableRowError(
            f"{where} are packed as {blob[:1].hex() or 'nothing'}, and this release reads {PACKING:02x}; {WHAT_TO_DO}"
        )
    try:
        text = zlib.decompress(blob[1:]).decode()
    except (zlib.error, ValueError) as error:
        raise UnreadableRowError(
            f"{where} can't be read ({type(error).__name__}: {error}); {WHAT_TO_DO}"
        ) from error
    return partitions_from_text(text, route, shard)


def _where(route: Route, shard: int) -> str:
    return f"replicator_status of route {route}, shard {shard},"


# --- the sync job ----------------------------------------------------------------------------------------------


def group_to_text(status: GroupSyncStatus) -> str:
    """What the key of a group's status does not say."""
    return stored_text(
        {
            "outcome": status.outcome.name,
            "since_ms": status.since_ms,
            "told_at_ms": status.told_at_ms,
            "reasons": dict(status.reasons),
            "active_at": list(status.active_at),
            "partitions": status.partitions,
            "problem": status.problem,
            "troubles": [_trouble_values(item) for item in status.troubles],
            "count_troubles": status.count_troubles,
        },
        GROUP_FORMAT,
    )


def group_from_text(group: GroupName, text: str) -> GroupSyncStatus:
    """The status of that group, written by `group_to_text`; raises as `parallax.domain.formats.read_text` does."""
    return read_text(text, GROUP_FORMAT, partial(_group, group), f"group_status of group {group!r}")


def _group(group: GroupName, values: Mapping[str, Any]) -> GroupSyncStatus:
    return GroupSyncStatus(
        group=group,
        outcome=Outcome[values["outcome"]],
        since_ms=values["since_ms"],
        told_at_ms=values["told_at_ms"],
        reasons=values["reasons"],
        active_at=tuple(map(ClusterName, values["active_at"])),
        partitions=values["partitions"],
        problem=values["problem"],
        troubles=tuple(map(_trouble, values["troubles"])),
        count_troubles=values["count_troubles"],
    )


def _trouble_values(trouble: SyncTrouble) -> dict[str, Any]:
    place = trouble.topic_partition
    return {
        "topic": None if place is None else place.topic,
        "partition": None if place is None else place.partition,
        "cluster": trouble.cluster,
        "reason": trouble.reason,
        "outcome": trouble.outcome.name,
        "problem": trouble.problem,
        "remedy": trouble.remedy,
    }


def _trouble(values: Mapping[str, Any]) -> SyncTrouble:
    topic, cluster = values["topic"], values["cluster"]
    return SyncTrouble(
        topic_partition=None if topic is None else TopicPartition(TopicName(topic), values["partition"]),
        cluster=None if cluster is None else ClusterName(cluster),
        reason=values["reason"],
        outcome=Outcome[values["outcome"]],
        problem=values["problem"],
        remedy=values["remedy"],
    )


def cycle_to_text(cycle: SyncCycle) -> str:
    """The sync job's last cycle as text."""
    return stored_text(
        {
            "owner": cycle.owner,
            "ended_at_ms": cycle.ended_at_ms,
            "groups": cycle.groups,
            "troubled": cycle.troubled,
            "away": list(cycle.away),
            "problem": cycle.problem,
        },
        CYCLE_FORMAT,
    )


def cycle_from_text(text: str) -> SyncCycle:
    """What `cycle_to_text` has made; raises as `parallax.domain.formats.read_text` does."""

    def cycle(values: Mapping[str, Any]) -> SyncCycle:
        return SyncCycle(
            owner=values["owner"],
            ended_at_ms=values["ended_at_ms"],
            groups=values["groups"],
            troubled=values["troubled"],
            away=tuple(map(ClusterName, values["away"])),
            problem=values["problem"],
        )

    return read_text(text, CYCLE_FORMAT, cycle, "sync_status")
