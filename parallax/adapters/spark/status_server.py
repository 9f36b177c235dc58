"""The driver's status over HTTP: metrics, health, the whole picture as JSON; and where leases report.

    GET  /livez      200 while the process answers
    GET  /readyz     200 once everything that runs is ready, else 503; readers are told what is missing
    GET  /metrics    Prometheus, for readers; with ?names=mm2 the partitions under MirrorMaker 2's names
    GET  /status     everything, as JSON, for readers
    GET  /ending     whether leases shall end, for leases
    POST ...         what a part takes from its tasks: reports, which are answered with whether the lease shall end,
                     and whatever else it has a path for

What it shows is that of its parts, one for each kind of work. Readers are those to whom the rules of the offset service
give the right to read any group; where nobody is asked who calls, all are.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.concurrency import run_in_threadpool
from starlette.types import Receive, Scope, Send

from parallax.adapters.http.bodies import PROBLEM, BodyError, ClientGoneError, problem, read_body
from parallax.adapters.http.connection import HttpLimits, shown_in
from parallax.adapters.http.metrics import compressed, metrics_page, process_registry
from parallax.adapters.http.server import HttpServer
from parallax.adapters.spark.reporting import ENDING_PATH, TOKEN_HEADER
from parallax.adapters.spark.status_part import StatusPart
from parallax.config.config import StatusTls, Tls
from parallax.domain.rights import Right
from parallax.errors import ConfigError, ForbiddenError, ParallaxError, UnauthenticatedError
from parallax.identity.door import Door
from parallax.identity.identity import ASKS_NOBODY, NOTHING_SHOWN, Identity, Shown

STATUS_LIMITS = HttpLimits(body_bytes=16 * 1024 * 1024)
"""A report of ten thousand partitions takes some MiB; no other body is read."""

REFUSED: Mapping[type[ParallaxError], HTTPStatus] = {
    UnauthenticatedError: HTTPStatus.UNAUTHORIZED,
    ForbiddenError: HTTPStatus.FORBIDDEN,
}
"""The statuses of who may not read, as REST has them; all else that asking raises passes by itself."""

_FOR_ANYBODY = frozenset({"/livez", "/readyz"})
_TOKEN = TOKEN_HEADER.lower().encode()
_MIRROR_MAKER = "mm2"
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"

Reply = tuple[HTTPStatus, str, bytes]


class _MirrorMakerNames(Collector):
    """The metrics of parts under MirrorMaker 2's names."""

    def __init__(self, parts: Sequence[StatusPart]) -> None:
        self._parts = parts

    def collect(self) -> Iterable[Metric]:
        return (family for part in self._parts for family in part.mirror_maker())


