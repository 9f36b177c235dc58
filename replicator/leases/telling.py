"""What the driver tells the store of its leases: how they are, for processes and regions that can't ask it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import structlog

from parallax.domain.ids import SourceOffset, TopicPartition
from parallax.domain.replication_status import STARTING, ShardPartition, ShardReport, ShardStatus
from parallax.errors import ParallaxError
from parallax.ports.status import StatusStore
from replicator.lease import LeaseKey, PartitionStatus
from replicator.leases.board import LeaseTotals, PartitionTotals, ProgressBoard
from replicator.leases.canary import CanaryBoard, CanaryState

_log = structlog.get_logger(__name__)

TELL_EVERY_S = 5.0
_LAST_WITHIN_S = 3.0
STOPPED = "was stopped with its replicator"


class StoreTime(Protocol):
    """The store's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""


class Told(Protocol):
    """A store that is told, and its clock."""

    @property
    def status(self) -> StatusStore:
        """What is told."""

    @property
    def clock(self) -> StoreTime:
        """What time it is there."""


def shard_reports(
    board: ProgressBoard, canaries: CanaryBoard, *, owner: str, now_ms: int, stopped: bool = False
) -> list[ShardReport]:
    """What every shard of the board is told as.

    Args:
        board: the leases.
        canaries: of their routes.
        owner: whose they are: the driver.
        now_ms: the store's time.
        stopped: the driver stops, and so do they.
    """
    leases = board.leases()
    starting = set(board.expected) - set(leases) if board.starting else set()
    missing = {**board.missing(), **dict.fromkeys(starting, STARTING)}
    shards = Counter(key.route for key in board.expected)
    found = {route: canaries.of(route) for route in shards}
    return [
        _report(
            board,
            found[key.route],
            key,
            leases.get(key),
            ShardStatus(
                key.route,
                key.shard,
                shards[key.route],
                now_ms,
                owner,
                problem=STOPPED if stopped else missing.get(key, ""),
            ),
        )
        for key in board.expected
    ]


def _report(
    board: ProgressBoard,
    canary: CanaryState | None,
    key: LeaseKey,
    lease: LeaseTotals | None,
    bare: ShardStatus,
) -> ShardReport:
    if lease is None:  # nothing is known of it, which is not 0
        return ShardReport(bare)
    silent_ms = board.silent_ms(lease)
    # A copy: reports come in meanwhile, and may bring new partitions.
    totals = sorted(dict(lease.partitions).items())
    parts = tuple(_partition(place, item, silent_ms) for place, item in totals)
    latencies = [part.latency_ms for part in parts if part.latency_ms is not None]
    lags = [part.lag_records for part in parts if part.lag_records is not None]
    status = ShardStatus(
        key.route,
        key.shard,
        bare.shards,
        bare.told_at_ms,
        bare.owner,
        problem=bare.problem,
        waiting_for=lease.report.progress.waiting_for,
        partitions=len(parts),
        stopped=sum(item.stopped for _, item in totals),
        lag_records=sum(lags) if lags else None,
        latency_ms=max(latencies, default=None),
        index_lag_ms=round(lease.report.progress.index_lag_ms),
        records=sum(item.records.value for _, item in totals),
        size_bytes=sum(item.bytes.value for _, item in totals),
        canary_age_ms=None if canary is None else round(canary.age_s * 1_000),
        canary_latency_ms=None if canary is None or canary.latency_ms is None else round(canary.latency_ms),
        canary_late=canary is not None and canary.late,
    )
    return ShardReport(status, parts)


def _partition(place: TopicPartition, totals: PartitionTotals, silent_ms: float) -> ShardPartition:
    waiting = totals.status is PartitionStatus.WAITING
    age_ms = totals.watermark_age_ms
    return ShardPartition(
        place,
        totals.status.value,
        totals.reason,
        # Where the position is still to be found, neither it nor the lag is known.
        lag_records=None if waiting else totals.lag_records,
        latency_ms=None if totals.latency_ms is None else round(totals.latency_ms),
        watermark_age_ms=None if age_ms is None else round(age_ms + silent_ms),
        source_next=None if waiting else SourceOffset(totals.source_next),
        records=totals.records.value,
    )


@contextmanager
def telling(
    board: ProgressBoard,
    canaries: CanaryBoard,
    owner: str,
    opened: Callable[[], AbstractContextManager[Told]],
) -> Iterator[None]:
    """Tell the store how the leases are, every `TELL_EVERY_S` from a thread of its own, and at the end that they were stopped.

    A store that is away holds nothing up: what it was not told it is told the next time.

    Args:
        board: the leases.
        canaries: of their routes.
        owner: the driver's name.
        opened: opens the store.
    """
    stop = threading.Event()
    thread = threading.Thread(
        target=_tell, args=(board, canaries, owner, opened, stop), name="lease-status", daemon=True
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_LAST_WITHIN_S)


def _tell(
    board: ProgressBoard,
    canaries: CanaryBoard,
    owner: str,
    opened: Callable[[], AbstractContextManager[Told]],
    stop: threading.Event,
) -> None:
    with opened() as store:
        away = False
        while True:
            stopped = stop.is_set()
            try:
                reports = shard_reports(
                    board, canaries, owner=owner, now_ms=store.clock.now_ms(), stopped=stopped
                )
                store.status.save_shards(reports)
                away = False
            except ParallaxError as error:
                if not away:
                    _log.warning("status_not_told", problem=f"[{error.code}] {error}")
                away = True
            except Exception as error:  # noqa: BLE001 - what is told next may be spared it
                _log.error("status_not_told", exc_info=error)
            if stopped:
                return
            stop.wait(TELL_EVERY_S)
