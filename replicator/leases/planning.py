"""Plans the leases of a target region: one for each route into it and each shard of the route."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parallax.config.config import Config
from parallax.domain.ids import Route
from replicator.lease import (
    Lease,
    LeaseKey,
    lease_to_json,
)

_DAY_MS = 86_400_000


AVAILABLE_NOW_DEADLINE_MS = 7 * _DAY_MS
"""A lease that ends by itself, at the end as of its beginning, gets a deadline that it never meets."""


def lease_keys(config: Config, routes: Sequence[Route]) -> list[LeaseKey]:
    """Every lease that the routes need."""
    return [LeaseKey(route, shard) for route in routes for shard in range(config.replicator.shards_per_route)]


@dataclass(frozen=True, slots=True)
class LeasePlan:
    """Plans epochs (`parallax.adapters.spark.leases.LeasePlanner`).

    Attributes:
        layouts: the number of each route's layout.
        shard_count: shards of each route.
        epoch_ms: how long an epoch lasts, from when its batch starts.
        available_now: leases end by themselves instead.
    """

    layouts: Mapping[Route, int]
    shard_count: int
    epoch_ms: int
    available_now: bool = False

    def plan(self, epoch: int) -> Sequence[str]:
        """The leases of an epoch that begins now."""
        span_ms = AVAILABLE_NOW_DEADLINE_MS if self.available_now else self.epoch_ms
        deadline_unix_ms = time.time_ns() // 1_000_000 + span_ms
        return [
            json.dumps(
                lease_to_json(
                    Lease(route, shard, self.shard_count, layout, epoch, deadline_unix_ms, self.available_now)
                )
            )
            for route, layout in sorted(self.layouts.items())
            for shard in range(self.shard_count)
        ]
