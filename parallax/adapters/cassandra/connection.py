"""A connection to Cassandra: settings, consistency, time-outs and errors in one place."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import cassandra
from cassandra import ConsistencyLevel, ProtocolVersion, cluster, connection, pool, protocol, query
from cassandra.auth import AuthProvider, PlainTextAuthenticator
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    ResponseFuture,
    Session,
)
from cassandra.policies import DCAwareRoundRobinPolicy, ExponentialReconnectionPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, PreparedStatement, tuple_factory

from parallax.adapters.cassandra.gate import SilentStoreError, StoreGate
from parallax.adapters.tls import CurrentContext, client_context, refusal
from parallax.config.config import Cassandra
from parallax.errors import ConfigError, ParallaxError, StoreUnavailableError
from parallax.runtime.tracing import span


class PasswordRefusedError(connection.ConnectionException):  # type: ignore[misc] # the driver has no types
    """A node refuses who we say we are. The driver would never ask a node again that does so by an error of its own."""


BY_TYPE: dict[type[Exception], type[ParallaxError]] = {
    # The store could not serve the call now.
    cassandra.CDCWriteFailure: StoreUnavailableError,
    cassandra.CoordinationFailure: StoreUnavailableError,
    cassandra.DriverException: StoreUnavailableError,
    cassandra.OperationTimedOut: SilentStoreError,
    cassandra.ReadFailure: StoreUnavailableError,
    cassandra.ReadTimeout: SilentStoreError,
    cassandra.RequestExecutionException: StoreUnavailableError,
    cassandra.Timeout: SilentStoreError,
    cassandra.Unavailable: StoreUnavailableError,
    cassandra.UnresolvableContactPoints: StoreUnavailableError,
    cassandra.WriteFailure: StoreUnavailableError,
    cassandra.WriteTimeout: SilentStoreError,
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
    PasswordRefusedError: ConfigError,
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
_RECONNECT_S, _LONGEST_RECONNECT_S = 0.5, 10.0
"""A node that comes back after an hour is found within about this time, not after the driver's ten minutes."""

_FAIL_FAST_S = 1.0
"""After a failed attempt to connect, calls within this time fail at once: a queue of callers, each waiting out
a time-out of its own, would take minutes."""

_CLOSED = "store: the connection was closed"

T = TypeVar("T")
Row = tuple[Any, ...]
Request = tuple[PreparedStatement | BatchStatement, Sequence[object] | None]
"""A statement and its values; a batch has them already."""


def translated(error: Exception, doing: str) -> ParallaxError:
    """The error to raise for one of the driver's: says what was tried and what came back."""
    kind = next((BY_TYPE[base] for base in type(error).__mro__ if base in BY_TYPE), StoreUnavailableError)
    for address, reason in _reasons(error).items():
        if isinstance(reason, cassandra.AuthenticationFailed | PasswordRefusedError):
            return ConfigError(
                f"store: {doing}: {address} refuses cassandra.username and its password: {reason}"
            )
        if (why := refusal(reason)) is not None:
            return ConfigError(f"store: {doing}: TLS with {address}: {why} (cassandra.tls)")
    return kind(f"store: {doing}: {type(error).__name__}: {error}")


def _reasons(error: Exception) -> dict[object, BaseException]:
    """What went wrong, by address, where the driver tried several."""
    reasons = error.errors if isinstance(error, cluster.NoHostAvailable) else None
    return reasons if isinstance(reasons, dict) else {}


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


def as_one(requests: Sequence[Request]) -> Request:
    """One request for several that write to the same partition of a table; each keeps its own write timestamp."""
    if len(requests) == 1:
        return requests[0]
    batch = BatchStatement(BatchType.UNLOGGED)
    batch.is_idempotent = True
    for statement, values in requests:
        batch.add(statement, values)
    return batch, None


def tls_context(settings: Cassandra) -> CurrentContext | None:
    """What connections are opened with, each by the files as they are then; None: plain text.

    Raises:
        ConfigError: a file can't be used.
    """
    tls = settings.tls
    if tls is None:
        return None
    files = (tls.ca, tls.certificate, tls.key, tls.key_password_file)
    return CurrentContext(
        [path for path in files if path is not None],
        lambda: client_context(
            "cassandra.tls",
            ca=tls.ca,
            certificate=tls.certificate,
            key=tls.key,
            key_password=tls.open_key(),
            verify_hostname=tls.verify_hostname,
        ),
    )


class _Proof(PlainTextAuthenticator):  # type: ignore[misc] # the driver has no types
    """Shows the password as it is in its file when it is asked for: the driver keeps this for all attempts to reach a node again."""

    def __init__(self, username: str, settings: Cassandra) -> None:
        super().__init__(username, "")
        self._settings = settings

    def initial_response(self) -> bytes:
        """Who we are, and the password."""
        self.password = self._settings.secret() or ""
        return bytes(super().initial_response())


