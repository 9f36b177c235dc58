"""Where a group stands: its own word, its commits, or what was seen of it when the cluster is away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from offsetsvc.answers import Basis, Commit
from offsetsvc.clusters import ClusterView
from parallax.domain.commits import GroupCommit, ObservedCommit, next_offset_of, went_back
from parallax.domain.formats import UnreadableRow, apart
from parallax.domain.ids import UNKNOWN_EPOCH, ClusterName, GroupName, TargetOffset, TopicId, TopicPartition
from parallax.domain.progress import Progress
from parallax.errors import ClusterUnavailableError, UnknownGroupError, UnreadableRowError
from parallax.ports.groups import GroupStore


@dataclass(frozen=True, slots=True)
class _Seen:
    next_offset: TargetOffset
    topic_id: TopicId | None
    at_ms: int
    leader_epoch: int = UNKNOWN_EPOCH


class Commits:
    """One group's positions at the origin.

    Args:
        group: the group.
        origin: its cluster, as this call sees it.
        destination: where it goes: what was published there tells of the origin too.
        store: what is remembered of groups.
        own: the caller's positions, which outweigh everything.
        read_epochs: leader epochs that go with them, see `Commit.read_epoch`.
    """

    def __init__(
        self,
        group: GroupName,
        origin: ClusterView,
        destination: ClusterName,
        store: GroupStore,
        own: Mapping[TopicPartition, TargetOffset],
        read_epochs: Mapping[TopicPartition, int],
    ) -> None:
        self._read_epochs = read_epochs
        self._group = group
        self._origin = origin
        self._destination = destination
        self._store = store
        self._own = own
        self._committed: Mapping[TopicPartition, GroupCommit] | None = None
        self._again: Mapping[TopicPartition, GroupCommit] | None = None
        self._observed: Mapping[TopicPartition, ObservedCommit] | None = None
        self._seen: dict[TopicPartition, _Seen] | None = None
        self._unreadable: dict[TopicPartition, UnreadableRow] = {}

    def partitions(self) -> set[TopicPartition]:
        """Every partition with a position.

        Raises:
            UnknownGroupError: there is none, and no table knows the group.
            ClusterUnavailableError: there is none, and the cluster could not be asked.
        """
        partitions = {*self._own, *self.read()}
        if not self._origin.reachable:
            partitions |= {*self._remembered(), *self._unreadable}
        if not partitions:
            self._require_known()
        return partitions

    def of(self, partition: TopicPartition, topic_id: TopicId | None) -> Commit:
        """The position on one partition.

        Args:
            partition: the partition.
            topic_id: the topic's incarnation at the origin; what was seen under another one is void.

        Raises:
            UnreadableRowError: the cluster is away, and what was seen there can't be read.
        """
        if partition in self._own:
            read_epoch = self._read_epochs.get(partition, UNKNOWN_EPOCH)
            return Commit(self._own[partition], Basis.CALLER, read_epoch=read_epoch)
        committed = self.read().get(partition)
        if committed is not None:
            return Commit(committed.next_offset, Basis.COMMITTED, leader_epoch=committed.leader_epoch)
        if not self._origin.reachable:
            seen = self._remembered().get(partition)
            if seen is not None and (seen.topic_id is None or topic_id is None or seen.topic_id == topic_id):
                return Commit(seen.next_offset, Basis.OBSERVED, seen.at_ms, seen.leader_epoch)
            if seen is None and partition in self._unreadable:
                raise UnreadableRowError(self._unreadable[partition].problem)
        return Commit(None, Basis.POLICY)

    def require_position(self, partition: TopicPartition) -> None:
        """Refuse a group that nobody knows, unless the caller brought a position.

        Raises:
            UnknownGroupError: the group never committed, and no table knows it.
            ClusterUnavailableError: the cluster could not be asked, and no table knows the group.
        """
        if partition not in self._own:
            self.partitions()

    def read(self) -> Mapping[TopicPartition, GroupCommit]:
        """What the group committed at the origin; asked once."""
        if self._committed is None:
            self._committed = self._origin.committed(self._group)
        return self._committed

    def went_back(self, partition: TopicPartition, progress: Progress) -> bool:
        """Whether the group's commit has vanished, or gone back, since the move to the origin that left ``progress``.

        A cluster that does not answer shows neither.

        Raises:
            UnreadableRowError: what was last seen there can't be read, so that nothing tells.
        """
        committed = self.read()
        seen = self._last_seen().get(partition)
        if self._origin.reachable and seen is None and partition in self._unreadable:
            raise UnreadableRowError(self._unreadable[partition].problem)
        if not self._origin.reachable or not went_back(next_offset_of(committed, partition), seen, progress):
            return False
        # What was seen may be newer than what this call has read.
        if self._again is None:
            self._again = self._origin.committed(self._group)
        return self._origin.reachable and went_back(next_offset_of(self._again, partition), seen, progress)

    def _last_seen(self) -> Mapping[TopicPartition, ObservedCommit]:
        if self._observed is None:
            rows, unreadable = apart(self._store.observed(self._group, self._origin.cluster))
            self._observed = {item.topic_partition: item for item in rows}
            self._unreadable = {row.topic_partition: row for row in unreadable}
        return self._observed

    def _remembered(self) -> Mapping[TopicPartition, _Seen]:
        """What was seen or reported last, or what the last publication was computed from; the later counts."""
        if self._seen is None:
            observed = self._last_seen()
            told, not_told = apart(self._store.published(self._group, self._destination))
            # An earlier position of the same partition does as well, and no position at all would be a guess.
            self._unreadable = {row.topic_partition: row for row in not_told} | self._unreadable
            self._seen = {
                partition: _Seen(item.next_offset, item.topic_id, item.observed_at_ms, item.leader_epoch)
                for partition, item in observed.items()
            }
            for published in told:
                item = observed.get(published.topic_partition)
                at_ms, position = published.published_at_ms, published.origin_next_offset
                if published.origin_cluster != self._origin.cluster or position is None:
                    continue
                # The job remembers what it has seen before it publishes, and forgets that if the commit vanishes.
                if item is None:
                    continue
                # The job that publishes goes by commits; a member's report is ahead of them.
                if item.counts_at(at_ms) or item.observed_at_ms >= at_ms:
                    continue
                self._seen[published.topic_partition] = _Seen(position, item.topic_id, at_ms)
        return self._seen

    def _require_known(self) -> None:
        if self._store.knows(self._group):
            return
        if not self._origin.reachable:
            raise ClusterUnavailableError(
                f"{self._origin.failure}; nothing was ever seen of group {self._group!r} there, "
                "so its position must come with the request (next_offset)"
            )
        raise UnknownGroupError(
            f"group {self._group!r} has no committed offset in {self._origin.cluster}, and no table knows it; "
            "name next_offset to ask for a position of your own"
        )
