"""What each process of an offset service is made of: the use cases over real stores and clusters, and what a further one is told."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from offsetsvc.service import UseCases
from parallax.adapters.cassandra.stores import CassandraStores
from parallax.adapters.kafka.cluster import aggregate_clusters
from parallax.config.config import Config
from parallax.domain.ids import RegionName
from parallax.runtime.process import process_name

GRACE_S = 5.0
"""For calls under way when a process ends."""

_CLUSTER_CACHE_MS = 200
"""Topics and log ends may be this old: an older end makes an answer earlier, never wrong."""
_TURNS_MAX_AGE_MS = 500
"""Of a look-up; what an answer reads first always reads turns anew, or what was read within `MAX_AGE_MS`."""


@dataclass(frozen=True)
class WorkerOrder:
    """What a worker is told.

    Attributes:
        config: as the first process has read it.
        address: where it listens, too.
        socket: where it passes calls on to (`offsetsvc.transport.passing_on`).
        counts: the folder of all processes' counts (`offsetsvc.metrics.count_in`).
        json_logs: as the first one logs.
    """

    config: Config
    region: RegionName
    address: str
    socket: Path
    counts: Path
    json_logs: bool = False


def built(settings: Config, region: RegionName, stack: ExitStack) -> UseCases:
    """The use cases of a region; the stack closes what they read and write.

    Raises:
        UnknownRegionError: there is no such region.
    """
    stores = stack.enter_context(
        CassandraStores(
            settings.cassandra, settings.index, max_age_ms=_TURNS_MAX_AGE_MS, audit=settings.audit
        )
    )
    return stack.enter_context(
        UseCases(
            settings,
            region,
            stores.index,
            stores.groups,
            aggregate_clusters(settings, cache_ms=_CLUSTER_CACHE_MS),
            stores.primaries,
            stores.operations,
            stores.status,
            now_ms=stores.clock.now_ms,
            audit=stores.audit,
            process=process_name("offsetsvc"),
            writers=aggregate_clusters(settings),
        )
    )
