"""Copying that goes on from one lease to the next, over the border between two epochs.

Spark begins an epoch only after all leases of the one before have ended, plans it and starts its tasks: a second or
more in which nobody would copy. So a shard is copied by a thread of its own, the *holding*, and a task only stands
for it: it hands in its lease and waits for the deadline. The thread goes on for a bounded time beyond it. The next
task in the same process takes the holding over, if it may (`replicator.leases.claims`); anywhere else the shard's holder fences
this one, as every owner fences the one before it (docs/decisions/0004-run-log.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from parallax.errors import FencedError
from parallax.runtime.deadline import Deadline, lease_ms, wall_clock_ms
from replicator.lease import Lease, LeaseProgress, PartitionStatus

_log = structlog.get_logger(__name__)

OVERTIME_MS = 10_000
"""So long a holding goes on after its deadline when no task takes it over."""
_NEVER_MS = 1 << 62
"""A deadline that never comes: `Holding.over` ends the copying, however many leases it has gone on for."""


class Holding:
    """One shard being copied.

    Args:
        lease: the first lease.
        copy: copies until `over`; called once, in a thread of its own, with a lease that has no deadline and this
            object, to which it has to `report`.
        longest_ms: how long a lease may last, whatever its deadline says.
        now_ms: milliseconds since the Unix epoch, asked once for each lease.
        clock: seconds, monotonic: all else goes by it.
    """

    def __init__(
        self,
        lease: Lease,
        copy: Callable[[Lease, Holding], None],
        longest_ms: int,
        now_ms: Callable[[], int] = wall_clock_ms,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._copy = copy
        self._longest_ms = longest_ms
        self._now_ms = now_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._lease = lease
        self._ends, self._leaves_at = self._times(lease)
        self._leaves = False
        self._before: dict[str, int] = {}
        self._newest: LeaseProgress | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"holding {lease}", daemon=True)
        self._thread.start()

    def goes_on(self, lease: Lease) -> bool:
        """Go on for the next lease of the same shard; False if this holding has ended, or is about to."""
        with self._lock:
            if self._leaves or self._ended.is_set() or self._lease.layout != lease.layout:
                return False
            self._lease = lease
            self._ends, self._leaves_at = self._times(lease)
            return True

    def _times(self, lease: Lease) -> tuple[Deadline, Deadline]:
        """When the lease ends, and when this holding does unless it is taken over."""
        left_ms = lease_ms(lease.deadline_unix_ms, self._now_ms(), self._longest_ms)
        return Deadline.after_ms(left_ms, self._clock), Deadline.after_ms(left_ms + OVERTIME_MS, self._clock)

    @property
    def lasts(self) -> bool:
        """Whether a next lease may be handed in."""
        with self._lock:
            return not (self._leaves or self._ended.is_set())

    def wait(self) -> dict[str, int]:
        """Wait for the lease's deadline, or for the end of copying if that comes first.

        Returns:
            What was counted for this lease, by name, up to the newest report.

        Raises:
            FencedError: another owner or a newer layout has taken over.
        """
        lease = self._lease
        self._ended.wait(self._ends.remaining_s)
        if self._error is not None:
            raise self._error
        partitions = () if self._newest is None else self._newest.partitions
        stopped = [item for item in partitions if item.status is PartitionStatus.STOPPED]
        for item in stopped:
            name = f"{item.topic}-{item.partition}"
            _log.warning("partition_stopped", lease=str(lease), partition=name, reason=item.reason)
        counted = {
            "records": sum(item.records for item in partitions),
            "bytes": sum(item.size_bytes for item in partitions),
            "transactions": 0 if self._newest is None else self._newest.transactions,
            "transaction_aborts": 0 if self._newest is None else self._newest.aborts,
        }
        result = {name: value - self._before.get(name, 0) for name, value in counted.items()}
        self._before = counted
        return result | {"stopped_partitions": len(stopped)}

    # --- for the copying thread --------------------------------------------------------------------------------

    def report(self, progress: LeaseProgress) -> LeaseProgress:
        """Take a report in: the same as one of the newest lease."""
        self._newest = replace(progress, lease=self._lease)
        return self._newest

    @property
    def newest(self) -> LeaseProgress | None:
        """The newest report."""
        return self._newest

    def in_overtime(self) -> bool:
        """Whether the deadline has passed: what is broken now is left to the next owner."""
        return self._ends.passed

    def over(self) -> bool:
        """Whether nobody has taken this over for too long; once true it stays so."""
        with self._lock:
            self._leaves = self._leaves or self._leaves_at.passed
            return self._leaves

    def _run(self) -> None:
        endless = replace(self._lease, deadline_unix_ms=_NEVER_MS)
        try:
            self._copy(endless, self)
        except BaseException as error:  # noqa: BLE001 - raised again by the task that waits
            if self.in_overtime():  # then none does
                if isinstance(error, FencedError):
                    _log.info("lease_taken_over", lease=str(self._lease), by="another process")
                else:
                    _log.warning("holding_failed", lease=str(self._lease), problem=repr(error))
            self._error = error
        finally:
            with self._lock:
                self._leaves = True
            self._ended.set()
