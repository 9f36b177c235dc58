"""What a route's run log is like: read, and nothing changed (`parallax runlog check`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from parallax.config.config import Config
from parallax.domain.ids import Route, TopicId
from parallax.errors import ParallaxError
from replicator.copying.recovery import RunLogError
from replicator.kafka.layout import (
    other_run_log,
    read_layout,
    shard_in,
    unexplained_in,
    unfinished_rebuild,
)
from replicator.kafka.layout_record import LayoutRecord
from replicator.kafka.run_log import KafkaRunLog, SystemClock, load_states, snapshot_of
from replicator.lease import Lease

_FIRST_OFFSETS = 100
_AT_ONCE = 8

IndexedUpTo = Callable[[Route, int, int], int]
"""As `parallax.ports.index.MappingIndexWriter.indexed_up_to`."""


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """One shard's partition of a run log. None: it can't be known.

    Attributes:
        start, end: the offsets that it holds, ``[start, end)``.
        entries: since the last snapshot began.
        snapshot_age_ms: of the last snapshot.
        snapshot_bytes: its size.
        partitions: how many it has.
        oldest_age_ms: of the oldest entry that is left: an index that is lost can be filled again from there.
        problem: why the run log is refused, or could not be read; empty if it is sound.
    """

    shard: int
    start: int | None = None
    end: int | None = None
    entries: int | None = None
    snapshot_age_ms: int | None = None
    snapshot_bytes: int | None = None
    partitions: int | None = None
    oldest_age_ms: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class RouteCheck:
    """A route's run log.

    Attributes:
        layout: the route's layout; None: it has none yet.
        topic_id: of the run log that there is.
        problem: what concerns all of it; empty if nothing does.
    """

    route: Route
    layout: LayoutRecord | None
    topic_id: TopicId | None
    shards: Sequence[ShardCheck] = ()
    problem: str = ""

    @property
    def problems(self) -> list[str]:
        """Everything that is wrong."""
        return list(dict.fromkeys(filter(None, [self.problem, *(shard.problem for shard in self.shards)])))

    def to_json(self) -> dict[str, Any]:
        """The check as JSON types."""
        layout = self.layout
        return {
            "route": str(self.route),
            "layout": None if layout is None else layout.layout,
            "settled": None if layout is None else layout.settled,
            "topic": None if layout is None else layout.run_log,
            "topic_id": self.topic_id,
            "problems": self.problems,
            "shards": [asdict(shard) for shard in self.shards],
        }


def check_routes(
    config: Config, routes: Sequence[Route], indexed_up_to: IndexedUpTo | None = None
) -> list[RouteCheck]:
    """Look at several routes' run logs beside each other: one whose cluster is away takes its time limit, and nobody else's.

    Args:
        config: all configuration.
        routes: the routes, in the order of what is returned.
        indexed_up_to: as of `check_route`; called from several threads.
    """
    with ThreadPoolExecutor(_AT_ONCE, "run-logs") as pool:
        return list(pool.map(lambda route: check_route(config, route, indexed_up_to), routes))


def check_route(config: Config, route: Route, indexed_up_to: IndexedUpTo | None = None) -> RouteCheck:
    """Look at a route's run log.

    Args:
        config: all configuration.
        route: the route.
        indexed_up_to: tells how far the index has come, which the run log must reach; None: nobody does.
    """
    try:
        layout = read_layout(config, route)
        if layout is None:
            return RouteCheck(route, None, None)
        topic_id = KafkaRunLog(config, route, 0).topic_id()
    except ParallaxError as error:
        return RouteCheck(route, None, None, problem=str(error))
    number, shards = layout.copied_as
    if topic_id != layout.run_log_id:
        problem = str(other_run_log(layout, topic_id, route))
        return RouteCheck(route, layout, topic_id, [ShardCheck(shard) for shard in range(shards)], problem)
    leases = [Lease(route, shard, shards, number, 0, 0) for shard in range(shards)]
    found = [_check(config, layout, lease, indexed_up_to) for lease in leases]
    problem = str(unfinished_rebuild(layout, route)) if layout.is_rebuilt else ""
    return RouteCheck(route, layout, topic_id, found, problem)


def _check(
    config: Config, layout: LayoutRecord, lease: Lease, indexed_up_to: IndexedUpTo | None
) -> ShardCheck:
    reader, shard = KafkaRunLog(config, lease.route, lease.shard), shard_in(layout, lease)
    found = ShardCheck(lease.shard)
    try:
        start, end = reader.start(), reader.end()
        now_ms = SystemClock().now_ms()
        oldest = next(
            (entry for _, entry in reader.read(start, min(end, start + _FIRST_OFFSETS)) if entry is not None),
            None,
        )
        found = ShardCheck(
            lease.shard, start, end, oldest_age_ms=None if oldest is None else now_ms - oldest.committed_at_ms
        )
        known_end = 0 if indexed_up_to is None else indexed_up_to(lease.route, lease.layout, lease.shard)
        states, _ = load_states(reader, shard, unexplained=unexplained_in(config, lease), known_end=known_end)
        pieces, entries = snapshot_of(reader, shard)
    except (RunLogError, ParallaxError) as error:
        return ShardCheck(
            found.shard, found.start, found.end, oldest_age_ms=found.oldest_age_ms, problem=str(error)
        )
    return ShardCheck(
        lease.shard,
        start,
        end,
        entries,
        now_ms - pieces[0].committed_at_ms,
        sum(piece.ByteSize() for piece in pieces),
        len(states),
        found.oldest_age_ms,
    )
