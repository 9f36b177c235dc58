"""Consumer groups, asked of their coordinators."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from parallax.adapters.kafka.links import Link
from parallax.adapters.kafka.next_generation_groups import ConsumerGroupDescribe
from parallax.domain.commits import GroupCommit
from parallax.domain.ids import OWN_INSTANCE_PREFIX, GroupName, TargetOffset, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, ConfigError, NotFoundError
from parallax.ports.clusters import GroupState

_CLASSIC, _CONSUMER = "classic", "consumer"
"""Kinds of groups; the latter is the type of a classic group's protocol, too."""
_UNTOLD, _EMPTY = frozenset({"", "Dead"}), "Empty"
_NO_SUCH_GROUP = 69
_UNSTABLE = 88
_NO_GENERATION = -1
_UNKNOWN_MEMBER = 25
_END = "\0"
"""confluent-kafka writes it behind metadata, and reads without it into what lies behind them in memory."""


class ListedGroup(NamedTuple):
    """A group as a broker lists it.

    Attributes:
        kind: the protocol of its members in lower case: "classic", "consumer" (KIP-848), "share", "streams"; empty
            where the broker is too old to tell.
        state: as in `GroupState`.
    """

    kind: str
    state: str


def list_groups(link: Link) -> dict[GroupName, ListedGroup]:
    """Every group of the cluster.

    Raises:
        ConfigError: this client may not see groups.
        ClusterUnavailableError: a broker did not answer in time.
    """
    doing = "listing consumer groups"
    found: dict[GroupName, ListedGroup] = {}
    for node in link.nodes(link.metadata([], doing)).values():
        answer = link.ask(node, ListGroupsRequest(states_filter=[], types_filter=[], max_version=5), doing)
        link.check(answer.error_code, doing)
        for item in answer.groups:
            found[GroupName(item.group_id)] = ListedGroup(
                (item.group_type or "").lower(), item.group_state or ""
            )
    return found


def describe_groups(link: Link, listed: Mapping[GroupName, ListedGroup]) -> list[GroupState]:
    """The state of each group. One that this client may not see bears the reason, and what the listing tells.

    One that is listed as empty is not asked about: its coordinator has said that it has no member.

    Raises:
        ClusterUnavailableError: no answer in time.
    """
    refused: dict[GroupName, str] = {}
    found: dict[GroupName, GroupState] = {}
    for kind, describe in ((_CLASSIC, _describe_classic), (_CONSUMER, _describe_consumer)):
        names = [
            name for name, item in listed.items() if (item.kind or _CLASSIC) == kind and item.state != _EMPTY
        ]
        for node, asked in link.by_coordinator(names, refused).items():
            for code, state in describe(link, node, asked):
                try:
                    link.check(0 if code == _NO_SUCH_GROUP else code, f"describing group {state.group!r}")
                except ConfigError as error:
                    refused[state.group] = str(error)
                else:
                    found[state.group] = state
    return [
        replace(_held_against(item, found.get(name, GroupState(name, "", 0))), refused=refused.get(name, ""))
        for name, item in listed.items()
    ]


def _describe_classic(
    link: Link, node: Any, names: Collection[GroupName]
) -> Iterator[tuple[int, GroupState]]:
    request = DescribeGroupsRequest(groups=[str(name) for name in names], max_version=5)
    for answer in link.ask(node, request, "describing groups").groups:
        yield answer.error_code, state_of(answer)


def _describe_consumer(
    link: Link, node: Any, names: Collection[GroupName]
) -> Iterator[tuple[int, GroupState]]:
    request = ConsumerGroupDescribe([str(name) for name in names])
    for answer in link.ask(node, request, "describing groups"):
        topics = {TopicName(topic) for member in answer.members for topic in member.topics}
        yield (
            answer.error_code,
            GroupState(
                GroupName(answer.group_id),
                answer.state,
                len(answer.members),
                frozenset(topics),
                own_instances(member.instance for member in answer.members),
            ),
        )


def _held_against(listed: ListedGroup, state: GroupState) -> GroupState:
    """The state; where none is told, that of the listing, with a member at least if it has any.

    A broker calls a group dead and without members when the request is for another kind of groups.
    """
    if state.state not in _UNTOLD or listed.state in _UNTOLD:
        return state
    return replace(state, state=listed.state, members=0 if listed.state == _EMPTY else 1)


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


def read_commits_of_each(
    link: Link, groups: Collection[GroupName]
) -> dict[GroupName, Mapping[TopicPartition, GroupCommit] | ConfigError]:
    """Every committed offset of each group; in the place of one that may not be seen, or a topic of it, stands why.

    Raises:
        ClusterUnavailableError: no answer in time, or not for every group and partition.
    """
    refused: dict[GroupName, str] = {}
    asked = OffsetFetchRequest.OffsetFetchRequestGroup
    found: dict[GroupName, Mapping[TopicPartition, GroupCommit] | ConfigError] = {}
    for node, names in link.by_coordinator(groups, refused).items():
        request = OffsetFetchRequest(
            groups=[asked(group_id=str(name), topics=None) for name in names], min_version=8, max_version=9
        )
        for answer in link.ask(node, request, f"reading the offsets of {len(names)} groups").groups:
            group = GroupName(answer.group_id)
            try:
                link.check(answer.error_code, f"reading the offsets of group {group!r}")
                found[group] = commits_of(link, group, answer.topics)
            except ConfigError as error:
                found[group] = error
    found |= {group: ConfigError(reason) for group, reason in refused.items()}
    if missing := set(groups) - found.keys():
        raise ClusterUnavailableError(
            f"{link.cluster}: reading the offsets of {len(groups)} groups: nothing came of group {min(missing)!r}"
        )
    return found


def read_unsettled(link: Link, group: GroupName) -> frozenset[TopicPartition]:
    """Partitions with a committed offset that an open transaction may replace.

    A transaction's first commit ever on a partition is not told before it ends.

    Raises:
        ClusterUnavailableError: no answer in time.
    """
    doing = f"looking for open transactions of group {group!r}"
    request = OffsetFetchRequest(
        group_id=str(group), topics=None, require_stable=True, min_version=7, max_version=7
    )
    answer = link.ask(link.coordinator(group), request, doing)
    link.check(answer.error_code, doing)
    return frozenset(
        TopicPartition(TopicName(topic.name), part.partition_index)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code == _UNSTABLE
    )


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
            if part.error_code:
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
        name = TopicName(topic.name)
        for part in topic.partitions:
            place = TopicPartition(name, part.partition_index)
            try:
                if part.error_code:
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
    return GroupState(
        GroupName(answer.group_id),
        answer.group_state,
        len(answer.members),
        frozenset(assigned),
        own_instances(member.group_instance_id or "" for member in answer.members),
    )


def own_instances(names: Iterable[str]) -> frozenset[str]:
    """The instance ids that FailoverConsumers have made up."""
    return frozenset(name for name in names if name.startswith(OWN_INSTANCE_PREFIX))


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
