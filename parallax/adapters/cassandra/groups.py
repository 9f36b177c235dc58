"""`GroupStore` in Cassandra."""

from __future__ import annotations

import threading
import time
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import takewhile
from operator import itemgetter
from typing import Any, TypeVar

from parallax.adapters.cassandra.connection import CassandraConnection, Request, Row
from parallax.domain.commits import ObservedCommit, PublishedOffset
from parallax.domain.formats import UnreadableRow, apart, read_text, readable, stored_text
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    SourceId,
    SourceOffset,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.outcome import Outcome
from parallax.domain.progress import Progress, SourcePosition
from parallax.errors import UnreadableRowError
from parallax.ports.groups import NamePage, StoredGroup

T = TypeVar("T")
BUCKETS = 16
"""Partitions of a list of groups; never changed, or groups would be listed in the wrong one."""
_EVERY_BUCKET = list(range(BUCKETS))
_MORE_THAN_SHARE = 6
"""With twice a bucket's share: a page of 100 groups finds one with more than that once in thousands of pages."""

_PER_MS = 1_000

_LISTED_S = 600.0
"""A group that something is saved of is listed again after so long: another process may have forgotten it."""

_MOST_LISTED = 100_000
"""Groups whose listing is remembered; each of the others is listed whenever something is saved of it."""

_GROUPS_AT_ONCE = 16
"""Read with one request of each table."""

_ROWS_AT_ONCE = 50
"""Of standing groups in one request."""

_BATCH_BYTES, _KEY_BYTES = 4_096, 100
"""Cassandra warns of requests of more than 5 KiB (``batch_size_warn_threshold``); a row has some bytes besides its text."""

_MOST_SOURCES = 10_000
"""That are remembered: the same few stand in every row."""

PROGRESS_FORMAT = 1
OBSERVED_FORMAT = 1
PUBLISHED_FORMAT = 1
"""What is written, and the newest that is read."""


def progress_to_text(progress: Progress) -> str:
    """The progress as text; the order of its sources is kept."""
    return stored_text(_progress_values(progress), PROGRESS_FORMAT)


def progress_from_text(text: str, where: str = "a group's progress") -> Progress:
    """The progress written by `progress_to_text`; raises as `parallax.domain.formats.read_text` does."""
    return read_text(text, PROGRESS_FORMAT, _progress, where)


def observed_to_text(commit: ObservedCommit) -> str:
    """What the key of a commit does not say."""
    return stored_text(
        {
            "topic_id": commit.topic_id,
            "next_offset": commit.next_offset,
            "leader_epoch": commit.leader_epoch,
            "observed_at_ms": commit.observed_at_ms,
            "reported": commit.reported,
        },
        OBSERVED_FORMAT,
    )


def observed_from_text(
    group: GroupName, cluster: ClusterName, topic_partition: TopicPartition, text: str
) -> ObservedCommit:
    """The commit of that key, written by `observed_to_text`.

    Raises:
        UnreadableRowError: see `parallax.domain.formats.read_text`.
    """

    def commit(values: Mapping[str, Any]) -> ObservedCommit:
        return ObservedCommit(
            group=group,
            cluster=cluster,
            topic_partition=topic_partition,
            topic_id=TopicId(values["topic_id"]),
            next_offset=TargetOffset(values["next_offset"]),
            leader_epoch=values["leader_epoch"],
            observed_at_ms=values["observed_at_ms"],
            reported=values.get("reported", False),  # rows of earlier versions don't say
        )

    where = f"group_observed of group {group!r}, {topic_partition} on {cluster},"
    return read_text(text, OBSERVED_FORMAT, commit, where)


def published_to_text(offset: PublishedOffset) -> str:
    """What the key of a published offset does not say."""
    return stored_text(
        {
            "progress": _progress_values(offset.progress),
            "origin_cluster": offset.origin_cluster,
            "origin_next_offset": offset.origin_next_offset,
            "outcome": offset.outcome.name,
            "published_at_ms": offset.published_at_ms,
        },
        PUBLISHED_FORMAT,
    )


