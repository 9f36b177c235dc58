"""Takes a lease's reports to the driver, which may be another machine. Losing one must not hurt."""

from __future__ import annotations

import http.client
import json
import threading
import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from parallax.adapters.spark.reporting import Newest
from replicator.lease import (
    Lease,
    LeaseKey,
    LeaseProgress,
    lease_key_from_json,
    lease_key_to_json,
    lease_to_json,
)
from replicator.leases.board import Report

TOKEN_HEADER = "X-Parallax-Token"  # noqa: S105 - the name of a header
REPORTS_PATH = "/reports"
ENDING_PATH = "/ending"
CLAIMS_PATH = "/claims"
_ANSWER_WITHIN_S = 2.0
_CLAIM_TRIES = 3
"""A task that does not hear what it was granted holds what it was given, which another task may have been granted."""


@dataclass(frozen=True, slots=True)
class StatusTarget:
    """Where the driver's status server listens, as executors reach it, and what it wants to see."""

    host: str
    port: int
    token: str

    def __repr__(self) -> str:
        return f"StatusTarget({self.host}:{self.port})"

    def request(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        """Ask the server.

        Raises:
            OSError, http.client.HTTPException: it can't be reached.
            ValueError: it did not answer as it should.
        """
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_ANSWER_WITHIN_S)
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

    def claim(self, given: Lease, copied: Collection[LeaseKey]) -> LeaseKey:
        """Which lease a task is to hold (`replicator.leases.claims`). Asks again where no answer comes.

        Args:
            given: with which Spark started the task.
            copied: what its process copies.

        Raises:
            OSError, http.client.HTTPException, ValueError: as `request`.
        """
        keys = [lease_key_to_json(key) for key in copied]
        claim = json.dumps({"given": lease_to_json(given), "copied": keys})
        for _ in range(_CLAIM_TRIES - 1):
            with suppress(OSError, http.client.HTTPException):
                return lease_key_from_json(self.request("POST", CLAIMS_PATH, claim))
        return lease_key_from_json(self.request("POST", CLAIMS_PATH, claim))


class Reporter:
    """Posts the newest report from a thread of its own: the copy loop never waits for it."""

    def __init__(self, target: StatusTarget) -> None:
        self._target = target
        self._attempt = uuid.uuid4().hex
        self.end_asked = threading.Event()
        """Set once the driver has asked the lease to end."""
        self._newest = Newest(self._post, repr(target))

    def __call__(self, progress: LeaseProgress) -> None:
        """Report; returns at once."""
        self._newest.put(Report(progress, self._attempt))

    def application_ends(self) -> bool:
        """Ask the driver now whether leases shall end; False if it does not answer."""
        try:
            answer = self._target.request("GET", ENDING_PATH)
        except (OSError, http.client.HTTPException, ValueError):
            return False
        return bool(answer.get("end"))

    def close(self, last: LeaseProgress | None) -> bool:
        """Say goodbye with the lease's last report, if it made any; waits a moment for its delivery.

        Returns:
            Whether the thread has ended.
        """
        return self._newest.close(None if last is None else Report(last, self._attempt, ended=True))

    def _post(self, report: Report) -> None:
        if self._target.request("POST", REPORTS_PATH, json.dumps(report.to_json())).get("end"):
            self.end_asked.set()
