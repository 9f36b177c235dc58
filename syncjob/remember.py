"""Which commits are worth remembering for the day when their cluster is gone. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from parallax.domain.ids import ClusterName, GroupName, TopicId, TopicName, TopicPartition
from parallax.ports.clusters import GroupCommit, ObservedCommit


def to_remember(
    group: GroupName,
    cluster: ClusterName,
    commits: Mapping[TopicPartition, GroupCommit],
    before: Mapping[TopicPartition, GroupCommit],
    topic_ids: Mapping[TopicName, TopicId],
    stored: Iterable[ObservedCommit],
    read_at_ms: int,
) -> list[ObservedCommit]:
    """The commits as observations, but for those that tell less than a member has just reported.

    A member is done with records before it commits them, and says so every second: its report is what lets the
    group go on exactly there once the cluster is gone. A commit that has gone back is a rewind, and counts.

    Args:
        group: the group.
        cluster: where the commits were read.
        commits: as read now.
        before: as read a cycle ago.
        topic_ids: the topics of that cluster.
        stored: what is remembered already.
        read_at_ms: when the reading began: a report that came during it is newer.
    """
    reports = {item.topic_partition: item for item in stored if item.counts_at(read_at_ms)}
    found = []
    for item, commit in commits.items():
        topic_id = topic_ids.get(item.topic)
        if topic_id is None:
            continue
        report, earlier = reports.get(item), before.get(item)
        rewound = earlier is not None and commit.next_offset < earlier.next_offset
        same_topic = report is not None and report.topic_id == topic_id
        ahead = report is not None and report.next_offset > commit.next_offset
        if rewound or not (same_topic and ahead):
            found.append(
                ObservedCommit(
                    group, cluster, item, topic_id, commit.next_offset, commit.leader_epoch, read_at_ms
                )
            )
    return found
