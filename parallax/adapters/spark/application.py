"""One Spark application that replicates into one or several regions, until it is told to stop."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from parallax.adapters.spark.session import (
    SessionSettings,
    check_slots,
    start_session,
    stop_session,
    task_slots,
)
from parallax.adapters.spark.status_server import StatusPart, StatusServer
from parallax.adapters.spark.supervisor import QueryPlan, RunningQuery, Supervisor, first_lines
from parallax.config.config import Config
from parallax.domain.ids import RegionName
from parallax.errors import ServiceUnavailableError
from parallax.runtime.deadline import Deadline
from replicator.leases.board import ProgressBoard
from replicator.leases.claims import Claims
from replicator.leases.console import progress_view
from replicator.leases.planning import lease_keys
from replicator.leases.query import query_name, routes_of, start_replication
from replicator.leases.reporter import StatusTarget

_log = structlog.get_logger(__name__)

SLOTS_WITHIN_MS = 60_000
"""Executors of a cluster register within this time, or preflight refuses."""

LEASES_END_WITHIN_S = 6.0
"""On a stop: a lease commits and leaves within about a second of its next report."""

SPARK_DIED = (Py4JError, ConnectionError)
"""What calls into Spark raise when its JVM has gone, or has begun to stop."""

_ANY_HOST = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not listened on


@dataclass(frozen=True, slots=True)
class Extra:
    """Another query on the same session, such as syncjob's.

    Attributes:
        name: its name in logs.
        leases: how many task slots it needs.
        start: starts it; it may report to the target.
        preload: modules that its planner and holder need (`SessionSettings`).
        task_preload: modules that only its tasks need.
        part: its state; None: it has none to show.
    """

    name: str
    leases: int
    start: Callable[[SparkSession, StatusTarget], RunningQuery]
    preload: tuple[str, ...] = ()
    task_preload: tuple[str, ...] = ()
    part: StatusPart | None = None


@dataclass(frozen=True, slots=True)
class Application:
    """What to run.

    Attributes:
        config: everything.
        regions: target regions; one query each.
        extras: further queries.
        available_now: copy what the sources hold now, then stop.
        json_logs: how to log, here and on executors.
        name: of its folder for Spark's bookkeeping; several applications may share `checkpoint_directory`.
        status_address: where its state is told; None: `replicator.status_address`.
    """

    config: Config
    regions: Sequence[RegionName]
    extras: Sequence[Extra] = ()
    available_now: bool = False
    json_logs: bool | None = None
    name: str = "replicator"
    status_address: str | None = None

    @property
    def leases(self) -> int:
        """How many leases run at once."""
        own = len(lease_keys(self.config, routes_of(self.config, self.regions)))
        return own + sum(extra.leases for extra in self.extras)

    def run(self, stop: threading.Event, session_started: Callable[[], None] = lambda: None) -> None:
        """Run until ``stop`` is set, or with ``available_now`` until everything is copied.

        Args:
            stop: ends the run: leases commit and leave, then the queries end.
            session_started: called once Spark runs: it has set signal handlers of its own by then.

        Raises:
            PreflightError: Spark has fewer task slots than there are leases.
            ServiceUnavailableError: Spark itself has died.
        """
        settings = self.config.replicator
        keys = lease_keys(self.config, routes_of(self.config, self.regions))
        board = ProgressBoard(keys)
        token = secrets.token_urlsafe(24)
        with ExitStack() as stack:
            supervisors: list[Supervisor] = []  # the server is there before the supervisor
            server = StatusServer(
                self.status_address or settings.status_address,
                board,
                token=token,
                claims=Claims(keys),
                extra=lambda: {"queries": [state for item in supervisors for state in item.state()]},
                parts=[extra.part for extra in self.extras if extra.part is not None],
            )
            stack.callback(server.close)
            server.start()
            session = start_session(self._session_settings())
            stack.callback(_stop_session, session)
            session_started()
            check_slots(lambda: task_slots(session), self.leases, Deadline.after_ms(SLOTS_WITHIN_MS))
            folder = stack.enter_context(_checkpoints(settings.checkpoint_directory, self.name))
            target = _status_target(server, session, token)
            supervisor = Supervisor(
                [*self._plans(session, target, folder), *self._extra_plans(session, target)]
            )
            supervisors.append(supervisor)
            view = stack.enter_context(progress_view(board))
            try:
                supervisor.run(stop, view)
            except SPARK_DIED as error:
                raise ServiceUnavailableError(f"Spark has died: {first_lines(str(error))}") from error
            if stop.is_set():
                _end_leases(server, board)
                _stop_queries(supervisor)

    def _session_settings(self) -> SessionSettings:
        return SessionSettings(
            "parallax",
            self.leases,
            self.config.replicator.spark_master,
            preload=("replicator.leases.holder", *(name for extra in self.extras for name in extra.preload)),
            task_preload=(
                "pandas",  # every task of Spark's imports it to handle Arrow, though ours never use it
                "replicator.shard",
                "parallax.adapters.cassandra.stores",
                *(name for extra in self.extras for name in extra.task_preload),
            ),
        )

    def _plans(self, session: SparkSession, target: StatusTarget, folder: Path) -> list[QueryPlan]:
        def starter(region: RegionName) -> Callable[[], RunningQuery]:
            return lambda: start_replication(
                session,
                self.config,
                region,
                target,
                checkpoint=str(folder / query_name(region)),
                available_now=self.available_now,
                json_logs=self.json_logs,
            )

        return [
            QueryPlan(query_name(region), starter(region), ends_by_itself=self.available_now)
            for region in self.regions
        ]

    def _extra_plans(self, session: SparkSession, target: StatusTarget) -> list[QueryPlan]:
        def starter(extra: Extra) -> Callable[[], RunningQuery]:
            return lambda: extra.start(session, target)

        return [QueryPlan(extra.name, starter(extra)) for extra in self.extras]


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


def _status_target(server: StatusServer, session: SparkSession, token: str) -> StatusTarget:
    host, port = server.address
    if host in _ANY_HOST:
        host = session.conf.get("spark.driver.host")
    return StatusTarget(host, port, token)


def _end_leases(server: StatusServer, board: ProgressBoard) -> None:
    """Let leases commit and leave, so that no transaction stays open behind them."""
    _log.info("stopping", leases=len(board.active()))
    server.end_leases()
    deadline = Deadline.after_ms(LEASES_END_WITHIN_S * 1_000)
    pause = threading.Event()
    while board.active() and not deadline.passed:
        pause.wait(0.05)
    if left := board.active():
        _log.warning("leases_did_not_end", leases=[str(key) for key in left])


def _stop_queries(supervisor: Supervisor) -> None:
    try:
        supervisor.stop_all()
    except SPARK_DIED as error:
        # A signal to the whole process group reaches the JVM as well, which then stops by itself.
        _log.warning("queries_did_not_stop", problem=first_lines(str(error)))


def _stop_session(session: SparkSession) -> None:
    try:
        stop_session(session)
    except SPARK_DIED as error:
        _log.warning("spark_did_not_stop", problem=first_lines(str(error)))
