"""Opening the stores: what composition roots call."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from parallax.adapters.cassandra.audit import CassandraAuditLog
from parallax.adapters.cassandra.blocks import CassandraBlocks
from parallax.adapters.cassandra.clock import STORE_TIME_CQL, StoreClock
from parallax.adapters.cassandra.connection import CassandraConnection
from parallax.adapters.cassandra.decisions import CassandraOperationJournal, CassandraPrimaryStore
from parallax.adapters.cassandra.groups import CassandraGroupStore
from parallax.adapters.cassandra.records import CassandraRecords
from parallax.adapters.cassandra.schema import keyspace_of, require_schema
from parallax.adapters.cassandra.status import CassandraStatusStore
from parallax.config.config import AuditSettings, Cassandra, Index
from parallax.index.reader import BlockIndex


class CassandraMappingIndex(BlockIndex, CassandraRecords, CassandraBlocks):
    """The mapping index, read and written."""

    def __init__(
        self, connection: CassandraConnection, keyspace: str, settings: Index, max_age_ms: float
    ) -> None:
        CassandraRecords.__init__(self, connection, keyspace, settings)
        CassandraBlocks.__init__(self, connection, keyspace, settings)
        BlockIndex.__init__(self, self, max_age_ms=max_age_ms, memory_bytes=settings.memory_mib << 20)


class CassandraStores:
    """The mapping index and the stores of groups, primaries, operations, statuses and the audit over one connection, which opens at the first call.

    Whoever saves moments, or compares those that are saved, tells the time by ``clock``.

    A process can therefore start while Cassandra is away: calls raise `StoreUnavailableError` until it is back, and
    `ConfigError` while its keyspace lacks the schema. Not to be carried across a fork.

    Args:
        cassandra: where the store is.
        index: how the mapping is kept.
        max_age_ms: see `parallax.index.reader.BlockIndex`.
        audit: how long audit entries are kept.
    """

    def __init__(
        self,
        cassandra: Cassandra,
        index: Index,
        *,
        max_age_ms: float = 0,
        audit: AuditSettings | None = None,
    ) -> None:
        """Nothing is asked yet.

        Raises:
            ConfigError: the settings can't be used.
        """
        keyspace = keyspace_of(cassandra)
        self._connection = CassandraConnection(cassandra, lambda session: require_schema(session, keyspace))
        self.clock = StoreClock(lambda: int(self._connection.run(STORE_TIME_CQL)[0][0]))
        self.index = CassandraMappingIndex(self._connection, keyspace, index, max_age_ms)
        self.groups = CassandraGroupStore(self._connection, keyspace)
        self.operations = CassandraOperationJournal(self._connection, keyspace)
        self.primaries = CassandraPrimaryStore(self._connection, keyspace)
        self.status = CassandraStatusStore(self._connection, keyspace)
        self.audit = CassandraAuditLog(self._connection, keyspace, (audit or AuditSettings()).retention_days)

    def connect(self) -> None:
        """Connect now, to fail early.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time.
            ConfigError: the keyspace lacks the schema.
        """
        self._connection.connect()

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
