"""The driver's status over HTTP: metrics, health, the whole picture as JSON; and where leases report.

    GET  /metrics    Prometheus
    GET  /livez      200 while the process answers
    GET  /readyz     200 once every lease has reported since its epoch began, else 503 with what is missing;
                     other queries of the application, such as the syncjob's, have a say too
    GET  /status     everything, as JSON
    GET  /ending     whether leases shall end
    POST /reports    a lease's report; the answer says whether the lease shall end
    POST /claims     a task asks which lease it is to hold

What it shows is the board's, and that of the parts: each has a path of its own for its reports.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from parallax.errors import ConfigError, InvalidNameError
from replicator.lease import lease_from_json, lease_key_from_json, lease_key_to_json
from replicator.leases.board import BoardCollector, ProgressBoard, Report
from replicator.leases.claims import Claims
from replicator.leases.reporter import CLAIMS_PATH, ENDING_PATH, REPORTS_PATH, TOKEN_HEADER

_MAX_REPORT_BYTES = 16 * 1024 * 1024
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"

Answer = tuple[HTTPStatus, str, bytes]


class StatusPart(Protocol):
    """The state of another query of the application, such as the syncjob's."""

    @property
    def name(self) -> str:
        """Under it the part stands in /status and /readyz."""

    @property
    def path(self) -> str:
        """Where its reports are posted."""

    def record(self, values: Mapping[str, Any]) -> None:
        """Take a report in; a `ValueError` says that it is none."""

    def missing(self) -> Sequence[str]:
        """Why it is not ready, one line for each reason; empty if it is."""

    def state(self) -> Mapping[str, Any]:
        """Everything, as JSON types."""

    def collect(self) -> Iterable[Metric]:
        """Every metric with its samples."""


