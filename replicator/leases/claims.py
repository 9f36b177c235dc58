"""Which lease each task of an epoch holds: rather the one whose shard its process copies already.

Spark gives the tasks of an epoch to processes as it likes. A process that got another shard than the one it copies would
begin anew with it, and so would the process that copied it before: both for nothing, if they can as well exchange their
leases. So every task asks the driver (docs/decisions/0001-leases-on-spark.md).
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from parallax.adapters.spark.reporting import StatusTarget
from parallax.domain.ids import RegionName
from replicator.lease import Lease, LeaseKey

CLAIMS_PATH = "/claims"
TOGETHER_WITHIN_S = 1.0
"""So long a task's answer waits for the other tasks; what their processes copy is copied meanwhile."""

_CLAIM_TRIES = 3
"""A task that does not hear what it was granted holds what it was given, which another task may have been granted."""


def claim(target: StatusTarget, given: Lease, copied: Collection[LeaseKey]) -> LeaseKey:
    """Ask the driver which lease a task is to hold (`Claims.grant`). Asks again where no answer comes.

    Args:
        target: the driver.
        given: with which Spark started the task.
        copied: what its process copies.

    Raises:
        OSError, http.client.HTTPException, ValueError: as `StatusTarget.request`.
    """
    values = {"given": given.to_json(), "copied": [key.to_json() for key in copied]}
    for _ in range(_CLAIM_TRIES - 1):
        with suppress(OSError, http.client.HTTPException):
            return LeaseKey.from_json(target.request(CLAIMS_PATH, values))
    return LeaseKey.from_json(target.request(CLAIMS_PATH, values))


@dataclass(slots=True)
class _Epoch:
    number: int
    deadline_unix_ms: int

    def is_of(self, lease: Lease) -> bool:
        return (self.number, self.deadline_unix_ms) == (lease.epoch, lease.deadline_unix_ms)

    def is_before(self, lease: Lease) -> bool:
        """By the number, for the driver's clock may have been set back; an epoch may be planned again, with another deadline."""
        return (self.number, self.deadline_unix_ms) < (lease.epoch, lease.deadline_unix_ms)

    copied: dict[LeaseKey, Collection[LeaseKey]] = field(default_factory=dict)
    """By the lease with which a task came, what its process copies."""
    granted: Mapping[LeaseKey, LeaseKey] | None = None
    """The same for what it holds, once that is decided."""


class Claims:
    """Lets tasks of each region's newest epoch exchange their leases. May be used by several threads.

    Only those exchange that ask within `TOGETHER_WITHIN_S`: a task that never asks, or too late, holds the lease that it was
    given, and nobody else does. What a task was told once it is told again.

    Args:
        keys: every lease there is.
    """

    def __init__(self, keys: Collection[LeaseKey]) -> None:
        self._keys = frozenset(keys)
        self._epochs: dict[RegionName, _Epoch] = {}
        self._decided = threading.Condition()

    def grant(self, given: Lease, copied: Collection[LeaseKey]) -> LeaseKey:
        """The lease that a task is to hold; waits a moment for the other tasks of its epoch.

        Args:
            given: with which Spark started the task.
            copied: what its process copies.
        """
        key, region = LeaseKey.of(given), given.route.target
        with self._decided:
            epoch = self._epochs.get(region)
            if epoch is None:  # the first: nothing is copied yet
                epoch = self._epochs[region] = _Epoch(given.epoch, given.deadline_unix_ms, granted={})
            elif epoch.is_before(given):
                epoch = self._epochs[region] = _Epoch(given.epoch, given.deadline_unix_ms)
            if not epoch.is_of(given) or key not in self._keys:
                return key
            if epoch.granted is None:
                epoch.copied[key] = copied
                all_are_here = len(epoch.copied) == sum(item.route.target == region for item in self._keys)
                until_s = time.monotonic() + (0 if all_are_here else TOGETHER_WITHIN_S)
                while epoch.granted is None and (left_s := until_s - time.monotonic()) > 0:
                    self._decided.wait(left_s)
            if epoch.granted is None:
                epoch.granted = exchanged(epoch.copied)
                self._decided.notify_all()
            return epoch.granted.get(key, key)


def exchanged(copied: Mapping[LeaseKey, Collection[LeaseKey]]) -> Mapping[LeaseKey, LeaseKey]:
    """Who holds which lease: each keeps what it copies if it can, else what it was given.

    Args:
        copied: by the lease with which a task came, what its process copies.

    Returns:
        By the same, the lease that it holds: each of these leases once.
    """
    free = set(copied)
    granted: dict[LeaseKey, LeaseKey] = {}
    for task, keys in sorted(copied.items()):
        kept = sorted(free.intersection(keys))
        if kept:
            granted[task] = kept[0]
            free.discard(kept[0])
    left = [task for task in sorted(copied) if task not in granted]
    granted |= {task: task for task in left if task in free}
    free.difference_update(granted.values())
    return granted | dict(zip((task for task in left if task not in granted), sorted(free), strict=True))
