"""Consumer groups, asked of their coordinators over connections of our own.

librdkafka's admin client ends the whole process when a coordinator returns that a request had waited for in vain,
which is what every cluster does that fails and comes back (docs/decisions/0010-group-questions.md).
"""

from __future__ import annotations

import struct
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from typing import Any, TypeVar

from kafka.errors import for_code
from kafka.protocol.admin import DescribeGroupsRequest
from kafka.protocol.consumer import OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.protocol.metadata import FindCoordinatorRequest

from parallax.adapters.kafka.errors import BY_CODE
from parallax.adapters.kafka.wire import Connections, EventLoop
from parallax.domain.errors import ClusterUnavailableError, NotFoundError, ParallaxError
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicName, TopicPartition
from parallax.ports import GroupCommit, GroupState
from parallax.runtime.config import Cluster
from parallax.runtime.deadline import Deadline

T = TypeVar("T")

_NONE = 0
_MOVED = frozenset({14, 15, 16})
"""Coordinator loading, not available, not the coordinator: another moment tells more."""
_PAUSE_MS = 50
_LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
_GROUP = 0
_CONSUMER = "consumer"
_NO_GENERATION = -1
_END = "\0"
"""confluent-kafka writes it behind metadata, and reads without it into what lies behind them in memory."""


class _MovedError(Exception):
    """The group has to be asked for elsewhere, or later."""


