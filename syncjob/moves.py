"""Moves and rewinds of groups that tell nobody: plain consumers that start from a published offset. Pure.

Where a primary is recorded, only what happens there counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from parallax.domain.ids import ClusterName, TopicPartition
from parallax.domain.progress import Progress
from syncjob.facts import GroupFacts, GroupSide


@dataclass(frozen=True, slots=True)
class Move:
    """The group was seen consuming from what had been published for it: that is its progress now."""

    topic_partition: TopicPartition
    progress: Progress


@dataclass(frozen=True, slots=True)
class Rewind:
    """The group's commit fell below the resume offset of its last move: its progress is void."""

    topic_partition: TopicPartition
    cluster: ClusterName


def find_moves(facts: GroupFacts) -> list[Move]:
    """Partitions on which the group is seen active at or above the offset published for it there."""
    found = []
    for cluster, side in facts.sides.items():
        if not side.reachable or not _counts(facts, cluster):
            continue
        for item, offer in side.offers.items():
            if item not in side.own or side.commits[item].commit.next_offset < offer.progress.resume_offset:
                continue
            if not _holds(facts.progress.get(item), side, item):
                found.append(Move(item, offer.progress))
    return found


def find_rewinds(facts: GroupFacts) -> list[Rewind]:
    """Partitions on which the group's own commit lies below the resume offset of its last move to that cluster."""
    found = []
    for item, progress in facts.progress.items():
        side = facts.sides.get(progress.cluster)
        if side is None or not side.reachable or not _counts(facts, side.cluster):
            continue
        if item not in side.own:
            continue
        same_topic = progress.holds_in(side.cluster, side.topic_ids.get(item.topic))
        if same_topic and side.commits[item].commit.next_offset < progress.resume_offset:
            found.append(Rewind(item, side.cluster))
    return found


def _counts(facts: GroupFacts, cluster: ClusterName) -> bool:
    return facts.assignment is None or facts.primary == cluster


def _holds(progress: Progress | None, side: GroupSide, item: TopicPartition) -> bool:
    """Whether the stored progress already is that of a move to the cluster."""
    return (
        progress is not None
        and progress.holds_in(side.cluster, side.topic_ids.get(item.topic))
        and side.commits[item].commit.next_offset >= progress.resume_offset
    )
