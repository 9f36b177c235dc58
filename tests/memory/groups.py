"""The stores of groups in memory. Each is safe to use from several threads."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from parallax.domain.commits import ObservedCommit, PublishedOffset
from parallax.domain.ids import ClusterName, GroupName, TopicName, TopicPartition
from parallax.domain.primary import NO_NUMBER, PrimaryDecision, outlived
from parallax.domain.progress import Progress
from parallax.ports.groups import (
    NamePage,
    OperationNote,
    OperationPlace,
    PrimaryLog,
    Reach,
    StoredGroup,
)

_Side = tuple[GroupName, ClusterName]


def on_page(names: Sequence[GroupName], page: NamePage) -> list[GroupName]:
    """Those of the sorted names that a page wants."""
    return [name for name in names if name.startswith(page.prefix) and name > page.after][: page.limit]


def _behind(notes: Sequence[OperationNote], after: OperationPlace) -> list[OperationNote]:
    place = (-after.started_at_ms, after.operation_id)
    return [note for note in notes if (-note.started_at_ms, note.operation_id) > place]


class MemoryGroupStore:
    """What one process remembers of consumer groups."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: set[GroupName] = set()
        self._progress: dict[tuple[GroupName, TopicName], dict[int, tuple[int, Progress | None]]] = (
            defaultdict(dict)
        )
        self._observed: dict[_Side, dict[TopicPartition, ObservedCommit]] = defaultdict(dict)
        self._published: dict[_Side, dict[TopicPartition, PublishedOffset]] = defaultdict(dict)
        self._stands_at_ms: dict[_Side, int] = {}
        self._reported_at_ms: dict[_Side, int] = {}
        self._empty_since_ms: dict[GroupName, int] = {}
        self._voided_at_ms: dict[tuple[str, GroupName, ClusterName, TopicPartition], int] = {}

    def groups(self) -> Sequence[GroupName]:
        """Every group that was ever saved, sorted."""
        with self._lock:
            return sorted(self._groups)

    def group_page(self, page: NamePage) -> Sequence[GroupName]:
        """The next of them."""
        return on_page(self.groups(), page)

    def knows(self, group: GroupName) -> bool:
        """Whether it is one of them."""
        with self._lock:
            return group in self._groups

    def stored(
        self, groups: Collection[GroupName], clusters: Collection[ClusterName]
    ) -> Mapping[GroupName, StoredGroup]:
        """What is remembered of each of the groups."""
        with self._lock:
            topics: dict[GroupName, list[TopicName]] = {group: [] for group in groups}
            for group, topic in self._progress:
                if group in topics:
                    topics[group].append(topic)
        return {
            group: StoredGroup(
                {cluster: self.observed(group, cluster) for cluster in clusters},
                {cluster: self.published(group, cluster) for cluster in clusters},
                {topic: self.progress(group, topic) for topic in topics[group]},
            )
            for group in groups
        }

    def progress(self, group: GroupName, topic: TopicName) -> Mapping[int, Progress]:
        """What the group's last move left, by partition."""
        with self._lock:
            return {
                partition: replace(stored, moved_at_ms=moved_at_ms)
                for partition, (moved_at_ms, stored) in self._progress[group, topic].items()
                if stored is not None
            }

    def save_progress(
        self,
        group: GroupName,
        topic: TopicName,
        progress: Mapping[int, Progress],
        *,
        moved_at_ms: int,
        stored: object = None,
    ) -> None:
        """Replace the progress of the partitions named; others keep theirs."""
        del stored  # there is nothing that can't be read
        with self._lock:
            self._groups.add(group)
            present = self._progress[group, topic]
            for partition, item in progress.items():
                if moved_at_ms >= present.get(partition, (-1, None))[0]:
                    present[partition] = (moved_at_ms, item)

    def void_progress(self, group: GroupName, topic: TopicName, partitions: Collection[int]) -> None:
        """Forget it: the group was rewound. Only a later move counts again."""
        with self._lock:
            stored = self._progress[group, topic]
            for partition in stored.keys() & set(partitions):
                stored[partition] = (stored[partition][0], None)

    def observed(self, group: GroupName, cluster: ClusterName) -> Sequence[ObservedCommit]:
        """The group's commits as last seen on the cluster, by partition."""
        with self._lock:
            stands_at_ms = self._stands_at_ms.get((group, cluster), -1)
            found = [item.standing_at(stands_at_ms) for item in self._observed[group, cluster].values()]
        return sorted(found, key=lambda item: item.topic_partition)

    def save_observed(self, commits: Sequence[ObservedCommit]) -> None:
        """Remember commits; an older ``observed_at_ms`` than the stored one is ignored."""
        with self._lock:
            for item in commits:
                self._groups.add(item.group)
                side = (item.group, item.cluster)
                stored = self._observed[side].get(item.topic_partition)
                newest_ms = -1 if stored is None else stored.observed_at_ms
                if item.observed_at_ms >= newest_ms and self._is_after_void(
                    "observed", side, item.topic_partition, item.observed_at_ms
                ):
                    self._observed[side][item.topic_partition] = item
                if item.reported:
                    self._reported_at_ms[side] = max(item.observed_at_ms, self._reported_at_ms.get(side, -1))

    def note_standing(self, cluster: ClusterName, groups: Collection[GroupName], at_ms: int) -> None:
        """Remember that what was seen of these groups on the cluster stood there at the moment."""
        with self._lock:
            for group in groups:
                self._stands_at_ms[group, cluster] = max(at_ms, self._stands_at_ms.get((group, cluster), -1))

    def reported(self, cluster: ClusterName, groups: Collection[GroupName]) -> Mapping[GroupName, int]:
        """When a member last reported of each of the groups there."""
        with self._lock:
            return {
                group: self._reported_at_ms[group, cluster]
                for group in groups
                if (group, cluster) in self._reported_at_ms
            }

    def void_observed(self, commits: Collection[ObservedCommit]) -> None:
        """Forget what was seen; what was seen later is kept."""
        with self._lock:
            for item in commits:
                side = (item.group, item.cluster)
                stored = self._observed[side].get(item.topic_partition)
                self._void("observed", side, item.topic_partition, item.observed_at_ms)
                if stored is not None and stored.observed_at_ms <= item.observed_at_ms:
                    del self._observed[side][item.topic_partition]

    def published(self, group: GroupName, cluster: ClusterName) -> Sequence[PublishedOffset]:
        """What was last published for the group on the cluster, by partition."""
        with self._lock:
            found = list(self._published[group, cluster].values())
        return sorted(found, key=lambda item: item.topic_partition)

    def save_published(self, offsets: Sequence[PublishedOffset]) -> None:
        """Remember what was published; an older ``published_at_ms`` than the stored one is ignored."""
        with self._lock:
            for item in offsets:
                self._groups.add(item.group)
                side = (item.group, item.progress.cluster)
                stored = self._published[side].get(item.topic_partition)
                newest_ms = -1 if stored is None else stored.published_at_ms
                if item.published_at_ms >= newest_ms and self._is_after_void(
                    "published", side, item.topic_partition, item.published_at_ms
                ):
                    self._published[side][item.topic_partition] = item

    def void_published(self, offsets: Collection[PublishedOffset]) -> None:
        """Forget what was published; what was published later is kept."""
        with self._lock:
            for item in offsets:
                side = (item.group, item.progress.cluster)
                stored = self._published[side].get(item.topic_partition)
                self._void("published", side, item.topic_partition, item.published_at_ms)
                if stored is not None and stored.published_at_ms <= item.published_at_ms:
                    del self._published[side][item.topic_partition]

    def empty_since(self) -> Mapping[GroupName, int]:
        """Groups that were noted to have no commit anywhere, and since when."""
        with self._lock:
            return dict(self._empty_since_ms)

    def note_empty(self, group: GroupName, since_ms: int) -> None:
        """Remember that a group has no commit anywhere."""
        with self._lock:
            self._empty_since_ms[group] = since_ms

    def note_alive(self, group: GroupName) -> None:
        """Remember that it has."""
        with self._lock:
            self._empty_since_ms.pop(group, None)

    def forget(self, group: GroupName, *, at_ms: int) -> None:
        """Forget all that is known of a group; what is said of a later moment is kept."""
        self.note_alive(group)
        with self._lock:
            self._groups.discard(group)
            for place in [place for place in self._progress if place[0] == group]:
                for partition, (moved_at_ms, _) in list(self._progress[place].items()):
                    if moved_at_ms <= at_ms:
                        self._progress[place][partition] = (moved_at_ms, None)
            for side in [side for side in self._observed if side[0] == group]:
                self._observed[side] = {
                    place: item for place, item in self._observed[side].items() if item.observed_at_ms > at_ms
                }
            for side in [side for side in self._published if side[0] == group]:
                self._published[side] = {
                    place: item
                    for place, item in self._published[side].items()
                    if item.published_at_ms > at_ms
                }

    def _void(self, table: str, side: _Side, place: TopicPartition, at_ms: int) -> None:
        key = (table, *side, place)
        self._voided_at_ms[key] = max(at_ms, self._voided_at_ms.get(key, -1))

    def _is_after_void(self, table: str, side: _Side, place: TopicPartition, at_ms: int) -> bool:
        return at_ms > self._voided_at_ms.get((table, *side, place), -1)


