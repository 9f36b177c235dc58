"""`GroupStore` in Cassandra."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from parallax.adapters.cassandra.connection import CassandraConnection, Request
from parallax.adapters.cassandra.group_codec import (
    observed_from_text,
    observed_to_text,
    progress_from_text,
    progress_to_text,
    published_from_text,
    published_to_text,
)
from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.progress import Progress
from parallax.ports.clusters import ObservedCommit, PublishedOffset

T = TypeVar("T")

_GROUP_BUCKETS = 16
"""Partitions of the list of groups; never changed, or groups would be listed in the wrong one."""


class CassandraGroupStore:
    """What is remembered of consumer groups.

    A moment (``moved_at_ms`` and so on) is the write timestamp of what was said at that moment: Cassandra itself
    keeps the newest, in whatever order the writes arrive.
    """

    def __init__(self, connection: CassandraConnection, keyspace: str) -> None:
        self._connection = connection
        self._known: set[GroupName] = set()
        self._know_cql = f"INSERT INTO {keyspace}.known_groups (bucket, group_id) VALUES (?, ?)"
        self._groups_cql = f"SELECT group_id FROM {keyspace}.known_groups WHERE bucket = ?"
        self._progress_cql = (
            f"SELECT partition, body FROM {keyspace}.group_progress WHERE group_id = ? AND topic = ?"
        )
        self._save_progress_cql = (
            f"INSERT INTO {keyspace}.group_progress (group_id, topic, partition, moved_at_ms, body) "
            "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
        )
        self._moved_at_cql = (
            f"SELECT moved_at_ms FROM {keyspace}.group_progress "
            "WHERE group_id = ? AND topic = ? AND partition = ?"
        )
        self._void_cql = (
            f"DELETE FROM {keyspace}.group_progress USING TIMESTAMP ? "
            "WHERE group_id = ? AND topic = ? AND partition = ?"
        )
        self._select_cql = {
            table: f"SELECT topic, partition, body FROM {keyspace}.{table} WHERE group_id = ? AND cluster = ?"
            for table in ("group_observed", "group_published")
        }
        self._save_cql = {
            table: f"INSERT INTO {keyspace}.{table} (group_id, cluster, topic, partition, body) "
            "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
            for table in ("group_observed", "group_published")
        }

    def groups(self) -> Sequence[GroupName]:
        """Every group that was ever saved, sorted."""
        select = self._connection.prepare(self._groups_cql)
        answers = self._connection.run_all([(select, (bucket,)) for bucket in range(_GROUP_BUCKETS)])
        return sorted(GroupName(row[0]) for answer in answers for row in answer)

    def progress(self, group: GroupName, topic: TopicName) -> Mapping[int, Progress]:
        """What the group's last move left, by partition."""
        rows = self._connection.run(self._progress_cql, group, topic)
        return {row[0]: progress_from_text(row[1]) for row in rows}

    def save_progress(
        self, group: GroupName, topic: TopicName, progress: Mapping[int, Progress], *, moved_at_ms: int
    ) -> None:
        """Replace the progress of the partitions named; others keep theirs."""
        insert = self._connection.prepare(self._save_progress_cql)
        requests: list[Request] = [
            (insert, (group, topic, partition, moved_at_ms, progress_to_text(item), moved_at_ms))
            for partition, item in progress.items()
        ]
        self._save([group], requests)

    def void_progress(self, group: GroupName, topic: TopicName, partitions: Collection[int]) -> None:
        """Forget it: the group was rewound. Only a later move counts again."""
        select = self._connection.prepare(self._moved_at_cql)
        delete = self._connection.prepare(self._void_cql)
        keys = [(group, topic, partition) for partition in partitions]
        stored = self._connection.run_all([(select, key) for key in keys])
        self._connection.run_all(
            # A tombstone wins over what was written at the same timestamp.
            [(delete, (rows[0][0], *key)) for key, rows in zip(keys, stored, strict=True) if rows]
        )

    def observed(self, group: GroupName, cluster: ClusterName) -> Sequence[ObservedCommit]:
        """The group's commits as last seen on the cluster, by partition."""
        return self._stored(
            "group_observed",
            group,
            cluster,
            lambda item, text: observed_from_text(group, cluster, item, text),
        )

    def save_observed(self, commits: Sequence[ObservedCommit]) -> None:
        """Remember commits; an older ``observed_at_ms`` than the stored one is ignored."""
        insert = self._connection.prepare(self._save_cql["group_observed"])
        requests: list[Request] = [
            (
                insert,
                (
                    *_key(item.group, item.cluster, item.topic_partition),
                    observed_to_text(item),
                    item.observed_at_ms,
                ),
            )
            for item in commits
        ]
        self._save({item.group for item in commits}, requests)

    def published(self, group: GroupName, cluster: ClusterName) -> Sequence[PublishedOffset]:
        """What was last published for the group on the cluster, by partition."""
        return self._stored(
            "group_published", group, cluster, lambda item, text: published_from_text(group, item, text)
        )

    def save_published(self, offsets: Sequence[PublishedOffset]) -> None:
        """Remember what was published; an older ``published_at_ms`` than the stored one is ignored."""
        insert = self._connection.prepare(self._save_cql["group_published"])
        requests: list[Request] = [
            (
                insert,
                (
                    *_key(item.group, item.progress.cluster, item.topic_partition),
                    published_to_text(item),
                    item.published_at_ms,
                ),
            )
            for item in offsets
        ]
        self._save({item.group for item in offsets}, requests)

    def _stored(
        self, table: str, group: GroupName, cluster: ClusterName, read: Callable[[TopicPartition, str], T]
    ) -> list[T]:
        rows = self._connection.run(self._select_cql[table], group, cluster)
        return [read(TopicPartition(TopicName(row[0]), row[1]), row[2]) for row in rows]

    def _save(self, groups: Iterable[GroupName], requests: list[Request]) -> None:
        unknown = {group for group in groups if group not in self._known}
        know = self._connection.prepare(self._know_cql)
        listed: list[Request] = [(know, (_bucket(group), group)) for group in sorted(unknown)]
        self._connection.run_all([*listed, *requests])
        self._known |= unknown


def _bucket(group: GroupName) -> int:
    return zlib.crc32(group.encode()) % _GROUP_BUCKETS


def _key(group: GroupName, cluster: ClusterName, item: TopicPartition) -> tuple[str, str, str, int]:
    return (group, cluster, item.topic, item.partition)
