"""Whether a commit shows another life of its group than the one that moved."""

from __future__ import annotations

import pytest

from parallax.domain.commits import ObservedCommit, went_back
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.progress import Progress

CLUSTER, TOPIC_ID = ClusterName("aggregate-a"), TopicId("t")
MOVED = Progress(CLUSTER, TOPIC_ID, TargetOffset(10), {}, moved_at_ms=1_000)


def seen(
    next_offset: int = 20, *, at_ms: int = 2_000, topic_id: str = TOPIC_ID, reported: bool = False
) -> ObservedCommit:
    item = TopicPartition(TopicName("trips"), 0)
    offset = TargetOffset(next_offset)
    return ObservedCommit(
        GroupName("billing"), CLUSTER, item, TopicId(topic_id), offset, -1, at_ms, reported=reported
    )


@pytest.mark.parametrize("commit", [None, 0, 19])
def test_a_commit_that_has_vanished_or_is_lower_than_it_was_has_gone_back(commit: int | None) -> None:
    assert went_back(None if commit is None else TargetOffset(commit), seen(), MOVED)


@pytest.mark.parametrize("commit", [20, 21])
def test_one_that_stands_or_goes_on_has_not(commit: int) -> None:
    assert not went_back(TargetOffset(commit), seen(), MOVED)


@pytest.mark.parametrize(
    "before",
    [None, seen(reported=True), seen(at_ms=999), seen(topic_id="another")],
    ids=["nothing was seen", "a member was ahead of its commits", "before the move", "another topic's"],
)
@pytest.mark.parametrize("commit", [None, TargetOffset(3)])
def test_nothing_is_told_by_what_says_nothing_of_the_life_that_moved(
    before: ObservedCommit | None, commit: TargetOffset | None
) -> None:
    assert not went_back(commit, before, MOVED)
