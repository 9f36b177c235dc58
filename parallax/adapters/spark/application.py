"""One Spark application: a session, the lease queries that run on it, and its status, until it is told to stop."""

from __future__ import annotations

import itertools
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from parallax.adapters.spark.leases import LeaseQuery, start_lease_query
from parallax.adapters.spark.reporting import StatusTarget
from parallax.adapters.spark.session import (
    SessionSettings,
    StartingSession,
    check_slots,
    is_local,
    task_slots,
)
from parallax.adapters.spark.status_part import StatusPart
from parallax.adapters.spark.status_server import StatusServer
from parallax.adapters.spark.supervisor import QueryPlan, Supervisor, first_lines
from parallax.config.config import Service, StatusTls
from parallax.config.values import is_loopback
from parallax.errors import ConfigError, ServiceUnavailableError
from parallax.identity.identity import Identity, require_safe_pages
from parallax.runtime.deadline import Deadline
from parallax.runtime.process import stop_on_signals

_log = structlog.get_logger(__name__)

SLOTS_WITHIN_MS = 60_000
"""Executors of a cluster register within this time, or preflight refuses."""

LEASES_END_WITHIN_S = 6.0
"""On a stop: a lease commits and leaves within about a second of its next report."""

SPARK_DIED = (Py4JError, ConnectionError)
"""What calls into Spark raise when its JVM has gone, or has begun to stop."""

_ANY_HOST = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not listened on
_EVERY_TASK_IMPORTS = ("pandas",)
"""To handle Arrow, though tasks that hold leases never use it."""

View = AbstractContextManager[Callable[[], None]]
"""Shows progress to people while it is open; called often, it decides itself when to show something."""


def _no_view() -> View:
    """Shows nothing."""
    return nullcontext(lambda: None)


