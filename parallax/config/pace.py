"""How long a copier rests between fetches and between commits: what milliseconds cost (docs/decisions/0012-pace.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PaceName = Literal["latency", "balanced", "throughput"]


@dataclass(frozen=True, slots=True)
class Rests:
    """Rests of a lease. Where there are two, the longer one holds.

    Attributes:
        after_fetch_ms: after an answer that brought little, until the same broker is asked again.
        after_fetch_per_partition_ms: for each partition that was asked for.
        between_commits_ms: from a commit to the next one.
        between_commits_per_partition_ms: for each partition of the last transaction: each costs the target a marker.
    """

    after_fetch_ms: float
    after_fetch_per_partition_ms: float
    between_commits_ms: float
    between_commits_per_partition_ms: float


PACES: Mapping[PaceName, Rests] = {
    "latency": Rests(3.0, 0.04, 0.0, 0.1),
    "balanced": Rests(6.0, 0.06, 6.0, 0.2),
    "throughput": Rests(20.0, 0.1, 20.0, 0.5),
}
