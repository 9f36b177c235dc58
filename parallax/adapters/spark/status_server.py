"""The driver's status over HTTP: metrics, health, the whole picture as JSON; and where leases report.

    GET  /metrics    Prometheus
    GET  /livez      200 while the process answers
    GET  /readyz     200 once everything that runs is ready, else 503 with what is missing
    GET  /status     everything, as JSON
    GET  /ending     whether leases shall end
    POST ...         what a part takes from its tasks: reports, which are answered with whether the lease shall end,
                     and whatever else it has a path for

What it shows is that of its parts, one for each kind of work.
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

from parallax.adapters.spark.reporting import ENDING_PATH, TOKEN_HEADER
from parallax.errors import ConfigError

_MAX_REPORT_BYTES = 16 * 1024 * 1024
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"

Reply = tuple[HTTPStatus, str, bytes]
Taker = Callable[[Mapping[str, Any]], Mapping[str, Any] | None]
"""Takes what a task has posted; what it returns is the answer, None: whether the lease shall end. A `ValueError` says
that it is not what it should be."""


class StatusPart(Protocol):
    """What one kind of work shows of itself, and takes from its tasks. Used from several threads."""

    @property
    def name(self) -> str:
        """What is not ready, for /readyz."""

    @property
    def takers(self) -> Mapping[str, Taker]:
        """By path, what takes the posts of tasks."""

    def missing(self) -> Sequence[str]:
        """Why it is not ready, one line for each reason; empty if it is."""

    def troubles(self) -> Sequence[str]:
        """What does not work while the rest does, one line for each: it is ready all the same."""

    def active_leases(self) -> Sequence[str]:
        """The leases that a stop has to wait for, by name."""

    def state(self) -> Mapping[str, Any]:
        """Its keys of /status, as JSON types."""

    def collect(self) -> Iterable[Metric]:
        """Every metric with its samples."""


class StatusServer:
    """Serves the status from a thread of its own.

    Args:
        address: ``host:port`` to listen on; port 0 takes a free one.
        parts: what to show, and where posts go.
        token: what leases must send along.
    """

    def __init__(self, address: str, parts: Sequence[StatusPart], *, token: str) -> None:
        self.queries: Callable[[], Sequence[Mapping[str, Any]]] = list
        """The state of the queries for /status, asked at each request; none before they run."""
        self._parts = parts
        self._takers = {path: take for part in parts for path, take in part.takers.items()}
        self._token = token
        self._ending = threading.Event()
        self._registry = CollectorRegistry(auto_describe=False)
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

    def get(self, path: str) -> Reply:
        """The answer to a GET."""
        if path == "/metrics":
            return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        if path == "/livez":
            return HTTPStatus.OK, _TEXT, b"ok\n"
        if path == "/readyz":
            return self._readiness()
        if path == "/status":
            return _json(self._state())
        if path == ENDING_PATH:
            return self._ending_answer()
        paths = b"unknown path; there are /metrics, /livez, /readyz and /status\n"
        return HTTPStatus.NOT_FOUND, _TEXT, paths

    def post(self, path: str, token: str, body: bytes) -> Reply:
        """The answer to a POST."""
        take = self._takers.get(path)
        if take is None:
            paths = ", ".join(sorted(self._takers))
            return HTTPStatus.NOT_FOUND, _TEXT, f"unknown path; leases post to {paths}\n".encode()
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            return HTTPStatus.FORBIDDEN, _TEXT, b"only leases of this application may post\n"
        try:
            answer = take(json.loads(body))
        except ValueError as error:
            return HTTPStatus.BAD_REQUEST, _TEXT, f"{error}\n".encode()
        return self._ending_answer() if answer is None else _json(answer)

    def _ending_answer(self) -> Reply:
        return _json({"end": self._ending.is_set()})

    def _readiness(self) -> Reply:
        lines = [f"{part.name} {problem}\n" for part in self._parts for problem in part.missing()]
        if not lines:
            troubles = [f"{part.name} {trouble}\n" for part in self._parts for trouble in part.troubles()]
            return HTTPStatus.OK, _TEXT, "".join(["ready\n", *troubles]).encode()
        return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, "".join(lines).encode()

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"ready": not any(part.missing() for part in self._parts), "missing": {}}
        for part in self._parts:
            state |= part.state()
        return state | {"queries": self.queries()}

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

            def _reply(self, reply: Reply) -> None:
                status, content_type, body = reply
                # Who has gone without waiting for the answer will ask again.
                with suppress(ConnectionError):
                    self.send_response(status)
                    self.send_header("Content-Type", content_type)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

        return Handler


def _json(values: Mapping[str, Any]) -> Reply:
    return HTTPStatus.OK, _JSON, json.dumps(values).encode()


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"status_address {address!r} is not of the form 'host:port'")
    return host, int(port)
