"""What moves leave: remembered for the next one, and audited where it changes what was recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from parallax.domain.formats import UnreadableRow, apart
from parallax.domain.ids import GroupName, TopicName, TopicPartition
from parallax.domain.progress import Progress, moved_at
from parallax.domain.rights import Principal
from parallax.errors import UnreadableRowError
from parallax.ports.audit import Auditor
from parallax.ports.groups import GroupStore

_UNREADABLE = "unreadable"


class RecordedMoves:
    """Saves what moves leave. Safe to use from many threads.

    Args:
        groups: remembers it.
        auditor: keeps who said so.

    Attributes:
        tell_unaudited: hears by which call a report came that changed nothing of what is recorded as a move: members
            report many times a second, and that is counted alone.
    """

    def __init__(self, groups: GroupStore, auditor: Auditor) -> None:
        self.tell_unaudited: Callable[[str], None] = lambda _: None
        self._groups = groups
        self._auditor = auditor

    def save(
        self,
        by: Principal,
        call: str,
        group: GroupName,
        left: Mapping[TopicPartition, Progress],
        now_ms: int,
        before: Iterable[Progress] | None = None,
    ) -> None:
        """Remember what a group's move has left.

        Args:
            by: who says so.
            call: with which call.
            group: the group.
            left: by partition.
            now_ms: when, by the store's clock.
            before: the moves that it comes after; None: all that are recorded.

        Raises:
            StoreUnavailableError: not all was remembered, or nothing since it could not be audited; telling it again does
                no harm.
            UnreadableRowError: what is stored of one of the partitions can't be read and stands; all else was remembered.
        """
        by_topic: dict[TopicName, dict[int, Progress]] = {}
        for item, progress in left.items():
            by_topic.setdefault(item.topic, {})[item.partition] = progress
        of_topic = {topic: self._groups.progress(group, topic) for topic in by_topic}
        stored = {
            TopicPartition(topic, partition): found
            for topic, of_partition in of_topic.items()
            for partition, found in of_partition.items()
        }
        earlier = apart(stored.values())[0] if before is None else before
        moved_at_ms = moved_at(now_ms, earlier)
        changed = {item: progress for item, progress in left.items() if _differs(progress, stored.get(item))}
        if not changed:
            self.tell_unaudited(call)
            self._save(group, by_topic, of_topic, moved_at_ms)
            return
        with self._auditor.act(
            by,
            call,
            group,
            before={str(item): _place(stored[item]) for item in sorted(changed) if item in stored},
            after={str(item): _place(progress) for item, progress in sorted(changed.items())},
        ):
            self._save(group, by_topic, of_topic, moved_at_ms)

    def _save(
        self,
        group: GroupName,
        by_topic: Mapping[TopicName, Mapping[int, Progress]],
        stored: Mapping[TopicName, Mapping[int, Progress | UnreadableRow]],
        moved_at_ms: int,
    ) -> None:
        problems: list[str] = []
        for topic, progress in sorted(by_topic.items()):
            try:
                self._groups.save_progress(
                    group, topic, progress, moved_at_ms=moved_at_ms, stored=stored[topic]
                )
            except UnreadableRowError as error:
                problems.append(str(error))
        if problems:
            raise UnreadableRowError("; ".join(problems))


def _differs(told: Progress, stored: Progress | UnreadableRow | None) -> bool:
    if not isinstance(stored, Progress):
        return True
    return (told.cluster, told.topic_id, told.resume_offset, told.positions) != (
        stored.cluster,
        stored.topic_id,
        stored.resume_offset,
        stored.positions,
    )


def _place(left: Progress | UnreadableRow) -> str:
    """Where a partition goes on, and how far its sources were consumed."""
    if isinstance(left, UnreadableRow):
        return _UNREADABLE
    sources = " ".join(
        f"{source.region}:{position.source_next}" for source, position in sorted(left.positions.items())
    )
    place = f"{left.cluster}@{left.resume_offset}"
    return f"{place} ({sources})" if sources else place