def published_from_text(
    group: GroupName, cluster: ClusterName, topic_partition: TopicPartition, text: str
) -> PublishedOffset:
    """The published offset of that key, written by `published_to_text`.

    Raises:
        UnreadableRowError: see `parallax.domain.formats.read_text`.
    """

    def offset(values: Mapping[str, Any]) -> PublishedOffset:
        return PublishedOffset(
            group=group,
            topic_partition=topic_partition,
            progress=_progress(values["progress"]),
            origin_cluster=ClusterName(values["origin_cluster"]),
            origin_next_offset=values["origin_next_offset"],
            outcome=Outcome[values["outcome"]],
            published_at_ms=values["published_at_ms"],
        )

    where = f"group_published of group {group!r}, {topic_partition} on {cluster},"
    return read_text(text, PUBLISHED_FORMAT, offset, where)


def _progress_values(progress: Progress) -> dict[str, Any]:
    return {
        "cluster": progress.cluster,
        "topic_id": progress.topic_id,
        "resume_offset": progress.resume_offset,
        "positions": [
            {
                "region": source.region,
                "topic_id": source.topic_id,
                "leader_epoch": position.leader_epoch,
                "source_next": position.source_next,
                "epoch_ends": [list(pair) for pair in position.epoch_ends],
            }
            for source, position in progress.positions.items()
        ],
    }


def _progress(values: Mapping[str, Any]) -> Progress:
    return Progress(
        cluster=ClusterName(values["cluster"]),
        topic_id=TopicId(values["topic_id"]),
        resume_offset=TargetOffset(values["resume_offset"]),
        positions={
            _source(item["region"], item["topic_id"]): SourcePosition(
                item["leader_epoch"],
                SourceOffset(item["source_next"]),
                tuple([(epoch, end) for epoch, end in item["epoch_ends"]]),
            )
            for item in values["positions"]
        },
    )


@lru_cache(_MOST_SOURCES)
def _source(region: str, topic_id: str) -> SourceId:
    return SourceId(RegionName(region), TopicId(topic_id))


_LAST_CHARACTER = "\U0010ffff"


