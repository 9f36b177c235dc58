"""Commits that have gone back or vanished, and what they make void. Pure.

A group whose commit vanishes (deleted, expired) or goes back at all (reset, restored) has another life under the same
name, or reads again by somebody's wish: nobody knows that it has consumed what its former moves tell of. What stays
remembered of it may only ever make an answer earlier.

A cluster that does not answer shows nothing of that. One that answers without a commit where one stood does, if it goes
on to: a group coordinator that has just started may answer for seconds from a state that is only partly loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from parallax.domain.commits import Commits, ObservedCommit, PublishedOffset, went_back
from parallax.domain.ids import ClusterName, TargetOffset, TopicPartition
from parallax.domain.progress import Progress
from syncjob.facts import GroupFacts, GroupSide, Place, Seen


@dataclass(frozen=True, slots=True)
class Void:
    """What holds no longer.

    Attributes:
        progress: partitions whose last move counts no more.
        published: what stands no longer where it was published: the group, where it commits there, has not begun from it.
        set_back: what takes the place of last moves: where the group was set back, and is.
        observed: what stands no longer where it was seen; and what was left behind, on a cluster that is away, by a move that
            counts no more.
    """

    progress: tuple[TopicPartition, ...]
    published: tuple[PublishedOffset, ...]
    observed: tuple[ObservedCommit, ...]
    set_back: Mapping[TopicPartition, Progress] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.progress or self.set_back or self.published or self.observed)


def void_of(facts: GroupFacts, unconfirmed: Collection[Place] = frozenset()) -> Void:
    """What the commits of a group make void, as they are seen now.

    Args:
        facts: what is known of the group.
        unconfirmed: where its commits say nothing yet (`syncjob.patience.Patience`).
    """
    sides = [side for side in facts.sides.values() if side.reachable]
    progress = tuple(
        item
        for item, moved in facts.progress.items()
        if any(
            (side.cluster, item) not in unconfirmed and _ends_progress(facts, side, item, moved)
            for side in sides
        )
    )
    set_back = {item: facts.progress[item].set_back for item in progress}
    for side in sides:
        for item, offer in side.published.items():
            if (side.cluster, item) not in unconfirmed and _is_set_back(facts, side, item, offer):
                set_back.setdefault(item, offer.progress.set_back)
        for item in sorted(side.own):
            if (side.cluster, item) not in unconfirmed and _is_below_what_was_seen(facts, side, item):
                set_back.setdefault(item, _nothing_known(side, item))
    return Void(
        progress,
        set_back=set_back,
        published=tuple(
            offer
            for side in sides
            for item, offer in side.published.items()
            if offer.published_at_ms < side.read_at_ms
            and (side.cluster, item) not in unconfirmed
            and (_is_left(facts, side, item, progress) or _ends_offer(side, item, offer))
        ),
        observed=tuple(
            seen
            for side in facts.sides.values()
            for item, seen in side.seen.items()
            if (
                (side.cluster, item) not in unconfirmed and _has_vanished(facts, side, item)
                if side.reachable
                else item in progress and seen.observed_at_ms <= facts.progress[item].moved_at_ms
            )
        ),
    )


def without(facts: GroupFacts, void: Void) -> GroupFacts:
    """What is known of the group, less what is void."""
    published = set(map(id, void.published))
    unseen = {(seen.cluster, seen.topic_partition) for seen in void.observed}
    sides = {
        name: replace(
            side,
            commits={item: seen for item, seen in side.commits.items() if (name, item) not in unseen},
            own=frozenset(item for item in side.own if (name, item) not in unseen),
            published={item: offer for item, offer in side.published.items() if id(offer) not in published},
            offers={item: offer for item, offer in side.offers.items() if id(offer) not in published},
        )
        for name, side in facts.sides.items()
    }
    return replace(facts, sides=sides, progress={**facts.progress, **void.set_back})


def confirmed(
    facts: GroupFacts,
    void: Void,
    read_again: Callable[[ClusterName], Commits],
    unconfirmed: Collection[Place] = frozenset(),
) -> Void:
    """What is void by the clusters' word now: what was remembered may be newer than what the cycle has read.

    Args:
        facts: what is known of the group.
        void: what is void by these.
        read_again: asks a cluster for the group's commits.
        unconfirmed: as for `void_of`.

    Raises:
        UnavailableError: a cluster does not answer any more.
    """
    if not void:
        return void
    return void_of(
        replace(facts, sides={name: _read(side, read_again) for name, side in facts.sides.items()}),
        unconfirmed,
    )


def gone_back(facts: GroupFacts, stood: Mapping[Place, TargetOffset]) -> dict[Place, TargetOffset]:
    """Where less is committed than stood there, or nothing, and what did stand there.

    Args:
        facts: what is known of the group.
        stood: what this said a cycle before.
    """
    return {
        (side.cluster, item): known
        for side in facts.sides.values()
        if side.reachable
        for item in {*side.commits, *side.seen, *side.published, *facts.progress}
        if (known := _stood_before(facts, side, item, stood.get((side.cluster, item)))) is not None
    }


def _stood_before(
    facts: GroupFacts, side: GroupSide, item: TopicPartition, earlier: TargetOffset | None
) -> TargetOffset | None:
    """What stood there, if that is more than stands there now."""
    seen, offer, commit = _seen(side, item), side.published.get(item), side.offset(item)
    topic_id = side.topic_ids.get(item.topic)
    if any(of != topic_id for of in (seen and seen.topic_id, offer and offer.progress.topic_id) if of):
        return None  # the topic was made anew: nothing of it can come back
    if commit is None:
        stood = offer is not None or _stood(facts, side, item, since_ms=-1)
        return (TargetOffset(0) if seen is None else seen.next_offset) if stood else None
    known = _known(facts, side, item, earlier)
    return known if known is not None and commit < known else None


def _known(
    facts: GroupFacts, side: GroupSide, item: TopicPartition, earlier: TargetOffset | None
) -> TargetOffset | None:
    """What is known to have stood there last: published, seen, or, where members' reports hide that, read a cycle before."""
    seen, offer, moved = _seen(side, item), side.published.get(item), facts.progress.get(item)
    seen_at_ms = -1 if seen is None else seen.observed_at_ms
    if offer is not None and offer.published_at_ms >= seen_at_ms:
        return offer.progress.resume_offset if item in side.own else None
    if seen is not None and not seen.reported:
        set_since = (
            moved is not None
            and moved.holds_in(side.cluster, side.topic_ids.get(item.topic))
            and seen_at_ms < moved.moved_at_ms
        )
        return None if set_since else seen.next_offset
    before = side.commits[item].before
    return before.next_offset if earlier is None and before is not None else earlier


