"""`OperationJournal` in Cassandra: a note's version is its write timestamp, so that the newest stays."""

from __future__ import annotations

from collections.abc import Sequence

from parallax.adapters.cassandra.connection import CassandraConnection
from parallax.domain.ids import GroupName
from parallax.ports.decisions import OperationNote

_NEWEST = 20


class CassandraOperationJournal:
    """Operators' commands."""

    def __init__(self, connection: CassandraConnection, keyspace: str) -> None:
        self._connection = connection
        self._select_cql = (
            f"SELECT started_at_ms, operation_id, version, body FROM {keyspace}.operations "
            f"WHERE group_id = ? LIMIT {_NEWEST}"
        )
        self._save_cql = (
            f"INSERT INTO {keyspace}.operations (group_id, started_at_ms, operation_id, version, body) "
            "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
        )

    def operations(self, group: GroupName) -> Sequence[OperationNote]:
        """The newest note of each of the group's newest operations, the newest operation first."""
        rows = self._connection.run(self._select_cql, group)
        return [OperationNote(group, row[0], row[1], row[2], row[3]) for row in rows]

    def save_operation(self, note: OperationNote) -> None:
        """Keep a note; one with a smaller version than the stored one is ignored."""
        self._connection.run(
            self._save_cql,
            note.group,
            note.started_at_ms,
            note.operation_id,
            note.version,
            note.body,
            note.version,
        )
