"""Services of two releases over one store: this one, and one that writes more names, greater numbers and new words.

The next release is the present code over a connection that changes what it writes of chosen rows, and reads it back
as it was meant; it reads what this release wrote as this release does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from offsetsvc.messages import group_to_pb
from offsetsvc.resume.call import FailoverRequest
from offsetsvc.service import UseCases
from parallax.adapters.cassandra.audit import CassandraAuditLog
from parallax.adapters.cassandra.decisions import CassandraOperationJournal, CassandraPrimaryStore
from parallax.adapters.cassandra.groups import CassandraGroupStore
from parallax.adapters.cassandra.status import CassandraStatusStore
from parallax.client.answer import Pair, ResumeAnswer, answers_from_pb
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import GroupName, RegionName, TopicName, TopicPartition
from parallax.failover.journal import MoveJournal
from parallax.failover.timekeeper import Timekeeper
from parallax.ports.audit import Auditor
from parallax.ports.clusters import ClusterWriter
from parallax.runtime.deadline import Deadline
from parallax.v1 import offsets_pb2 as pb
from syncjob.cycle import Syncer
from syncjob.report import CycleReport
from tests.memory.audit import MemoryAuditLog
from tests.worlds.offset_world import World, Writer

Words = Mapping[tuple[str, str], Mapping[str, Any]]
"""By table and group: what the next release says otherwise in a row's text."""

NEW_FIELD = b"\xfa\x07\x03new"
"""Field 127 of whatever message."""

NEW_OUTCOME = 99

_INSERT = re.compile(r"INSERT INTO \w+\.(\w+) \(([^)]*)\) VALUES \(")
_SELECT = re.compile(r"SELECT (.+?) FROM \w+\.(\w+) ")


class NextConnection:
    """As the connection that it stands before; texts go through it as the next release writes and reads them."""

    def __init__(self, connection: Any, words: Words) -> None:
        self._connection = connection
        self._words = words
        self._cql: dict[int, tuple[Any, str]] = {}

    def prepare(self, cql: str) -> Any:
        statement = self._connection.prepare(cql)
        self._cql[id(statement)] = (statement, cql)
        return statement

    def run(self, cql: str, *values: object) -> list[Any]:
        return self._read(cql, self._connection.run(cql, *self._write(cql, values)))

    def run_all(self, requests: Iterable[tuple[Any, Sequence[Any]]]) -> list[list[Any]]:
        asked = [(statement, self._cql[id(statement)][1], values) for statement, values in requests]
        answers = self._connection.run_all(
            [(statement, self._write(cql, values)) for statement, cql, values in asked]
        )
        return [self._read(cql, rows) for (_, cql, _), rows in zip(asked, answers, strict=True)]

    def run_together(self, parts: Iterable[Sequence[tuple[Any, Sequence[Any]]]]) -> None:
        for part in parts:
            self.run_all(part)

    def run_at(self, cql: str, values: Sequence[object], **levels: Any) -> list[Any]:
        return self._read(cql, self._connection.run_at(cql, self._write(cql, values), **levels))

    def _write(self, cql: str, values: Sequence[Any]) -> tuple[Any, ...]:
        found = _INSERT.search(cql)
        if found is None or "body" not in (columns := found[2].split(", ")):
            return tuple(values)
        before, changed = cql[: found.start()].count("?"), list(values)
        group, at = values[before + columns.index("group_id")], before + columns.index("body")
        body = json.loads(changed[at])
        words = self._words.get((found[1], group), {})
        was = {name: body[name] for name in words}
        changed[at] = json.dumps({**body, **words, "of_release_2": {"was": was}})
        return tuple(changed)

    def _read(self, cql: str, rows: list[Any]) -> list[Any]:
        found = _SELECT.match(cql)
        if found is None or "body" not in (columns := found[1].split(", ")):
            return rows
        at = columns.index("body")
        return [(*row[:at], _as_meant(row[at]), *row[at + 1 :]) for row in rows]


