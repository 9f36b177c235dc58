"""Opening the stores: what composition roots call."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from parallax.adapters.cassandra.audit import CassandraAuditLog
from parallax.adapters.cassandra.clock import STORE_TIME_CQL, StoreClock
from parallax.adapters.cassandra.coarse_memory import WayMemory
from parallax.adapters.cassandra.connection import CassandraConnection
from parallax.adapters.cassandra.decisions import CassandraOperationJournal, CassandraPrimaryStore
from parallax.adapters.cassandra.groups import CassandraGroupStore
from parallax.adapters.cassandra.index_reader import IndexReader
from parallax.adapters.cassandra.index_writer import IndexWriter
from parallax.adapters.cassandra.schema import keyspace_of, require_schema
from parallax.adapters.cassandra.status import CassandraStatusStore
from parallax.config.config import AuditSettings, Cassandra, Index


class CassandraMappingIndex(IndexWriter, IndexReader):
    """Both sides of the mapping index."""

    def __init__(
        self, connection: CassandraConnection, keyspace: str, settings: Index, ways: WayMemory | None
    ) -> None:
        IndexWriter.__init__(self, connection, keyspace, settings)
        IndexReader.__init__(self, connection, keyspace, ways)


class CassandraStores:
    """The mapping index and the stores of groups, primaries, operations, statuses and the audit over one connection, which opens at the first call.

    Whoever saves moments, or compares those that are saved, tells the time by ``clock``.

    A process can therefore start while Cassandra is away: calls raise `StoreUnavailableError` until it is back, and
    `ConfigError` while its keyspace lacks the schema. Not to be carried across a fork.

    Args:
        cassandra: where the store is.
        index: how the mapping is kept.
        ways: see `IndexReader`; for readers that ask about the same places again and again.
        audit: how long audit entries are kept.
    """

    def __init__(
        self,
        cassandra: Cassandra,
        index: Index,
        ways: WayMemory | None = None,
        *,
        audit: AuditSettings | None = None,
    ) -> None:
        """Nothing is asked yet.

        Raises:
            ConfigError: the settings can't be used.
        """
        keyspace = keyspace_of(cassandra)
        self._connection = CassandraConnection(cassandra, lambda session: require_schema(session, keyspace))
        self.clock = StoreClock(lambda: int(self._connection.run(STORE_TIME_CQL)[0][0]))
        self.index = CassandraMappingIndex(self._connection, keyspace, index, ways)
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