class MemoryPrimaryStore:
    """What one region sees of decisions.

    Another region that can't be seen is another store; `absorb` is what happens when they see each other again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._decisions: dict[GroupName, dict[int, PrimaryDecision]] = {}
        self._latest: dict[GroupName, int] = {}

    def assigned_groups(self) -> Sequence[GroupName]:
        """Every group with a decision, sorted."""
        with self._lock:
            return sorted(self._decisions)

    def assigned_page(self, page: NamePage) -> Sequence[GroupName]:
        """The next of them."""
        return on_page(self.assigned_groups(), page)

    def decisions(self, groups: Collection[GroupName]) -> Mapping[GroupName, Sequence[PrimaryDecision]]:
        """The decisions of each group, the newest first; groups without any are left out."""
        with self._lock:
            return {group: self._newest_first(group) for group in groups if group in self._decisions}

    def read_log(self, group: GroupName, reach: Reach) -> PrimaryLog:
        """The group's decisions."""
        del reach  # one process agrees with itself
        with self._lock:
            return PrimaryLog(self._newest_first(group), self._latest.get(group, NO_NUMBER))

    def append(self, decision: PrimaryDecision, *, log: PrimaryLog, reach: Reach) -> bool:
        """Append unless somebody has appended since ``log`` was read; whether it was appended."""
        del reach
        with self._lock:
            if self._latest.get(decision.group, NO_NUMBER) != log.latest:
                return False
            self._decisions.setdefault(decision.group, {})[decision.fencing_number] = decision
            self._latest[decision.group] = decision.fencing_number
            for item in outlived(self._decisions[decision.group].values()):
                del self._decisions[decision.group][item.fencing_number]
            return True

    def forget(self, group: GroupName, decisions: Collection[PrimaryDecision]) -> bool:
        """Forget a group's decisions if they are all that there are; the number of the last append stays."""
        with self._lock:
            if set(self._decisions.get(group, {})) != {item.fencing_number for item in decisions}:
                return False
            self._decisions.pop(group, None)
            return True

    def absorb(self, other: MemoryPrimaryStore) -> None:
        """See all that the other store has seen; of two latest numbers either may stay, as in the real store."""
        for group in other.assigned_groups():
            log = other.read_log(group, Reach.HERE)
            with self._lock:
                stored = self._decisions.setdefault(group, {})
                stored.update({item.fencing_number: item for item in log.decisions})
                self._latest[group] = log.latest

    def _newest_first(self, group: GroupName) -> tuple[PrimaryDecision, ...]:
        stored = self._decisions.get(group, {})
        return tuple(stored[number] for number in sorted(stored, reverse=True))