def _as_meant(text: str | None) -> str | None:
    if text is None:
        return None
    body = json.loads(text)
    return json.dumps({**body, **body.pop("of_release_2", {"was": {}})["was"]})


class NextWriter:
    """A cluster as the next release writes to it: the metadata of chosen groups has a greater number."""

    def __init__(self, writer: Writer, groups: Collection[GroupName]) -> None:
        self._writer = writer
        self._groups = groups

    def __getattr__(self, name: str) -> Any:
        return getattr(self._writer, name)

    def committed(self, group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
        return {item: _renumbered(commit, "2", "1") for item, commit in self._writer.committed(group).items()}

    def committed_each(
        self, groups: Collection[GroupName]
    ) -> Mapping[GroupName, Mapping[TopicPartition, GroupCommit]]:
        return {group: self.committed(group) for group in groups}

    def commit_for(self, group: GroupName, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        if group in self._groups:
            commits = {item: _renumbered(commit, "1", "2") for item, commit in commits.items()}
        self._writer.commit_for(group, commits)


def _renumbered(commit: GroupCommit, number: str, other: str) -> GroupCommit:
    begin = f"plx{number}."
    if not commit.metadata.startswith(begin):
        return commit
    return replace(commit, metadata=f"plx{other}.{commit.metadata.removeprefix(begin)}")


class Release:
    """The services of one release.

    Args:
        world: where groups consume.
        connection: to the store.
        keyspace: its name.
        stack: closes them.
        wrapped: the clusters as this release writes to them.
    """

    def __init__(
        self,
        world: World,
        connection: Any,
        keyspace: str,
        stack: ExitStack,
        wrapped: Callable[[Writer], Any] = lambda writer: writer,
    ) -> None:
        self._world = world
        self.groups = CassandraGroupStore(connection, keyspace)
        self.primaries = CassandraPrimaryStore(connection, keyspace)
        time = Timekeeper(now_ms=lambda: world.now_ms, clock=lambda: world.now_ms / 1_000)
        self.journal = MoveJournal(CassandraOperationJournal(connection, keyspace), time)
        self.service = stack.enter_context(
            UseCases(
                world.config,
                RegionName("a"),
                world.index,
                self.groups,
                world.clusters,
                self.primaries,
                CassandraOperationJournal(connection, keyspace),
                CassandraStatusStore(connection, keyspace),
                now_ms=lambda: world.now_ms,
                audit=CassandraAuditLog(connection, keyspace, retention_days=1),
                cache=False,
            )
        )
        self.asks: Release = self
        self.new_outcomes: Collection[GroupName] = ()
        writers: list[ClusterWriter] = [
            wrapped(item) for item in world.clusters.values() if isinstance(item, Writer)
        ]
        self._syncer = Syncer(
            world.config,
            writers,
            self.groups,
            self.primaries,
            self._ask,
            now_ms=lambda: world.now_ms,
            auditor=Auditor(MemoryAuditLog(), lambda: world.now_ms),
            clock=lambda: world.now_ms / 1_000,
        )
        stack.callback(self._syncer.close)

    def cycle(self) -> CycleReport:
        """The sync job looks once more."""
        self._world.now_ms += 1_000
        return self._syncer.cycle()

    def answer(self, group: GroupName, pair: Pair, topics: Sequence[TopicName]) -> bytes:
        """The offset service's answer as it goes over the wire."""
        request = FailoverRequest(group, *pair, topics=tuple(topics))
        answers = group_to_pb(self.service.failover.answers(request, Deadline.after_ms(10_000)))
        if group in self.new_outcomes:
            for offset in answers.offsets:
                offset.outcome = NEW_OUTCOME  # type: ignore[assignment]
        return answers.SerializeToString() + NEW_FIELD * bool(self.new_outcomes)

    def _ask(
        self, group: GroupName, pair: Pair, topics: Sequence[TopicName]
    ) -> Mapping[TopicPartition, ResumeAnswer]:
        raw = self.asks.answer(group, pair, topics)
        return answers_from_pb(pb.GetGroupFailoverOffsetsResponse.FromString(raw))
