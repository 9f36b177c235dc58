"""What a verification found: plain values, and the words for them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from parallax.domain.consumption import ConsumptionKind, Tally, total
from parallax.domain.ids import ClusterName, GroupName, SourceId, TargetOffset, TopicPartition
from parallax.failover.journal import MoveRecord


class Consumers(Enum):
    """What the group's members are: it decides what they did with records consumed before."""

    AUTO = "auto"
    """FailoverConsumers if their reports stand in the store; otherwise it stays open."""
    PLAIN = "plain"
    """They read again what cannot be skipped by an offset."""
    FAILOVER = "failover"
    """FailoverConsumers: they skip."""


class Verdict(Enum):
    """The gravest thing that is known, or that something is not."""

    ONCE = "once"
    TWICE = "twice"
    UNKNOWN = "unknown"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Visit:
    """What the group consumed of one cluster's partition between two moves: target offsets ``[start, end)``."""

    cluster: ClusterName
    start: TargetOffset
    end: TargetOffset


@dataclass(frozen=True, slots=True)
class SourceVerdict:
    """One source's records.

    Attributes:
        tally: None where they can't be counted.
        unknown: what can't be known, one sentence each.
        behind: the index lags behind the group: asked again in a moment it tells more.
    """

    source: SourceId
    tally: Tally | None
    unknown: tuple[str, ...] = ()
    behind: bool = False

    def records(self, kind: ConsumptionKind) -> int:
        """How many of them are of the kind."""
        return 0 if self.tally is None else self.tally.records(kind)

    @property
    def ahead_records(self) -> int:
        """How many were consumed, and come again: FailoverConsumers skip them."""
        return 0 if self.tally is None else total(self.tally.ahead)

    @property
    def verdict(self) -> Verdict:
        """The gravest."""
        if self.records(ConsumptionKind.NEVER) or self.records(ConsumptionKind.LOST):
            return Verdict.NEVER
        doubtful = self.tally is None or bool(self.tally.ranges.get(ConsumptionKind.UNKNOWN))
        if doubtful or self.unknown:
            return Verdict.UNKNOWN
        return Verdict.TWICE if self.records(ConsumptionKind.TWICE) else Verdict.ONCE


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """One partition of the group's topics.

    Attributes:
        visits: which offsets were consumed where, the oldest first.
        sources: none where no source has the partition, or nothing can be counted.
        unknown: what can't be known, one sentence each.
        notes: what else is worth knowing.
    """

    topic_partition: TopicPartition
    visits: tuple[Visit, ...]
    sources: tuple[SourceVerdict, ...]
    unknown: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The gravest of its sources."""
        found = gravest([item.verdict for item in self.sources])
        return gravest([found, Verdict.UNKNOWN]) if self.unknown else found


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    """A group over its last moves, the oldest first.

    Attributes:
        consumers: what its members were taken for.
        notes: of the group as a whole.
    """

    group: GroupName
    moves: tuple[MoveRecord, ...]
    consumers: Consumers
    partitions: tuple[PartitionVerdict, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The gravest of its partitions."""
        return gravest([item.verdict for item in self.partitions]) if self.partitions else Verdict.UNKNOWN

    @property
    def behind(self) -> bool:
        """Whether the index lags behind the group somewhere."""
        return any(source.behind for item in self.partitions for source in item.sources)

    def records(self, kind: ConsumptionKind) -> int:
        """How many records of all partitions are of the kind."""
        return sum(source.records(kind) for item in self.partitions for source in item.sources)


def gravest(verdicts: list[Verdict]) -> Verdict:
    """The gravest of them; ONCE of none."""
    order = list(Verdict)
    return max(verdicts, key=order.index, default=Verdict.ONCE)
