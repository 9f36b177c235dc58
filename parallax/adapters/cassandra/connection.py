"""A connection to Cassandra: settings, consistency, time-outs and errors in one place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import cassandra
from cassandra import ConsistencyLevel, ProtocolVersion, cluster, connection, pool, protocol, query
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.concurrent import execute_concurrent
from cassandra.policies import DCAwareRoundRobinPolicy, ExponentialReconnectionPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, PreparedStatement, tuple_factory

from parallax.config.config import Cassandra
from parallax.errors import ConfigError, ParallaxError, StoreUnavailableError

BY_TYPE: dict[type[Exception], type[ParallaxError]] = {
    # The store could not serve the call now.
    cassandra.CDCWriteFailure: StoreUnavailableError,
    cassandra.CoordinationFailure: StoreUnavailableError,
    cassandra.DriverException: StoreUnavailableError,
    cassandra.OperationTimedOut: StoreUnavailableError,
    cassandra.ReadFailure: StoreUnavailableError,
    cassandra.ReadTimeout: StoreUnavailableError,
    cassandra.RequestExecutionException: StoreUnavailableError,
    cassandra.Timeout: StoreUnavailableError,
    cassandra.Unavailable: StoreUnavailableError,
    cassandra.UnresolvableContactPoints: StoreUnavailableError,
    cassandra.WriteFailure: StoreUnavailableError,
    cassandra.WriteTimeout: StoreUnavailableError,
    cluster.NoHostAvailable: StoreUnavailableError,
    cluster.QueryExhausted: StoreUnavailableError,
    connection.ConnectionBusy: StoreUnavailableError,
    connection.ConnectionException: StoreUnavailableError,
    connection.ConnectionShutdown: StoreUnavailableError,
    connection.CrcMismatchException: StoreUnavailableError,
    connection.ProtocolError: StoreUnavailableError,
    pool.NoConnectionsAvailable: StoreUnavailableError,
    protocol.ErrorMessage: StoreUnavailableError,
    query.TraceUnavailable: StoreUnavailableError,
    OSError: StoreUnavailableError,
    # It will never serve the call as it is: its schema, settings or rights are not what this program needs.
    cassandra.AlreadyExists: ConfigError,
    cassandra.AuthenticationFailed: ConfigError,
    cassandra.ConfigurationException: ConfigError,
    cassandra.DependencyException: ConfigError,
    cassandra.FunctionFailure: ConfigError,
    cassandra.InvalidRequest: ConfigError,
    cassandra.RequestValidationException: ConfigError,
    cassandra.Unauthorized: ConfigError,
    cassandra.UnsupportedOperation: ConfigError,
    cluster.UserTypeDoesNotExist: ConfigError,
    connection.ProtocolVersionUnsupported: ConfigError,
    protocol.InternalError: ConfigError,
    protocol.NotSupportedError: ConfigError,
    protocol.SyntaxException: ConfigError,
}
"""What an error of the driver means; the nearest class counts."""

FOREIGN = (*BY_TYPE,)
"""What to catch around a call of the driver."""

DEFAULT_PORT = 9042
_CONCURRENT_REQUESTS = 64
_FEW_REQUESTS = 8
_RECONNECT_S, _LONGEST_RECONNECT_S = 0.5, 10.0
"""A node that comes back after an hour is found within about this time, not after the driver's ten minutes."""

_FAIL_FAST_S = 1.0
"""After a failed attempt to connect, calls within this time fail at once: a queue of callers, each waiting out
a time-out of its own, would take minutes."""

T = TypeVar("T")
Row = tuple[Any, ...]
Request = tuple[PreparedStatement | BatchStatement, Sequence[object] | None]
"""A statement and its values; a batch has them already."""


def translated(error: Exception, doing: str) -> ParallaxError:
    """The error to raise for one of the driver's: says what was tried and what came back."""
    kind = next((BY_TYPE[base] for base in type(error).__mro__ if base in BY_TYPE), StoreUnavailableError)
    if isinstance(error, cluster.NoHostAvailable) and any(
        isinstance(reason, cassandra.AuthenticationFailed) for reason in _reasons(error)
    ):
        kind = ConfigError
    return kind(f"store: {doing}: {type(error).__name__}: {error}")


def _reasons(error: cluster.NoHostAvailable) -> list[object]:
    reasons = error.errors
    return list(reasons.values()) if isinstance(reasons, dict) else []


def contact_points(settings: Cassandra) -> list[tuple[str, int]]:
    """The addresses to try.

    Raises:
        ConfigError: one is not ``host`` or ``host:port``.
    """
    points = []
    for text in settings.contact_points:
        host, colon, port = text.rpartition(":")
        if not colon:
            host, port = text, str(DEFAULT_PORT)
        if not host or not port.isdigit():
            raise ConfigError(f"cassandra.contact_points: {text!r} is not of the form host or host:port")
        points.append((host, int(port)))
    if not points:
        raise ConfigError("cassandra.contact_points: name at least one host:port")
    return points


def together(statement: PreparedStatement, rows: Sequence[Sequence[object]]) -> Request:
    """One request that runs a statement for several rows of the same partition of a table."""
    if len(rows) == 1:
        return statement, rows[0]
    batch = BatchStatement(BatchType.UNLOGGED)
    batch.is_idempotent = statement.is_idempotent
    for values in rows:
        batch.add(statement, values)
    return batch, None


