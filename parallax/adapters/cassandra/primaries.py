"""`PrimaryStore` in Cassandra.

A decision is a row of its own, so that decisions of regions that could not see each other both survive. A static
cell of the group holds the number of the last append; the lightweight transaction compares that cell. After a
partition the cell is either region's, and whichever it is, the next append starts from what it reads there.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from cassandra import ConsistencyLevel

from parallax.adapters.cassandra.connection import CassandraConnection, Row
from parallax.domain.ids import ClusterName, GroupName, RegionName
from parallax.domain.primary import NO_NUMBER, Mode, PrimaryDecision, Stage
from parallax.errors import InvariantError
from parallax.ports.decisions import PrimaryLog, Reach

_GROUP_BUCKETS = 16
"""Partitions of the list of groups; never changed, or groups would be listed in the wrong one."""

_NEWEST = 64
"""Decisions read of a group: one that none of 64 later ones supersedes does not exist in practice, since every
decision supersedes all that it knows."""

_READ_LEVEL = {Reach.EVERYWHERE: ConsistencyLevel.SERIAL, Reach.HERE: ConsistencyLevel.LOCAL_SERIAL}
_COMMIT_LEVEL = {Reach.EVERYWHERE: ConsistencyLevel.QUORUM, Reach.HERE: ConsistencyLevel.LOCAL_QUORUM}


class CassandraPrimaryStore:
    """Decisions about primaries: lightweight transactions, SERIAL or LOCAL_SERIAL as the reach says."""

    def __init__(self, connection: CassandraConnection, keyspace: str) -> None:
        self._connection = connection
        self._know_cql = f"INSERT INTO {keyspace}.assigned_groups (bucket, group_id) VALUES (?, ?)"
        self._groups_cql = f"SELECT group_id FROM {keyspace}.assigned_groups WHERE bucket = ?"
        self._select_cql = (
            f"SELECT latest, fencing_number, decided_in, body FROM {keyspace}.primary_decisions "
            f"WHERE group_id = ? LIMIT {_NEWEST}"
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
        select = self._connection.prepare(self._groups_cql)
        answers = self._connection.run_all([(select, (bucket,)) for bucket in range(_GROUP_BUCKETS)])
        return sorted(GroupName(row[0]) for answer in answers for row in answer)

    def decisions(
        self, groups: Collection[GroupName]
    ) -> Mapping[GroupName, Sequence[PrimaryDecision] | InvariantError]:
        """The newest decisions of each group as this region sees them, the newest first; or why they can't be read."""
        asked = list(groups)
        select = self._connection.prepare(self._select_cql)
        answers = self._connection.run_all([(select, (group,)) for group in asked])
        found = {group: _readable(group, rows) for group, rows in zip(asked, answers, strict=True)}
        return {group: items for group, items in found.items() if items}

    def read_log(self, group: GroupName, reach: Reach) -> PrimaryLog:
        """The group's decisions; a transaction that was left half done is finished first.

        Raises:
            StoreUnavailableError: too few regions answer for that reach.
            InvariantError: a decision can't be read.
        """
        rows = self._connection.run_at(self._select_cql, (group,), level=_READ_LEVEL[reach])
        latest = rows[0][0] if rows else None
        return PrimaryLog(tuple(_decisions(group, rows)), NO_NUMBER if latest is None else int(latest))

    def append(self, decision: PrimaryDecision, *, after: int, reach: Reach) -> bool:
        """Append unless somebody has appended since ``after`` was read; whether it was appended.

        Raises:
            StoreUnavailableError: it is not known whether it was appended.
        """
        self._connection.run(
            self._know_cql, zlib.crc32(decision.group.encode()) % _GROUP_BUCKETS, decision.group
        )
        rows = self._connection.run_at(
            self._append_cql,
            (
                decision.fencing_number,
                decision.group,
                None if after == NO_NUMBER else after,
                decision.group,
                decision.fencing_number,
                decision.decided_in,
                decision_to_text(decision),
            ),
            level=_COMMIT_LEVEL[reach],
            serial_level=_READ_LEVEL[reach],
        )
        return bool(rows[0][0])


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
    return json.dumps(
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
        }
    )


def decision_from_text(group: GroupName, fencing_number: int, decided_in: str, text: str) -> PrimaryDecision:
    """The decision of that key, written by `decision_to_text`.

    Raises:
        InvariantError: the text is damaged, or tells of what this release does not know.
    """
    try:
        return _decision(group, fencing_number, decided_in, json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise InvariantError(
            f"decision {fencing_number} of group {group!r} can't be read ({type(error).__name__}: {error}): a newer "
            "release may have written it; until this one can read it, nothing is done for the group"
        ) from error


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