class _Password(AuthProvider):  # type: ignore[misc] # the driver has no types
    """Proves who we are at each new connection, by the password as it is in its file then."""

    def __init__(self, username: str, settings: Cassandra) -> None:
        self._username, self._settings = username, settings

    def new_authenticator(self, host: object) -> _Proof:
        """For connections to a node."""
        del host
        return _Proof(self._username, self._settings)


class _Connection(Cluster.connection_class):  # type: ignore[misc] # the driver has no types
    """A connection to a node that is asked again, later, after it has refused the password: both sides may be told a new one."""

    @classmethod
    def factory(cls, endpoint: object, timeout: float, *args: object, **kwargs: object) -> Any:
        """A connection that is ready; the driver's own errors."""
        try:
            return super().factory(endpoint, timeout, *args, **kwargs)
        except cassandra.AuthenticationFailed as error:
            raise PasswordRefusedError(str(error), endpoint) from error


def open_cluster(settings: Cassandra) -> Cluster:
    """A driver object by the settings; nothing is asked yet. Each connection goes by certificates and password as they are then.

    Raises:
        ConfigError: one of them can't be used.
    """
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=settings.local_datacenter)),
        consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
        request_timeout=settings.request_timeout_ms / 1_000,
        row_factory=tuple_factory,
    )
    auth = None
    if settings.username is not None:
        settings.secret()  # says now what is wrong with its file
        auth = _Password(settings.username, settings)
    return Cluster(
        connection_class=_Connection,
        contact_points=contact_points(settings),
        auth_provider=auth,
        ssl_context=tls_context(settings),
        protocol_version=ProtocolVersion.V4,  # for 5 the driver computes checksums in Python, twice a request
        # A node that is slow would hold up every statement; one that does not know a statement is told it when it is asked.
        prepare_on_all_hosts=False,
        compression=False,  # rows are small: it costs more than it saves
        reconnection_policy=ExponentialReconnectionPolicy(_RECONNECT_S, _LONGEST_RECONNECT_S),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        connect_timeout=settings.request_timeout_ms / 1_000,
        control_connection_timeout=settings.request_timeout_ms / 1_000,
    )


def wrong_datacenter(settings: Cassandra, cluster: Cluster) -> ConfigError | None:
    """What to raise where no node of the datacenter named is known, but others are: the driver asks none of them."""
    known = sorted({host.datacenter for host in cluster.metadata.all_hosts() if host.datacenter is not None})
    if not known or settings.local_datacenter in known:
        return None
    return ConfigError(
        f"cassandra.local_datacenter: the store has no datacenter {settings.local_datacenter!r}; it has {', '.join(known)}"
    )


@dataclass(slots=True)
class _UnderWay(Generic[T]):
    """Something that the driver does in a thread of its own, however long it takes, while callers wait for it or not."""

    until_s: float
    """Nobody waits longer than this (monotonic seconds)."""
    result: Future[T] = field(default_factory=Future)

    def wait(self, now_s: float, doing: str) -> T:
        """Its result.

        Raises:
            StoreUnavailableError: not in time.
            ParallaxError: it went wrong.
        """
        try:
            return self.result.result(timeout=max(0.0, self.until_s - now_s))
        except TimeoutError as error:
            raise StoreUnavailableError(f"store: {doing}: no answer in time") from error
        except ParallaxError as error:
            # Of each caller its own: a traceback would grow with everyone who raises it.
            raise type(error)(str(error)) from error


