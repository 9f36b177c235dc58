"""Asking Kafka clusters that may be away: one failure answers for everybody until the cluster answers again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

import structlog

from parallax.domain.commits import GroupCommit
from parallax.domain.ids import ClusterName, GroupName, TargetOffset, TopicId, TopicName, TopicPartition
from parallax.domain.place import KeptEpoch, LogRange
from parallax.errors import ClusterUnavailableError, ParallaxError, UnknownRegionError
from parallax.ports.clusters import ClusterReader, PositionTime, TopicInfo

_log = structlog.get_logger(__name__)

T = TypeVar("T")


class Clusters:
    """The aggregate clusters, and which of them are away.

    A dead cluster costs a time-out whenever it is asked. After a failure it counts as away until it has answered
    a probe in the background, so that no call in a disaster pays for that but the first.

    Args:
        readers: a reader for every cluster.
        probe_every_ms: between two probes of a cluster that is away.
    """

    def __init__(self, readers: Mapping[ClusterName, ClusterReader], *, probe_every_ms: float) -> None:
        self._readers = readers
        self._probe_every_s = probe_every_ms / 1_000
        self._failures: dict[ClusterName, str] = {}
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def close(self) -> None:
        """Probe no more."""
        self._closed.set()

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
            ClusterUnavailableError: it does not answer, or has not answered a probe since it did not.
        """
        reader = self.reader(cluster)
        with self._lock:
            failure = self._failures.get(cluster)
        if failure is not None:
            raise ClusterUnavailableError(failure)
        try:
            return question(reader)
        except ClusterUnavailableError as error:
            self._away(cluster, reader, str(error))
            raise

    def _away(self, cluster: ClusterName, reader: ClusterReader, failure: str) -> None:
        with self._lock:
            first = cluster not in self._failures
            self._failures[cluster] = failure
        if not first:
            return
        try:
            threading.Thread(
                target=self._probe, args=(cluster, reader), name=f"offsetsvc-probe-{cluster}", daemon=True
            ).start()
        except RuntimeError as error:  # no more threads: who asks next finds out by itself, and tries again
            _log.error("probe_failed", cluster=cluster, exc_info=error)
            with self._lock:
                del self._failures[cluster]

    def _probe(self, cluster: ClusterName, reader: ClusterReader) -> None:
        while not self._closed.wait(self._probe_every_s):
            try:
                reader.topics()
            except ParallaxError:
                continue
            except Exception as error:  # noqa: BLE001 - without further probes the cluster would be away for good
                _log.error("probe_failed", cluster=cluster, exc_info=error)
                continue
            with self._lock:
                del self._failures[cluster]
            return

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
            nothing: Mapping[TopicName, TopicInfo] = {}
            self._topics = self._ask(lambda reader: reader.topics(), nothing)
        return self._topics

    def topic_id(self, topic: TopicName) -> TopicId | None:
        """The topic's present id; empty if the cluster has no such topic, None if it could not be asked."""
        info = self.topics().get(topic)
        if info is not None:
            return info.topic_id
        return TopicId("") if self.reachable else None

    def log_ranges(
        self, partitions: Collection[TopicPartition], *, fresh: bool = False
    ) -> Mapping[TopicPartition, LogRange]:
        """Log ranges of those of the partitions that exist and have a leader; ``fresh``: none from memory."""
        present = self._present(partitions)
        return self._ask(lambda reader: reader.log_ranges(present, fresh=fresh), {}) if present else {}

    def kept_epochs(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, KeptEpoch]:
        """What the logs have of a leader epoch, of those of the partitions that exist and whose leader tells."""
        asked = {item: epochs[item] for item in self._present(epochs)}
        return self._ask(lambda reader: reader.kept_epochs(asked), {}) if asked else {}

    def time_at(self, partition: TopicPartition, position: TargetOffset) -> PositionTime | None:
        """When a position is; None also if the cluster could not be asked."""
        return self._ask(lambda reader: reader.time_at(partition, position), None)

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> TargetOffset | None:
        """The first offset of that time or later; None also if the cluster could not be asked."""
        return self._ask(lambda reader: reader.offset_at(partition, timestamp_ms), None)

    def committed(self, group: GroupName) -> Mapping[TopicPartition, GroupCommit]:
        """The group's committed offsets."""
        return self._ask(lambda reader: reader.committed(group), {})

    def _present(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        topics = self.topics()
        return [
            item
            for item in partitions
            if item.topic in topics and item.partition < topics[item.topic].partitions
        ]

    def _ask(self, question: Callable[[ClusterReader], T], nothing: T) -> T:
        if self.failure is not None:
            return nothing
        try:
            return self._clusters.ask(self.cluster, question)
        except ClusterUnavailableError as error:
            self.failure = str(error)
            return nothing
