"""`AuditLog` in Cassandra.

A day's entries lie in as many partitions as a list of groups has, so that no partition grows without bounds and a group's
entries of a day lie in one. Within it the entry's time uuid orders them. Every entry expires by itself.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cassandra.util import max_uuid_from_time, min_uuid_from_time, uuid_from_time

from parallax.adapters.cassandra.connection import CassandraConnection, Row
from parallax.adapters.cassandra.groups import BUCKETS, WriteMoments, bucket_of
from parallax.domain.audit import AuditEntry, AuditPage, AuditRow, entry_from_text, entry_to_text
from parallax.domain.ids import GroupName
from parallax.errors import InvalidNameError, UnreadableRowError
from parallax.ports.audit import AuditQuery

_DAY_S = 86_400
_DAY_MS = _DAY_S * 1_000
_PAGE = 200
"""Rows of a partition in one read."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GREGORIAN_100NS = 0x01B21DD213814000
"""From the beginning of time uuids to the Unix epoch."""


class CassandraAuditLog:
    """Appends with a time to live, and reads day by day.

    Args:
        connection: to the store.
        keyspace: of the table.
        retention_days: how long an entry lives.
    """

    def __init__(self, connection: CassandraConnection, keyspace: str, retention_days: int) -> None:
        self._connection = connection
        self._retention_s = retention_days * _DAY_S
        self._moments = WriteMoments()
        self._insert_cql = (
            f"INSERT INTO {keyspace}.audit (day, bucket, entry_id, group_id, body) "
            "VALUES (?, ?, ?, ?, ?) USING TTL ?"
        )
        self._select_cql = (
            f"SELECT entry_id, group_id, body FROM {keyspace}.audit "
            "WHERE day = ? AND bucket = ? AND entry_id < ? LIMIT ?"
        )

    def append(self, entries: Sequence[AuditEntry]) -> None:
        """Keep the entries, in this order."""
        insert = self._connection.prepare(self._insert_cql)
        self._connection.run_all(
            [
                (
                    insert,
                    (
                        entry.at_ms // _DAY_MS,
                        bucket_of(entry.group),
                        uuid_from_time(_moment(self._moments.of(entry.at_ms))),
                        entry.group,
                        entry_to_text(entry),
                        self._retention_s,
                    ),
                )
                for entry in entries
            ]
        )

    def page(self, query: AuditQuery) -> AuditPage:
        """A page: days are read one after the other, the newest first."""
        start = _start_of(query)
        newest_day = min(query.until_ms - 1, _at_ms(start)) // _DAY_MS
        buckets = range(BUCKETS) if query.group is None else [bucket_of(query.group)]
        found: list[AuditRow] = []
        began = False
        for day in range(newest_day, query.since_ms // _DAY_MS - 1, -1):
            place = start
            while True:
                if began and query.enough():
                    return AuditPage(found, str(min(place, _end_of(day), key=_time_of)))
                began = True
                rows = self._read(day, buckets, place)
                for row in map(_row, rows):
                    if row.at_ms < query.since_ms:
                        return AuditPage(found)
                    if query.wants(row):
                        found.append(row)
                        if len(found) >= query.limit:
                            return AuditPage(found, row.entry_id)
                if len(rows) < _PAGE:
                    break
                place = rows[-1][0]
        return AuditPage(found)

    def _read(self, day: int, buckets: Sequence[int], before: uuid.UUID) -> Sequence[Row]:
        """The newest rows of a day, one read's worth."""
        select = self._connection.prepare(self._select_cql)
        answers = self._connection.run_all([(select, (day, bucket, before, _PAGE)) for bucket in buckets])
        # Every partition gave its newest ones: so many of them all are surely the newest of the day.
        return sorted((row for answer in answers for row in answer), key=_place, reverse=True)[:_PAGE]


def _moment(at_us: int) -> datetime:
    return _EPOCH + timedelta(microseconds=at_us)


def _at_ms(entry_id: uuid.UUID) -> int:
    return (entry_id.time - _GREGORIAN_100NS) // 10_000


def _end_of(day: int) -> uuid.UUID:
    """A place that lies after all entries of a day."""
    last: uuid.UUID = max_uuid_from_time(_moment((day + 1) * _DAY_MS * 1_000 - 1))
    return last


def _time_of(place: uuid.UUID) -> int:
    return place.time


def place_of(entry_id: uuid.UUID) -> tuple[int, bytes]:
    """Where Cassandra has a time uuid among others: by time, then byte by byte, each of them signed (its TimeUUIDType)."""
    return entry_id.time, bytes(byte ^ 0x80 for byte in entry_id.bytes[8:])


def _place(row: Row) -> tuple[int, bytes]:
    return place_of(row[0])


def _start_of(query: AuditQuery) -> uuid.UUID:
    """The place before which the page begins."""
    until: uuid.UUID = min_uuid_from_time(_moment(query.until_ms * 1_000))
    if not query.before:
        return until
    try:
        before = uuid.UUID(query.before)
    except ValueError as error:
        raise InvalidNameError(f"{query.before!r} is no row of the audit") from error
    if before.version != 1:
        raise InvalidNameError(f"{query.before!r} is no row of the audit")
    return min(before, until, key=_time_of)


def _row(row: Row) -> AuditRow:
    group, entry_id = GroupName(row[1]), str(row[0])
    try:
        return AuditRow(entry_id, group, _at_ms(row[0]), entry_from_text(group, entry_id, row[2]))
    except UnreadableRowError as error:
        return AuditRow(entry_id, group, _at_ms(row[0]), None, str(error))