@dataclass(frozen=True, slots=True)
class Application:
    """What to run.

    Attributes:
        name: of its folder for Spark's bookkeeping; several applications may share ``checkpoint_directory``.
        queries: what runs on it.
        status: what its status server shows, and takes from the queries' leases.
        status_address: where that listens.
        status_tls: its certificates, and what leases trust; None: plain text.
        service: how the offset service asks who calls: so does the status server whoever wants to read.
        master: Spark's master; None: this process, with slots for all leases.
        checkpoint_directory: where Spark's bookkeeping lies; None: a temporary directory.
        view: opened once everything runs.
        json_logs: log JSON on executors even where standard error is a terminal.
        secret: see `SessionSettings`.
        insecure: see `SessionSettings`.
    """

    name: str
    queries: Sequence[LeaseQuery]
    status: Sequence[StatusPart]
    status_address: str
    status_tls: StatusTls | None = None
    service: Service = field(default_factory=Service)
    master: str | None = None
    checkpoint_directory: str | None = None
    view: Callable[[], View] = _no_view
    json_logs: bool = False
    secret: str | None = field(default=None, repr=False)
    insecure: bool = False

    @property
    def session_settings(self) -> SessionSettings:
        """The session that the queries need."""
        return SessionSettings(
            sum(query.leases for query in self.queries),
            self.master,
            preload=_each_once(query.preload for query in self.queries),
            task_preload=_each_once([_EVERY_TASK_IMPORTS, *(query.task_preload for query in self.queries)]),
            secret=self.secret,
            insecure=self.insecure,
        )

    def run(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Run until SIGTERM or SIGINT, or until every query has ended by itself. Leases then commit and leave.

        Args:
            meanwhile: called while Spark starts, before any query does; what it raises ends the application.

        Raises:
            ConfigError: the status can't be served as the configuration says, or not safely.
            PreflightError: Spark has fewer task slots than there are leases.
            ServiceUnavailableError: Spark itself has died.
        """
        stop = threading.Event()
        stop_on_signals(stop)
        settings = self.session_settings
        token = secrets.token_urlsafe(24)
        with ExitStack() as stack:
            server = self._status_server(token)
            stack.callback(server.close)
            server.start()
            starting = StartingSession(settings)
            stack.callback(_stop, starting.close, "spark_did_not_stop")
            meanwhile()
            session = starting.session()
            stop_on_signals(stop)  # Spark may have set handlers of its own
            check_slots(lambda: task_slots(session), settings.leases, Deadline.after_ms(SLOTS_WITHIN_MS))
            folder = stack.enter_context(_checkpoints(self.checkpoint_directory, self.name))
            target = _status_target(server, session, token, self.status_tls)

            def plan(query: LeaseQuery) -> QueryPlan:
                checkpoint = str(folder / query.name)
                start = partial(
                    start_lease_query, session, query, target, checkpoint, json_logs=self.json_logs
                )
                return QueryPlan(query.name, start, ends_by_itself=query.available_now)

            supervisor = Supervisor(list(map(plan, self.queries)))
            server.queries = supervisor.state
            view = stack.enter_context(self.view())
            try:
                supervisor.run(stop, view)
            except SPARK_DIED as error:
                raise ServiceUnavailableError(f"Spark has died: {first_lines(str(error))}") from error
            if stop.is_set():
                self._end_leases(server)
                _stop(supervisor.stop_all, "queries_did_not_stop")

    def _status_server(self, token: str) -> StatusServer:
        auth, tls = self.service.auth, self.service.tls
        require_safe_pages(auth, self.status_address, tls=self.status_tls is not None)
        self._require_private_reports()
        return StatusServer(
            self.status_address,
            self.status,
            token=token,
            tls=self.status_tls,
            identity=Identity(auth),
            client_ca=tls.client_ca if auth.mode == "mtls" and tls is not None else None,
            component=self.name,
        )

    def _require_private_reports(self) -> None:
        """Refuse to have leases report over a network in plain text: whoever reads their token could report in their name."""
        master = self.session_settings.master
        private = self.status_tls is not None or is_local(master) or is_loopback(self.status_address)
        if not private and not self.insecure:
            raise ConfigError(
                f"status_address {self.status_address}: leases on {master} would report there in plain text, and whoever is on the "
                "way could read what they show and report in their name: set status_tls (replicator.status_tls; sync.status_tls "
                "for `parallax sync`); replicator.spark_insecure: true goes without"
            )

    def _end_leases(self, server: StatusServer) -> None:
        """Let leases commit and leave, so that no transaction stays open behind them."""
        _log.info("stopping", leases=len(self._active_leases()))
        server.end_leases()
        deadline = Deadline.after_ms(LEASES_END_WITHIN_S * 1_000)
        pause = threading.Event()
        while self._active_leases() and not deadline.passed:
            pause.wait(0.05)
        if left := self._active_leases():
            _log.warning("leases_did_not_end", leases=left)

    def _active_leases(self) -> list[str]:
        return [name for part in self.status for name in part.active_leases()]


def _each_once(modules: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(modules)))


@contextmanager
def _checkpoints(directory: str | None, name: str) -> Iterator[Path]:
    """A folder for Spark's bookkeeping, empty at the start: it holds no position, and old plans may not fit."""
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="parallax-checkpoint-", ignore_cleanup_errors=True) as made:
            yield Path(made)
        return
    folder = Path(directory) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder


def _status_target(
    server: StatusServer, session: SparkSession, token: str, tls: StatusTls | None
) -> StatusTarget:
    host, port = server.address
    if host in _ANY_HOST:
        host = session.conf.get("spark.driver.host")
    return StatusTarget(host, port, token, None if tls is None else tls.ca)


def _stop(stop: Callable[[], None], or_else: str) -> None:
    """Stop a part of Spark; a signal to the whole process group reaches the JVM as well, which then stops by itself."""
    try:
        stop()
    except SPARK_DIED as error:
        _log.warning(or_else, problem=first_lines(str(error)))
