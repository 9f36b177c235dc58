"""What leaders of a target's partitions say of their logs: of which topic and epoch they are, where an older epoch ends (KIP-101)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from uuid import UUID

import structlog
from kafka.errors import for_code
from kafka.protocol.consumer import FetchRequest, OffsetForLeaderEpochRequest

from parallax.adapters.kafka.event_loop import EventLoop
from parallax.adapters.kafka.wire import Connections, topic_uuid
from parallax.config.config import Cluster
from parallax.domain.ids import (
    UNKNOWN_EPOCH,
    ClusterName,
    TargetOffset,
    TopicName,
    TopicPartition,
)
from parallax.errors import ClusterUnavailableError
from replicator.copying.ports import TargetEnd, TargetLog
from replicator.copying.session_end import TopicsRefusedError
from replicator.kafka.refusals import NOT_ALLOWED, not_confirmable
from replicator.kafka.spans import EpochEnd
from replicator.kafka.transactions.endings import Found, Sought, TransactionEnd, endings_of

log = structlog.get_logger(__name__)

_LARGEST_ANSWER_BYTES = 16 * 1024 * 1024
_CONSUMER = -1
"""Neither a follower nor a debugger."""

_BY_TOPIC_ID = 13
"""The version from which on Fetch names topics by their ids (Kafka 3.1)."""
_BEYOND_EVERY_END = 2**63 - 1
_OFFSET_OUT_OF_RANGE = 1
_ANOTHER_LOG = (
    "its log is not the one that it was: another topic has its name, or another leader leads it, and what that has kept "
    "is to be asked before anything is committed"
)

_Asked = tuple[TopicPartition, int, int]
"""A partition, the leader epoch that its leader must have, and the one whose end is asked for."""


class LeaderEpochs:
    """Asks the leaders.

    Args:
        loop: turned while answers are awaited.
        connections: to the target.
        timeout_ms: the patience with which answers are awaited.
    """

    def __init__(self, loop: EventLoop, connections: Connections, *, timeout_ms: float) -> None:
        self._loop = loop
        self._connections = connections
        self._timeout_ms = timeout_ms

    def ends_of(
        self, asked: Mapping[TopicPartition, tuple[int, int]]
    ) -> Mapping[TopicPartition, TargetOffset]:
        """Where a leader epoch ends in the logs of the leaders that there are now.

        Args:
            asked: by partition the leader's own epoch, and the one whose end is asked for.

        Returns:
            The ends; partitions whose leader has another epoch by now, or does not tell, are missing.

        Raises:
            ClusterUnavailableError: a leader did not answer in time.
        """
        self._connections.learn_leaders(asked.keys(), timeout_ms=self._timeout_ms / 3)
        found: dict[TopicPartition, TargetOffset] = {}
        for leader, items in self._connections.by_leader(asked).items():
            request = _request((item, *asked[item]) for item in items)
            answer = self._connections.ask(leader, request, "asking where a leader epoch ends")
            for item, code, end in _answers(answer):
                if code == 0 and end >= 0:
                    found[item] = TargetOffset(end)
                else:
                    log.info("leader_epoch_unknown", partition=str(item), problem=for_code(code).__name__)
                    self._connections.refresh()
        return found

    def confirm(self, logs: Mapping[TopicPartition, TargetLog]) -> Confirmation:
        """Ask whether the leaders have these logs; the answers come while others are awaited, too."""
        self._connections.learn_leaders(logs.keys(), timeout_ms=self._timeout_ms / 3)
        return Confirmation(self._loop, self._connections, logs, self._timeout_ms)

    def undone(
        self, records: Mapping[TopicPartition, tuple[TargetLog, TargetOffset]]
    ) -> Mapping[TopicPartition, bool]:
        """As `replicator.copying.ports.TargetWriter.undone`."""
        sought = {
            item: Sought(log.topic_id, offset, leader_epoch=log.leader_epoch)
            for item, (log, offset) in records.items()
        }
        return {item: told.ending is TransactionEnd.ABORTED for item, told in self.endings_of(sought).items()}

    def endings_of(self, sought: Mapping[TopicPartition, Sought]) -> Mapping[TopicPartition, Found]:
        """As `replicator.kafka.transactions.endings.endings_of`, of these leaders."""
        return endings_of(self._loop, self._connections, sought, timeout_ms=self._timeout_ms)

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()
        self._loop.close()


class Confirmation:
    """That partitions have the logs that they had. Made by `LeaderEpochs.confirm`.

    A leader is asked for records beyond every end, by topic id and under a leader epoch. That there are none it says only
    once it has compared both with those of the log that it has; nothing else that a broker tells is about its log itself.
    """

    def __init__(
        self,
        loop: EventLoop,
        connections: Connections,
        logs: Mapping[TopicPartition, TargetLog],
        timeout_ms: float,
    ) -> None:
        self._loop = loop
        self._connections = connections
        self._logs = logs
        self._timeout_ms = timeout_ms
        self._waiting = set(logs)
        self._problem = ""
        self._refused: set[TopicName] = set()
        for leader, items in connections.by_leader(logs).items():
            self._ask(leader, items)

    def wait(self) -> None:
        """Wait until all have answered.

        Raises:
            TopicsRefusedError: topics may not be read.
            ClusterUnavailableError: a partition's leader has another log, or did not answer in time.
        """
        self._loop.pause(self._timeout_ms, lambda: not self._waiting or self._problem)
        if self._refused:
            cluster = self._connections.cluster
            raise TopicsRefusedError({topic: not_confirmable(cluster, topic) for topic in self._refused})
        if self._waiting and not self._problem:
            self._problem = f"{min(self._waiting)}: its leader did not say that it has the same log"
        if self._problem:
            self._connections.refresh()
            raise ClusterUnavailableError(f"{self._connections.cluster}: {self._problem}")

    def _ask(self, leader: int, items: Collection[TopicPartition]) -> None:
        named = {(topic_uuid(self._logs[item].topic_id), item.partition): item for item in items}
        topics: dict[UUID, list[Any]] = {}
        for (topic_id, partition), item in named.items():
            part = FetchRequest.FetchTopic.FetchPartition(
                partition=partition,
                current_leader_epoch=self._logs[item].leader_epoch,
                fetch_offset=_BEYOND_EVERY_END,
                partition_max_bytes=1,
            )
            topics.setdefault(topic_id, []).append(part)
        request = FetchRequest(
            max_wait_ms=0,
            topics=[FetchRequest.FetchTopic(topic_id=it, partitions=parts) for it, parts in topics.items()],
            min_version=_BY_TOPIC_ID,
            max_version=16,
        )

        def answered(answer: Any) -> None:
            if answer.error_code:
                self._problem = f"asking for logs: {for_code(answer.error_code).__name__}"
            elif (
                not answer.responses and answer.throttle_time_ms
            ):  # a broker that throttles Fetch says nothing
                self._loop.after(answer.throttle_time_ms, lambda: self._ask(leader, items))
            for topic in answer.responses:
                for part in topic.partitions:
                    self._take_in(named[topic.topic_id, part.partition_index], part.error_code)

        self._connections.send(leader, request, answered, self._failed)

    def _take_in(self, item: TopicPartition, code: int) -> None:
        if code == NOT_ALLOWED:
            self._refused.add(item.topic)
        elif code not in {0, _OFFSET_OUT_OF_RANGE}:
            self._problem = f"{item}: {for_code(code).__name__}: {_ANOTHER_LOG}"
        self._waiting.discard(item)

    def _failed(self, error: Exception) -> None:
        self._problem = f"asking for logs: {error} ({type(error).__name__})"


def with_kept(
    ends: Mapping[TopicPartition, TargetEnd],
    leader_epochs: Mapping[TopicPartition, int],
    leaders: LeaderEpochs,
) -> Mapping[TopicPartition, TargetEnd]:
    """The ends, and of partitions that have got another leader what they kept of the epoch that is named.

    Raises:
        ClusterUnavailableError: a leader did not answer in time.
    """
    asked = {
        item: (end.leader_epoch, leader_epochs[item])
        for item, end in ends.items()
        if UNKNOWN_EPOCH < leader_epochs[item] < end.leader_epoch
    }
    kept = leaders.ends_of(asked) if asked else {}
    return {item: replace(end, kept_to=kept[item]) if item in kept else end for item, end in ends.items()}


@contextmanager
def epoch_ends(settings: Cluster, cluster: ClusterName, *, timeout_ms: int) -> Iterator[EpochEnd]:
    """`asked_once`, with connections of its own."""
    loop = EventLoop()
    connections = Connections(
        loop,
        cluster,
        settings,
        client_id="parallax-leader-epochs",
        largest_answer_bytes=_LARGEST_ANSWER_BYTES,
        timeout_ms=timeout_ms,
    )
    leaders = LeaderEpochs(loop, connections, timeout_ms=timeout_ms)

    try:
        connections.connect()
        yield asked_once(leaders, cluster)
    finally:
        leaders.close()


def asked_once(leaders: LeaderEpochs, cluster: ClusterName) -> EpochEnd:
    """Asks where a leader epoch ends when that is wanted for the first time.

    It raises `ClusterUnavailableError` where the leader does not answer in time, or does not know that epoch yet.
    """

    @cache
    def end_of(item: TopicPartition, epoch: int) -> int:
        end = leaders.ends_of({item: (UNKNOWN_EPOCH, epoch)}).get(item)
        if end is None:
            raise ClusterUnavailableError(
                f"{cluster}: {item}: its leader does not tell where leader epoch {epoch} ends"
            )
        return end

    return end_of


def _request(asked: Iterable[_Asked]) -> Any:
    topic_of = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    topics: dict[str, list[Any]] = {}
    for item, current, epoch in asked:
        part = topic_of.OffsetForLeaderPartition(
            partition=item.partition, current_leader_epoch=current, leader_epoch=epoch
        )
        topics.setdefault(str(item.topic), []).append(part)
    return OffsetForLeaderEpochRequest(
        replica_id=_CONSUMER,
        topics=[topic_of(topic=topic, partitions=parts) for topic, parts in topics.items()],
        max_version=4,
    )


def _answers(answer: Any) -> Iterable[tuple[TopicPartition, int, int]]:
    """Partition, error code and end offset."""
    for topic in answer.topics:
        for part in topic.partitions:
            yield TopicPartition(TopicName(topic.topic), part.partition), part.error_code, part.end_offset
