"""The store of what groups committed, of what was published for them, and of their progress."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from parallax.domain.commits import ObservedCommit, PublishedOffset
from parallax.domain.ids import ClusterName, GroupName, TopicName
from parallax.domain.progress import Progress


class GroupStore(Protocol):
    """What is remembered of consumer groups."""

    def groups(self) -> Sequence[GroupName]:
        """Every group that any table knows."""

    def progress(self, group: GroupName, topic: TopicName) -> Mapping[int, Progress]:
        """What the group's last move left, by partition."""

    def save_progress(
        self, group: GroupName, topic: TopicName, progress: Mapping[int, Progress], *, moved_at_ms: int
    ) -> None:
        """Replace it: once per move. An older ``moved_at_ms`` than the stored one is ignored."""

    def void_progress(self, group: GroupName, topic: TopicName, partitions: Collection[int]) -> None:
        """Forget it: the group was rewound."""

    def observed(self, group: GroupName, cluster: ClusterName) -> Sequence[ObservedCommit]:
        """The group's commits as last seen on the cluster."""

    def save_observed(self, commits: Sequence[ObservedCommit]) -> None:
        """Remember commits; an older ``observed_at_ms`` than the stored one is ignored."""

    def published(self, group: GroupName, cluster: ClusterName) -> Sequence[PublishedOffset]:
        """What was last published for the group on the cluster."""

    def save_published(self, offsets: Sequence[PublishedOffset]) -> None:
        """Remember what was published; an older ``published_at_ms`` than the stored one is ignored."""