class GroupList:
    """The groups that a table lists.

    Args:
        connection: to the store.
        table: of the keyspace, with both names.
        columns: what rows have besides the group's name, for `rows`.
    """

    def __init__(self, connection: CassandraConnection, table: str, columns: str = "") -> None:
        self._connection = connection
        self._page_cql = (
            f"SELECT group_id{columns and ', '}{columns} FROM {table} "
            "WHERE group_id >= ? AND group_id < ? AND bucket IN ? PER PARTITION LIMIT ?"
        )
        self._insert_cql = f"INSERT INTO {table} (bucket, group_id) VALUES (?, ?)"
        self._delete_cql = f"DELETE FROM {table} WHERE bucket = ? AND group_id = ?"
        self._select_cql = f"SELECT group_id FROM {table} WHERE bucket = ?"
        self._one_cql = f"{self._select_cql} AND group_id = ?"

    def all(self) -> list[GroupName]:
        """Every group, sorted."""
        select = self._connection.prepare(self._select_cql)
        answers = self._connection.run_all([(select, (bucket,)) for bucket in range(BUCKETS)])
        return sorted(GroupName(row[0]) for answer in answers for row in answer)

    def has(self, group: GroupName) -> bool:
        """Whether it is listed."""
        return bool(list(self._connection.run(self._one_cql, bucket_of(group), group)))

    def page(self, page: NamePage) -> list[GroupName]:
        """The next groups."""
        return [GroupName(row[0]) for row in self.rows(page)]

    def rows(self, page: NamePage) -> list[Row]:
        """The rows of the next groups, by name.

        Names are spread over the buckets by a hash, so each is asked for its share and some more, all in one request. Where a bucket
        has more of the page than that, which is rare, each is asked for a whole page.
        """
        start = max(page.prefix, page.after)
        # The name after which the page begins is not on it.
        limit = page.limit + (start == page.after != "")
        share = min(limit, 2 * limit // BUCKETS + _MORE_THAN_SHARE)
        rows, known_to = self._some(start, page, share)
        complete = len(rows) if known_to is None else bisect_right(rows, known_to, key=itemgetter(0))
        if known_to is not None and share < limit and complete < page.limit:
            rows, _ = self._some(start, page, limit)
        return rows[: page.limit]

    def _some(self, start: str, page: NamePage, most: int) -> tuple[list[Row], str | None]:
        """So many rows of each bucket at most, and the name up to which none is missing; None: none is at all."""
        select = self._connection.prepare(self._page_cql)
        end = page.prefix + _LAST_CHARACTER
        (rows,) = self._connection.run_all([(select, (start, end, _EVERY_BUCKET, most))])
        last: dict[int, tuple[int, str]] = {}
        for row in rows:
            bucket = bucket_of(row[0])
            count, name = last.get(bucket, (0, ""))
            last[bucket] = count + 1, max(name, row[0])
        cut = [name for count, name in last.values() if count >= most]
        found = (row for row in rows if not page.after or row[0] > page.after)
        return sorted(found, key=itemgetter(0)), min(cut, default=None)

    def adding(self, group: GroupName) -> Request:
        """The request that lists a group."""
        return self._connection.prepare(self._insert_cql), (bucket_of(group), group)

    def removing(self, group: GroupName) -> Request:
        """The request that takes a group off the list."""
        return self._connection.prepare(self._delete_cql), (bucket_of(group), group)


def bucket_of(group: GroupName) -> int:
    """The partition of a list of groups that a group stands in."""
    return zlib.crc32(group.encode()) % BUCKETS


class WriteMoments:
    """Cassandra's write timestamps of one process, in microseconds.

    Of two writes at one timestamp Cassandra keeps the one whose bytes are the greater. So what a process says twice in
    one millisecond gets two timestamps, in the order in which it was said. Two processes that write the same
    cell in one millisecond are in no order anyway. Rows of earlier versions bear milliseconds, which any microsecond outweighs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest_ms = -1
        self._said = 0

    def of(self, at_ms: int) -> int:
        """The timestamp for what is said now of a moment, milliseconds since the Unix epoch."""
        with self._lock:
            newer = at_ms > self._newest_ms
            self._newest_ms = max(at_ms, self._newest_ms)
            self._said = 0 if newer else min(self._said + 1, _PER_MS - 1)
            return at_ms * _PER_MS + self._said


def last_write_of(at_ms: int) -> int:
    """The greatest write timestamp that anything said of the moment can have."""
    return at_ms * _PER_MS + _PER_MS - 1


class ListedLately:
    """Which groups this process has listed within ten minutes: they need not be listed again.

    Args:
        most: are remembered. While there are so many no others are: groups come in turn, and if each new one took the place of the
            oldest, that would be the one that comes next.
        clock: seconds, monotonic.
    """

    def __init__(self, most: int = _MOST_LISTED, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._clock = most, clock
        self._lock = threading.Lock()
        self._at_s: dict[GroupName, float] = {}
        """By the group, the oldest first."""

    def lacking(self, groups: Iterable[GroupName]) -> set[GroupName]:
        """Those of the groups that are to be listed."""
        with self._lock:
            self._drop_old()
            return {group for group in groups if group not in self._at_s}

    def note(self, groups: Iterable[GroupName]) -> None:
        """Remember that the groups were listed just now."""
        with self._lock:
            self._drop_old()
            for group in groups:
                if len(self._at_s) >= self._most:
                    break
                self._at_s.setdefault(group, self._clock())

    def forget(self, group: GroupName) -> None:
        """The group was taken off the list."""
        with self._lock:
            self._at_s.pop(group, None)

    def _drop_old(self) -> None:
        old_s = self._clock() - _LISTED_S
        for group in list(takewhile(lambda group: self._at_s[group] <= old_s, self._at_s)):
            del self._at_s[group]


class CassandraGroupStore:
    """What is remembered of consumer groups.

    A moment (``moved_at_ms`` and so on) is the write timestamp of what was said at that moment: Cassandra itself
    keeps the newest, in whatever order the writes arrive (`WriteMoments`). What a group was seen at replaces whatever was
    there; its progress is left alone where this release can't read it.
    """

    def __init__(self, connection: CassandraConnection, keyspace: str) -> None:
        self._connection = connection
        self._listed = ListedLately()
        self._moments = WriteMoments()
        self._groups = GroupList(connection, f"{keyspace}.known_groups")
        self._progress_cql = f"SELECT partition, moved_at_ms, body FROM {keyspace}.group_progress WHERE group_id = ? AND topic = ?"
        self._save_progress_cql = (
            f"INSERT INTO {keyspace}.group_progress (group_id, topic, partition, moved_at_ms, body) "
            "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
        )
        self._written_at_cql = (
            f"SELECT WRITETIME(body), body FROM {keyspace}.group_progress "
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
        self._delete_cql = {
            table: f"DELETE FROM {keyspace}.{table} USING TIMESTAMP ? "
            "WHERE group_id = ? AND cluster = ? AND topic = ? AND partition = ?"
            for table in ("group_observed", "group_published")
        }
        self._standing_cql = (
            f"SELECT stands_at_ms FROM {keyspace}.standing_groups WHERE cluster = ? AND group_id = ?"
        )
        self._note_standing_cql = (
            f"INSERT INTO {keyspace}.standing_groups (cluster, group_id, stands_at_ms) "
            "VALUES (?, ?, ?) USING TIMESTAMP ?"
        )
        self._reported_cql = (
            f"SELECT group_id, reported_at_ms FROM {keyspace}.standing_groups "
            "WHERE cluster = ? AND group_id IN ?"
        )
        self._note_reported_cql = (
            f"INSERT INTO {keyspace}.standing_groups (cluster, group_id, reported_at_ms) "
            "VALUES (?, ?, ?) USING TIMESTAMP ?"
        )
        self._several_cql = {
            "group_progress": (
                f"SELECT group_id, topic, partition, moved_at_ms, body FROM {keyspace}.group_progress "
                "WHERE group_id IN ?"
            ),
            **{
                table: (
                    f"SELECT group_id, cluster, topic, partition, body FROM {keyspace}.{table} "
                    "WHERE group_id IN ?"
                )
                for table in ("group_observed", "group_published")
            },
        }
        self._several_standing_cql = (
            f"SELECT group_id, stands_at_ms FROM {keyspace}.standing_groups "
            "WHERE cluster = ? AND group_id IN ?"
        )
        self._empty_cql = f"SELECT group_id, since_ms FROM {keyspace}.empty_groups WHERE bucket = ?"
        self._note_empty_cql = (
            f"INSERT INTO {keyspace}.empty_groups (bucket, group_id, since_ms) VALUES (?, ?, ?)"
        )
        self._note_alive_cql = f"DELETE FROM {keyspace}.empty_groups WHERE bucket = ? AND group_id = ?"
        self._forget_cql = [
            f"DELETE FROM {keyspace}.{table} USING TIMESTAMP ? WHERE group_id = ?"
            for table in ("group_progress", "group_published", "group_observed")
        ]
        self._save_cql = {
            table: f"INSERT INTO {keyspace}.{table} (group_id, cluster, topic, partition, body) "
            "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
            for table in ("group_observed", "group_published")
        }

    def groups(self) -> Sequence[GroupName]:
        """Every group that was ever saved, sorted."""
        return self._groups.all()

    def group_page(self, page: NamePage) -> Sequence[GroupName]:
        """The next of them."""
        return self._groups.page(page)

    def knows(self, group: GroupName) -> bool:
        """Whether it is one of them."""
        return self._groups.has(group)

    def stored(
        self, groups: Collection[GroupName], clusters: Collection[ClusterName]
    ) -> Mapping[GroupName, StoredGroup]:
        """What is remembered of each of the groups, of several in one request."""
        asked = list(dict.fromkeys(groups))
        parts = [asked[start : start + _GROUPS_AT_ONCE] for start in range(0, len(asked), _GROUPS_AT_ONCE)]
        standing = self._connection.prepare(self._several_standing_cql)
        tables = {table: self._connection.prepare(cql) for table, cql in self._several_cql.items()}
        requests: list[Request] = [(select, (part,)) for select in tables.values() for part in parts]
        requests += [(standing, (cluster, part)) for cluster in clusters for part in parts]
        answers = iter(self._connection.run_all(requests))
        moves, *sides = ([row for _ in parts for row in next(answers)] for _ in tables)
        stands_at_ms = {
            (row[0], cluster): row[1] or -1 for cluster in clusters for _ in parts for row in next(answers)
        }
        observed: defaultdict[tuple[str, str], list[ObservedCommit | UnreadableRow]] = defaultdict(list)
        published: defaultdict[tuple[str, str], list[PublishedOffset | UnreadableRow]] = defaultdict(list)
        for name, cluster, topic, partition, text in sides[0]:
            group, on, item = (
                GroupName(name),
                ClusterName(cluster),
                TopicPartition(TopicName(topic), partition),
            )
            seen = _or_why_not(item, text, partial(observed_from_text, group, on))
            if not isinstance(seen, UnreadableRow):
                seen = seen.standing_at(stands_at_ms.get((name, cluster), -1))
            observed[name, cluster].append(seen)
        for name, cluster, topic, partition, text in sides[1]:
            group, on, item = (
                GroupName(name),
                ClusterName(cluster),
                TopicPartition(TopicName(topic), partition),
            )
            published[name, cluster].append(_or_why_not(item, text, partial(published_from_text, group, on)))
        progress: defaultdict[str, dict[TopicName, dict[int, Progress | UnreadableRow]]] = defaultdict(dict)
        for name, topic, partition, moved_at_ms, text in moves:
            item = TopicPartition(TopicName(topic), partition)
            of_topic = progress[name].setdefault(item.topic, {})
            of_topic[partition] = _progress_of(GroupName(name), item, moved_at_ms, text)
        return {
            group: StoredGroup(
                {cluster: observed.get((group, cluster), ()) for cluster in clusters},
                {cluster: published.get((group, cluster), ()) for cluster in clusters},
                progress.get(group, {}),
            )
            for group in asked
        }

    def progress(self, group: GroupName, topic: TopicName) -> Mapping[int, Progress | UnreadableRow]:
        """What the group's last move left, by partition, with the moment of the move."""
        rows = self._connection.run(self._progress_cql, group, topic)
        return {row[0]: _progress_of(group, TopicPartition(topic, row[0]), *row[1:]) for row in rows}

    def save_progress(
        self,
        group: GroupName,
        topic: TopicName,
        progress: Mapping[int, Progress],
        *,
        moved_at_ms: int,
        stored: Mapping[int, Progress | UnreadableRow] | None = None,
    ) -> None:
        """Replace the progress of the partitions named; others keep theirs. ``stored`` is read unless it was a moment ago.

        Raises:
            UnreadableRowError: that of one of them can't be read and stands as before; the others were saved.
        """
        if stored is None:
            stored = self.progress(group, topic)
        _, unreadable = apart(stored[partition] for partition in progress if partition in stored)
        kept = {row.topic_partition.partition for row in unreadable}
        insert = self._connection.prepare(self._save_progress_cql)
        written_at = self._moments.of(moved_at_ms)
        requests: list[Request] = [
            (insert, (group, topic, partition, moved_at_ms, progress_to_text(item), written_at))
            for partition, item in progress.items()
            if partition not in kept
        ]
        self._save({group: requests})
        readable(unreadable)

    def void_progress(self, group: GroupName, topic: TopicName, partitions: Collection[int]) -> None:
        """Forget it: the group was rewound. Only a later move counts again.

        Raises:
            UnreadableRowError: that of one of them can't be read and stands as before; the others were forgotten.
        """
        select = self._connection.prepare(self._written_at_cql)
        delete = self._connection.prepare(self._void_cql)
        keys = [(group, topic, partition) for partition in partitions]
        stored = self._connection.run_all([(select, key) for key in keys])
        found = [(key, *row) for key, rows in zip(keys, stored, strict=True) for row in rows]
        items = [_progress_of(group, TopicPartition(topic, key[2]), 0, body) for key, _, body in found]
        self._connection.run_all(
            # A tombstone wins over what was written at the same timestamp.
            [
                (delete, (written_at, *key))
                for (key, written_at, _), item in zip(found, items, strict=True)
                if not isinstance(item, UnreadableRow)
            ]
        )
        readable(items)

    def observed(self, group: GroupName, cluster: ClusterName) -> Sequence[ObservedCommit | UnreadableRow]:
        """The group's commits as last seen on the cluster, by partition."""
        select, standing = map(
            self._connection.prepare, (self._select_cql["group_observed"], self._standing_cql)
        )
        rows, stands = self._connection.run_all([(select, (group, cluster)), (standing, (cluster, group))])
        # A group's row tells of reports alone until somebody has seen it stand.
        stands_at_ms = next((at_ms for (at_ms,) in stands if at_ms is not None), -1)
        found = _stored(rows, lambda item, text: observed_from_text(group, cluster, item, text))
        return [item if isinstance(item, UnreadableRow) else item.standing_at(stands_at_ms) for item in found]

    def save_observed(self, commits: Sequence[ObservedCommit]) -> None:
        """Remember commits; an older ``observed_at_ms`` than the stored one is ignored."""
        insert = self._connection.prepare(self._save_cql["group_observed"])
        requests: dict[GroupName, list[Request]] = defaultdict(list)
        for item in commits:
            written_at = self._moments.of(item.observed_at_ms)
            requests[item.group].append(
                (insert, (*_key(item, item.cluster), observed_to_text(item), written_at))
            )
        reports = {(item.cluster, item.group): item.observed_at_ms for item in commits if item.reported}
        note = self._connection.prepare(self._note_reported_cql) if reports else None
        self._save(requests, [(note, (*key, at_ms, last_write_of(at_ms))) for key, at_ms in reports.items()])

    def note_standing(self, cluster: ClusterName, groups: Collection[GroupName], at_ms: int) -> None:
        """Remember that what was seen of these groups on the cluster stood there at the moment: a row for each."""
        insert = self._connection.prepare(self._note_standing_cql)
        rows: list[Request] = [
            (insert, (cluster, group, at_ms, last_write_of(at_ms))) for group in dict.fromkeys(groups)
        ]
        self._connection.run_together(
            rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE)
        )

    def reported(self, cluster: ClusterName, groups: Collection[GroupName]) -> Mapping[GroupName, int]:
        """When a member last reported of each of the groups there; those of which none did are left out."""
        select, asked = self._connection.prepare(self._reported_cql), list(dict.fromkeys(groups))
        parts = [asked[start : start + _ROWS_AT_ONCE] for start in range(0, len(asked), _ROWS_AT_ONCE)]
        answers = self._connection.run_all([(select, (cluster, part)) for part in parts])
        return {GroupName(row[0]): row[1] for answer in answers for row in answer if row[1] is not None}

    def void_observed(self, commits: Collection[ObservedCommit]) -> None:
        """Forget what was seen; what was seen later than any of these is kept."""
        delete = self._connection.prepare(self._delete_cql["group_observed"])
        self._connection.run_all(
            [(delete, (last_write_of(item.observed_at_ms), *_key(item, item.cluster))) for item in commits]
        )

    def published(self, group: GroupName, cluster: ClusterName) -> Sequence[PublishedOffset | UnreadableRow]:
        """What was last published for the group on the cluster, by partition."""
        rows = self._connection.run(self._select_cql["group_published"], group, cluster)
        return _stored(rows, lambda item, text: published_from_text(group, cluster, item, text))

    def save_published(self, offsets: Sequence[PublishedOffset]) -> None:
        """Remember what was published; an older ``published_at_ms`` than the stored one is ignored."""
        insert = self._connection.prepare(self._save_cql["group_published"])
        requests: dict[GroupName, list[Request]] = defaultdict(list)
        for item in offsets:
            written_at = self._moments.of(item.published_at_ms)
            requests[item.group].append(
                (insert, (*_key(item, item.progress.cluster), published_to_text(item), written_at))
            )
        self._save(requests)

    def void_published(self, offsets: Collection[PublishedOffset]) -> None:
        """Forget what was published; what was published later than any of these is kept."""
        delete = self._connection.prepare(self._delete_cql["group_published"])
        self._connection.run_all(
            [
                (delete, (last_write_of(item.published_at_ms), *_key(item, item.progress.cluster)))
                for item in offsets
            ]
        )

    def empty_since(self) -> Mapping[GroupName, int]:
        """Groups that were noted to have no commit anywhere, and since when."""
        select = self._connection.prepare(self._empty_cql)
        answers = self._connection.run_all([(select, (bucket,)) for bucket in range(BUCKETS)])
        return {GroupName(row[0]): row[1] for answer in answers for row in answer}

    def note_empty(self, group: GroupName, since_ms: int) -> None:
        """Remember that a group has no commit anywhere."""
        self._connection.run(self._note_empty_cql, bucket_of(group), group, since_ms)

    def note_alive(self, group: GroupName) -> None:
        """Remember that it has."""
        self._connection.run(self._note_alive_cql, bucket_of(group), group)

    def forget(self, group: GroupName, *, at_ms: int) -> None:
        """Forget all that is known of a group; what is said of a later moment is kept."""
        self._connection.run_all(
            [(self._connection.prepare(cql), (last_write_of(at_ms), group)) for cql in self._forget_cql]
        )
        self._connection.run_all([self._groups.removing(group)])
        self.note_alive(group)
        self._listed.forget(group)

    def _save(self, requests: Mapping[GroupName, Sequence[Request]], more: Iterable[Request] = ()) -> None:
        """Save rows of groups, each group's as few requests, and list groups that may not be listed."""
        unknown = self._listed.lacking(requests)
        self._connection.run_together(
            [
                *([self._groups.adding(group)] for group in sorted(unknown)),
                *(part for of_group in requests.values() for part in _small_parts(of_group)),
                *([request] for request in more),
            ]
        )
        self._listed.note(unknown)


