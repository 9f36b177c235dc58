"""What is known of a group before it is moved, as plain values. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from parallax.client.answer import Answer, answer_from_pb
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    TargetOffset,
    TopicName,
    TopicPartition,
    region_of,
)
from parallax.domain.outcome import Outcome
from parallax.domain.primary import Assignment
from parallax.v1 import offsets_pb2 as pb


class Kind(Enum):
    """What is left of the side that the group leaves."""

    PLANNED = "planned"
    """It lives: the group stops there first, and nothing is read twice that can be known."""
    DISASTER = "disaster"
    """It may be wholly gone: nothing of it is needed."""


@dataclass(frozen=True, slots=True)
class Move:
    """A group that goes from one aggregate cluster to another.

    Attributes:
        region: who is primary afterwards; another region than the target's own if only a cluster was given up.
    """

    group: GroupName
    origin: ClusterName
    target: ClusterName
    region: RegionName
    kind: Kind

    def reversed(self, region: RegionName | None = None) -> Move:
        """The way back.

        Args:
            region: who shall be primary; None: the region of the cluster that the group came from.
        """
        back_to = region_of(self.origin) if region is None else region
        return replace(self, origin=self.target, target=self.origin, region=back_to)


@dataclass(frozen=True, slots=True)
class LostSource:
    """Source records that retention took before they were copied: ``[start, end)``."""

    region: RegionName
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """The offset service's answer for one partition of a move.

    Attributes:
        basis: whose word the position at the origin is: committed, observed, policy.
        observed_at_ms: when the position was seen, if not just now.
        origin_answers: whether the origin's cluster told its log's end.
        skips_cut: more skip ranges exist than the answer holds.
        redelivery_records: what a plain client reads again; None: record timestamps decided, so that it can't be known.
        redelivery_at_most_offsets: then, the most of what the target holds now.
        timestamp_problem: why record timestamps, though asked for, could not decide; empty otherwise.
    """

    answer: Answer
    basis: str
    observed_at_ms: int | None
    origin_answers: bool
    redelivery_records: int | None
    freshness_ms: int | None
    lost: tuple[LostSource, ...] = ()
    skips_cut: bool = False
    explanation: str = ""
    redelivery_at_most_offsets: int | None = None
    timestamp_problem: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition it is."""
        return self.answer.topic_partition

    @property
    def settled(self) -> bool:
        """Whether waiting can't give a better answer.

        Where record timestamps decided, the operator has chosen not to wait for rows.
        """
        return Outcome.BY_TIMESTAMP in self.answer.notes or self.answer.settled


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """All that a plan is made of.

    Attributes:
        members: of the group at the origin; None: the cluster can't be asked.
        members_at_target: likewise at the target.
        assigned: topics of which members at the origin have partitions, or had before they left.
        problem: why the offset service could not answer; empty otherwise.
    """

    move: Move
    partitions: tuple[PartitionFacts, ...] = ()
    assignment: Assignment | None = None
    members: int | None = None
    members_at_target: int | None = None
    assigned: frozenset[TopicName] = frozenset()
    problem: str = ""
    now_ms: int = field(default=0, compare=False)


def facts_from_pb(offsets: Sequence[pb.FailoverOffset]) -> tuple[PartitionFacts, ...]:
    """Answers as values, by topic and partition."""
    return tuple(sorted((_fact(item) for item in offsets), key=lambda fact: fact.topic_partition))


def origin_positions(partitions: Iterable[PartitionFacts]) -> dict[TopicPartition, TargetOffset]:
    """What the answers were computed from, where that is a position."""
    return {
        item.topic_partition: TargetOffset(position)
        for item in partitions
        if (position := item.answer.origin_next_offset) is not None
    }


def _fact(offset: pb.FailoverOffset) -> PartitionFacts:
    origin, by_time = getattr(offset, "from"), offset.by_timestamp
    return PartitionFacts(
        answer=answer_from_pb(offset),
        basis=origin.basis,
        observed_at_ms=origin.observed_at_ms if origin.HasField("observed_at_ms") else None,
        origin_answers=origin.HasField("high_watermark"),
        redelivery_records=offset.redelivery_records if offset.HasField("redelivery_records") else None,
        freshness_ms=offset.freshness_ms if offset.HasField("freshness_ms") else None,
        lost=tuple(
            LostSource(RegionName(source.region), gap.start, gap.end)
            for source in offset.sources
            for gap in source.never_delivered
        ),
        skips_cut=offset.HasField("skip_ranges_continue_at"),
        explanation=offset.explanation,
        redelivery_at_most_offsets=by_time.redelivery_at_most_offsets
        if by_time.HasField("redelivery_at_most_offsets")
        else None,
        timestamp_problem=by_time.problem,
    )
