"""Which cluster a group is active on, and whether it has moved there. Pure.

It is active on the recorded primary, else on the cluster that dominates: whose progress vector holds all that the
others hold. Moves are those of groups that tell nobody: plain consumers that start from a published offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from parallax.client.answer import Answers, Pair
from parallax.domain.commits import PublishedOffset
from parallax.domain.ids import UNKNOWN_EPOCH, ClusterName, SourceId, TopicName, TopicPartition
from parallax.domain.progress import START, Progress, SourcePosition
from syncjob.facts import GroupFacts, GroupSide

Vector = Mapping[SourceId, SourcePosition]


@dataclass(frozen=True, slots=True)
class Active:
    """Where a partition is consumed.

    Attributes:
        cluster: None: it can't be told.
        dual: the group has progress of its own in several clusters, none of which holds that of the others.
        unbegun: a primary is recorded, and the group has not begun to consume there yet.
        elsewhere: with ``unbegun``, the cluster that the group goes on consuming in spite of the record.
    """

    cluster: ClusterName | None
    dual: bool = False
    unbegun: bool = False
    elsewhere: ClusterName | None = None


def pairs_to_ask(facts: GroupFacts) -> dict[Pair, list[TopicName]]:
    """The questions that this cycle needs: from each cluster with own commits to every other one that answers.

    Where a primary is recorded, from there alone. Topics that members consume without having committed yet count too:
    a plain consumer on the other side would begin them where its ``auto.offset.reset`` says.

    With own commits on several clusters both directions are asked, for their vectors; a cluster that is away can
    then be a destination too.
    """
    found: dict[Pair, set[TopicName]] = {}
    for item in facts.partitions():
        own = _origins(facts, item)
        for origin in own:
            for target, side in facts.sides.items():
                wanted = side.reachable or target in own
                if target != origin and wanted and item.topic in side.topic_ids:
                    found.setdefault((origin, target), set()).add(item.topic)
    for topic, origin in _assigned_alone(facts).items():
        for target, side in facts.sides.items():
            if target != origin and side.reachable and topic in side.topic_ids:
                found.setdefault((origin, target), set()).add(topic)
    return {pair: sorted(topics) for pair, topics in sorted(found.items())}


def where_active(
    facts: GroupFacts, answers: Answers, items: Iterable[TopicPartition]
) -> dict[TopicPartition, Active]:
    """Where each partition is consumed; those without a commit of their own, where the rest of their topic is."""
    actives = {item: _active_on(facts, answers, item) for item in items}
    by_topic = {**_assigned_alone(facts), **_by_topic(actives)}
    return {
        item: Active(by_topic.get(item.topic)) if active == Active(None) else active
        for item, active in actives.items()
    }


def moves_seen(facts: GroupFacts) -> list[tuple[TopicPartition, Progress]]:
    """Partitions on which the group is seen active at or above the offset published for it there.

    What was published is its progress now. Where a primary is recorded, only what happens there counts. An offer from before
    the last move that is known makes no newer one: the group may have begun from it before that move.
    """
    return [
        (item, offer.progress)
        for side in facts.sides.values()
        if facts.counts(side)
        for item, offer in side.offers.items()
        if item in side.own
        and side.commits[item].commit.next_offset >= offer.progress.resume_offset
        and not _holds(facts.progress.get(item), side, item)
        and not _is_before(offer, facts.progress.get(item))
    ]


def _origins(facts: GroupFacts, item: TopicPartition) -> list[ClusterName]:
    recorded = _by_record(facts, item) or _by_setting_back(facts, item)
    if recorded is None:
        return _owners(facts, item)
    return [] if recorded.cluster is None else [recorded.cluster]


def _active_on(facts: GroupFacts, answers: Answers, item: TopicPartition) -> Active:
    """Where the partition is consumed."""
    recorded = _by_record(facts, item) or _by_setting_back(facts, item)
    if recorded is not None:
        return recorded
    own = _owners(facts, item)
    if len(own) <= 1:
        return Active(own[0] if own else None)
    vectors = {cluster: _vector_of(answers, cluster, item) for cluster in own}
    known = {cluster: vector for cluster, vector in vectors.items() if vector is not None}
    if len(known) < len(own):
        return Active(None)
    ahead = [
        cluster
        for cluster, vector in known.items()
        if all(_dominates(vector, other) for other in known.values())
    ]
    if not ahead:
        return Active(None, dual=True)
    # Equal vectors: whichever moved last. The offsets say the same.
    moving = [cluster for cluster in ahead if not facts.sides[cluster].commits[item].steady]
    return Active((moving or ahead)[0])


def _by_record(facts: GroupFacts, item: TopicPartition) -> Active | None:
    """Where the recorded primary says that the partition is consumed; None: the record does not tell.

    What is committed elsewhere counts for nothing then: a client that still believes in a former primary is never
    taken for the truth. Only where the primary has no commit at all, the others' progress is what there is.
    """
    primary = facts.primary
    if primary is None or primary not in facts.sides or item not in facts.sides[primary].commits:
        return None
    if _has_begun(facts, primary, item):
        return Active(primary)
    return Active(None, unbegun=True, elsewhere=_goes_on(facts, primary, item))


def _by_setting_back(facts: GroupFacts, item: TopicPartition) -> Active | None:
    """Where the partition was set back without a move since; None: nowhere, or the group commits elsewhere again.

    What it had consumed where it came from may hold all that it has consumed since. Going by that would undo what somebody
    wished.
    """
    progress = facts.progress.get(item)
    if progress is None or not progress.is_set_back or progress.cluster not in facts.sides:
        return None
    side = facts.sides[progress.cluster]
    holds = progress.holds_in(side.cluster, side.topic_ids.get(item.topic))
    if not holds or facts.is_at_work_beside(side.cluster, item):
        return None
    return Active(side.cluster if item in side.own else None)


def _has_begun(facts: GroupFacts, cluster: ClusterName, item: TopicPartition) -> bool:
    """Whether the group's commit there says how far it is: its own, or where a recorded move left it."""
    side, progress = facts.sides[cluster], facts.progress.get(item)
    return item in side.own or (
        progress is not None and progress.holds_in(cluster, side.topic_ids.get(item.topic))
    )


