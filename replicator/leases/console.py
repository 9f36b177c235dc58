"""Progress for people: a live table on a terminal, a log line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from rich.console import Console
from rich.live import Live
from rich.table import Table

from parallax.domain.ids import Route
from replicator.leases.board import ProgressBoard, RouteSummary

_log = structlog.get_logger(__name__)

TABLE_EVERY_S = 1.0
LINE_EVERY_S = 10.0
_MB = 1_000_000


@contextmanager
def progress_view(board: ProgressBoard) -> Iterator[Callable[[], None]]:
    """The view that fits standard error, while it is open; what it yields is called often, and shows something if it is time.

    On a terminal it is a table that is drawn anew every second, elsewhere a log line for every route, every 10 s.
    """
    if not sys.stderr.isatty():
        sampler = _Sampler(board, LINE_EVERY_S)
        yield lambda: _log_lines(sampler.sample())
        return
    sampler = _Sampler(board, TABLE_EVERY_S)
    with Live(route_table(()), console=Console(stderr=True), auto_refresh=False) as live:

        def draw() -> None:
            if sample := sampler.sample():
                live.update(route_table(sample), refresh=True)

        yield draw


def _log_lines(sample: Sequence[RouteRate]) -> None:
    for rate in sample:
        summary = rate.summary
        _log.info(
            "progress",
            route=str(summary.route),
            records=summary.records,
            records_per_s=round(rate.records_per_s),
            mb_per_s=round(rate.bytes_per_s / _MB, 2),
            lag_records=summary.lag_records,
            replication_latency_ms=None if summary.latency_ms is None else round(summary.latency_ms),
            index_lag_ms=round(summary.index_lag_ms),
            stopped_partitions=summary.stopped_partitions,
            waiting_for=summary.waiting_for or None,
        )


def route_table(sample: Sequence[RouteRate]) -> Table:
    """One line per route."""
    table = Table(title="replication")
    for heading in ("route", "records/s", "MB/s", "lag_records", "latency ms", "index lag ms", "state"):
        table.add_column(heading, justify="left" if heading in {"route", "state"} else "right")
    for rate in sample:
        summary = rate.summary
        state = f"waits for {summary.waiting_for}" if summary.waiting_for else "copying"
        if summary.stopped_partitions:
            state += f", {summary.stopped_partitions} partitions stopped"
        table.add_row(
            str(summary.route),
            f"{rate.records_per_s:,.0f}",
            f"{rate.bytes_per_s / _MB:,.2f}",
            f"{summary.lag_records:,}",
            "-" if summary.latency_ms is None else f"{summary.latency_ms:,.0f}",
            f"{summary.index_lag_ms:,.0f}",
            state,
        )
    return table


@dataclass(frozen=True, slots=True)
class RouteRate:
    """A route and how fast it went since the last look."""

    summary: RouteSummary
    records_per_s: float
    bytes_per_s: float


def rates(
    before: Mapping[Route, RouteSummary], now: Sequence[RouteSummary], elapsed_s: float
) -> list[RouteRate]:
    """Each route's speed between two looks; 0 for one that was not there before."""
    found = []
    for summary in now:
        last = before.get(summary.route, summary)
        seconds = max(elapsed_s, 1e-9)
        found.append(
            RouteRate(
                summary,
                (summary.records - last.records) / seconds,
                (summary.bytes - last.bytes) / seconds,
            )
        )
    return found


class _Sampler:
    def __init__(self, board: ProgressBoard, every_s: float) -> None:
        self._board = board
        self._every_s = every_s
        self._at_s = time.monotonic()
        self._before: Mapping[Route, RouteSummary] = {}

    def sample(self) -> list[RouteRate]:
        """Every route, if it is time; else none."""
        now = time.monotonic()
        if now - self._at_s < self._every_s:
            return []
        summaries = self._board.routes()
        found = rates(self._before, summaries, now - self._at_s)
        self._at_s, self._before = now, {summary.route: summary for summary in summaries}
        return found
