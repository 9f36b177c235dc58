"""`ClusterReader` and `ClusterWriter` of a real cluster: topics and logs by librdkafka, groups by `GroupLinks`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import TypeVar

from confluent_kafka import (
    IsolationLevel,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import (
    TopicPartition as KafkaPartition,
)
from confluent_kafka.admin._listoffsets import OffsetSpec

from parallax.adapters.kafka.admin_link import AdminLink
from parallax.adapters.kafka.errors import translated
from parallax.adapters.kafka.groups import GroupLinks
from parallax.adapters.kafka.offsets import list_offsets
from parallax.adapters.kafka.settings import client_settings
from parallax.domain.errors import ClusterUnavailableError, NotFoundError
from parallax.domain.ids import (
    ClusterName,
    GroupName,
    TargetOffset,
    TopicId,
    TopicName,
    TopicPartition,
)
from parallax.domain.resume import LogRange
from parallax.ports import GroupCommit, GroupState, TopicInfo
from parallax.runtime.config import Cluster

T = TypeVar("T")

_OVERDUE = 3
"""While one caller asks for topics anew, the others go on with what is at most this many times as old."""

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # the library leaves it untyped
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call] # as above


def topic_id(uuid: object) -> TopicId:
    """A topic id in Kafka's own spelling (base64 for URLs); librdkafka prints the other alphabet."""
    return TopicId(str(uuid).replace("+", "-").replace("/", "_"))


class KafkaCluster:
    """One Kafka cluster. Safe to use from several threads; each call is bounded by ``timeout_ms``.

    Args:
        cluster: the cluster's name.
        settings: its address and security.
        timeout_ms: bound of each call.
        cache_ms: how long topics and log ranges may be answered from memory; 0 asks every time. An older end
            makes a resume offset earlier, never wrong.
    """

    def __init__(
        self,
        cluster: ClusterName,
        settings: Cluster,
        *,
        timeout_ms: int,
        cache_ms: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._link = AdminLink(
            client_settings(settings, client_id=f"parallax-{cluster}"), timeout_s=timeout_ms / 1_000
        )
        self._groups = GroupLinks(cluster, settings, self._link.timeout_s)
        self._cache_s = cache_ms / 1_000
        self._clock = clock
        self._topics: tuple[float, Mapping[TopicName, TopicInfo]] | None = None
        self._ranges: dict[TopicPartition, tuple[float, LogRange]] = {}
        self._asking_for_topics = threading.Lock()
        self._no_topics: tuple[float, ClusterUnavailableError] | None = None

    @property
    def cluster(self) -> ClusterName:
        """The cluster's name."""
        return self._cluster

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        """Every topic but internal ones, with its id and partition count."""
        found = self._known_topics(self._cache_s)
        if found is None and self._asking_for_topics.locked():
            found = self._known_topics(_OVERDUE * self._cache_s)
        if found is not None:
            return found
        called_at = self._clock()
        with self._asking_for_topics:
            # Who waited for another one's question shares its answer, and above all its failure.
            if self._no_topics is not None and self._no_topics[0] > called_at:
                raise ClusterUnavailableError(str(self._no_topics[1]))
            if self._topics is not None and self._topics[0] > called_at:
                return self._topics[1]
            asked_at = self._clock()
            try:
                topics = self._ask_for_topics()
            except ClusterUnavailableError as error:
                self._no_topics = (self._clock(), error)
                raise
            self._topics = (asked_at, topics)
            return topics

    def _known_topics(self, max_age_s: float) -> Mapping[TopicName, TopicInfo] | None:
        known = self._topics
        return known[1] if known is not None and self._clock() - known[0] < max_age_s else None

    def _ask_for_topics(self) -> dict[TopicName, TopicInfo]:
        admin, timeout_s = self._link.client, self._link.timeout_s()
        try:
            names = [
                name for name in admin.list_topics(timeout=timeout_s).topics if not name.startswith("__")
            ]
        except KafkaException as error:
            raise translated(error, self._cluster, "listing topics") from error
        found: dict[TopicName, TopicInfo] = {}
        if names:
            answers = admin.describe_topics(TopicCollection(names), request_timeout=timeout_s)
            for name, future in answers.items():
                try:
                    description = self._result(future, f"describing topic {name!r}")
                except NotFoundError:
                    continue  # deleted between the two calls
                found[TopicName(name)] = TopicInfo(
                    TopicName(name), topic_id(description.topic_id), len(description.partitions)
                )
        return found

    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """Log start and high watermark of the partitions; one that does not exist is left out."""
        known = {
            partition: cached[1]
            for partition in partitions
            if (cached := self._ranges.get(partition)) is not None and self._fresh(cached[0])
        }
        missing = [partition for partition in partitions if partition not in known]
        if missing:
            asked_at = self._clock()
            lows = self._offsets(missing, _EARLIEST)
            highs = self._offsets(missing, _LATEST)
            for partition in missing:
                if partition in lows and partition in highs:
                    found = LogRange(TargetOffset(lows[partition]), TargetOffset(highs[partition]))
                    known[partition] = found
                    self._ranges[partition] = (asked_at, found)
        return known

    def groups(self) -> list[GroupState]:
        """Every consumer group with its state; members are counted for groups that have any."""
        listed = self._result(
            self._link.client.list_consumer_groups(request_timeout=self._link.timeout_s()),
            "listing consumer groups",
        )
        names = [GroupName(item.group_id) for item in listed.valid]
        return self._groups.describe(names)

    def committed(self, group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
        """Every committed offset of the group; empty for one that never committed.

        Raises:
            ConfigError: the group has offsets on a topic that this client may not see.
            ClusterUnavailableError: the cluster did not answer in time, or not for every partition.
        """
        return self._groups.committed(group)

    def commit_for(self, group: GroupName, commits: Mapping[TopicPartition, GroupCommit]) -> None:
        """Set committed offsets of a group without members.

        Raises:
            FencedError: the group has members; nothing was written.
            ClusterUnavailableError: the cluster did not answer in time; the offsets may or may not be written.
        """
        if commits:
            self._groups.commit(group, commits)

    def _offsets(self, partitions: Collection[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        # Isolation level 0: "latest" is the high watermark. Level 1 would give the last stable offset, below
        # which an open transaction of another source may already hold records.
        request = {KafkaPartition(item.topic, item.partition): spec for item in partitions}
        futures = list_offsets(
            self._link.client,
            request,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=self._link.timeout_s(),
        )
        found = {}
        for item, future in futures.items():
            try:
                answer = self._result(future, f"reading offsets of {item.topic}-{item.partition}")
            except NotFoundError:
                continue
            found[TopicPartition(TopicName(item.topic), item.partition)] = answer.offset
        return found

    def _result(self, future: Future[T], doing: str) -> T:
        """The future's result, its error translated.

        The admin client bounds its requests itself; the extra second is for a future that it forgot.
        """
        try:
            return future.result(timeout=self._link.longest_s + 1)
        except (KafkaException, TimeoutError) as error:
            raise translated(error, self._cluster, doing) from error

    def _fresh(self, asked_at: float) -> bool:
        return self._clock() - asked_at < self._cache_s