def _read(side: GroupSide, read_again: Callable[[ClusterName], Commits]) -> GroupSide:
    if not side.reachable:
        return side
    commits = {
        item: Seen(commit, known.before if (known := side.commits.get(item)) is not None else None)
        for item, commit in read_again(side.cluster).items()
    }
    # What is less than a moment ago may have been published by another job since: it was not looked at for long enough.
    own = {item for item in side.own if item in commits and not _is_less(commits[item], side.commits[item])}
    return replace(side, commits=commits, own=frozenset(own))


def _is_less(now: Seen, earlier: Seen) -> bool:
    return now.commit.next_offset < earlier.commit.next_offset


def _ends_progress(facts: GroupFacts, side: GroupSide, item: TopicPartition, moved: Progress) -> bool:
    if moved.moved_at_ms >= side.read_at_ms or not moved.holds_in(
        side.cluster, side.topic_ids.get(item.topic)
    ):
        return False
    commit = side.offset(item)
    if commit is None:
        return _stood(facts, side, item, since_ms=moved.moved_at_ms)
    if not facts.counts(side):
        return False
    # One that was set back to where it was once put is not to be told from ours by its place.
    return (item in side.own and commit < moved.resume_offset) or went_back(commit, _seen(side, item), moved)


def _is_left(
    facts: GroupFacts, side: GroupSide, item: TopicPartition, ended: Collection[TopicPartition]
) -> bool:
    """Whether a move from what was published there counts no more: the next commits do not come of it either."""
    return item in ended and facts.progress[item].cluster == side.cluster


