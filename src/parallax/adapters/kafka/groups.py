"""Consumer groups, asked of their coordinators."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from parallax.adapters.kafka.links import Link
from parallax.domain.errors import NotFoundError
from parallax.domain.ids import OWN_INSTANCE_PREFIX, GroupName, TargetOffset, TopicName, TopicPartition
from parallax.ports import GroupCommit, GroupState

_CONSUMER = "consumer"
_NO_GENERATION = -1
_UNKNOWN_MEMBER = 25
_END = "\0"
"""confluent-kafka writes it behind metadata, and reads without it into what lies behind them in memory."""


def list_groups(link: Link) -> list[GroupName]:
    """Every group of the cluster.

    Raises:
        ConfigError: this client may not see groups.
        ClusterUnavailableError: a broker did not answer in time.
    """
    doing = "listing consumer groups"
    found: dict[GroupName, None] = {}
    for node in link.nodes(link.metadata([], doing)).values():
        answer = link.ask(node, ListGroupsRequest(states_filter=[], max_version=4), doing)
        link.check(answer.error_code, doing)
        found |= dict.fromkeys(GroupName(item.group_id) for item in answer.groups)
    return list(found)


def describe_groups(link: Link, groups: Collection[GroupName]) -> list[GroupState]:
    """The state of each group.

    Raises:
        ConfigError: this client may not see a group.
        ClusterUnavailableError: no answer in time.
    """
    found = []
    for node, names in link.by_coordinator(groups).items():
        request = DescribeGroupsRequest(groups=[str(name) for name in names], max_version=5)
        for answer in link.ask(node, request, "describing groups").groups:
            link.check(answer.error_code, f"describing group {answer.group_id!r}")
            found.append(state_of(answer))
    return found


def read_commits(link: Link, group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
    """Every committed offset of the group; empty for one that never committed.

    Raises:
        ConfigError: the group has offsets on a topic that this client may not see.
        ClusterUnavailableError: no answer in time, or not for every partition.
    """
    doing = f"reading the offsets of group {group!r}"
    request = OffsetFetchRequest(group_id=str(group), topics=None, min_version=5, max_version=7)
    answer = link.ask(link.coordinator(group), request, doing)
    link.check(answer.error_code, doing)
    return commits_of(link, group, answer.topics)


def write_commits(link: Link, group: GroupName, commits: Mapping[TopicPartition, GroupCommit]) -> None:
    """Set committed offsets of a group without members.

    Raises:
        FencedError: the group has members; nothing was written.
        ClusterUnavailableError: no answer in time; the offsets may or may not be written.
    """
    request = commit_request(group, commits)
    answer = link.ask(link.coordinator(group), request, f"setting offsets of group {group!r}")
    for topic in answer.topics:
        for part in topic.partitions:
            doing = f"setting the offset of group {group!r} on {topic.name}-{part.partition_index}"
            link.check(part.error_code, doing)


def dismiss_members(link: Link, group: GroupName, instances: Collection[str]) -> None:
    """Take members out of a group by their instance ids (KIP-345); those that are not in it are out of it.

    Raises:
        ConfigError: this client may not change the group.
        ClusterUnavailableError: no answer in time.
    """
    doing = f"taking former members out of group {group!r}"
    member = LeaveGroupRequest.MemberIdentity
    request = LeaveGroupRequest(
        group_id=str(group),
        members=[
            member(member_id="", group_instance_id=name, reason="the group moved") for name in instances
        ],
        min_version=3,
        max_version=5,
    )
    answer = link.ask(link.coordinator(group), request, doing)
    link.check(answer.error_code, doing)
    for found in answer.members:
        if found.error_code != _UNKNOWN_MEMBER:
            link.check(found.error_code, f"{doing}: {found.group_instance_id}")


def commits_of(link: Link, group: GroupName, topics: Iterable[Any]) -> Mapping[TopicPartition, GroupCommit]:
    """Committed offsets by partition, of an answer's topics.

    An error is not taken for "never committed", which would send the group back to the start of the log; only a
    topic that is gone is left out.

    Raises:
        ParallaxError: by the error of a partition.
    """
    found = {}
    for topic in topics:
        for part in topic.partitions:
            place = TopicPartition(TopicName(topic.name), part.partition_index)
            try:
                link.check(part.error_code, f"reading the offset of group {group!r} on {place}")
            except NotFoundError:
                continue
            if part.committed_offset >= 0:
                offset, metadata = TargetOffset(part.committed_offset), (part.metadata or "").rstrip(_END)
                found[place] = GroupCommit(offset, part.committed_leader_epoch, metadata)
    return found


def state_of(answer: Any) -> GroupState:
    """The state of a described group."""
    assigned: set[TopicName] = set()
    if answer.protocol_type == _CONSUMER:
        for member in answer.members:
            try:
                assignment = ConsumerProtocolAssignment.decode(member.member_assignment)
            except (struct.error, ValueError, IndexError, TypeError):
                continue  # not assigned yet, or in the application's own words
            assigned |= {TopicName(item.topic) for item in assignment.assigned_partitions if item.partitions}
    instances = {member.group_instance_id or "" for member in answer.members}
    return GroupState(
        GroupName(answer.group_id),
        answer.group_state,
        len(answer.members),
        frozenset(assigned),
        frozenset(name for name in instances if name.startswith(OWN_INSTANCE_PREFIX)),
    )


def commit_request(group: GroupName, commits: Mapping[TopicPartition, GroupCommit]) -> Any:
    """An OffsetCommit of nobody in the group."""
    asked = OffsetCommitRequest.OffsetCommitRequestTopic
    topics: dict[str, list[Any]] = {}
    for item, commit in commits.items():
        # The leader epoch stays out: it belongs to the cluster that a consumer read it on.
        part = asked.OffsetCommitRequestPartition(
            partition_index=item.partition,
            committed_offset=commit.next_offset,
            committed_leader_epoch=-1,
            committed_metadata=commit.metadata and commit.metadata + _END,
        )
        topics.setdefault(str(item.topic), []).append(part)
    return OffsetCommitRequest(
        group_id=str(group),
        generation_id_or_member_epoch=_NO_GENERATION,
        member_id="",
        group_instance_id=None,
        topics=[asked(name=name, partitions=parts) for name, parts in topics.items()],
        min_version=6,
        max_version=8,
    )
