"""How replication is, in every region: from what drivers tell, so that a region that is gone is seen as it was.

What a page costs: of routes, a read for each of its prefix. Of partitions, one read of the route, of some 10 bytes a partition, which
pages within `_MEMORY_S` share; every partition of the route is looked at.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nsmallest
from typing import Any

import structlog

from offsetsvc.lags import SAMPLES
from offsetsvc.overview.pages import cut, limit_of
from parallax.config.config import Config
from parallax.domain.ids import (
    ClusterName,
    RegionName,
    Route,
    TopicName,
    TopicPartition,
    aggregate_cluster,
)
from parallax.domain.replication_status import (
    STARTING,
    STOPPED,
    RouteStatus,
    ShardPartition,
    ShardReport,
    ShardStatus,
)
from parallax.errors import InvalidNameError
from parallax.ports.status import StatusStore
from parallax.v1 import offsets_pb2
from parallax.v1 import overview_pb2 as pb

_log = structlog.get_logger(__name__)

SILENT_AFTER_MS = 30_000
"""A driver tells every five seconds."""

_MOST_PROBLEMS = 20
_MEMORY_S = 1.0
_STATES = {name.removeprefix("PARTITION_").lower(): number for name, number in pb.PartitionState.items()}
_STATE_NAMES = {number: name for name, number in _STATES.items()}
_UNKNOWN_LAG = -1
"""Orders what does not know its lag behind what has none."""

_Row = tuple[ShardPartition, ShardStatus]
"""A partition and its shard; there are ten thousands of them, of which a page shows a few."""
_Key = tuple[Any, ...]
"""Numbers that the order goes by, and the partition."""
_RANKS = {pb.BY_NAME: 0, pb.BY_LAG: 1, pb.WORST_FIRST: 2}
"""By how many numbers partitions are ordered before their names."""
_ShardRun = tuple[int, str]
"""A shard, and the driver that counts its records."""


class ReplicationLists:
    """Lists of routes and partitions. Safe to use from many threads.

    Args:
        config: the routes.
        status: what drivers tell.
        now_ms: the store's clock.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        config: Config,
        status: StatusStore,
        now_ms: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._status = status
        self._now_ms = now_ms
        self._clock = clock
        self._lock = threading.Lock()
        self._memory: dict[Route, tuple[float, Sequence[ShardReport]]] = {}
        self._unreadable: dict[Route, Sequence[str]] = {}
        self._lags: dict[Route, deque[offsets_pb2.LagSample]] = {}
        self._counts: dict[Route, Mapping[_ShardRun, tuple[int, int]]] = {}
        self._rates: dict[Route, float | None] = {}

    def routes(self, request: pb.ListReplicationRequest) -> pb.ListReplicationResponse:
        """A page of routes.

        Raises:
            InvalidNameError: the limit is negative.
            LimitError: it is more than a page may have.
            UnknownRegionError: the region is not configured.
            StoreUnavailableError: the store did not answer.
        """
        limit = limit_of(request.limit)
        if request.region:
            self._config.region(RegionName(request.region))
        wanted = sorted(
            (
                route
                for route in self._config.all_routes()
                if str(route).startswith(request.prefix)
                and str(route) > request.after
                and (not request.region or route.target == request.region)
            ),
            key=str,
        )
        page, next_after = cut(wanted, str, limit)
        found = self._status.shards(page)
        now_ms = self._now_ms()
        return pb.ListReplicationResponse(
            routes=[
                _route(
                    route,
                    self._config.source_cluster(route),
                    found.get(route, RouteStatus()),
                    now_ms,
                    *self._seen_of(route),
                )
                for route in page
            ],
            next_after=next_after,
        )

    def look(self) -> None:
        """Take a sample of every route's lag, and how fast it has copied since the last look; unknown where its driver told nothing lately.

        Raises:
            StoreUnavailableError: the store did not answer; there is no sample then.
        """
        routes = list(self._config.all_routes())
        found, now_ms = self._status.shards(routes), self._now_ms()
        for route in routes:
            shards = found.get(route, RouteStatus()).shards
            age_ms = _age_ms(shards, now_ms)
            known = age_ms is not None and age_ms <= SILENT_AFTER_MS
            sample = offsets_pb2.LagSample(
                at_ms=now_ms, lag_records=_sum(item.lag_records for item in shards) if known else None
            )
            counts = _counts(shards) if known else {}
            with self._lock:
                self._lags.setdefault(route, deque(maxlen=SAMPLES)).append(sample)
                before = self._counts.get(route, {})
                if not _too_soon(before, counts):
                    self._rates[route], self._counts[route] = _rate(before, counts), counts

    def _seen_of(self, route: Route) -> tuple[list[offsets_pb2.LagSample], float | None]:
        with self._lock:
            return list(self._lags.get(route, ())), self._rates.get(route)

    def partitions(
        self, route: Route, request: pb.ListReplicationPartitionsRequest
    ) -> pb.ListReplicationPartitionsResponse:
        """A page of a route's partitions.

        Raises:
            InvalidNameError: the limit is negative, or the page begins nowhere.
            LimitError: it is more than a page may have.
            StoreUnavailableError: the store did not answer.
        """
        limit, order = limit_of(request.limit), request.sort
        begins = _key_of(request.after, order) if request.after else None
        reports = self._reports(route)
        state, prefix = _STATE_NAMES.get(request.state), request.prefix
        fitting: list[_Row] = [
            (item, report.status)
            for report in reports
            for item in report.partitions
            if (not request.state or item.state == state)
            and (not prefix or item.topic_partition.topic.startswith(prefix))
        ]
        key = _KEYS.get(order, _by_name)
        behind = fitting if begins is None else [row for row in fitting if key(row) > begins]
        first = nsmallest(limit + 1, behind, key=key)
        page, next_after = cut(first, lambda row: _place_of(key(row)), limit)
        now_ms = self._now_ms()
        return pb.ListReplicationPartitionsResponse(
            partitions=[_partition(row, now_ms) for row in page],
            next_after=next_after,
            total=len(fitting),
            age_ms=_age_ms((report.status for report in reports), now_ms),
        )

    def _reports(self, route: Route) -> Sequence[ShardReport]:
        now_s = self._clock()
        with self._lock:
            read_at_s, reports = self._memory.get(route, (-_MEMORY_S, ()))
        if now_s - read_at_s >= _MEMORY_S:
            reports, problems = self._status.shard_reports(route)
            with self._lock:
                self._memory[route] = (now_s, reports)
                news = problems and problems != self._unreadable.get(route)
                self._unreadable[route] = problems
            if news:  # the others' partitions are told
                _log.warning("unreadable_rows", route=str(route), problems=list(problems[:_MOST_PROBLEMS]))
        return reports


