"""Which cluster a group is active on: the one whose progress vector holds all that the others hold. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from parallax.domain.ids import UNKNOWN_EPOCH, ClusterName, SourceId, TopicName, TopicPartition
from parallax.domain.progress import START, SourcePosition
from syncjob.facts import Answers, GroupFacts, Pair, is_own

Vector = Mapping[SourceId, SourcePosition]


@dataclass(frozen=True, slots=True)
class Active:
    """Where a partition is consumed.

    Attributes:
        cluster: None: it can't be told.
        dual: the group has progress of its own in several clusters, none of which holds that of the others.
    """

    cluster: ClusterName | None
    dual: bool = False


def owners(facts: GroupFacts, item: TopicPartition) -> list[ClusterName]:
    """The clusters on which the group has a commit of its own, in order."""
    return sorted(cluster for cluster in facts.sides if is_own(facts, cluster, item))


def pairs_to_ask(facts: GroupFacts) -> dict[Pair, list[TopicName]]:
    """The questions that this cycle needs: from each cluster with own commits to every other one that answers.

    With own commits on several clusters both directions are asked, for their vectors; a cluster that is away can
    then be a destination too.
    """
    found: dict[Pair, set[TopicName]] = {}
    for item in facts.partitions():
        own = owners(facts, item)
        for origin in own:
            for target, side in facts.sides.items():
                wanted = side.reachable or target in own
                if target != origin and wanted and item.topic in side.topic_ids:
                    found.setdefault((origin, target), set()).add(item.topic)
    return {pair: sorted(topics) for pair, topics in sorted(found.items())}


def active_on(facts: GroupFacts, answers: Answers, item: TopicPartition) -> Active:
    """Where the partition is consumed."""
    own = owners(facts, item)
    if len(own) <= 1:
        return Active(own[0] if own else None)
    vectors = {cluster: vector_of(answers, cluster, item) for cluster in own}
    known = {cluster: vector for cluster, vector in vectors.items() if vector is not None}
    if len(known) < len(own):
        return Active(None)
    ahead = [
        cluster
        for cluster, vector in known.items()
        if all(dominates(vector, other) for other in known.values())
    ]
    if not ahead:
        return Active(None, dual=True)
    # Equal vectors: whichever moved last. The offsets say the same.
    moving = [cluster for cluster in ahead if not facts.sides[cluster].commits[item].steady]
    return Active((moving or ahead)[0])


def active_by_topic(actives: Mapping[TopicPartition, Active]) -> dict[TopicName, ClusterName]:
    """For partitions without any commit: where all other partitions of their topic are consumed."""
    clusters: dict[TopicName, set[ClusterName | None]] = {}
    for item, active in actives.items():
        clusters.setdefault(item.topic, set()).add(active.cluster)
    return {
        topic: only
        for topic, found in clusters.items()
        if len(named := found - {None}) == 1 and (only := next(iter(named))) is not None
    }


def vector_of(answers: Answers, origin: ClusterName, item: TopicPartition) -> Vector | None:
    """How far each source is consumed by the group's commit on a cluster; None if no answer tells."""
    for (asked, _), found in answers.items():
        if asked == origin and item in found:
            return found[item].vector
    return None


def dominates(first: Vector, second: Vector) -> bool:
    """Whether everything that ``second`` holds as consumed, ``first`` holds too."""
    return all(_reaches(first.get(source, START), position) for source, position in second.items())


def _reaches(position: SourcePosition, other: SourcePosition) -> bool:
    end = position.ends.get(other.leader_epoch)
    if other.leader_epoch != UNKNOWN_EPOCH and end is not None:
        return end >= other.source_next
    # Without a common leader epoch offsets alone count: elections that lose records are rare, and a position that
    # is taken for further than it is makes this job leave a commit alone or publish a safe one.
    return position.source_next >= other.source_next