def _key(item: ObservedCommit | PublishedOffset, cluster: ClusterName) -> tuple[str, str, str, int]:
    return (item.group, cluster, *item.topic_partition)


def _small_parts(requests: Sequence[Request]) -> Iterable[list[Request]]:
    """The requests of one partition of a table in parts of which Cassandra does not warn."""
    part: list[Request] = []
    size_bytes = 0
    for request in requests:
        row_bytes = _KEY_BYTES + max(len(value) for value in request[1] or ("",) if isinstance(value, str))
        if part and size_bytes + row_bytes > _BATCH_BYTES:
            yield part
            part, size_bytes = [], 0
        part.append(request)
        size_bytes += row_bytes
    if part:
        yield part


def _stored(rows: Iterable[Row], read: Callable[[TopicPartition, str], T]) -> list[T | UnreadableRow]:
    return [_or_why_not(TopicPartition(TopicName(row[0]), row[1]), row[2], read) for row in rows]


def _progress_of(
    group: GroupName, item: TopicPartition, moved_at_ms: int, text: str
) -> Progress | UnreadableRow:
    where = f"group_progress of group {group!r}, {item},"
    return _or_why_not(
        item, text, lambda _item, body: replace(progress_from_text(body, where), moved_at_ms=moved_at_ms)
    )


def _or_why_not(
    item: TopicPartition, text: str, read: Callable[[TopicPartition, str], T]
) -> T | UnreadableRow:
    try:
        return read(item, text)
    except UnreadableRowError as error:
        return UnreadableRow(item, str(error))
