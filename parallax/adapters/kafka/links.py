"""Asks a Kafka cluster's brokers, each question with a deadline, over connections that a thread takes for itself.

This is what the services have instead of librdkafka's admin client, which ends the whole process when the answer to a
request comes that it has given up (docs/decisions/0010-admin-client.md).
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Any, NamedTuple, TypeVar

from kafka.errors import for_code
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.librdkafka import BY_CODE, DOWN_TIMEOUT_S
from parallax.adapters.kafka.wire import Connections
from parallax.config.config import Cluster
from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.errors import ClusterUnavailableError, ConfigError, ParallaxError
from parallax.runtime.deadline import Deadline

T = TypeVar("T")

UNKNOWN_TOPIC = 3
"""Kafka's UNKNOWN_TOPIC_OR_PARTITION, where it is an answer and no error."""
_NONE = 0
_MOVED = frozenset({5, 6, 14, 15, 16, 74, 75, 76})
"""No leader or coordinator now, or not this one any more: another moment tells more."""
_PAUSE_MS = 50
_LARGEST_ANSWER_BYTES = 64 * 1024 * 1024
_GROUP = 0


class Broker(NamedTuple):
    """Where a broker is."""

    host: str
    port: int
    node_id: int


Coordinators = dict[GroupName, Broker]
"""Of groups, as far as they are known. All connections of one client share them: each would have to ask for each group."""


class MovedError(Exception):
    """Somebody else has to be asked, or this one later."""


class Links:
    """Asks one cluster. Safe to use from several threads.

    Args:
        cluster: the cluster's name.
        settings: its address and security.
        client_id: as brokers log it.
        timeout_ms: bound of each call of `do`.
    """

    def __init__(self, cluster: ClusterName, settings: Cluster, *, client_id: str, timeout_ms: float) -> None:
        self.cluster = cluster
        self._settings = settings
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._coordinators: Coordinators = {}
        self._idle: deque[Link] = deque()
        weakref.finalize(self, _close_all, self._idle)

    def do(self, ask: Callable[[Link], T]) -> T:
        """Ask, again while leaders or coordinators move.

        Args:
            ask: may be called several times.

        Raises:
            ClusterUnavailableError: no definite answer in time.
            ParallaxError: what ``ask`` raised.
        """
        deadline = Deadline.after_ms(self._timeout_ms)
        may_be_old = bool(self._coordinators)
        while True:
            link, used_before = self._taken(deadline)
            try:
                result = ask(link)
            except MovedError as moved:
                link.pause(_PAUSE_MS)
                self._idle.append(link)
                if deadline.passed:
                    raise ClusterUnavailableError(str(moved)) from moved
            except ClusterUnavailableError:
                link.close()
                # Connections that nobody has used for long may have ended meanwhile, and coordinators may have gone.
                again, may_be_old = used_before or may_be_old, False
                self._coordinators.clear()
                if not again or deadline.passed:
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

    def close(self) -> None:
        """Close the connections that nobody uses now; whoever asks again opens new ones."""
        _close_all(self._idle)

    def refusal(self) -> ConfigError | None:
        """Why brokers don't accept us, or we don't accept them, by a connection of its own; None: that is not the matter."""
        link = Link(self.cluster, self._settings, self._client_id)
        try:
            link.connect(Deadline.after_ms(self._timeout_ms))
        except ConfigError as error:
            return error
        except ClusterUnavailableError:
            return None
        link.close()
        return None

    def _taken(self, deadline: Deadline) -> tuple[Link, bool]:
        """Connections for this thread alone, and whether they were used before."""
        try:
            link = self._idle.pop()
        except IndexError:
            link = Link(self.cluster, self._settings, self._client_id, self._coordinators)
            link.connect(deadline)
            return link, False
        link.deadline = deadline
        return link, True


