"""Tells the offset service delivered positions and moves made, so that a cluster that dies leaves them behind.

Whether a service answers is known by that, too, and told to the application once at each change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from parallax.client.messages import progress_to_pb
from parallax.consumer.delivery import Delivery
from parallax.consumer.errors import is_away
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.ports import Key, OffsetService
from parallax.consumer.settings import Policies
from parallax.domain.metadata import CommittedMetadata
from parallax.errors import ParallaxError
from parallax.v1 import offsets_pb2 as pb

_log = structlog.get_logger("parallax.failover_consumer")

SHORTEST_CALL_MS = 1_000.0
"""A report is given at least this long, however short the interval is."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the application is done with: what another process could go on from if this one and its cluster die."""

    region: str
    positions: Sequence[pb.PartitionPosition]


def report_of(delivery: Delivery, *, auto_commit: bool) -> Report:
    """What is to be told of a cluster."""
    with delivery.lock:
        return Report(
            delivery.region,
            [
                position_message(key, done, state.leader_epoch)
                for key, state in delivery.partitions.items()
                if (done := state.stored if auto_commit else state.committed) is not None
            ],
        )


def position_message(key: Key, next_offset: int, leader_epoch: int) -> pb.PartitionPosition:
    """A position for the offset service."""
    return pb.PartitionPosition(
        topic=key[0],
        partition=key[1],
        next_offset=next_offset,
        leader_epoch=leader_epoch if leader_epoch >= 0 else None,
    )


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
        self._failure: tuple[str, str] | None = None
        """Where the last report failed, and why: as long as that is the same, it is told once."""
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
        by_region: dict[str, Sequence[pb.PartitionPosition]] = {
            found.region: found.positions,
            **{region: () for region in moves if region != found.region},
        }
        try:
            for region, positions in by_region.items():
                if not positions and not moves.get(region) and self._away_since_s is None:
                    continue
                self._service.report_positions(
                    self._group,
                    at=pb.Place(region=region),
                    positions=positions,
                    moves=list(moves.get(region, {}).values()),
                    timeout_ms=max(self._interval_s * 1_000, SHORTEST_CALL_MS),
                )
                self._taken(region, moves.get(region, {}))
        except ParallaxError as error:
            failure = (found.region, error.code)
            if failure != self._failure and self._away_since_s is None:
                _log.warning(
                    "report_positions_failed", region=found.region, code=error.code, error=str(error)
                )
            self._failure = failure
            if is_away(error) and self._away_since_s is None:
                self._away_since_s = self._clock()
        else:
            self._away_since_s, self._failure = None, None

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
                try:
                    self.report()
                except Exception as error:  # noqa: BLE001 - the next report may be spared it
                    _log.error("report_positions_failed", exc_info=error)


def _move(key: Key, skipping: CommittedMetadata) -> pb.PartitionMove:
    return pb.PartitionMove(
        topic=key[0],
        partition=key[1],
        target_topic_id=skipping.target_topic_id,
        resume_offset=skipping.resume_offset,
        progress=progress_to_pb(skipping.positions),
    )


class ServiceState:
    """What the application was told of the services."""

    def __init__(self, policies: Policies, reporter: Reporter, events: EventQueue) -> None:
        self._policies = policies
        self._reporter = reporter
        self._events = events
        self._away = False

    def tell(self, region: str, *, away: bool) -> None:
        """Tell the application if that has changed."""
        if away != self._away:
            self._away = away
            kind = EventKind.SERVICE_AWAY if away else EventKind.SERVICE_BACK
            silent = f"no offset service has answered for {self._reporter.away_ms / 1_000:.1f} s"
            self._events.put(FailoverEvent(kind, region, message=silent if away else ""))

    def waiting(self, region: str) -> bool:
        """Tell how it stands while something is pending; whether services have been away for too long."""
        away = self._reporter.away_ms > self._policies.service_timeout_ms
        if away or self._reporter.away_ms == 0:
            self.tell(region, away=away)
        return away
