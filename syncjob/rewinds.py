"""Commits that have gone back or vanished, and what they make void. Pure.

A group whose commit vanishes (deleted, expired) or goes back at all (reset, restored) has another life under the same
name, or reads again by somebody's wish: nobody knows that it has consumed what its former moves tell of. What stays
remembered of it may only ever make an answer earlier.

A cluster that does not answer shows nothing of that. One that answers without a commit where one stood does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from parallax.domain.commits import Commits, ObservedCommit, PublishedOffset, went_back
from parallax.domain.ids import ClusterName, TopicPartition
from parallax.domain.progress import Progress
from syncjob.facts import GroupFacts, GroupSide, Seen


@dataclass(frozen=True, slots=True)
class Void:
    """What holds no longer.

    Attributes:
        progress: partitions whose last move counts no more.
        published: what stands no longer where it was published: the group, where it commits there, has not begun from it.
        observed: what stands no longer where it was seen; and what was left behind, on a cluster that is away, by a move that
            counts no more.
    """

    progress: tuple[TopicPartition, ...]
    published: tuple[PublishedOffset, ...]
    observed: tuple[ObservedCommit, ...]

    def __bool__(self) -> bool:
        return bool(self.progress or self.published or self.observed)


def void_of(facts: GroupFacts) -> Void:
    """What the commits of a group make void, as they are seen now."""
    sides = [side for side in facts.sides.values() if side.reachable]
    progress = tuple(
        item
        for item, moved in facts.progress.items()
        if any(_ends_progress(facts, side, item, moved) for side in sides)
    )
    return Void(
        progress,
        published=tuple(
            offer
            for side in sides
            for item, offer in side.published.items()
            if offer.published_at_ms < side.read_at_ms
            and (_is_left(facts, side, item, progress) or _ends_offer(side, item, offer))
        ),
        observed=tuple(
            seen
            for side in facts.sides.values()
            for item, seen in side.seen.items()
            if (
                _has_vanished(facts, side, item)
                if side.reachable
                else item in progress and seen.observed_at_ms <= facts.progress[item].moved_at_ms
            )
        ),
    )


def without(facts: GroupFacts, void: Void) -> GroupFacts:
    """What is known of the group, less what is void."""
    published, ended = set(map(id, void.published)), set(void.progress)
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
    progress = {item: moved for item, moved in facts.progress.items() if item not in ended}
    return replace(facts, sides=sides, progress=progress)


def confirmed(facts: GroupFacts, void: Void, read_again: Callable[[ClusterName], Commits]) -> Void:
    """What is void by the clusters' word now: what was remembered may be newer than what the cycle has read.

    Args:
        facts: what is known of the group.
        void: what is void by these.
        read_again: asks a cluster for the group's commits.

    Raises:
        UnavailableError: a cluster does not answer any more.
    """
    if not void:
        return void
    return void_of(
        replace(facts, sides={name: _read(side, read_again) for name, side in facts.sides.items()})
    )


def _read(side: GroupSide, read_again: Callable[[ClusterName], Commits]) -> GroupSide:
    if not side.reachable:
        return side
    commits = {
        item: Seen(commit, known.before if (known := side.commits.get(item)) is not None else None)
        for item, commit in read_again(side.cluster).items()
    }
    return replace(side, commits=commits)


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
