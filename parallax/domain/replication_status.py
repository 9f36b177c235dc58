"""How replication is, as the drivers of replicators tell it: plain values that are kept for other regions and processes. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from parallax.domain.ids import Route, SourceOffset, TopicPartition

STOPPED = "stopped"
"""The word for a partition that can't go on (`replicator.lease.PartitionStatus`)."""

STARTING = "starts, and has not reported yet"
"""The problem of a shard that nobody has to look at for the moment: its driver has begun just now."""

_REMEDIES = {
    "RIGHT_MISSING": "give the replicator's user the right that the reason names; the partition goes on by itself",
    "PARTITION_MISMATCH": "let the target topic grow to as many partitions as the source has; the partition goes on by itself",
    "OTHER_TOPICS": "stop one of the two replicators, or give both the same topics",
    "SAME_CLUSTER": "name two different Kafka clusters in the configuration",
}
_REMEDY = (
    "mend what the reason names; it is tried again by itself, and the partition goes on from where it stands"
)


@dataclass(frozen=True, slots=True)
class ShardPartition:
    """One partition of a shard. None is unknown.

    Attributes:
        state: `replicator.lease.PartitionStatus`, as a word.
        reason: why it is stopped; empty otherwise.
        lag_records: source offsets not copied yet.
        latency_ms: of the newest record copied.
        watermark_age_ms: how old its newest run or watermark was when this was told.
        source_next: the committed position in the source.
        records: since the driver began.
    """

    topic_partition: TopicPartition
    state: str
    reason: str = ""
    lag_records: int | None = None
    latency_ms: int | None = None
    watermark_age_ms: int | None = None
    source_next: SourceOffset | None = None
    records: int = 0

    @property
    def remedy(self) -> str:
        """What to do about a partition that is stopped; empty otherwise."""
        return _REMEDIES.get(self.reason.partition(":")[0], _REMEDY) if self.state == STOPPED else ""


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """A shard of a route, as the driver that leases it out told of it last. None is unknown.

    Attributes:
        shards: of the route.
        told_at_ms: when, by the store's clock (milliseconds since the Unix epoch).
        owner: the driver: its kind, machine and process.
        problem: why it has no holder that reports; empty: it has.
        waiting_for: what its holder waits for; empty: nothing.
        partitions: how many it has; ``stopped``, how many of them can't go on.
        lag_records: over the partitions that know theirs; None: none does.
        latency_ms: the longest of its partitions' newest records.
        index_lag_ms: age of the oldest run-log entry that is not indexed.
        records, size_bytes: copied since the driver began.
        canary_age_ms: since canaries were brought last by all of the route's shards; None: the route has none, or nothing is told of them.
        canary_latency_ms: how long the last one took; ``canary_late``: whether they are late.
    """

    route: Route
    shard: int
    shards: int
    told_at_ms: int
    owner: str
    problem: str = ""
    waiting_for: str = ""
    partitions: int | None = None
    stopped: int | None = None
    lag_records: int | None = None
    latency_ms: int | None = None
    index_lag_ms: int | None = None
    records: int | None = None
    size_bytes: int | None = None
    canary_age_ms: int | None = None
    canary_latency_ms: int | None = None
    canary_late: bool = False


@dataclass(frozen=True, slots=True)
class ShardReport:
    """A shard with its partitions."""

    status: ShardStatus
    partitions: tuple[ShardPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class RouteStatus:
    """What is kept of a route.

    Attributes:
        shards: those of the newest layout, in order.
        problems: rows that this release can't read, each with why and what to do.
    """

    shards: tuple[ShardStatus, ...] = ()
    problems: tuple[str, ...] = ()


def present(shards: list[ShardStatus]) -> tuple[ShardStatus, ...]:
    """The shards without those that a layout with more of them has left behind."""
    if not shards:
        return ()
    count = max(shards, key=lambda item: item.told_at_ms).shards
    return tuple(sorted((item for item in shards if item.shard < count), key=lambda item: item.shard))