def _ends_offer(side: GroupSide, item: TopicPartition, offer: PublishedOffset) -> bool:
    commit = side.offset(item)
    return commit is None or (item in side.own and commit < offer.progress.resume_offset)


def _is_set_back(facts: GroupFacts, side: GroupSide, item: TopicPartition, offer: PublishedOffset) -> bool:
    """Whether somebody put a group without a recorded primary back from what was published for it, and it is nowhere at work.

    It may have begun there without a commit that tells so. The last word counts, and going back loses nothing.
    """
    commit = side.offset(item)
    return (
        facts.assignment is None
        and offer.published_at_ms < side.read_at_ms
        and commit is not None
        and _ends_offer(side, item, offer)
        and not facts.is_at_work_beside(side.cluster, item)
    )


def _is_below_what_was_seen(facts: GroupFacts, side: GroupSide, item: TopicPartition) -> bool:
    """Whether the commit itself shows that somebody put such a group back: no move to there is known, and no publication.

    Without a commit elsewhere that could undo it nothing needs to be remembered. What was seen before the last move, or the
    last publication there, shows nothing: the group may have begun lower by that.
    """
    offer, moved = side.published.get(item), facts.progress.get(item)
    since_ms = max(offer.published_at_ms if offer else -1, moved.moved_at_ms if moved else -1)
    return (
        facts.assignment is None
        and item.topic in side.topic_ids
        and any(item in other.own for other in facts.sides.values() if other.cluster != side.cluster)
        and went_back(
            side.commits[item].commit.next_offset,
            _seen(side, item),
            replace(_nothing_known(side, item), moved_at_ms=since_ms + 1),
        )
        and not facts.is_at_work_beside(side.cluster, item)
    )


def _nothing_known(side: GroupSide, item: TopicPartition) -> Progress:
    """What is said of a group that is there, and of which nobody knows what it has consumed elsewhere."""
    return Progress(side.cluster, side.topic_ids[item.topic], TargetOffset(0), {})


def _has_vanished(facts: GroupFacts, side: GroupSide, item: TopicPartition) -> bool:
    """Whether nothing stands where something was seen; a report of the last seconds may be the first word of a new life."""
    seen = _seen(side, item)
    return (
        seen is not None
        and item not in side.commits
        and not seen.counts_at(side.read_at_ms)
        and _stood(facts, side, item, since_ms=-1)
    )


def _stood(facts: GroupFacts, side: GroupSide, item: TopicPartition, *, since_ms: int) -> bool:
    """Whether a commit was seen there since a moment: by this job, or by a service that answered from it."""
    seen = _seen(side, item)
    if seen is not None and not seen.reported and seen.observed_at_ms >= since_ms:
        return True
    return any(
        told.origin_cluster == side.cluster
        and told.origin_next_offset is not None
        and told.published_at_ms > since_ms
        for told in _published(facts, item)
    )


def _published(facts: GroupFacts, item: TopicPartition) -> Iterable[PublishedOffset]:
    return (told for side in facts.sides.values() if (told := side.published.get(item)) is not None)


def _seen(side: GroupSide, item: TopicPartition) -> ObservedCommit | None:
    """What was seen before, unless it came while the cluster was read."""
    seen = side.seen.get(item)
    return seen if seen is not None and seen.observed_at_ms < side.read_at_ms else None