def _by_name(row: _Row) -> _Key:
    return (row[0].topic_partition,)


def _by_lag(row: _Row) -> _Key:
    item = row[0]
    lag = item.lag_records
    return (-_UNKNOWN_LAG if lag is None else -lag, item.topic_partition)


def _worst_first(row: _Row) -> _Key:
    item = row[0]
    lag = item.lag_records
    return (
        -1 if item.state == STOPPED else 0,
        -_UNKNOWN_LAG if lag is None else -lag,
        item.topic_partition,
    )


_KEYS: Mapping[int, Callable[[_Row], _Key]] = {
    pb.BY_NAME: _by_name,
    pb.BY_LAG: _by_lag,
    pb.WORST_FIRST: _worst_first,
}


def _place_of(key: _Key) -> str:
    *ranks, partition = key
    return "/".join([*(str(-rank) for rank in ranks), *map(str, partition)])


def _key_of(place: str, order: pb.PartitionOrder) -> _Key:
    """The order's key of a place that `_place_of` has made."""
    try:
        *ranks, topic, partition = place.split("/")
        rank = tuple(-int(rank) for _, rank in zip(range(_RANKS.get(order, 0)), ranks, strict=True))
        return (*rank, TopicPartition(TopicName(topic), int(partition)))
    except ValueError:
        raise InvalidNameError(
            f"after: {place!r} is no place of this list; take the next_after of a page of the same order"
        ) from None


