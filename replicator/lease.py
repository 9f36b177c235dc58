"""What a lease is, and what its holder tells of its work: plain values that can be pickled or written as JSON."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any

from parallax.domain.ids import RegionName, Route, TopicPartition
from parallax.domain.latencies import NO_LATENCIES, Latencies
from parallax.errors import InvalidNameError


@dataclass(frozen=True)
class Lease:
    """The right to copy one shard of one route until a deadline.

    Attributes:
        shard: number of the shard, ``0 <= shard < shard_count``.
        layout: number of the layout that cut the route into ``shard_count`` shards (`replicator.kafka.layout`).
        epoch: number of the lease epoch (a micro-batch), for logs.
        deadline_unix_ms: when to stop.
        available_now: stop earlier, once everything is copied that the source held when the lease began.
    """

    route: Route
    shard: int
    shard_count: int
    layout: int
    epoch: int
    deadline_unix_ms: int
    available_now: bool = False

    def has(self, item: TopicPartition) -> bool:
        """Whether the partition, by its name at the target, belongs to the shard."""
        return shard_of(item, self.shard_count) == self.shard

    def to_json(self) -> dict[str, Any]:
        """The lease as JSON types."""
        return asdict(self) | {"route": self.route._asdict()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Lease:
        """The lease that `to_json` wrote.

        Raises:
            ValueError: it is none.
        """
        try:
            return cls(**{**values, "route": _route_from_json(values["route"])})
        except (KeyError, TypeError, InvalidNameError) as error:
            raise ValueError(f"not a lease: {error!r}") from error

    def __str__(self) -> str:
        return f"{self.route} shard {self.shard}/{self.shard_count} layout {self.layout} epoch {self.epoch}"


def shard_of(topic_partition: TopicPartition, shard_count: int) -> int:
    """The shard that a partition belongs to: the same in every process and every version of Python.

    Neighbouring partitions lie in neighbouring shards, so that one topic's load is spread evenly; the topic's name
    decides where it begins, so that topics of one partition don't all meet in shard 0.
    """
    return (zlib.crc32(topic_partition.topic.encode()) + topic_partition.partition) % shard_count


def transactional_id(route: Route, layout: int, shard: int, path: str = "record") -> str:
    """The id that fences the owners of a shard against each other."""
    return f"parallax.{route.source}.{route.target}.{layout}.{shard}.{path}"


def change_id(route: Route) -> str:
    """The id that fences changes of the route's layout against each other."""
    return f"parallax.{route.source}.{route.target}.layout"


class PartitionStatus(Enum):
    """What a partition is doing."""

    WAITING = "waiting"
    """Its topics have not been seen on both sides yet, or its position is being found."""
    COPYING = "copying"
    ABSENT = "absent"
    """The source has no such topic or partition; watermarks are written all the same."""
    STOPPED = "stopped"
    """It can't go on; ``reason`` says why and what to do."""


@dataclass(frozen=True)
class PartitionProgress:
    """One partition's part of a report.

    Attributes:
        records, size_bytes: copied and committed since the lease began.
        source_next: the committed position in the source.
        lag_records: source offsets not yet copied, as last seen.
        replication_latency_ms: of the newest record committed: commit time less the record's own timestamp;
            None if nothing was copied since the last report.
        reason: why the partition is stopped, and what to do; empty otherwise.
        watermark_age_ms: how long ago its newest run or watermark was committed; None: none was since the lease began.
        copied_until_ms: all that was written to the source before that moment, ms since 1970, is copied; None: not known.
        record_age_ms: of the newest record committed, how old it was when it was sent; None as for the latency.
    """

    topic: str
    partition: int
    records: int
    size_bytes: int
    source_next: int
    lag_records: int
    replication_latency_ms: float | None
    status: PartitionStatus
    reason: str = ""
    watermark_age_ms: float | None = None
    copied_until_ms: int | None = None
    record_age_ms: float | None = None

    def told(self) -> PartitionProgress:
        """The same for another report: what is of records since the last one is not told twice."""
        return replace(self, replication_latency_ms=None, record_age_ms=None)


@dataclass(frozen=True)
class LeaseProgress:
    """A report of a lease, about once a second.

    Attributes:
        aborts: transactions given up; each was followed by a new start from the last committed position.
        foreign_records: records on the target that no run log of any route explains, found in samples of what lies
            between this shard's own.
        index_lag_ms: age of the oldest run-log entry that is not indexed yet; 0 if all are.
        index_gap_offsets: of the run log, that retention took before they were indexed, as found since the lease began.
        survey_failures: looks at the topics of both clusters that ended with an error that nobody expected; the log has it.
        waiting_for: what the lease waits for (a cluster that does not answer), or empty.
        record_ages: of the records committed since the lease began: how old they were when they were sent.
        latencies: of the same: how old they were when their copy was committed.
        source_wait_ms: since the lease began: reading the source, and waiting for it to have something.
        target_wait_ms: likewise: waiting for the target to take in what was sent, and to commit it.
    """

    lease: Lease
    partitions: tuple[PartitionProgress, ...]
    transactions: int
    aborts: int
    index_lag_ms: float
    foreign_records: int = 0
    index_gap_offsets: int = 0
    survey_failures: int = 0
    waiting_for: str = ""
    record_ages: Latencies = NO_LATENCIES
    latencies: Latencies = NO_LATENCIES
    source_wait_ms: int = 0
    target_wait_ms: int = 0


@dataclass(frozen=True)
class LeaseResult:
    """What a lease did."""

    lease: Lease
    records: int = 0
    size_bytes: int = 0
    transactions: int = 0
    aborts: int = 0
    watermarks: int = 0
    stopped: dict[str, str] = field(default_factory=dict)
    """``topic-partition`` to the reason, for partitions that could not go on."""


@dataclass(frozen=True, slots=True, order=True)
class LeaseKey:
    """A shard of a route."""

    route: Route
    shard: int

    @classmethod
    def of(cls, lease: Lease) -> LeaseKey:
        """The shard that a lease is for."""
        return cls(lease.route, lease.shard)

    def to_json(self) -> dict[str, Any]:
        """The key as JSON types."""
        return asdict(self) | {"route": self.route._asdict()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LeaseKey:
        """The key that `to_json` wrote.

        Raises:
            ValueError: it is none.
        """
        try:
            return cls(_route_from_json(values["route"]), int(values["shard"]))
        except (KeyError, TypeError, InvalidNameError) as error:
            raise ValueError(f"not a lease's key: {error!r}") from error

    def __str__(self) -> str:
        return f"{self.route}/{self.shard}"


def _route_from_json(values: Mapping[str, Any]) -> Route:
    return Route(RegionName(values["source"]), RegionName(values["target"]))