class CassandraConnection:
    """Connects at the first call, and again when that failed; later the driver reconnects by itself.

    Safe to use from several threads, not across a fork. No call waits for what another one asks for, and each is bounded:
    see `parallax.adapters.cassandra.gate`.

    Args:
        settings: where Cassandra is and how long a request may take.
        check: asked once, with the new connection, before anything else is; raises if the store can't be used.
        clock: seconds, never going back.
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
        self._gate = StoreGate(clock=clock)
        self._timeout_s = settings.request_timeout_ms / 1_000
        self._lock = threading.Lock()
        """Held for moments, never while Cassandra is asked."""
        self._cluster: Cluster | None = None
        self._session: Session | None = None
        self._opening: _UnderWay[Session] | None = None
        self._statements: dict[str, PreparedStatement] = {}
        self._preparing: dict[str, _UnderWay[PreparedStatement]] = {}
        self._failed: tuple[float, ParallaxError] | None = None
        self._closed = False

    def prepare(self, cql: str) -> PreparedStatement:
        """The statement, prepared once and idempotent.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time.
            ConfigError: the store's schema does not know it.
        """
        found = self._statements.get(cql)
        if found is not None:
            return found
        session = self._connected()
        now_s = self._clock()
        with self._lock:
            under_way = self._preparing.get(cql)
            begins = under_way is None or now_s >= under_way.until_s
            if under_way is None or begins:
                under_way = self._preparing[cql] = _UnderWay(now_s + self._timeout_s)
        if begins:
            _in_a_thread("prepare", self._prepare, session, cql, under_way)
        return under_way.wait(now_s, "preparing a statement")

    def _prepare(self, session: Session, cql: str, under_way: _UnderWay[PreparedStatement]) -> None:
        try:
            with _translated("preparing a statement"):
                statement = session.prepare(cql)
        except Exception as error:  # noqa: BLE001 - raised by those who wait
            self._prepared(session, cql, under_way, None)
            under_way.result.set_exception(error)
        else:
            statement.is_idempotent = True
            self._prepared(session, cql, under_way, statement)
            under_way.result.set_result(statement)

    def _prepared(
        self,
        session: Session,
        cql: str,
        under_way: _UnderWay[PreparedStatement],
        statement: PreparedStatement | None,
    ) -> None:
        with self._lock:
            if self._preparing.get(cql) is under_way:
                del self._preparing[cql]
            if statement is not None and self._session is session:
                self._statements[cql] = statement

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
        with self._call(f"{len(queued)} request(s)"):
            # What the driver's `execute_concurrent` counts and collects costs as much as asking.
            answers: list[list[Row]] = []
            asked: deque[ResponseFuture] = deque()
            for request in queued:
                if len(asked) == _CONCURRENT_REQUESTS:
                    answers.append(list(asked.popleft().result()))
                asked.append(session.execute_async(*request))
            answers += [list(future.result()) for future in asked]
            return answers

    def run_together(self, parts: Iterable[Sequence[Request]]) -> None:
        """Run prepared statements that write, those of a part as one: they are of one partition of a table, and few.

        Raises:
            StoreUnavailableError: one was not answered in time; others may have been carried out.
        """
        self.run_all([as_one(part) for part in parts])

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
        with self._call("a request with a consistency of its own"):
            return list(session.execute(bound))

    def run_plain(self, cql: str, values: Sequence[object] | None = None) -> list[Row]:
        """Run a statement that is not worth preparing: schema work.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time.
            ConfigError: the statement is refused.
        """
        session = self._connected()
        with self._call(cql.split("(", 1)[0].strip()):
            return list(session.execute(cql, values))

    def ask(self, question: Callable[[Session], T]) -> T:
        """Ask something of the driver itself, its errors translated.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time.
        """
        session = self._connected()
        with self._call("asking"):
            return question(session)

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
            cluster, self._cluster, self._session = self._cluster, None, None
            self._statements.clear()
        if cluster is not None:
            cluster.shutdown()

    @contextmanager
    def _call(self, doing: str) -> Iterator[None]:
        """A call of the driver, its errors translated.

        Raises:
            StoreUnavailableError: Cassandra did not answer in time, or has not answered others for a while.
        """
        with (
            span("cassandra", kind="client", db__system__name="cassandra", parallax__doing=doing),
            self._gate.call(),
            _translated(doing),
        ):
            yield

    # --- connecting --------------------------------------------------------------------------------------------

    def _connected(self) -> Session:
        session = self._session
        if session is not None:
            return session
        now_s = self._clock()
        with self._lock:
            if self._session is not None:
                return self._session
            if self._closed:
                raise StoreUnavailableError(_CLOSED)
            opening = self._opening
            begins = opening is None
            if opening is None:
                if self._failed is not None and now_s - self._failed[0] < _FAIL_FAST_S:
                    kind, text = type(self._failed[1]), str(self._failed[1])
                    raise kind(text)
                # The driver tries one address after the other, each for so long.
                patience = 1 if self._failed else 1 + len(self.settings.contact_points)
                opening = self._opening = _UnderWay(now_s + patience * self._timeout_s)
        if begins:
            _in_a_thread("connect", self._open, opening)
        return opening.wait(now_s, f"connecting to {', '.join(self.settings.contact_points)}")

    def _open(self, opening: _UnderWay[Session]) -> None:
        cluster: Cluster | None = None
        session: Session | None = None
        problem: Exception | None = None
        try:
            with _translated(f"connecting to {', '.join(self.settings.contact_points)}"):
                cluster = open_cluster(self.settings)
                session = cluster.connect()
                self._check(session)
        except Exception as error:  # noqa: BLE001 - raised by those who wait
            problem = error
            if cluster is not None and isinstance(error.__cause__, NoHostAvailable):
                problem = wrong_datacenter(self.settings, cluster) or error
        with self._lock:
            self._opening = None
            if self._closed:
                problem = problem or StoreUnavailableError(_CLOSED)
            if problem is None:
                self._cluster, self._session, self._failed = cluster, session, None
            elif isinstance(problem, ParallaxError):
                self._failed = self._clock(), problem
        if problem is None:
            opening.result.set_result(session)
            return
        opening.result.set_exception(problem)
        if cluster is not None:
            cluster.shutdown()


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except FOREIGN as error:
        raise translated(error, doing) from error


def _in_a_thread(name: str, work: Callable[..., None], *args: object) -> None:
    threading.Thread(target=work, args=args, name=f"cassandra {name}", daemon=True).start()
