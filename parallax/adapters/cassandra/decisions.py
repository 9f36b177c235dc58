"""`PrimaryStore` and `OperationJournal` in Cassandra.

A decision is a row of its own, so that decisions of regions that could not see each other both survive. A static
cell of the group holds the number of the last append; the lightweight transaction compares that cell. After a
partition the cell is either region's, and whichever it is, the next append starts from what it reads there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import structlog
from cassandra import ConsistencyLevel

from parallax.adapters.cassandra.connection import CassandraConnection, Request, Row
from parallax.adapters.cassandra.groups import GroupList
from parallax.domain.formats import read_text, stored_text
from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import NO_NUMBER, Mode, PrimaryDecision, Stage, outlived
from parallax.errors import InvariantError, ParallaxError
from parallax.ports.groups import NamePage, OperationNote, OperationPlace, PrimaryLog, Reach

_log = structlog.get_logger(__name__)

_NEWEST_OPERATIONS = 20

DECISION_FORMAT = 1
"""What is written, and the newest that is read."""

_ALONE, _AT_ONCE = 4, 50
"""So many groups are each asked for alone; of more, so many in one request, which costs this side a tenth."""

_READ_LEVEL = {Reach.EVERYWHERE: ConsistencyLevel.SERIAL, Reach.HERE: ConsistencyLevel.LOCAL_SERIAL}
_COMMIT_LEVEL = {Reach.EVERYWHERE: ConsistencyLevel.QUORUM, Reach.HERE: ConsistencyLevel.LOCAL_QUORUM}


class CassandraPrimaryStore:
    """Decisions about primaries: lightweight transactions, SERIAL or LOCAL_SERIAL as the reach says."""

    def __init__(self, connection: CassandraConnection, keyspace: str) -> None:
        self._connection = connection
        self._groups = GroupList(connection, f"{keyspace}.assigned_groups")
        self._select_cql = (
            f"SELECT latest, fencing_number, decided_in, body FROM {keyspace}.primary_decisions "
            "WHERE group_id = ?"
        )
        self._select_several_cql = (
            f"SELECT group_id, latest, fencing_number, decided_in, body FROM {keyspace}.primary_decisions "
            "WHERE group_id IN ?"
        )
        self._delete_cql = (
            f"DELETE FROM {keyspace}.primary_decisions "
            "WHERE group_id = ? AND fencing_number = ? AND decided_in = ?"
        )
        self._append_cql = (
            "BEGIN BATCH "
            f"UPDATE {keyspace}.primary_decisions SET latest = ? WHERE group_id = ? IF latest = ?; "
            f"INSERT INTO {keyspace}.primary_decisions (group_id, fencing_number, decided_in, body) "
            "VALUES (?, ?, ?, ?); "
            "APPLY BATCH"
        )

    def assigned_groups(self) -> Sequence[GroupName]:
        """Every group with a decision, sorted."""
        return self._groups.all()

    def assigned_page(self, page: NamePage) -> Sequence[GroupName]:
        """The next of them."""
        return self._groups.page(page)

    def decisions(
        self, groups: Collection[GroupName]
    ) -> Mapping[GroupName, Sequence[PrimaryDecision] | InvariantError]:
        """The decisions of each group as this region sees them, the newest first; or why they can't be read."""
        asked = list(dict.fromkeys(groups))
        if len(asked) <= _ALONE:
            select = self._connection.prepare(self._select_cql)
            answers = self._connection.run_all([(select, (group,)) for group in asked])
            rows = dict(zip(asked, answers, strict=True))
        else:
            select = self._connection.prepare(self._select_several_cql)
            parts = [asked[start : start + _AT_ONCE] for start in range(0, len(asked), _AT_ONCE)]
            rows = {group: [] for group in asked}
            for answer in self._connection.run_all([(select, (part,)) for part in parts]):
                for row in answer:
                    rows[GroupName(row[0])].append(row[1:])
        found = {group: _readable(group, items) for group, items in rows.items()}
        return {group: items for group, items in found.items() if items}

    def read_log(self, group: GroupName, reach: Reach) -> PrimaryLog:
        """The group's decisions; a transaction that was left half done is finished first.

        Raises:
            StoreUnavailableError: too few regions answer for that reach.
            UnreadableRowError: a decision can't be read; no other one may follow until it is.
        """
        rows = self._connection.run_at(self._select_cql, (group,), level=_READ_LEVEL[reach])
        latest = rows[0][0] if rows else None
        return PrimaryLog(tuple(_decisions(group, rows)), NO_NUMBER if latest is None else int(latest))

    def append(self, decision: PrimaryDecision, *, log: PrimaryLog, reach: Reach) -> bool:
        """Append unless somebody has appended since ``log`` was read; whether it was appended.

        Raises:
            StoreUnavailableError: it is not known whether it was appended.
        """
        newest = max(log.decisions, key=lambda item: item.fencing_number, default=None)
        # A group that moves was listed before that was decided, and is forgotten by nobody until it has arrived.
        if newest is None or newest.stage is not Stage.MOVING:
            self._connection.run_all([self._groups.adding(decision.group)])
        rows = self._connection.run_at(
            self._append_cql,
            (
                decision.fencing_number,
                decision.group,
                None if log.latest == NO_NUMBER else log.latest,
                decision.group,
                decision.fencing_number,
                decision.decided_in,
                decision_to_text(decision),
            ),
            level=_COMMIT_LEVEL[reach],
            serial_level=_READ_LEVEL[reach],
        )
        appended = bool(rows[0][0])
        if appended:
            self._forget_outlived((*log.decisions, decision))
        return appended

    def forget(self, group: GroupName, decisions: Collection[PrimaryDecision]) -> bool:
        """Forget a group's decisions if they are all that there are; whether they were.

        Rows are deleted without a transaction: none is ever written twice. The cell with the last number stays.
        """
        present = self.read_log(group, Reach.EVERYWHERE).decisions
        if {item.fencing_number for item in present} != {item.fencing_number for item in decisions}:
            return False
        self._delete(present)
        self._connection.run_all([self._groups.removing(group)])
        if self.read_log(group, Reach.EVERYWHERE).decisions:  # somebody has decided meanwhile
            self._connection.run_all([self._groups.adding(group)])
            return False
        return True

    def _forget_outlived(self, decisions: Sequence[PrimaryDecision]) -> None:
        """All decisions are read whenever one is needed: rivals may have any number. So old ones don't stay for ever.

        What is superseded among those that were read is so among all that there are.
        """
        try:
            self._delete(outlived(decisions))
        except ParallaxError as error:  # the next decision tries again
            _log.info("decisions_kept", group=decisions[0].group, problem=str(error))

    def _delete(self, decisions: Collection[PrimaryDecision]) -> None:
        """One after another, the oldest first: none outlives the one that supersedes it."""
        for item in sorted(decisions, key=lambda item: item.fencing_number):
            self._connection.run(self._delete_cql, item.group, item.fencing_number, item.decided_in)


