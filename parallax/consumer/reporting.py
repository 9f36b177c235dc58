"""Tells the offset service delivered positions and moves made, so that a cluster that dies leaves them behind.

Whether a service answers is known by that, too, and told to the application once at each change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from parallax.client.messages import progress_to_pb
from parallax.consumer.delivery import Delivery
from parallax.consumer.errors import is_away
from parallax.consumer.events import EventKind, EventQueue, FailoverEvent
from parallax.consumer.ports import Key, OffsetService
from parallax.consumer.settings import Policies
from parallax.domain.metadata import CommittedMetadata
from parallax.errors import (
    InvalidOffsetError,
    ParallaxError,
    UnknownPartitionError,
    UnknownTopicError,
    UnreadableRowError,
)
from parallax.v1 import offsets_pb2 as pb

_log = structlog.get_logger("parallax.failover_consumer")

SHORTEST_CALL_MS = 3_000.0
"""A report is given at least this long, however short the interval is: a service waits for rows that it has not seen yet."""

_REFUSED_AGAIN_S = 30.0
"""A service may have looked before a topic, a partition or a row was there: what it refused is told again after the interval of reports,
then after twice that time, and so on up to this."""

_OF_ONE_PARTITION = (UnknownTopicError, UnknownPartitionError, InvalidOffsetError, UnreadableRowError)
"""Refusals of which one partition may be the reason: a service then takes nothing of the report, or nothing of that partition."""

_Told = pb.PartitionPosition | pb.PartitionMove
_Place = tuple[str, str, int, type[_Told]]
"""Region, topic and partition of a position or a move."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a service did not take what was told of a partition, and when that is told again, though it may have changed by then."""

    code: str
    wait_s: float
    again_at_s: float


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
        self._refusals: dict[_Place, _Refusal] = {}
        """They are told apart from all others, of which nothing would be taken either."""

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
        by_region: dict[str, list[_Told]] = {found.region: list(found.positions)}
        with self._lock:
            for region, moves in self._moves.items():
                by_region.setdefault(region, []).extend(moves.values())
            places = {_place(region, item) for region, items in by_region.items() for item in items}
            self._refusals = {place: it for place, it in self._refusals.items() if place in places}
        try:
            for region, items in by_region.items():
                self._report(region, items)
        except ParallaxError as error:
            if not is_away(error):
                self._away_since_s = None  # whoever refuses answers
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

    def _report(self, region: str, items: Sequence[_Told]) -> None:
        with self._lock:
            refusals = [self._refusals.get(_place(region, item)) for item in items]
        together = [item for item, refusal in zip(items, refusals, strict=True) if refusal is None]
        if together or self._away_since_s is not None:
            self._tell(region, together)
        for item, refusal in zip(items, refusals, strict=True):
            if refusal is not None and self._clock() >= refusal.again_at_s:
                self._tell(region, [item])

    def _tell(self, region: str, items: Sequence[_Told]) -> None:
        """Tell all of it, or each half by itself, down to what is refused."""
        try:
            self._service.report_positions(
                self._group,
                at=pb.Place(region=region),
                positions=[item for item in items if isinstance(item, pb.PartitionPosition)],
                moves=[item for item in items if isinstance(item, pb.PartitionMove)],
                timeout_ms=max(self._interval_s * 1_000, SHORTEST_CALL_MS),
            )
        except _OF_ONE_PARTITION as error:
            if not items:
                raise
            self._away_since_s = None
            if len(items) == 1:
                self._refused(region, items[0], error)
                return
            middle = len(items) // 2
            for half in items[:middle], items[middle:]:
                self._tell(region, half)
        else:
            self._taken(region, items)

    def _refused(self, region: str, item: _Told, error: ParallaxError) -> None:
        place, is_move = _place(region, item), isinstance(item, pb.PartitionMove)
        with self._lock:
            before = self._refusals.get(place)
            wait_s = self._interval_s if before is None else min(2 * before.wait_s, _REFUSED_AGAIN_S)
            self._refusals[place] = _Refusal(error.code, wait_s, self._clock() + wait_s)
        if before is None or before.code != error.code:
            told = "move" if is_move else "position"
            _log.warning(
                "report_refused",
                region=region,
                told=told,
                partition=f"{item.topic}-{item.partition}",
                code=error.code,
                error=str(error),
            )

    def _taken(self, region: str, items: Iterable[_Told]) -> None:
        """Drop moves that need not be told any more."""
        with self._lock:
            left = self._moves.get(region, {})
            for item in items:
                self._refusals.pop(_place(region, item), None)
                key = item.topic, item.partition
                if left.get(key) is item:
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


def _place(region: str, item: _Told) -> _Place:
    return region, item.topic, item.partition, type(item)


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
