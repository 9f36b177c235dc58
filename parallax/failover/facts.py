"""What is known of a group before it is moved, as plain values. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from parallax.client.answer import ResumeAnswer
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    RegionName,
    TargetOffset,
    TopicName,
    TopicPartition,
    region_of,
)
from parallax.domain.primary import Assignment


class MoveKind(Enum):
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
    kind: MoveKind

    def reversed(self, region: RegionName | None = None) -> Move:
        """The way back.

        Args:
            region: who shall be primary; None: the region of the cluster that the group came from.
        """
        back_to = region_of(self.origin) if region is None else region
        return replace(self, origin=self.target, target=self.origin, region=back_to)


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
    partitions: tuple[ResumeAnswer, ...] = ()
    assignment: Assignment | None = None
    members: int | None = None
    members_at_target: int | None = None
    assigned: frozenset[TopicName] = frozenset()
    problem: str = ""
    now_ms: int = field(default=0, compare=False)

    @property
    def fencing_number(self) -> int:
        """That holds; 0 if nothing was decided."""
        return 0 if self.assignment is None else self.assignment.decision.fencing_number


def origin_positions(partitions: Iterable[ResumeAnswer]) -> dict[TopicPartition, TargetOffset]:
    """What the answers were computed from, where that is a position."""
    return {
        item.topic_partition: TargetOffset(position)
        for item in partitions
        if (position := item.origin_next_offset) is not None
    }