def _route(
    route: Route,
    source_cluster: ClusterName,
    status: RouteStatus,
    now_ms: int,
    lags: Sequence[offsets_pb2.LagSample],
    records_per_s: float | None,
) -> pb.RouteReplication:
    shards = status.shards
    newest = max(shards, key=lambda item: item.told_at_ms, default=None)
    missing = 0 if newest is None else newest.shards - len(shards)
    problems = [
        *status.problems,
        *(f"shard {item.shard} {item.problem}" for item in shards if item.problem),
        *(f"shard {item.shard} waits for {item.waiting_for}" for item in shards if item.waiting_for),
    ]
    if missing > 0:
        problems.append(f"{missing} shards were never told of")
    return pb.RouteReplication(
        route=str(route),
        source_cluster=source_cluster,
        target_cluster=aggregate_cluster(route.target),
        state=_state(shards, now_ms, missing),
        problems=list(dict.fromkeys(problems))[:_MOST_PROBLEMS],
        owner="" if newest is None else newest.owner,
        age_ms=_age_ms(shards, now_ms),
        shards=None if newest is None else newest.shards,
        shards_running=None if newest is None else sum(not item.problem for item in shards),
        partitions=_sum(item.partitions for item in shards),
        partitions_stopped=_sum(item.stopped for item in shards),
        lag_records=_sum(item.lag_records for item in shards),
        latency_ms=_most(item.latency_ms for item in shards),
        index_lag_ms=_most(item.index_lag_ms for item in shards),
        records=_sum(item.records for item in shards),
        bytes=_sum(item.size_bytes for item in shards),
        lag_history=lags,
        records_per_s=records_per_s,
        canary_age_ms=_most(item.canary_age_ms for item in shards),
        canary_latency_ms=_most(item.canary_latency_ms for item in shards),
        canary_late=any(item.canary_late for item in shards),
    )


def _counts(shards: Iterable[ShardStatus]) -> dict[_ShardRun, tuple[int, int]]:
    """When each shard has told, and how many records it has copied since its driver began."""
    return {
        (item.shard, item.owner): (item.told_at_ms, item.records)
        for item in shards
        if item.records is not None
    }


def _too_soon(before: Mapping[_ShardRun, tuple[int, int]], now: Mapping[_ShardRun, tuple[int, int]]) -> bool:
    """Whether a shard has told nothing since it was looked at last."""
    return bool(now) and before.keys() == now.keys() and any(now[item][0] <= before[item][0] for item in now)


def _rate(
    before: Mapping[_ShardRun, tuple[int, int]], now: Mapping[_ShardRun, tuple[int, int]]
) -> float | None:
    """Records in a second; None: not every shard has told twice of one driver, and the rate of some would look like that of all."""
    if not now or before.keys() != now.keys():
        return None
    rate = 0.0
    for shard, (told_at_ms, records) in now.items():
        earlier_ms, earlier = before[shard]
        if records < earlier:
            return None
        rate += (records - earlier) * 1_000 / (told_at_ms - earlier_ms)
    return round(rate, 1)


def _state(shards: Sequence[ShardStatus], now_ms: int, missing: int) -> pb.RouteState:
    age_ms = _age_ms(shards, now_ms)
    if age_ms is None:
        return pb.ROUTE_STATE_UNKNOWN
    if age_ms > SILENT_AFTER_MS:
        return pb.ROUTE_SILENT
    problems = {item.problem for item in shards if item.problem}
    if missing > 0 or problems - {STARTING}:
        return pb.ROUTE_NOT_RUNNING
    if problems:
        return pb.ROUTE_STARTING
    if any(item.waiting_for for item in shards):
        return pb.ROUTE_WAITING
    return pb.ROUTE_PARTLY_STOPPED if any(item.stopped for item in shards) else pb.ROUTE_COPYING


def _partition(row: _Row, now_ms: int) -> pb.PartitionReplication:
    item, shard = row
    since_ms = max(0, now_ms - shard.told_at_ms)
    age_ms = item.watermark_age_ms
    return pb.PartitionReplication(
        topic=item.topic_partition.topic,
        partition=item.topic_partition.partition,
        shard=shard.shard,
        state=_STATES.get(item.state, pb.PARTITION_STATE_UNKNOWN),  # type: ignore[arg-type] # an enum's number
        reason=item.reason,
        remedy=item.remedy,
        lag_records=item.lag_records,
        latency_ms=item.latency_ms,
        watermark_age_ms=None if age_ms is None else age_ms + since_ms,
        source_next_offset=item.source_next,
        records=item.records,
    )


def _age_ms(shards: Iterable[ShardStatus], now_ms: int) -> int | None:
    oldest = min((item.told_at_ms for item in shards), default=None)
    return None if oldest is None else max(0, now_ms - oldest)


def _sum(values: Iterable[int | None]) -> int | None:
    """Of those that are known; None: none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
