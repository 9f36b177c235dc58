"""Asking Kafka clusters that may be away: one failure answers for the rest of a call, and briefly for others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from parallax.domain.errors import ClusterUnavailableError, UnknownRegionError
from parallax.domain.ids import ClusterName, GroupName, TopicId, TopicName, TopicPartition
from parallax.domain.resume import LogRange
from parallax.ports import ClusterReader, GroupCommit, TopicInfo

T = TypeVar("T")


class Clusters:
    """The aggregate clusters, each with a memory of its last failure.

    A dead cluster costs a time-out whenever it is asked. After a failure it counts as away for ``retry_after_ms``
    without being asked, so that a burst of calls in a disaster pays for one time-out, not for one each.
    """

    def __init__(
        self,
        readers: Mapping[ClusterName, ClusterReader],
        *,
        retry_after_ms: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._readers = readers
        self._retry_after_s = retry_after_ms / 1_000
        self._clock = clock
        self._failures: dict[ClusterName, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def reader(self, cluster: ClusterName) -> ClusterReader:
        """The cluster's reader.

        Raises:
            UnknownRegionError: there is none.
        """
        if cluster not in self._readers:
            known = ", ".join(sorted(self._readers)) or "none"
            raise UnknownRegionError(f"unknown aggregate cluster {cluster!r}; known: {known}")
        return self._readers[cluster]

    def ask(self, cluster: ClusterName, question: Callable[[ClusterReader], T]) -> T:
        """Ask the cluster.

        Raises:
            ClusterUnavailableError: it did not answer, now or a moment ago.
        """
        reader = self.reader(cluster)
        with self._lock:
            failed = self._failures.get(cluster)
        if failed is not None and self._clock() < failed[0]:
            raise ClusterUnavailableError(failed[1])
        try:
            answer = question(reader)
        except ClusterUnavailableError as error:
            with self._lock:
                self._failures[cluster] = (self._clock() + self._retry_after_s, str(error))
            raise
        if failed is not None:
            with self._lock:
                self._failures.pop(cluster, None)
        return answer

    def view(self, cluster: ClusterName) -> ClusterView:
        """The cluster as one call sees it."""
        self.reader(cluster)
        return ClusterView(self, cluster)


class ClusterView:
    """One cluster during one call: after its first failure it is not asked again, and everything is empty."""

    def __init__(self, clusters: Clusters, cluster: ClusterName) -> None:
        self._clusters = clusters
        self.cluster = cluster
        self.failure: str | None = None
        self._topics: Mapping[TopicName, TopicInfo] | None = None

    @property
    def reachable(self) -> bool:
        """Whether every question so far was answered."""
        return self.failure is None

    def topics(self) -> Mapping[TopicName, TopicInfo]:
        """Every topic; asked once."""
        if self._topics is None:
            found: Mapping[TopicName, TopicInfo] = {}
            self._topics = self._ask(lambda reader: reader.topics(), found)
        return self._topics

    def topic_id(self, topic: TopicName) -> TopicId | None:
        """The topic's present id; empty if the cluster has no such topic, None if it could not be asked."""
        info = self.topics().get(topic)
        if info is not None:
            return info.topic_id
        return TopicId("") if self.reachable else None

    def log_ranges(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, LogRange]:
        """Log ranges of those of the partitions that exist."""
        topics = self.topics()
        present = [
            item
            for item in partitions
            if item.topic in topics and item.partition < topics[item.topic].partitions
        ]
        return self._ask(lambda reader: reader.log_ranges(present), {}) if present else {}

    def committed(self, group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
        """The group's committed offsets."""
        return self._ask(lambda reader: reader.committed(group), {})

    def _ask(self, question: Callable[[ClusterReader], T], nothing: T) -> T:
        if self.failure is not None:
            return nothing
        try:
            return self._clusters.ask(self.cluster, question)
        except ClusterUnavailableError as error:
            self.failure = str(error)
            return nothing