def _readable(group: GroupName, rows: Iterable[Row]) -> list[PrimaryDecision] | InvariantError:
    try:
        return _decisions(group, rows)
    except InvariantError as error:
        return error


def _decisions(group: GroupName, rows: Iterable[Row]) -> list[PrimaryDecision]:
    # A partition whose only cell is the static one has a row without a key.
    return [decision_from_text(group, row[1], row[2], row[3]) for row in rows if row[1] is not None]


def decision_to_text(decision: PrimaryDecision) -> str:
    """What the key of a decision does not say, as JSON."""
    return stored_text(
        {
            "mode": decision.mode.value,
            "primary": decision.primary,
            "cluster": decision.cluster,
            "stage": decision.stage.value,
            "moving_from": decision.moving_from,
            "decided_at_ms": decision.decided_at_ms,
            "supersedes": list(decision.supersedes),
            "disaster": decision.disaster,
            "reason": decision.reason,
        },
        DECISION_FORMAT,
    )


def decision_from_text(group: GroupName, fencing_number: int, decided_in: str, text: str) -> PrimaryDecision:
    """The decision of that key, written by `decision_to_text`.

    Raises:
        UnreadableRowError: see `parallax.domain.formats.read_text`. Nothing is done for the group then.
    """
    where = f"primary_decisions of group {group!r}, decision {fencing_number} of region {decided_in},"
    return read_text(text, DECISION_FORMAT, partial(_decision, group, fencing_number, decided_in), where)


def _decision(
    group: GroupName, fencing_number: int, decided_in: str, values: Mapping[str, Any]
) -> PrimaryDecision:
    cluster, moving_from = values["cluster"], values["moving_from"]
    return PrimaryDecision(
        group=group,
        fencing_number=fencing_number,
        mode=Mode(values["mode"]),
        primary=RegionName(values["primary"]),
        cluster=None if cluster is None else ClusterName(cluster),
        stage=Stage(values["stage"]),
        moving_from=None if moving_from is None else ClusterName(moving_from),
        decided_in=RegionName(decided_in),
        decided_at_ms=values["decided_at_ms"],
        supersedes=tuple(values["supersedes"]),
        disaster=values["disaster"],
        reason=values["reason"],
    )


_WEEK_MS = 7 * 86_400_000
_EVERY_WEEK = "weeks"


