"""Whose a commit is."""

from __future__ import annotations

import pytest

from parallax.domain.commits import GroupCommit, PublishedOffset
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.metadata import CommittedMetadata, encode
from parallax.domain.outcome import Outcome
from parallax.domain.ownership import own_commits, standing_offers
from parallax.domain.progress import Progress

HERE, THERE = ClusterName("aggregate-b"), ClusterName("aggregate-a")
P0 = TopicPartition(TopicName("trips"), 0)
TOPIC_ID = TopicId("b-1")
TOPICS = {P0.topic: TOPIC_ID}


def published(
    on: ClusterName, resume_offset: int, *, at_ms: int, topic_id: TopicId = TOPIC_ID
) -> PublishedOffset:
    """From the other cluster."""
    progress = Progress(on, topic_id, TargetOffset(resume_offset), {})
    origin = THERE if on == HERE else HERE
    return PublishedOffset(GroupName("g"), P0, progress, origin, None, Outcome.OK, at_ms)


def is_own(commit: GroupCommit, *offers: PublishedOffset) -> bool:
    by_cluster = {HERE: {}, THERE: {}} | {offer.progress.cluster: {P0: offer} for offer in offers}
    return P0 in own_commits({P0: commit}, TOPICS, standing_offers(HERE, TOPICS, by_cluster))


def left_by_a_move(resume_offset: int, topic_id: TopicId = TOPIC_ID) -> str:
    return encode(CommittedMetadata(1, topic_id, TargetOffset(resume_offset), {}))


def test_a_commit_that_equals_the_offer_is_not_the_groups() -> None:
    assert not is_own(GroupCommit(TargetOffset(5), -1, ""), published(HERE, 5, at_ms=1))
    assert is_own(GroupCommit(TargetOffset(6), -1, ""), published(HERE, 5, at_ms=1))


def test_an_offer_for_another_incarnation_of_the_topic_means_nothing() -> None:
    offer = published(HERE, 5, at_ms=1, topic_id=TopicId("b-0"))
    assert is_own(GroupCommit(TargetOffset(5), -1, ""), offer)


@pytest.mark.parametrize(("later_ms", "own"), [(2, True), (1, False)])
def test_an_offer_ends_when_one_elsewhere_was_computed_from_here_later(later_ms: int, *, own: bool) -> None:
    offers = published(HERE, 5, at_ms=1), published(THERE, 9, at_ms=later_ms)
    assert is_own(GroupCommit(TargetOffset(5), -1, ""), *offers) is own


@pytest.mark.parametrize(
    ("next_offset", "metadata", "own"),
    [
        (5, left_by_a_move(5), False),
        (6, left_by_a_move(5), True),
        (5, left_by_a_move(5, TopicId("b-0")), True),
        (0, left_by_a_move(0, TopicId("")), False),
        (5, "plx1.damaged", True),
        (5, "the application's own", True),
    ],
)
def test_a_commit_that_stands_where_a_move_has_put_it_is_not_the_groups(
    next_offset: int, metadata: str, *, own: bool
) -> None:
    assert is_own(GroupCommit(TargetOffset(next_offset), -1, metadata)) is own


def test_without_a_commit_nothing_is_the_groups() -> None:
    assert own_commits({}, TOPICS, {P0: published(HERE, 5, at_ms=1)}) == frozenset()
