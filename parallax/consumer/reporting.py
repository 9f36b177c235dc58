"""Tells the offset service delivered positions and moves made, so that a cluster that dies leaves them behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from parallax.client.messages import progress_to_pb
from parallax.consumer.ports import Key, OffsetService
from parallax.domain.metadata import CommittedMetadata
from parallax.errors import DeadlineError, ParallaxError, UnavailableError
from parallax.v1 import offsets_pb2 as pb

_log = structlog.get_logger("parallax.failover_consumer")

SHORTEST_CALL_MS = 1_000.0
"""A report is given at least this long, however short the interval is."""


@dataclass(frozen=True, slots=True)
class Report:
    """Delivered positions at a region."""

    region: str
    positions: Mapping[Key, pb.PartitionPosition] = field(default_factory=dict)


class Reporter:
    """A background thread that reports; it knows by that whether a service answers.

    Args:
        service: the offset service.
        group: the consumer group.
        snapshot: what to tell; called from the reporter's thread.
        interval_s: seconds between reports.
    """

    def __init__(
        self,
        service: OffsetService,
        group: str,
        snapshot: Callable[[], Report],
        *,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._group = group
        self._snapshot = snapshot
        self._interval_s = interval_s
        self._clock = clock
        self._wake = threading.Event()
        self._stopped = False
        self._away_since_s: float | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._moves: dict[str, dict[Key, pb.PartitionMove]] = {}

    def start(self) -> None:
        """Begin, if that has not been done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="parallax-report", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End after the call under way."""
        self._stopped = True
        self._wake.set()

    @property
    def away_ms(self) -> float:
        """For how long no service has answered; 0 if the last call was answered."""
        since = self._away_since_s
        return 0.0 if since is None else (self._clock() - since) * 1_000

    def moved(self, region: str, moves: Iterable[tuple[Key, CommittedMetadata]]) -> None:
        """Tell of moves to ``region`` as soon as possible, and until a service has taken them."""
        with self._lock:
            self._moves.setdefault(region, {}).update((key, _move(key, skipping)) for key, skipping in moves)
        self._wake.set()

    def hurry(self) -> None:
        """Report now, not at the end of the interval."""
        self._wake.set()

    def report(self) -> None:
        """Report once; what no service takes is reported again."""
        found = self._snapshot()
        with self._lock:
            moves = {region: dict(items) for region, items in self._moves.items()}
        by_region = {
            found.region: found.positions,
            **{region: {} for region in moves if region != found.region},
        }
        try:
            for region, positions in by_region.items():
                if not positions and not moves.get(region) and self._away_since_s is None:
                    continue
                self._service.report_positions(
                    self._group,
                    at=pb.Place(region=region),
                    positions=list(positions.values()),
                    moves=list(moves.get(region, {}).values()),
                    timeout_ms=max(self._interval_s * 1_000, SHORTEST_CALL_MS),
                )
                self._taken(region, moves.get(region, {}))
        except ParallaxError as error:
            if self._away_since_s is None:
                _log.warning(
                    "report_positions_failed", region=found.region, code=error.code, error=str(error)
                )
                if isinstance(error, UnavailableError | DeadlineError):
                    self._away_since_s = self._clock()
        else:
            self._away_since_s = None

    def _taken(self, region: str, moves: Mapping[Key, pb.PartitionMove]) -> None:
        with self._lock:
            left = self._moves.get(region, {})
            for key, move in moves.items():
                if left.get(key) is move:
                    del left[key]
            if not left:
                self._moves.pop(region, None)

    def _run(self) -> None:
        while not self._stopped:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            if not self._stopped:
                self.report()


def _move(key: Key, skipping: CommittedMetadata) -> pb.PartitionMove:
    return pb.PartitionMove(
        topic=key[0],
        partition=key[1],
        target_topic_id=skipping.target_topic_id,
        resume_offset=skipping.resume_offset,
        progress=progress_to_pb(skipping.positions),
    )
