"""Which lease each task of an epoch holds: rather the one whose shard its process copies already.

Spark gives the tasks of an epoch to processes as it likes. A process that got another shard than the one it copies would
begin anew with it, and so would the process that copied it before: both for nothing, if they can as well exchange their
leases. So every task asks the driver, which gives each lease of an epoch to one task (docs/decisions/0001-leases-on-spark.md).
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import dataclass, field

from parallax.domain.ids import RegionName
from replicator.lease import Lease
from replicator.lease_source import LeaseKey


@dataclass(slots=True)
class _Epoch:
    deadline_unix_ms: int
    granted: dict[LeaseKey, tuple[str, LeaseKey]] = field(default_factory=dict)
    """By the lease with which a task came: its newest attempt, and the lease that this one holds."""


class Claims:
    """Gives out the leases of each region's newest epoch. May be used by several threads.

    Args:
        keys: every lease there is.
    """

    def __init__(self, keys: Collection[LeaseKey]) -> None:
        self._keys = sorted(keys)
        self._epochs: dict[RegionName, _Epoch] = {}
        self._lock = threading.Lock()

    def grant(self, given: Lease, copied: Collection[LeaseKey], attempt: str) -> LeaseKey:
        """The lease that a task is to hold.

        A task of an epoch that is no longer the newest holds what it was given. So does, if nobody else holds that, one
        that Spark has started again: what it held has failed.

        Args:
            given: with which Spark started the task.
            copied: what its process copies.
            attempt: names this start of the task: whoever did not hear the answer asks again and gets the same.
        """
        key = LeaseKey(given.route, given.shard)
        with self._lock:
            epoch = self._epochs.get(given.route.target)
            if epoch is None or epoch.deadline_unix_ms < given.deadline_unix_ms:
                epoch = self._epochs[given.route.target] = _Epoch(given.deadline_unix_ms)
            if epoch.deadline_unix_ms > given.deadline_unix_ms or key not in self._keys:
                return key
            before = epoch.granted.pop(key, None)
            taken = {granted for _, granted in epoch.granted.values()}
            free = [
                item for item in self._keys if item.route.target == given.route.target and item not in taken
            ]
            if before is None:
                wanted = [*(item for item in free if item in copied), key]
            else:
                wanted = [before[1] if before[0] == attempt else key]
            granted = next((item for item in wanted if item in free), free[0])
            epoch.granted[key] = attempt, granted
            return granted
