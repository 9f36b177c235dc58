"""What the console tells of itself for Prometheus: its process, and how long which pages take."""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parallax.adapters.http.metrics import process_registry

METRICS = "/metrics"
_NO_PAGE = "other"
"""Whatever was asked for that is no page: callers must not be able to make series."""
_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class ConsoleMetrics:
    """Counts what a console answers, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = process_registry("console")
        self._requests = Counter(
            "parallax_console_requests",
            "Requests, by page and by the status of the answer; 204: nothing had changed.",
            ["page", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "parallax_console_request_duration_seconds",
            "From the request to its answer, what was asked of offset services for it included.",
            ["page"],
            buckets=_BUCKETS_S,
            registry=self.registry,
        )

    def answered(self, page: str, status: int, seconds: float) -> None:
        """Count an answer.

        Args:
            page: the path of its route; empty: there is none.
            status: of HTTP.
            seconds: it took.
        """
        self._requests.labels(page or _NO_PAGE, str(status)).inc()
        self._seconds.labels(page or _NO_PAGE).observe(seconds)


class Counted:
    """An application whose answers are counted.

    Args:
        app: answers.
        metrics: counts.
        clock: seconds, monotonic.
    """

    def __init__(
        self, app: ASGIApp, metrics: ConsoleMetrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        began_s = self._clock()

        async def sends(message: Message) -> None:
            if message["type"] == "http.response.start":
                page = getattr(scope.get("route"), "path", "")  # the router has told, if it knows one
                self._metrics.answered(page, message["status"], self._clock() - began_s)
            await send(message)

        await self._app(scope, receive, sends)