class StatusServer:
    """Serves one board from a thread of its own.

    Args:
        address: ``host:port`` to listen on; port 0 takes a free one.
        board: what to show, and where reports go.
        token: what leases must send along.
        claims: tells tasks which lease to hold; None: the one that they come with.
        extra: more for /status, asked at each request.
        parts: what else there is to show, and to be ready.
    """

    def __init__(
        self,
        address: str,
        board: ProgressBoard,
        *,
        token: str,
        claims: Claims | None = None,
        extra: Callable[[], Mapping[str, Any]] = dict,
        parts: Sequence[StatusPart] = (),
    ) -> None:
        self._board = board
        self._token = token
        self._claims = claims or Claims(())
        self._extra = extra
        self._parts = {part.path: part for part in parts}
        self._ending = threading.Event()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(BoardCollector(board))
        for part in parts:
            self._registry.register(part)
        host, port = _host_and_port(address)
        try:
            self._server = ThreadingHTTPServer((host, port), self._handler_class())
        except OSError as error:
            raise ConfigError(
                f"status_address {address!r} can't be listened on: {error.strerror}; choose another one "
                "(replicator.status_address; sync.status_address for `parallax sync`)"
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="status", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def end_leases(self) -> None:
        """From now on tell every lease that reports to end: it commits what it has and returns."""
        self._ending.set()

    def get(self, path: str) -> Answer:
        """The answer to a GET."""
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        if path == "/livez":
            return HTTPStatus.OK, _TEXT, b"ok\n"
        if path == "/readyz":
            return self._readiness()
        if path == "/status":
            return HTTPStatus.OK, _JSON, json.dumps(self._state()).encode()
        if path == ENDING_PATH:
            return HTTPStatus.OK, _JSON, self._ending_answer()
        paths = b"unknown path; there are /metrics, /livez, /readyz and /status\n"
        return HTTPStatus.NOT_FOUND, _TEXT, paths

    def post(self, path: str, token: str, body: bytes) -> Answer:
        """The answer to a POST."""
        part = self._parts.get(path)
        if part is None and path not in {REPORTS_PATH, CLAIMS_PATH}:
            return HTTPStatus.NOT_FOUND, _TEXT, b"unknown path; leases post to /reports and /claims\n"
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return HTTPStatus.FORBIDDEN, _TEXT, b"only leases of this application may post\n"
        try:
            values = json.loads(body)
            if path == CLAIMS_PATH:
                return HTTPStatus.OK, _JSON, self._claimed(values)
            if part is not None:
                part.record(values)
            else:
                self._board.record(Report.from_json(values))
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, _TEXT, f"{error}\n".encode()
        return HTTPStatus.OK, _JSON, self._ending_answer()

    def _claimed(self, values: Mapping[str, Any]) -> bytes:
        try:
            given, copied = lease_from_json(values["given"]), list(map(lease_key_from_json, values["copied"]))
        except (TypeError, KeyError, InvalidNameError) as error:
            raise ValueError(f"not a claim: {error!r}") from error
        return json.dumps(lease_key_to_json(self._claims.grant(given, copied))).encode()

    def _ending_answer(self) -> bytes:
        return json.dumps({"end": self._ending.is_set()}).encode()

    def _readiness(self) -> Answer:
        lines = [f"lease {key} {problem}\n" for key, problem in self._board.missing().items()]
        lines += [f"{part.name} {problem}\n" for part in self._parts.values() for problem in part.missing()]
        if not lines:
            return HTTPStatus.OK, _TEXT, b"ready\n"
        return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, "".join(lines).encode()

    def _state(self) -> dict[str, Any]:
        state = status_of(self._board) | {part.name: dict(part.state()) for part in self._parts.values()}
        state["ready"] = state["ready"] and not any(part.missing() for part in self._parts.values())
        return state | dict(self._extra())

    def _handler_class(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                self._reply(server.get(self.path.partition("?")[0]))

            def do_POST(self) -> None:
                size = self.headers.get("Content-Length", "")
                if not size.isdecimal() or int(size) > _MAX_REPORT_BYTES:
                    self._reply((HTTPStatus.LENGTH_REQUIRED, _TEXT, b"a report names its length\n"))
                    return
                self._reply(
                    server.post(self.path, self.headers.get(TOKEN_HEADER, ""), self.rfile.read(int(size)))
                )

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - http.server's name
                """Requests come every second: say nothing."""

            def _reply(self, answer: Answer) -> None:
                status, content_type, body = answer
                # Who has gone without waiting for the answer will ask again.
                with suppress(ConnectionError):
                    self.send_response(status)
                    self.send_header("Content-Type", content_type)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

        return Handler


def status_of(board: ProgressBoard) -> dict[str, Any]:
    """The board as JSON types."""
    missing = board.missing()
    return {
        "ready": not missing,
        "missing": {str(key): problem for key, problem in missing.items()},
        "leases": [
            {
                "route": str(key.route),
                "shard": key.shard,
                "epoch": lease.epoch,
                "attempt": lease.report.attempt,
                "ended": lease.report.ended,
                "heard_ms_ago": round(board.silent_ms(lease)),
                "transactions": lease.transactions.value,
                "transaction_aborts": lease.transaction_aborts.value,
                "index_lag_ms": lease.report.progress.index_lag_ms,
                "waiting_for": lease.report.progress.waiting_for,
                "foreign_records": lease.report.progress.foreign_records,
                "partitions": [
                    {
                        "topic": partition.topic,
                        "partition": partition.partition,
                        "status": totals.status.value,
                        "reason": totals.reason,
                        "records": totals.records.value,
                        "bytes": totals.bytes.value,
                        "lag_records": totals.lag_records,
                        "replication_latency_ms": totals.latency_ms,
                    }
                    for partition, totals in sorted(lease.partitions.items())
                ],
            }
            for key, lease in sorted(board.leases().items(), key=lambda item: item[0])
        ],
    }


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"status_address {address!r} is not of the form 'host:port'")
    return host, int(port)
