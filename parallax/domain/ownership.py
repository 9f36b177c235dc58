"""Whose commit it is: the group's own, or one that was put there for it."""

from __future__ import annotations

from collections.abc import Mapping

from parallax.domain.commits import Commits, GroupCommit, PublishedOffset
from parallax.domain.ids import ClusterName, TopicId, TopicName, TopicPartition
from parallax.domain.metadata import CommittedMetadata, decode, is_ours
from parallax.domain.progress import holds_for_topic
from parallax.errors import MetadataError

Offers = Mapping[TopicPartition, PublishedOffset]
"""What was published for a group on a cluster."""


def standing_offers(
    cluster: ClusterName, topic_ids: Mapping[TopicName, TopicId], published: Mapping[ClusterName, Offers]
) -> Offers:
    """What was published on a cluster and still holds: for the same topic, and the group not active there since.

    That the group has been active there shows in what was published elsewhere later, computed from there.

    Args:
        cluster: the cluster.
        topic_ids: the topics that exist there.
        published: what was published for the group last, by cluster.
    """
    elsewhere = [offers for name, offers in published.items() if name != cluster]

    def is_outdated(item: TopicPartition, offer: PublishedOffset) -> bool:
        return any(
            later.origin_cluster == cluster and later.published_at_ms > offer.published_at_ms
            for offers in elsewhere
            if (later := offers.get(item)) is not None
        )

    return {
        item: offer
        for item, offer in published[cluster].items()
        if offer.progress.topic_id == topic_ids.get(item.topic) and not is_outdated(item, offer)
    }


def own_commits(
    commits: Commits, topic_ids: Mapping[TopicName, TopicId], offers: Offers
) -> frozenset[TopicPartition]:
    """The partitions on which the group's commit is its own.

    Ours is a commit that equals a standing offer, or whose metadata says that it was written as the resume offset of
    a move.

    Args:
        commits: of the group, on one cluster.
        topic_ids: the topics that exist there.
        offers: the `standing_offers` there.
    """
    return frozenset(
        item
        for item, commit in commits.items()
        if not _equals(commit, offers.get(item)) and not _is_as_left(commit, topic_ids.get(item.topic))
    )


def _equals(commit: GroupCommit, offer: PublishedOffset | None) -> bool:
    return offer is not None and offer.progress.resume_offset == commit.next_offset


def is_resume_offset(commit: GroupCommit) -> bool:
    """Whether the commit is as the sync job or a move has put it there: members carry what is to be skipped further."""
    return _as_left(commit) is not None


def _is_as_left(commit: GroupCommit, topic_id: TopicId | None) -> bool:
    """Whether the commit stands where a move to the topic has put it."""
    metadata = _as_left(commit)
    return metadata is not None and holds_for_topic(
        metadata.target_topic_id, metadata.resume_offset, topic_id
    )


def _as_left(commit: GroupCommit) -> CommittedMetadata | None:
    if not is_ours(commit.metadata):
        return None
    try:
        metadata = decode(commit.metadata)
    except MetadataError:
        return None
    return metadata if metadata.resume_offset == commit.next_offset else None
