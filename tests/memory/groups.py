"""`GroupStore` in memory."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence

from parallax.domain.commits import ObservedCommit, PublishedOffset
from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.progress import Progress


class MemoryGroupStore:
    """What one process remembers of consumer groups. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[GroupName] = set()
        self._progress: dict[tuple[GroupName, TopicName, int], tuple[int, Progress | None]] = {}
        self._observed: dict[tuple[GroupName, ClusterName, TopicPartition], ObservedCommit] = {}
        self._published: dict[tuple[GroupName, ClusterName, TopicPartition], PublishedOffset] = {}

    def groups(self) -> Sequence[GroupName]:
        """Every group that was ever saved, sorted."""
        with self._lock:
            return sorted(self._groups)

    def progress(self, group: GroupName, topic: TopicName) -> Mapping[int, Progress]:
        """What the group's last move left, by partition."""
        with self._lock:
            return {
                partition: stored
                for (of_group, of_topic, partition), (_, stored) in self._progress.items()
                if (of_group, of_topic) == (group, topic) and stored is not None
            }

    def save_progress(
        self, group: GroupName, topic: TopicName, progress: Mapping[int, Progress], *, moved_at_ms: int
    ) -> None:
        """Replace the progress of the partitions named; others keep theirs."""
        with self._lock:
            self._groups.add(group)
            for partition, item in progress.items():
                key = (group, topic, partition)
                moved_before_ms = self._progress.get(key, (-1, None))[0]
                if moved_at_ms > moved_before_ms:
                    self._progress[key] = (moved_at_ms, item)

    def void_progress(self, group: GroupName, topic: TopicName, partitions: Collection[int]) -> None:
        """Forget it: the group was rewound. Only a later move counts again."""
        with self._lock:
            for partition in partitions:
                key = (group, topic, partition)
                if key in self._progress:
                    self._progress[key] = (self._progress[key][0], None)

    def observed(self, group: GroupName, cluster: ClusterName) -> Sequence[ObservedCommit]:
        """The group's commits as last seen on the cluster, by partition."""
        with self._lock:
            found = [item for key, item in self._observed.items() if key[:2] == (group, cluster)]
        return sorted(found, key=lambda item: item.topic_partition)

    def save_observed(self, commits: Sequence[ObservedCommit]) -> None:
        """Remember commits; an older ``observed_at_ms`` than the stored one is ignored."""
        with self._lock:
            for item in commits:
                self._groups.add(item.group)
                key = (item.group, item.cluster, item.topic_partition)
                stored = self._observed.get(key)
                if stored is None or stored.observed_at_ms < item.observed_at_ms:
                    self._observed[key] = item

    def published(self, group: GroupName, cluster: ClusterName) -> Sequence[PublishedOffset]:
        """What was last published for the group on the cluster, by partition."""
        with self._lock:
            found = [item for key, item in self._published.items() if key[:2] == (group, cluster)]
        return sorted(found, key=lambda item: item.topic_partition)

    def save_published(self, offsets: Sequence[PublishedOffset]) -> None:
        """Remember what was published; an older ``published_at_ms`` than the stored one is ignored."""
        with self._lock:
            for item in offsets:
                self._groups.add(item.group)
                key = (item.group, item.progress.cluster, item.topic_partition)
                stored = self._published.get(key)
                if stored is None or stored.published_at_ms < item.published_at_ms:
                    self._published[key] = item