class MemoryOperationJournal:
    """The commands of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: dict[tuple[GroupName, int, str], OperationNote] = {}

    def operations(self, group: GroupName) -> Sequence[OperationNote]:
        """The newest note of each of the group's operations, the newest operation first."""
        with self._lock:
            found = [note for key, note in self._notes.items() if key[0] == group]
        return sorted(found, key=lambda note: (-note.started_at_ms, note.operation_id))

    def operation_page(
        self, group: GroupName, after: OperationPlace, limit: int, *, summarised: bool
    ) -> Sequence[OperationNote]:
        """The next of a group's operations behind a place."""
        notes = _behind(self.operations(group), after)[:limit]
        if not summarised:
            return [replace(note, summary="") for note in notes]
        return [replace(note, body="" if note.summary else note.body) for note in notes]

    def summaries(self, after: OperationPlace, limit: int) -> Sequence[OperationNote]:
        """The next operations of all groups behind a place that were kept with a summary."""
        with self._lock:
            notes = [note for note in self._notes.values() if note.summary]
        ordered = sorted(notes, key=lambda note: (-note.started_at_ms, note.operation_id))
        return [replace(note, body="") for note in _behind(ordered, after)[:limit]]

    def save_operation(self, note: OperationNote) -> None:
        """Keep a note; one with a smaller version than the stored one is ignored."""
        key = (note.group, note.started_at_ms, note.operation_id)
        with self._lock:
            stored = self._notes.get(key)
            if stored is None or stored.version <= note.version:
                self._notes[key] = note