def _goes_on(facts: GroupFacts, primary: ClusterName, item: TopicPartition) -> ClusterName | None:
    """Another cluster than the recorded one where the group is at work: members, or more than was published from it."""
    told = facts.sides[primary].published.get(item)
    for cluster in _owners(facts, item):
        side = facts.sides[cluster]
        known = told.origin_next_offset if told is not None and told.origin_cluster == cluster else None
        if side.has_members or known is None or side.commits[item].commit.next_offset > known:
            return cluster
    return None


def _owners(facts: GroupFacts, item: TopicPartition) -> list[ClusterName]:
    """The clusters on which the group has a commit of its own, in order."""
    return sorted(cluster for cluster, side in facts.sides.items() if item in side.own)


def _assigned_alone(facts: GroupFacts) -> dict[TopicName, ClusterName]:
    """Topics on which the group has no commit of its own, but members in one cluster; where that is.

    A group that never committed on anything is not known to the services, and left alone.
    """
    partitions = facts.partitions()
    told = {item.topic for item in partitions if _owners(facts, item) or _by_record(facts, item) is not None}
    found: dict[TopicName, list[ClusterName]] = {}
    for cluster, side in facts.sides.items():
        if partitions and facts.primary in {None, cluster}:
            for topic in side.assigned - told:
                found.setdefault(topic, []).append(cluster)
    return {topic: clusters[0] for topic, clusters in sorted(found.items()) if len(clusters) == 1}


def _by_topic(actives: Mapping[TopicPartition, Active]) -> dict[TopicName, ClusterName]:
    """For partitions without any commit: where all other partitions of their topic are consumed."""
    clusters: dict[TopicName, set[ClusterName | None]] = {}
    for item, active in actives.items():
        clusters.setdefault(item.topic, set()).add(active.cluster)
    return {
        topic: only
        for topic, found in clusters.items()
        if len(named := found - {None}) == 1 and (only := next(iter(named))) is not None
    }


def _vector_of(answers: Answers, origin: ClusterName, item: TopicPartition) -> Vector | None:
    """How far each source is consumed by the group's commit on a cluster; None if no answer tells."""
    for (asked, _), found in answers.items():
        if asked == origin and item in found:
            return found[item].vector
    return None


def _dominates(first: Vector, second: Vector) -> bool:
    """Whether everything that ``second`` holds as consumed, ``first`` holds too."""
    return all(_reaches(first.get(source, START), position) for source, position in second.items())


def _reaches(position: SourcePosition, other: SourcePosition) -> bool:
    end = position.ends.get(other.leader_epoch)
    if other.leader_epoch != UNKNOWN_EPOCH and end is not None:
        return end >= other.source_next
    # Without a common leader epoch offsets alone count: elections that lose records are rare, and a position that
    # is taken for further than it is makes this job leave a commit alone or publish a safe one.
    return position.source_next >= other.source_next


def _holds(progress: Progress | None, side: GroupSide, item: TopicPartition) -> bool:
    """Whether the stored progress already is that of a move to the cluster."""
    return (
        progress is not None
        and progress.holds_in(side.cluster, side.topic_ids.get(item.topic))
        and side.commits[item].commit.next_offset >= progress.resume_offset
    )


def _is_before(offer: PublishedOffset, progress: Progress | None) -> bool:
    """Whether a move was recorded after the offer was published: it need not be known where the group went in between."""
    return progress is not None and progress.moved_at_ms > offer.published_at_ms