class CassandraOperationJournal:
    """Operators' commands: a note's version is its write timestamp, so that the newest stays.

    What lists show of the operations of all groups stands by week, beside a list of the weeks that have any.
    """

    def __init__(self, connection: CassandraConnection, keyspace: str) -> None:
        self._connection = connection
        notes = f"{keyspace}.operations WHERE group_id = ?"
        self._select_cql = (
            f"SELECT started_at_ms, operation_id, version, body FROM {notes} LIMIT {_NEWEST_OPERATIONS}"
        )
        self._of_group = _Paged(connection, f"SELECT started_at_ms, operation_id, version, body FROM {notes}")
        self._keys_of_group = _Paged(connection, f"SELECT started_at_ms, operation_id, version FROM {notes}")
        self._body_cql = f"SELECT body FROM {notes} AND started_at_ms = ? AND operation_id = ?"
        self._save_cql = (
            f"INSERT INTO {keyspace}.operations (group_id, started_at_ms, operation_id, version, body) "
            "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?"
        )
        by_week = f"{keyspace}.operations_by_week WHERE week = ?"
        self._of_week = _Paged(
            connection, f"SELECT started_at_ms, operation_id, group_id, version, body FROM {by_week}"
        )
        self._summary_cql = f"SELECT body FROM {by_week} AND started_at_ms = ? AND operation_id = ?"
        self._save_summary_cql = (
            f"INSERT INTO {keyspace}.operations_by_week "
            "(week, started_at_ms, operation_id, group_id, version, body) "
            "VALUES (?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
        )
        self._weeks_cql = f"SELECT week FROM {keyspace}.operation_weeks WHERE part = ?"
        self._save_week_cql = f"INSERT INTO {keyspace}.operation_weeks (part, week) VALUES (?, ?)"
        self._listed_weeks: set[int] = set()
        """Whose listing was acknowledged: none is ever taken off the list."""

    def operations(self, group: GroupName) -> Sequence[OperationNote]:
        """The newest note of each of the group's newest operations, the newest operation first."""
        rows = self._connection.run(self._select_cql, group)
        return [OperationNote(group, row[0], row[1], row[2], row[3]) for row in rows]

    def operation_page(
        self, group: GroupName, after: OperationPlace, limit: int, *, summarised: bool
    ) -> Sequence[OperationNote]:
        """The next of a group's operations behind a place; two reads, and with summaries one for each besides."""
        if not summarised:
            return [OperationNote(group, *row) for row in self._of_group.page(group, after, limit)]
        rows = self._keys_of_group.page(group, after, limit)
        select, read = map(self._connection.prepare, (self._summary_cql, self._body_cql))
        found = self._connection.run_all([(select, (row[0] // _WEEK_MS, row[0], row[1])) for row in rows])
        without = [row for row, summary in zip(rows, found, strict=True) if not summary]
        bodies = iter(self._connection.run_all([(read, (group, row[0], row[1])) for row in without]))
        return [
            OperationNote(group, row[0], row[1], row[2], "", summary[0][0])
            if summary
            else OperationNote(group, row[0], row[1], row[2], "".join(body for (body,) in next(bodies)))
            for row, summary in zip(rows, found, strict=True)
        ]

    def summaries(self, after: OperationPlace, limit: int) -> Sequence[OperationNote]:
        """The next operations of all groups behind a place: a read of the weeks, and two of each that is needed."""
        found: list[OperationNote] = []
        for (week,) in self._connection.run(self._weeks_cql, _EVERY_WEEK):
            if week * _WEEK_MS <= after.started_at_ms and len(found) < limit:
                rows = self._of_week.page(week, after, limit - len(found))
                found += [OperationNote(row[2], row[0], row[1], row[3], "", row[4]) for row in rows]
        return found

    def save_operation(self, note: OperationNote) -> None:
        """Keep a note; one with a smaller version than the stored one is ignored."""
        key = (note.started_at_ms, note.operation_id)
        week = note.started_at_ms // _WEEK_MS
        requests: list[Request] = []
        if note.summary:
            save = self._connection.prepare(self._save_summary_cql)
            requests.append((save, (week, *key, note.group, note.version, note.summary, note.version)))
            if week not in self._listed_weeks:
                requests.append((self._connection.prepare(self._save_week_cql), (_EVERY_WEEK, week)))
        insert = self._connection.prepare(self._save_cql)
        requests.append((insert, (note.group, *key, note.version, note.body, note.version)))
        self._connection.run_all(requests)
        if note.summary:
            self._listed_weeks.add(week)


class _Paged:
    """Operations in the order of their places.

    Args:
        connection: to the store.
        select_cql: up to the partition key's condition.
    """

    def __init__(self, connection: CassandraConnection, select_cql: str) -> None:
        self._connection = connection
        # A mixed order has no condition for "behind this row" in one statement.
        self._same_cql = f"{select_cql} AND started_at_ms = ? AND operation_id > ? LIMIT ?"
        self._below_cql = f"{select_cql} AND started_at_ms < ? LIMIT ?"

    def page(self, key: object, after: OperationPlace, limit: int) -> list[Row]:
        """The next rows behind a place."""
        same, below = map(self._connection.prepare, (self._same_cql, self._below_cql))
        started_at_ms = after.started_at_ms
        beside, older = self._connection.run_all(
            [(same, (key, started_at_ms, after.operation_id, limit)), (below, (key, started_at_ms, limit))]
        )
        return [*beside, *older][:limit]
