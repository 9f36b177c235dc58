"""A keyspace in memory that understands the statements of the groups' stores, so that the real adapters run on it.

Cells carry write timestamps, the greatest stays, and a tombstone wins over what was written at its own time. Several
stores over one keyspace are several services over one Cassandra. Anything that it does not understand is an error.
"""

from __future__ import annotations

import itertools
import operator
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from parallax.adapters.cassandra.audit import CassandraAuditLog, place_of
from parallax.adapters.cassandra.decisions import CassandraOperationJournal, CassandraPrimaryStore
from parallax.adapters.cassandra.groups import CassandraGroupStore
from parallax.adapters.cassandra.migrations import MIGRATIONS
from parallax.adapters.cassandra.status import CassandraStatusStore

KEYSPACE = "memory"
Cells = dict[str, tuple[int, Any]]
Key = tuple[Any, ...]

_CREATE = re.compile(
    r"CREATE TABLE IF NOT EXISTS \S+\.(\w+) \((.*), PRIMARY KEY \((.*)\)\) WITH (.*)", re.DOTALL
)
_SELECT = re.compile(r"SELECT (.+) FROM \w+\.(\w+) WHERE (.+?)(?: LIMIT (\d+|\?))?$")
_INSERT = re.compile(r"INSERT INTO \w+\.(\w+) \((.+?)\) VALUES \((.+?)\)( USING (?:TIMESTAMP|TTL) \?)?$")
_DELETE = re.compile(r"DELETE FROM \w+\.(\w+)( USING TIMESTAMP \?)? WHERE (.+)$")
_UPDATE = re.compile(r"UPDATE \w+\.(\w+) SET (\w+) = \? WHERE (.+?) IF (\w+) = \?$")
_OF_EACH = re.compile(r"(\w+) IN \? PER PARTITION LIMIT \?$")
_SEVERAL = re.compile(r"(\w+) IN \?$")
_BATCH = re.compile(r"BEGIN BATCH (.+); APPLY BATCH$")
_BOUNDS = {"<": operator.lt, ">": operator.gt, ">=": operator.ge}
_WRITE_TIME = re.compile(r"WRITETIME\((\w+)\)", re.IGNORECASE)


@dataclass
class _Row:
    """``deleted_at`` is the newest tombstone's time; ``written`` has the times of what was written beside it."""

    cells: Cells = field(default_factory=dict)
    marked_at: int = -1
    deleted_at: int = -1

    @property
    def lives(self) -> bool:
        return self.marked_at > self.deleted_at or any(at > self.deleted_at for at, _ in self.cells.values())

    def put(self, values: Mapping[str, Any], at: int) -> None:
        self.marked_at = max(self.marked_at, at)
        for name, value in values.items():
            if name not in self.cells or self.cells[name][0] <= at:
                self.cells[name] = (at, value)

    def cell(self, name: str) -> tuple[int, Any] | None:
        found = self.cells.get(name)
        return None if found is None or found[0] <= self.deleted_at else found


class _Table:
    def __init__(self, columns: str, key: str, options: str) -> None:
        self.columns = [column.split()[0] for column in columns.split(", ")]
        self.statics = {column.split()[0] for column in columns.split(", ") if column.endswith(" static")}
        inner = re.match(r"\(([^)]*)\)(?:, (.*))?$", key)
        names = [inner[1], inner[2] or ""] if inner else list(key.partition(", ")[::2])
        self.partition, self.clustering = (
            [name.strip() for name in part.split(",") if name.strip()] for part in names
        )
        order = re.search(r"CLUSTERING ORDER BY \(([^)]*)\)", options)
        self.descending = {
            item.split()[0] for item in (order[1].split(", ") if order else ()) if item.endswith("DESC")
        }
        self.rows: dict[Key, _Row] = {}
        self.static: dict[Key, Cells] = {}

    @property
    def key(self) -> list[str]:
        return [*self.partition, *self.clustering]

    def key_of(self, values: Mapping[str, Any]) -> Key:
        return tuple(values[name] for name in self.key)

    def put(self, values: Mapping[str, Any], at: int) -> None:
        row = self.rows.setdefault(self.key_of(values), _Row())
        row.put({name: value for name, value in values.items() if name not in self.key}, at)

    def found(
        self, where: Mapping[str, Any], bounds: Sequence[tuple[str, str, Any]]
    ) -> list[dict[str, tuple[int, Any] | None]]:
        """The living rows that fit, in the table's order; a partition with static cells alone has one."""
        answers: list[dict[str, tuple[int, Any] | None]] = []
        for key, row in self.rows.items():
            values: dict[str, tuple[int, Any] | None] = {
                name: (0, part) for name, part in zip(self.key, key, strict=True)
            }
            if not row.lives or any(values[name] != (0, value) for name, value in where.items()):
                continue
            if not all(
                _BOUNDS[sign](_ordered(values[name]), _ordered((0, value))) for name, sign, value in bounds
            ):
                continue
            answers.append({name: row.cell(name) for name in self.columns} | values)
        for name in reversed(self.clustering):
            answers.sort(key=lambda item: _ordered(item[name]), reverse=name in self.descending)
        partition = tuple(where[name] for name in self.partition)
        static: dict[str, tuple[int, Any] | None] = dict(self.static.get(partition, {}))
        if static and not answers:
            answers = [dict.fromkeys(self.columns) | {name: (0, where[name]) for name in self.partition}]
        return [answer | static for answer in answers]


def _ordered(cell: tuple[int, Any] | None) -> Any:
    """A key's place in Cassandra's order: of time uuids, first by their time."""
    value = (cell or (0, 0))[1]
    return place_of(value) if isinstance(value, UUID) else value