class Link:
    """Connections to a cluster, and where its leaders and coordinators were last.

    Args:
        cluster: the cluster's name.
        settings: its address and security.
        client_id: as brokers log it.
        coordinators: what others have found out, and hear of it in turn.
    """

    def __init__(
        self,
        cluster: ClusterName,
        settings: Cluster,
        client_id: str,
        coordinators: Coordinators | None = None,
    ) -> None:
        self.cluster = cluster
        self.deadline = Deadline.after_ms(0)
        self._coordinators: Coordinators = {} if coordinators is None else coordinators
        self._leaders: dict[TopicPartition, Any] = {}
        self._leaderless: set[TopicPartition] = set()
        with ExitStack() as unfinished:
            self._loop = EventLoop()
            unfinished.callback(self._loop.close)
            self._connections = Connections(
                self._loop,
                cluster,
                settings,
                client_id=client_id,
                largest_answer_bytes=_LARGEST_ANSWER_BYTES,
            )
            unfinished.pop_all()

    def connect(self, deadline: Deadline) -> None:
        """Connect.

        Raises:
            ClusterUnavailableError: not by the deadline, or all brokers refuse.
            ConfigError: a broker refused the credentials.
        """
        self.deadline = deadline
        refused_at_s = time.monotonic() + DOWN_TIMEOUT_S
        while True:
            try:
                self._connections.connect(timeout_ms=_PAUSE_MS)
            except ClusterUnavailableError as error:
                if deadline.passed or (self._connections.refused and time.monotonic() >= refused_at_s):
                    problem = "all brokers refuse" if self._connections.refused else self._connections.problem
                    self.close()
                    raise ClusterUnavailableError(f"{self.cluster}: connecting: {problem}") from error
            except BaseException:
                self.close()
                raise
            else:
                return

    @property
    def any_node(self) -> Any:
        """Some broker, for what any of them can answer."""
        return self._connections.any_node

    def ask(self, node: Any, request: Any, doing: str) -> Any:
        """Ask a node, within the deadline."""
        left_ms = max(1.0, self.deadline.remaining_s * 1_000)
        return self._connections.ask(node, request, doing, timeout_ms=left_ms)

    def check(self, code: int, doing: str) -> None:
        """Raise the error that a code of an answer stands for, if it does.

        Raises:
            MovedError: the question has to be asked anew.
            ParallaxError: by the table of `parallax.adapters.kafka.librdkafka`.
        """
        if code == _NONE:
            return
        text = f"{self.cluster}: {doing}: {for_code(code).__name__} ({code})"
        if code in _MOVED:
            raise MovedError(text)
        raise BY_CODE.get(code, ClusterUnavailableError)(text)

    def metadata(self, topics: Collection[TopicName] | None, doing: str, *, rights: bool = False) -> Any:
        """Kafka's answer about topics (None: all), as they are now; none is created by it.

        ``rights``: with what this client may do with each.
        """
        asked = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            topics=None if topics is None else [asked(topic_id=None, name=str(name)) for name in topics],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=rights,
            min_version=10,
            max_version=12,
        )
        return self.ask(self.any_node, request, doing)

    def nodes(self, answer: Any) -> dict[int, Any]:
        """The brokers of a metadata answer, by id, as `ask` takes them."""
        return {
            broker.node_id: self._connections.coordinator(broker.host, broker.port, broker.node_id)
            for broker in answer.brokers
        }

    def by_leader(self, items: Collection[TopicPartition], doing: str) -> dict[Any, list[TopicPartition]]:
        """The partitions by their leaders; those that do not exist are left out.

        Raises:
            MovedError: one of them has no leader now.
        """
        missing = self.leaderless(items, doing)
        if missing:
            raise MovedError(f"{self.cluster}: {doing}: no leader for {missing[0]}")
        found: dict[Any, list[TopicPartition]] = {}
        for item in items:
            if item in self._leaders:
                found.setdefault(self._leaders[item], []).append(item)
        return found

    def leaderless(self, items: Collection[TopicPartition], doing: str) -> list[TopicPartition]:
        """Those of the partitions that exist, but have no leader now."""
        unknown = {item.topic for item in items if item not in self._leaders}
        if unknown:
            self._learn_leaders(unknown, doing)
        return [item for item in items if item in self._leaderless]

    def _learn_leaders(self, topics: Collection[TopicName], doing: str) -> None:
        answer = self.metadata(topics, doing)
        nodes = self.nodes(answer)
        for topic in answer.topics:
            if topic.error_code == UNKNOWN_TOPIC:
                continue
            self.check(topic.error_code, f"{doing}: finding the leaders of {topic.name}")
            for part in topic.partitions:
                place = TopicPartition(TopicName(topic.name), part.partition_index)
                self._leaderless.discard(place)
                if part.leader_id in nodes:
                    self._leaders[place] = nodes[part.leader_id]
                else:
                    self._leaderless.add(place)

    def coordinator(self, group: GroupName) -> Any:
        """The group's coordinator."""
        (node,) = self.by_coordinator([group])
        return node

    def by_coordinator(
        self, groups: Collection[GroupName], refused: dict[GroupName, str] | None = None
    ) -> dict[Any, list[GroupName]]:
        """The groups by their coordinators.

        Args:
            groups: the groups.
            refused: takes those that this client may not see, with the reason, which are left out then.

        Raises:
            ConfigError: this client may not see a group, and there is no ``refused``.
        """
        known = self._coordinators
        found_at = {name: broker for name in groups if (broker := known.get(name)) is not None}
        unknown = [name for name in groups if name not in found_at]
        if unknown:
            request = FindCoordinatorRequest(
                key_type=_GROUP,
                coordinator_keys=[str(name) for name in unknown],
                min_version=4,
                max_version=6,
            )
            answer = self.ask(self.any_node, request, "finding group coordinators")
            for found in answer.coordinators:
                try:
                    self.check(found.error_code, f"finding the coordinator of group {found.key!r}")
                except ConfigError as error:
                    if refused is None:
                        raise
                    refused[GroupName(found.key)] = str(error)
                    continue
                found_at[GroupName(found.key)] = Broker(found.host, found.port, found.node_id)
            known.update(found_at)
        nodes: dict[Any, list[GroupName]] = {}
        for name in groups:
            if (broker := found_at.get(name)) is not None:
                nodes.setdefault(self._connections.coordinator(*broker), []).append(name)
        return nodes

    def pause(self, duration_ms: float) -> None:
        """Wait a moment; after it leaders and coordinators are looked for anew."""
        self._coordinators.clear()
        self._leaders.clear()
        self._leaderless.clear()
        self._loop.pause(duration_ms)

    def close(self) -> None:
        """Let go of everything."""
        self._connections.close()
        self._loop.close()


def _close_all(links: deque[Link]) -> None:
    while links:
        links.pop().close()