def open_cluster(settings: Cassandra) -> Cluster:
    """A driver object by the settings; nothing is asked yet."""
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=settings.local_datacenter)),
        consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
        request_timeout=settings.request_timeout_ms / 1_000,
        row_factory=tuple_factory,
    )
    auth = None
    if settings.username is not None:
        password = settings.password.get_secret_value() if settings.password is not None else ""
        auth = PlainTextAuthProvider(settings.username, password)
    return Cluster(
        contact_points=contact_points(settings),
        auth_provider=auth,
        protocol_version=ProtocolVersion.V4,  # for 5 the driver computes checksums in Python, twice a request
        compression=False,  # rows are small: it costs more than it saves
        reconnection_policy=ExponentialReconnectionPolicy(_RECONNECT_S, _LONGEST_RECONNECT_S),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=settings.request_timeout_ms / 1_000,
        control_connection_timeout=settings.request_timeout_ms / 1_000,
    )


class CassandraConnection:
    """Connects at the first call, and again when that failed; later the driver reconnects by itself.

    Safe to use from several threads, not across a fork.

    Args:
        settings: where Cassandra is and how long a request may take.
        check: asked once, with the new connection, before anything else is; raises if the store can't be used.
    """

    def __init__(
        self,
        settings: Cassandra,
        check: Callable[[Session], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._check = check
        self._clock = clock
        self._lock = threading.RLock()
        self._cluster: Cluster | None = None
        self._session: Session | None = None
        self._statements: dict[str, PreparedStatement] = {}
        self._failed: tuple[float, ParallaxError] | None = None
        self._closed = False

    def prepare(self, cql: str) -> PreparedStatement:
        """The statement, prepared once and idempotent.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time.
            ConfigError: the store's schema does not know it.
        """
        session = self._connected()
        with self._lock:
            if cql not in self._statements:
                try:
                    statement = session.prepare(cql)
                except FOREIGN as error:
                    raise translated(error, "preparing a statement") from error
                statement.is_idempotent = True
                self._statements[cql] = statement
            return self._statements[cql]

    def run(self, cql: str, *values: object) -> list[Row]:
        """Run one statement.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time.
        """
        return self.run_all([(self.prepare(cql), values)])[0]

    def run_all(self, requests: Iterable[Request]) -> list[list[Row]]:
        """Run statements side by side; the answers come in their order.

        Raises:
            StoreUnavailableError: one was not answered in time; others may have been carried out.
        """
        queued = list(requests)
        if not queued:
            return []
        session = self._connected()
        try:
            if len(queued) <= _FEW_REQUESTS:
                # What `execute_concurrent` counts and collects costs as much as asking.
                futures = [session.execute_async(*request) for request in queued]
                return [list(future.result()) for future in futures]
            answers = execute_concurrent(
                session, queued, concurrency=_CONCURRENT_REQUESTS, raise_on_first_error=True
            )
            return [list(answer) for _, answer in answers]
        except FOREIGN as error:
            raise translated(error, f"{len(queued)} request(s)") from error

    def run_at(
        self, cql: str, values: Sequence[object], *, level: int, serial_level: int | None = None
    ) -> list[Row]:
        """Run one statement at a consistency of its own: serial reads, lightweight transactions.

        A lightweight transaction that was not answered may have been carried out: it is not tried again here.

        Raises:
            StoreUnavailableError: too few copies answered in time.
        """
        bound = self.prepare(cql).bind(values)
        bound.is_idempotent = False
        bound.consistency_level = level
        bound.serial_consistency_level = serial_level
        session = self._connected()
        try:
            return list(session.execute(bound))
        except FOREIGN as error:
            raise translated(error, "a request with a consistency of its own") from error

    def run_plain(self, cql: str, values: Sequence[object] | None = None) -> list[Row]:
        """Run a statement that is not worth preparing: schema work.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time.
            ConfigError: the statement is refused.
        """
        session = self._connected()
        try:
            return list(session.execute(cql, values))
        except FOREIGN as error:
            raise translated(error, cql.split("(", 1)[0].strip()) from error

    def ask(self, question: Callable[[Session], T]) -> T:
        """Ask something of the driver itself, its errors translated.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time.
        """
        session = self._connected()
        try:
            return question(session)
        except FOREIGN as error:
            raise translated(error, "asking") from error

    def connect(self) -> None:
        """Connect now rather than at the first call.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time.
            ConfigError: the store lacks what the check asks for.
        """
        self._connected()

    def close(self) -> None:
        """End the connection; later calls raise."""
        with self._lock:
            self._closed = True
            self._drop()

    def _connected(self) -> Session:
        session = self._session
        if session is not None:
            return session
        with self._lock:
            return self._session or self._connect_once()

    def _connect_once(self) -> Session:
        if self._closed:
            raise StoreUnavailableError("store: the connection was closed")
        if self._failed is not None and self._clock() - self._failed[0] < _FAIL_FAST_S:
            kind, text = type(self._failed[1]), str(self._failed[1])
            raise kind(text)
        try:
            return self._open()
        except ParallaxError as error:
            self._drop()
            self._failed = (self._clock(), error)
            raise

    def _open(self) -> Session:
        points = ", ".join(self.settings.contact_points)
        try:
            self._cluster = open_cluster(self.settings)
            session = self._cluster.connect()
            self._check(session)
        except FOREIGN as error:
            raise translated(error, f"connecting to {points}") from error
        self._session = session
        return session

    def _drop(self) -> None:
        cluster, self._cluster, self._session = self._cluster, None, None
        self._statements.clear()
        if cluster is not None:
            cluster.shutdown()