class MemoryKeyspace:
    """The tables of every migration. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._now = itertools.count(1)
        self.tables: dict[str, _Table] = {}
        for step in MIGRATIONS:
            for statement in step.statements:
                found = _CREATE.match(statement)
                if found is not None:
                    self.tables[found[1]] = _Table(*found.groups()[1:])

    def run(self, cql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._run(cql, values)

    def bodies(self, table: str) -> dict[Key, str]:
        """What stands in a table's column ``body``, by key."""
        rows = self.tables[table].rows
        return {key: cell[1] for key, row in rows.items() if row.lives and (cell := row.cell("body"))}

    def rewrite(self, table: str, key: Key, body: str) -> None:
        """Another body in the place of the one that is there, as another release would have written it."""
        row = self.tables[table].rows[key]
        row.cells["body"] = (row.cells["body"][0], body)

    def _run(self, cql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if found := _SELECT.match(cql):
            return self._select(found, values)
        if found := _INSERT.match(cql):
            columns = found[2].split(", ")
            assert found[3] == ", ".join("?" * len(columns)), cql
            of_time = found[4] is not None and "TIMESTAMP" in found[4]  # nothing lives long enough to expire
            at = values[len(columns)] if of_time else next(self._now)
            self.tables[found[1]].put(dict(zip(columns, values[: len(columns)], strict=True)), at)
            return []
        if found := _DELETE.match(cql):
            at, key = (values[0], values[1:]) if found[2] else (next(self._now), values)
            table = self.tables[found[1]]
            where = dict(zip(_names(found[3]), key, strict=True))
            if where.keys() == set(table.key):
                table.rows.setdefault(table.key_of(where), _Row())
            for place, row in table.rows.items():  # of a whole partition: those that are there
                if all(place[table.key.index(name)] == value for name, value in where.items()):
                    row.deleted_at = max(row.deleted_at, at)
            return []
        if found := _BATCH.match(cql):
            update, insert = found[1].split("; ")
            return self._append(update, insert, values)
        raise AssertionError(f"not understood: {cql}")

    def _select(self, found: re.Match[str], values: Sequence[Any]) -> list[tuple[Any, ...]]:
        if (each := _OF_EACH.search(found[0])) is not None:
            one = found[0].replace(each[0], f"{each[1]} = ? LIMIT ?")
            return [row for value in values[-2] for row in self.run(one, (*values[:-2], value, values[-1]))]
        if (several := _SEVERAL.search(found[0])) is not None:  # the last condition
            one = found[0].replace(several[0], f"{several[1]} = ?")
            return [row for value in values[-1] for row in self.run(one, (*values[:-1], value))]
        conditions = list(zip(found[3].split(" AND "), values, strict=False))
        where = {name.removesuffix(" = ?"): value for name, value in conditions if name.endswith(" = ?")}
        parts = [(*condition.split(" "), value) for condition, value in conditions]
        bounds = [(name, sign, value) for name, sign, _, value in parts if sign in _BOUNDS]
        assert len(where) + len(bounds) == len(conditions), found[0]
        limit = values[len(conditions)] if found[4] == "?" else int(found[4]) if found[4] else None
        assert len(values) == len(conditions) + (found[4] == "?"), found[0]
        answers = []
        for row in self.tables[found[2]].found(where, bounds)[:limit]:
            answer = []
            for column in found[1].split(", "):
                of_time = _WRITE_TIME.match(column)
                cell = row[of_time[1] if of_time else column] if of_time or column in row else None
                answer.append(None if cell is None else cell[0 if of_time else 1])
            answers.append(tuple(answer))
        return answers

    def _append(self, update: str, insert: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """The lightweight transaction: a static cell is compared and set, and a row put."""
        found = _UPDATE.match(update)
        assert found is not None, update
        assert found[2] == found[4], update
        table, keys = self.tables[found[1]], len(_names(found[3]))
        partition, expected = tuple(values[1 : 1 + keys]), values[1 + keys]
        present = table.static.get(partition, {}).get(found[2])
        if (None if present is None else present[1]) != expected:
            return [(False,)]
        table.static.setdefault(partition, {})[found[2]] = (next(self._now), values[0])
        self._run(insert, values[2 + keys :])
        return [(True,)]


def _names(where: str) -> list[str]:
    return [condition.removesuffix(" = ?") for condition in where.split(" AND ")]


class MemoryConnection:
    """As `CassandraConnection`, on a `MemoryKeyspace`."""

    def __init__(self, keyspace: MemoryKeyspace) -> None:
        self._keyspace = keyspace

    def prepare(self, cql: str) -> str:
        return cql

    def run(self, cql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._keyspace.run(cql, values)

    def run_all(self, requests: Iterable[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        return [self._keyspace.run(cql, values) for cql, values in requests]

    def run_together(self, parts: Iterable[Sequence[tuple[str, Sequence[Any]]]]) -> None:
        for part in parts:
            self.run_all(part)

    def run_at(
        self, cql: str, values: Sequence[object], *, level: int, serial_level: int | None = None
    ) -> list[tuple[Any, ...]]:
        del level, serial_level  # one process agrees with itself
        return self._keyspace.run(cql, values)


class WrittenStores:
    """The real adapters of groups, primaries, operations, statuses and the audit, as one process has them."""

    def __init__(self, keyspace: MemoryKeyspace, over: MemoryConnection | None = None) -> None:
        connection: Any = over or MemoryConnection(keyspace)
        self.groups = CassandraGroupStore(connection, KEYSPACE)
        self.primaries = CassandraPrimaryStore(connection, KEYSPACE)
        self.operations = CassandraOperationJournal(connection, KEYSPACE)
        self.status = CassandraStatusStore(connection, KEYSPACE)
        self.audit = CassandraAuditLog(connection, KEYSPACE, retention_days=1)
