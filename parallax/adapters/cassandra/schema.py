"""Creating and upgrading the keyspace, safely from several places at once."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
from cassandra import InvalidRequest
from cassandra.cluster import Session

from parallax.adapters.cassandra.audit import CassandraAuditLog
from parallax.adapters.cassandra.clock import STORE_TIME_CQL, StoreClock
from parallax.adapters.cassandra.connection import CassandraConnection
from parallax.adapters.cassandra.migrations import LATEST_VERSION, MIGRATIONS, Migration
from parallax.config.config import AuditSettings, Cassandra
from parallax.errors import ConfigError, StoreUnavailableError
from parallax.runtime.deadline import Deadline

_log = structlog.get_logger(__name__)
_NAME = re.compile(r"[a-z][a-z0-9_]{0,47}")
_LOCK_TTL_S = 60
_LOCK_WAIT_MS = 90_000
_LOCK_POLL_S = 0.1
_HINT = "run `parallax schema apply --config FILE`"


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """What a keyspace has.

    Attributes:
        version: 0 if nothing was ever applied; it may be newer than what this program knows.
        needs: the version that a program must know to use the keyspace.
    """

    keyspace: str
    version: int
    needs: int = 0

    @property
    def missing(self) -> tuple[Migration, ...]:
        """The steps still to be taken, in order."""
        return tuple(step for step in MIGRATIONS if step.version > self.version)

    @property
    def problem(self) -> str:
        """Why this program can't use the keyspace, and what to do; empty: it can."""
        has = f"store: keyspace {self.keyspace!r} has"
        if self.version == 0:
            return f"{has} no Parallax schema: {_HINT}"
        if self.needs > LATEST_VERSION:
            return (
                f"{has} schema version {self.version}, which programs that know version {self.needs} can use, and this "
                f"one knows {LATEST_VERSION}: run a newer release; a schema is not taken back"
            )
        if self.version < LATEST_VERSION:
            return f"{has} schema version {self.version}, this program needs {LATEST_VERSION}: {_HINT}"
        return ""


def keyspace_of(settings: Cassandra) -> str:
    """The keyspace's name, fit to stand in a statement.

    Raises:
        ConfigError: it is not a plain lower-case name.
    """
    if _NAME.fullmatch(settings.keyspace) is None:
        raise ConfigError(
            f"cassandra.keyspace: {settings.keyspace!r} must be up to 48 of a-z, 0-9 and _, beginning with a letter"
        )
    return settings.keyspace


def keyspace_statement(settings: Cassandra) -> str:
    """The statement that creates the keyspace."""
    copies = "".join(f", '{_datacenter(name)}': {count}" for name, count in settings.replication.items())
    return (
        f"CREATE KEYSPACE IF NOT EXISTS {keyspace_of(settings)} WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy'{copies}}}"
    )


def require_schema(session: Session, keyspace: str) -> None:
    """Check that the keyspace can be used by this program.

    Raises:
        ConfigError: it does not exist, its schema is older, or so new that older programs must not use it; the
            message says what to run.
    """
    status = _status(session, keyspace)
    if status.problem:
        raise ConfigError(status.problem)
    if status.version > LATEST_VERSION:
        _log.info("schema_newer", keyspace=keyspace, version=status.version, known=LATEST_VERSION)


class Schema:
    """The schema of one keyspace."""

    def __init__(self, settings: Cassandra, sleep: Callable[[float], None] = time.sleep) -> None:
        """Connects at the first call."""
        self._settings = settings
        self._keyspace = keyspace_of(settings)
        self._connection = CassandraConnection(settings, lambda _session: None)
        self.clock = StoreClock(lambda: int(self._connection.run(STORE_TIME_CQL)[0][0]))
        self._sleep = sleep

    def status(self) -> SchemaStatus:
        """What is there.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time.
        """
        return self._connection.ask(lambda session: _status(session, self._keyspace))

    def audit(self, settings: AuditSettings) -> CassandraAuditLog:
        """Where it is kept who changed the schema; of use from `AUDIT_VERSION` on."""
        return CassandraAuditLog(self._connection, self._keyspace, settings.retention_days)

    def planned(self) -> Sequence[str]:
        """The statements that `apply` would run now.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time.
        """
        missing = self.status().missing
        if not missing:
            return ()
        steps = [statement for step in missing for statement in step.written_for(self._keyspace)]
        return (keyspace_statement(self._settings), *self._bookkeeping(), *steps)

    def apply(self) -> Sequence[Migration]:
        """Take all missing steps; returns those that were taken here.

        One of several concurrent callers takes them while the others wait.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time, or another apply holds the lock; what was done
                so far does no harm: run it again.
            ConfigError: Cassandra refuses a statement.
        """
        if not self.status().missing:
            return ()
        self._connection.run_plain(keyspace_statement(self._settings))
        for statement in self._bookkeeping():
            self._connection.run_plain(statement)
        owner = uuid.uuid4()
        self._lock(owner)
        try:
            missing = self.status().missing
            for step in missing:
                for statement in step.written_for(self._keyspace):
                    self._connection.run_plain(statement)
                self._connection.run_plain(
                    f"INSERT INTO {self._keyspace}.schema_version (part, version, description, needs, applied_at) "
                    "VALUES ('parallax', %s, %s, %s, toTimestamp(now()))",
                    (step.version, step.description, step.needs),
                )
        finally:
            self._unlock(owner)
        return missing

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def _bookkeeping(self) -> tuple[str, ...]:
        create = f"CREATE TABLE IF NOT EXISTS {self._keyspace}"
        columns = "part text, version int, description text, needs int, applied_at timestamp"
        return (
            f"{create}.schema_version ({columns}, PRIMARY KEY (part, version))",
            f"ALTER TABLE {self._keyspace}.schema_version ADD IF NOT EXISTS needs int",  # of keyspaces from before
            f"{create}.schema_lock (part text PRIMARY KEY, owner uuid)",
        )

    def _lock(self, owner: uuid.UUID) -> None:
        deadline = Deadline.after_ms(_LOCK_WAIT_MS)
        while True:
            answer = self._connection.run_plain(
                f"INSERT INTO {self._keyspace}.schema_lock (part, owner) VALUES ('parallax', %s) "
                f"IF NOT EXISTS USING TTL {_LOCK_TTL_S}",
                (owner,),
            )
            if answer[0][0]:
                return
            if deadline.passed:
                raise StoreUnavailableError(
                    "store: another `parallax schema apply` is still at work; try again later"
                )
            self._sleep(_LOCK_POLL_S)

    def _unlock(self, owner: uuid.UUID) -> None:
        self._connection.run_plain(
            f"DELETE FROM {self._keyspace}.schema_lock WHERE part = 'parallax' IF owner = %s",
            (owner,),
        )


def _status(session: Session, keyspace: str) -> SchemaStatus:
    try:
        # Whatever columns there are: of an older release one is missing, of a newer one there may be more.
        answer = session.execute(f"SELECT * FROM {keyspace}.schema_version WHERE part = 'parallax'")
        steps = [dict(zip(answer.column_names, row, strict=True)) for row in answer]
    except InvalidRequest:  # neither keyspace nor table
        steps = []
    return SchemaStatus(
        keyspace,
        max((int(step["version"]) for step in steps), default=0),
        max((int(step.get("needs") or 0) for step in steps), default=0),
    )


def _datacenter(name: str) -> str:
    if "'" in name or not name:
        raise ConfigError(f"cassandra.replication: {name!r} is not a datacenter's name")
    return name