class StatusServer:
    """Serves the status from a thread of its own.

    Args:
        address: ``host:port`` to listen on; port 0 takes a free one.
        parts: what to show, and where posts go.
        token: what leases must send along.
        tls: certificates; None: plain text.
        identity: tells who calls, and whether it may read.
        client_ca: PEM file of the authority that signs readers' certificates; None: they show none. Leases and probes
            need none either way.
        component: what the process is called in its metrics.
    """

    def __init__(
        self,
        address: str,
        parts: Sequence[StatusPart],
        *,
        token: str,
        tls: StatusTls | None = None,
        identity: Identity = ASKS_NOBODY,
        client_ca: str | None = None,
        component: str = "replicator",
    ) -> None:
        self.queries: Callable[[], Sequence[Mapping[str, Any]]] = list
        """The state of the queries for /status, asked at each request; none before they run."""
        self._parts = parts
        self._takers = {path: take for part in parts for path, take in part.takers.items()}
        self._token = token
        self._door = Door(identity)
        self._ending = threading.Event()
        self._registry = process_registry(component)
        for part in parts:
            self._registry.register(part)
        self._mirror_maker = CollectorRegistry(auto_describe=False)
        self._mirror_maker.register(_MirrorMakerNames(parts))
        _check_address(address)
        try:
            self._server = HttpServer(
                compressed(self._serve),
                address=address,
                tls=None if tls is None else _of_server(tls, client_ca),
                without=True,
                limits=STATUS_LIMITS,
                name="status",
            )
        except ConfigError as error:
            raise ConfigError(
                f"status_address {address!r} can't be listened on: {error}; choose another one "
                "(replicator.status_address; sync.status_address for `parallax sync`)"
            ) from error

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
        return self._server.host, self._server.port

    def start(self) -> None:
        """Begin to answer."""
        self._server.start()

    def close(self) -> None:
        """Stop answering."""
        self._server.stop()

    def end_leases(self) -> None:
        """From now on tell every lease that reports to end: it commits what it has and returns."""
        self._ending.set()

    def get(self, path: str, shown: Shown = NOTHING_SHOWN, token: str = "", query: str = "") -> Reply:
        """The answer to a GET."""
        if path == ENDING_PATH:
            return self._ending_answer() if self._is_ours(token) else _FOR_LEASES_ALONE
        if path not in _FOR_ANYBODY:
            try:
                self._door.let_in("status", path, lambda: shown, (Right.READ, None))
            except ParallaxError as error:
                status = REFUSED.get(type(error), HTTPStatus.SERVICE_UNAVAILABLE)
                return status, PROBLEM, problem(status, error.code, str(error))
        return self._page(path, shown, query)

    def _page(self, path: str, shown: Shown, query: str) -> Reply:
        if path == "/metrics":
            names = parse_qs(query, keep_blank_values=True).get("names", [])
            if names not in ([], [_MIRROR_MAKER]):
                return HTTPStatus.BAD_REQUEST, _TEXT, b"names: there is mm2; leave it out for our own\n"
            return HTTPStatus.OK, *metrics_page(self._mirror_maker if names else self._registry)
        if path == "/livez":
            return HTTPStatus.OK, _TEXT, b"ok\n"
        if path == "/readyz":
            return self._readiness(told=self._door.admits(shown))
        if path == "/status":
            return _json(self._state())
        paths = b"unknown path; there are /metrics, /livez, /readyz and /status\n"
        return HTTPStatus.NOT_FOUND, _TEXT, paths

    def refusal(self, path: str, token: str) -> Reply | None:
        """Why a POST is not even read; None: it is."""
        if path not in self._takers:
            paths = ", ".join(sorted(self._takers))
            return HTTPStatus.NOT_FOUND, _TEXT, f"unknown path; leases post to {paths}\n".encode()
        return None if self._is_ours(token) else _FOR_LEASES_ALONE

    def post(self, path: str, token: str, body: bytes) -> Reply:
        """The answer to a POST."""
        refused = self.refusal(path, token)
        if refused is not None:
            return refused
        try:
            answer = self._takers[path](json.loads(body))
        except (ValueError, RecursionError) as error:
            return HTTPStatus.BAD_REQUEST, _TEXT, f"{error}\n".encode()
        return self._ending_answer() if answer is None else _json(answer)

    def _is_ours(self, token: str) -> bool:
        return hmac.compare_digest(token.encode(), self._token.encode())

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; the parts are asked in threads, since they wait for locks."""
        whole = True
        if scope["method"] == "POST":
            reply, whole = await self._posted(scope, receive)
        elif scope["method"] == "GET":
            reply = await run_in_threadpool(
                self.get,
                scope["path"],
                shown_in(scope),
                _token_in(scope),
                scope["query_string"].decode("latin-1"),
            )
        else:
            reply = HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"GET, or POST for leases\n"
        status, content_type, body = reply
        headers = [
            (b"content-type", content_type.encode()),
            (b"content-length", str(len(body)).encode()),
        ]
        if status is HTTPStatus.UNAUTHORIZED:
            headers.append((b"www-authenticate", b"Bearer"))
        if not whole:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": status.value, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _posted(self, scope: Scope, receive: Receive) -> tuple[Reply, bool]:
        """The answer to a POST, and whether all of it was read: only who has the token is listened to."""
        token = _token_in(scope)
        refused = self.refusal(scope["path"], token)
        if refused is not None:
            return refused, False
        limits = STATUS_LIMITS
        try:
            body = await read_body(
                scope, receive, most_bytes=limits.body_bytes, within_s=limits.body_within_s
            )
        except BodyError as error:
            return (HTTPStatus(error.status), _TEXT, f"{error}\n".encode()), False
        except ClientGoneError:  # nobody hears it
            return (HTTPStatus.BAD_REQUEST, _TEXT, b"the report ended too early\n"), False
        return await run_in_threadpool(self.post, scope["path"], token, body), True

    def _ending_answer(self) -> Reply:
        return _json({"end": self._ending.is_set()})

    def _readiness(self, *, told: bool) -> Reply:
        lines = [f"{part.name} {reason}\n" for part in self._parts for reason in part.missing()]
        if lines:
            return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, ("".join(lines) if told else "not ready\n").encode()
        troubles = [f"{part.name} {trouble}\n" for part in self._parts for trouble in part.troubles()]
        return HTTPStatus.OK, _TEXT, "".join(["ready\n", *(troubles if told else ())]).encode()

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"ready": not any(part.missing() for part in self._parts), "missing": {}}
        for part in self._parts:
            state |= part.state()
        return state | {"queries": self.queries()}


_FOR_LEASES_ALONE: Reply = HTTPStatus.FORBIDDEN, _TEXT, b"for leases of this application alone\n"


def _token_in(scope: Scope) -> str:
    tokens = [value.decode("latin-1") for name, value in scope["headers"] if name == _TOKEN]
    return tokens[0] if len(tokens) == 1 else ""


def _of_server(tls: StatusTls, client_ca: str | None) -> Tls:
    return Tls(certificate_chain=tls.certificate_chain, private_key=tls.private_key, client_ca=client_ca)


def _json(values: Mapping[str, Any]) -> Reply:
    return HTTPStatus.OK, _JSON, json.dumps(values).encode()


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"status_address {address!r} is not of the form 'host:port'")
