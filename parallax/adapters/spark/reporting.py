"""How the tasks of an application tell its driver of their work: the way to the status server, and reports on it.

A report says the whole state of its holder, with counters since that holder began: a lost one is made good by the next.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Protocol

import structlog

_log = structlog.get_logger(__name__)

TOKEN_HEADER = "X-Parallax-Token"  # noqa: S105 - the name of a header
ENDING_PATH = "/ending"
NOT_DELIVERED = (OSError, http.client.HTTPException, ValueError)
"""What `StatusTarget.request` raises."""

_ANSWER_WITHIN_S = 2.0
_LAST_WITHIN_S = 2.0


@dataclass(frozen=True, slots=True)
class StatusTarget:
    """Where the driver's status server listens, as executors reach it, and what it wants to see. Picklable.

    Attributes:
        ca: PEM file of the authority that signs the server's certificate, which names ``host``; None: plain text.
    """

    host: str
    port: int
    token: str
    ca: str | None = None

    def __repr__(self) -> str:
        return f"StatusTarget({self.host}:{self.port})"

    def request(self, path: str, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Post the values, or get what is there if there are none; the server's answer.

        Raises:
            OSError, http.client.HTTPException: it can't be reached, or another one listens there.
            ValueError: it did not answer as it should.
        """
        method, body = ("GET", None) if values is None else ("POST", json.dumps(values))
        connection = self._connection()
        try:
            connection.request(method, path, body, {TOKEN_HEADER: self.token})
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != HTTPStatus.OK:
            raise ValueError(
                f"status server answered {answer.status}: {text.decode(errors='replace').strip()}"
            )
        return dict(json.loads(text))

    def _connection(self) -> http.client.HTTPConnection:
        if self.ca is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=_ANSWER_WITHIN_S)
        context = ssl.create_default_context(cafile=self.ca)
        return http.client.HTTPSConnection(self.host, self.port, timeout=_ANSWER_WITHIN_S, context=context)

    def application_ends(self) -> bool:
        """Whether leases shall end; False if the server does not answer."""
        try:
            return bool(self.request(ENDING_PATH).get("end"))
        except NOT_DELIVERED:
            return False


class HolderReport(Protocol):
    """What a holder of a lease says of its work."""

    def to_json(self) -> Mapping[str, Any]:
        """The report as JSON types."""


class HolderReporter:
    """Posts the newest report of one holder from a thread of its own: who works never waits for it.

    Args:
        target: the status server.
        path: where it takes these reports.
    """

    def __init__(self, target: StatusTarget, path: str) -> None:
        self._target = target
        self._path = path
        self.attempt = uuid.uuid4().hex
        """Names this holder: another task that takes its lease over has another one, and counts from 0."""
        self.end_asked = threading.Event()
        """Set once the driver has asked the lease to end."""
        self._report: HolderReport | None = None
        self._closing = False
        self._wake = threading.Condition()
        self._reachable = True
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)
        self._thread.start()

    def put(self, report: HolderReport) -> None:
        """Have it posted, unless a newer one comes first; returns at once."""
        with self._wake:
            self._report = report
            self._wake.notify()

    def close(self, last: HolderReport | None = None) -> bool:
        """Post a last one, if there is any, and end; waits two seconds at most.

        Returns:
            Whether it has ended.
        """
        with self._wake:
            self._closing = True
            if last is not None:
                self._report = last
            self._wake.notify()
        self._thread.join(_LAST_WITHIN_S)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._wake:
                while self._report is None and not self._closing:
                    self._wake.wait()
                report, self._report = self._report, None
            if report is None:
                return
            try:
                if self._target.request(self._path, report.to_json()).get("end"):
                    self.end_asked.set()
            except NOT_DELIVERED as error:
                if self._reachable:
                    _log.warning("status_unreachable", target=repr(self._target), error=str(error))
                self._reachable = False
            else:
                self._reachable = True
