"""Keeps queries running: starts each, starts a failed one again with backoff, and ends all of them on demand."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from parallax.errors import UnavailableError
from parallax.runtime.retry import RetryPolicy

_log = structlog.get_logger(__name__)

LOOK_EVERY_S = 0.2
STEADY_AFTER_S = 60.0
"""A query that ran for this long had recovered: the next failure begins with the shortest wait again."""

RESTART_POLICY = RetryPolicy(first_wait_ms=500, longest_wait_ms=30_000)


class RunningQuery(Protocol):
    """What the supervisor needs of a `pyspark.sql.streaming.StreamingQuery`."""

    @property
    def isActive(self) -> bool:  # noqa: N802 - Spark's name
        """Whether it still runs."""

    @property
    def status(self) -> Mapping[str, Any]:
        """What it is doing, in Spark's words."""

    def exception(self) -> Exception | None:
        """Why it ended; None if it runs or has ended well."""

    def stop(self) -> None:
        """End it; returns once it has ended."""


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query to keep running.

    Attributes:
        name: for logs.
        start: starts it; an `UnavailableError` means "not yet", any other error is final.
        ends_by_itself: a query that ends well is not started again.
    """

    name: str
    start: Callable[[], RunningQuery]
    ends_by_itself: bool = False


@dataclass(slots=True)
class _Kept:
    plan: QueryPlan
    policy: RetryPolicy
    query: RunningQuery | None = None
    started_at_s: float = 0.0
    start_at_s: float = 0.0
    done: bool = False
    restarts: int = 0
    problem: str = ""
    waits_ms: Iterator[float] = field(init=False)

    def __post_init__(self) -> None:
        self.waits_ms = self.policy.waits_ms()


class Supervisor:
    """Runs queries until they are done or somebody asks to stop.

    Args:
        plans: the queries.
        policy: waits before a failed query is started again.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        plans: Sequence[QueryPlan],
        policy: RetryPolicy = RESTART_POLICY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._kept = [_Kept(plan, policy) for plan in plans]

    def run(self, stop: threading.Event, each_time: Callable[[], None] = lambda: None) -> None:
        """Return when every query is done, or soon after ``stop`` is set; the queries then still run.

        Raises:
            ParallaxError: a query can't be started at all.
        """
        while not stop.is_set() and self.step():
            each_time()
            stop.wait(LOOK_EVERY_S)

    def step(self) -> bool:
        """Look once after every query; False when all are done."""
        for kept in self._kept:
            if not kept.done:
                self._look_after(kept)
        return not all(kept.done for kept in self._kept)

    def stop_all(self) -> None:
        """End every query that runs."""
        for kept in self._kept:
            if kept.query is not None and kept.query.isActive:
                kept.query.stop()

    def state(self) -> list[dict[str, object]]:
        """Each query as JSON types."""
        return [
            {
                "name": kept.plan.name,
                "running": kept.query is not None,
                "done": kept.done,
                "restarts": kept.restarts,
                "problem": kept.problem,
            }
            for kept in self._kept
        ]

    def _look_after(self, kept: _Kept) -> None:
        now = self._clock()
        if kept.query is None:
            if now >= kept.start_at_s and not any(_begins(other.query) for other in self._kept):
                self._start(kept)
            return
        if kept.query.isActive:
            if kept.problem and now - kept.started_at_s > STEADY_AFTER_S:
                kept.waits_ms, kept.problem = kept.policy.waits_ms(), ""
            return
        error = kept.query.exception()
        kept.query = None
        if error is None and kept.plan.ends_by_itself:
            kept.done = True
            _log.info("query_done", query=kept.plan.name)
            return
        if now - kept.started_at_s > STEADY_AFTER_S:
            kept.waits_ms = kept.policy.waits_ms()
        self._wait(kept, "query_failed", str(error) if error is not None else "it ended without an error")

    def _start(self, kept: _Kept) -> None:
        try:
            kept.query = kept.plan.start()
        except UnavailableError as error:
            self._wait(kept, "query_waits", str(error))
            return
        kept.started_at_s = self._clock()
        _log.info("query_started", query=kept.plan.name, restarts=kept.restarts)

    def _wait(self, kept: _Kept, event: str, problem: str) -> None:
        wait_ms = next(kept.waits_ms)
        kept.start_at_s = self._clock() + wait_ms / 1_000
        kept.restarts += event == "query_failed"
        kept.problem = first_lines(problem)
        _log.warning(event, query=kept.plan.name, problem=kept.problem, again_in_ms=round(wait_ms))


def _begins(query: RunningQuery | None) -> bool:
    """Whether the query is still starting its Python processes.

    Spark gives the planner's process 10 s to answer, which cannot be configured; on a busy machine several at once
    might all miss it. Queries therefore begin one after the other.
    """
    return query is not None and query.isActive and not query.status["isTriggerActive"]


def first_lines(problem: str, lines: int = 3) -> str:
    """The beginning of a message: Spark's go on with its whole query plan and two stack traces."""
    return "\n".join(line for line in problem.splitlines()[:lines] if line.strip())