class GroupLinks:
    """Asks about groups. Safe to use from several threads: each takes connections for itself.

    Args:
        cluster: the cluster's name.
        settings: its address and security.
        timeout_s: bound of the next call, asked again while one waits for a connection.
    """

    def __init__(self, cluster: ClusterName, settings: Cluster, timeout_s: Callable[[], float]) -> None:
        self._cluster = cluster
        self._settings = settings
        self._timeout_s = timeout_s
        self._idle: deque[_Link] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def describe(self, groups: Collection[GroupName]) -> list[GroupState]:
        """The state of each group.

        Raises:
            ConfigError: this client may not see a group.
            ClusterUnavailableError: no answer in time.
        """

        def ask(link: _Link) -> list[GroupState]:
            found = []
            for node, names in link.by_coordinator(groups).items():
                request = DescribeGroupsRequest(groups=[str(name) for name in names], max_version=5)
                for answer in link.ask(node, request, "describing groups").groups:
                    self._check(answer.error_code, f"describing group {answer.group_id!r}")
                    found.append(_state_of(answer))
            return found

        return self._with_link(ask)

    def committed(self, group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
        """Every committed offset of the group; empty for one that never committed.

        An error is not taken for "never committed", which would send the group back to the start of the log; only a
        topic that is gone is left out.

        Raises:
            ConfigError: the group has offsets on a topic that this client may not see.
            ClusterUnavailableError: no answer in time, or not for every partition.
        """
        doing = f"reading the offsets of group {group!r}"

        def ask(link: _Link) -> Mapping[TopicPartition, GroupCommit]:
            request = OffsetFetchRequest(group_id=str(group), topics=None, min_version=5, max_version=7)
            answer = link.ask(link.coordinator(group), request, doing)
            self._check(answer.error_code, doing)
            return self.commits_of(group, answer.topics)

        return self._with_link(ask)

    def commit(self, group: GroupName, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Set committed offsets of a group without members.

        Raises:
            FencedError: the group has members; nothing was written.
            ClusterUnavailableError: no answer in time; the offsets may or may not be written.
        """

        def ask(link: _Link) -> None:
            request = _commit_request(group, commits)
            answer = link.ask(link.coordinator(group), request, f"setting offsets of group {group!r}")
            for topic in answer.topics:
                for part in topic.partitions:
                    doing = f"setting the offset of group {group!r} on {topic.name}-{part.partition_index}"
                    self._check(part.error_code, doing)

        self._with_link(ask)

    def commits_of(self, group: GroupName, topics: Iterable[Any]) -> Mapping[TopicPartition, GroupCommit]:
        """Committed offsets by partition, of an answer's topics.

        Raises:
            ParallaxError: by the error of a partition.
        """
        found = {}
        for topic in topics:
            for part in topic.partitions:
                place = TopicPartition(TopicName(topic.name), part.partition_index)
                try:
                    self._check(part.error_code, f"reading the offset of group {group!r} on {place}")
                except NotFoundError:
                    continue
                if part.committed_offset >= 0:
                    offset = TargetOffset(part.committed_offset)
                    metadata = (part.metadata or "").rstrip(_END)
                    found[place] = GroupCommit(offset, part.committed_leader_epoch, metadata)
        return found

    def _check(self, code: int, doing: str) -> None:
        _check(self._cluster, code, doing)

    def _with_link(self, ask: Callable[[_Link], T]) -> T:
        deadline = Deadline.after_ms(self._timeout_s() * 1_000)
        while True:
            link, used_before = self._taken(deadline)
            try:
                result = ask(link)
            except _MovedError as moved:
                link.pause(_PAUSE_MS)
                self._idle.append(link)
                if deadline.passed:
                    raise ClusterUnavailableError(str(moved)) from moved
            except ClusterUnavailableError:
                link.close()
                # Connections that nobody has used for long may have ended meanwhile.
                if not used_before or deadline.passed:
                    raise
            except ParallaxError:
                self._idle.append(link)
                raise
            except BaseException:
                link.close()
                raise
            else:
                self._idle.append(link)
                return result

    def _taken(self, deadline: Deadline) -> tuple[_Link, bool]:
        """Connections for this thread alone, and whether they were used before."""
        try:
            link, used_before = self._idle.pop(), True
        except IndexError:
            link, used_before = _Link(self._cluster, self._settings), False
        link.deadline = deadline
        if not used_before:
            link.connect(self._timeout_s)
        return link, used_before


class _Link:
    """Connections, and where each group's coordinator was last."""

    def __init__(self, cluster: ClusterName, settings: Cluster) -> None:
        self._cluster = cluster
        self._coordinators: dict[GroupName, Any] = {}
        self.deadline = Deadline.after_ms(0)
        with ExitStack() as unfinished:
            self._loop = EventLoop()
            unfinished.callback(self._loop.close)
            self._connections = Connections(
                self._loop,
                cluster,
                settings,
                client_id=f"parallax-{cluster}-groups",
                largest_answer_bytes=_LARGEST_ANSWER_BYTES,
            )
            unfinished.pop_all()

    def connect(self, timeout_s: Callable[[], float]) -> None:
        """Connect, for as long as the deadline and the cluster's bound of now allow."""
        began = self.deadline.remaining_s
        while True:
            try:
                self._connections.connect(timeout_ms=_PAUSE_MS)
            except ClusterUnavailableError as error:
                left_s = self.deadline.remaining_s
                if left_s <= 0 or began - left_s >= timeout_s():
                    self.close()
                    problem = self._connections.problem
                    raise ClusterUnavailableError(f"{self._cluster}: connecting: {problem}") from error
            except BaseException:
                self.close()
                raise
            else:
                return

    def ask(self, node: Any, request: Any, doing: str) -> Any:
        """Ask a node, within the deadline."""
        left_ms = max(1.0, self.deadline.remaining_s * 1_000)
        return self._connections.ask(node, request, doing, timeout_ms=left_ms)

    def coordinator(self, group: GroupName) -> Any:
        """The group's coordinator."""
        (node,) = self.by_coordinator([group])
        return node

    def by_coordinator(self, groups: Collection[GroupName]) -> dict[Any, list[GroupName]]:
        """The groups by their coordinators."""
        unknown = [name for name in groups if name not in self._coordinators]
        if unknown:
            request = FindCoordinatorRequest(
                key_type=_GROUP,
                coordinator_keys=[str(name) for name in unknown],
                min_version=4,
                max_version=6,
            )
            answer = self.ask(self._connections.any_node, request, "finding group coordinators")
            for found in answer.coordinators:
                _check(self._cluster, found.error_code, f"finding the coordinator of group {found.key!r}")
                node = self._connections.coordinator(found.host, found.port, found.node_id)
                self._coordinators[GroupName(found.key)] = node
        nodes: dict[Any, list[GroupName]] = {}
        for name in groups:
            nodes.setdefault(self._coordinators[name], []).append(name)
        return nodes

    def pause(self, duration_ms: float) -> None:
        """Wait a moment; after it coordinators are looked for anew."""
        self._coordinators.clear()
        moment = Deadline.after_ms(duration_ms)
        while not moment.passed:
            self._loop.turn(duration_ms)

    def close(self) -> None:
        """Let go of everything."""
        self._connections.close()
        self._loop.close()


def _check(cluster: ClusterName, code: int, doing: str) -> None:
    """Raise the error that a code of an answer stands for, if it does."""
    if code == _NONE:
        return
    text = f"{cluster}: {doing}: {for_code(code).__name__} ({code})"
    if code in _MOVED:
        raise _MovedError(text)
    raise BY_CODE.get(code, ClusterUnavailableError)(text)


def _state_of(answer: Any) -> GroupState:
    assigned: set[TopicName] = set()
    if answer.protocol_type == _CONSUMER:
        for member in answer.members:
            try:
                assignment = ConsumerProtocolAssignment.decode(member.member_assignment)
            except (struct.error, ValueError, IndexError, TypeError):
                continue  # not assigned yet, or in the application's own words
            assigned |= {TopicName(item.topic) for item in assignment.assigned_partitions if item.partitions}
    return GroupState(
        GroupName(answer.group_id), answer.group_state, len(answer.members), frozenset(assigned)
    )


def _commit_request(group: GroupName, commits: Mapping[TopicPartition, GroupCommit]) -> Any:
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


def _close_all(links: deque[_Link]) -> None:
    while links:
        links.pop().close()
