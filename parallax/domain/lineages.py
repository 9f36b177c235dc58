"""Which lineages of a topic count on an aggregate cluster, and which of their rows are void."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from parallax.domain.ids import (
    NO_TOPIC,
    UNKNOWN_EPOCH,
    Lineage,
    Route,
    RoutePartition,
    SourceId,
    TargetOffset,
    TopicId,
)
from parallax.domain.index_rows import LineageRecord, RouteTopic, StampedRow
from parallax.domain.progress import TargetTruncation
from parallax.errors import UnreadableRowError


@dataclass(frozen=True, slots=True)
class LineageView:
    """A lineage that counts.

    Attributes:
        cut: a later lineage began here: rows from here on, if there are any, the target has lost, and gave their offsets
            again. None: no lineage is later.
        lost_epoch: of the loss: what was written after it has this leader epoch of the target or a later one;
            UNKNOWN_EPOCH: not told.
        newest: its newest row; None without rows.
    """

    record: LineageRecord
    cut: TargetOffset | None
    newest: StampedRow | None
    lost_epoch: int = UNKNOWN_EPOCH

    @property
    def partition(self) -> RoutePartition:
        """Its route and partition."""
        return self.record.partition

    @property
    def lineage(self) -> Lineage:
        """Its ids."""
        return self.record.lineage

    @property
    def source(self) -> SourceId:
        """The source that it copies."""
        return SourceId(self.partition.route.source, self.lineage.source_topic_id)


@dataclass(frozen=True, slots=True)
class TopicLineages:
    """The lineages of one topic on one aggregate cluster.

    Attributes:
        topic_id: the incarnation of the topic there that they belong to; None: the index knows none.
        by_partition: those that count, by route in configured order, older ones first.
        void_partitions: partitions whose lineages all belong to an earlier incarnation.
        partitions: how many partitions the index has seen, under any id.
        unreadable: of partitions that are left out of ``by_partition``, since a newest row can't be read, why.
    """

    topic_id: TopicId | None
    by_partition: Mapping[int, tuple[LineageView, ...]]
    void_partitions: frozenset[int]
    partitions: int
    unreadable: Mapping[int, str] = field(default_factory=dict)

    def of(self, partition: int) -> tuple[LineageView, ...]:
        """The lineages of a partition that count.

        Raises:
            UnreadableRowError: the newest row of one can't be read: it may tell that the target has lost what others tell of.
        """
        found = self.by_partition.get(partition)
        if found is None and partition in self.unreadable:
            raise UnreadableRowError(self.unreadable[partition])
        return found or ()

    def truncations(self, partition: int) -> list[TargetTruncation]:
        """Where the target lost its tail, as far as the index saw it.

        A lineage that was begun for a loss tells of it, whatever rows there are of what was lost.
        """
        return [
            TargetTruncation(view.cut, max(end, view.cut), view.lost_epoch)
            for view in self.of(partition)
            if view.cut is not None
            and ((end := _rows_end(view)) > view.cut or view.lost_epoch != UNKNOWN_EPOCH)
        ]


def lineages_that_count(topics: Mapping[Route, RouteTopic], topic_id: TopicId | None) -> TopicLineages:
    """The lineages of a topic on a cluster, from what was read of each route into it, in configured order.

    Args:
        topics: by route.
        topic_id: as `topic_lineages` takes it.

    Raises:
        UnreadableRowError: the topic's id is not known, and rows that can't be read may name another one than all others.
    """
    routes = list(topics)
    records = {route: item.records for route, item in topics.items()}
    newest = {route: item.newest for route, item in topics.items()}
    latest = _latest(newest, records) if topic_id is None else None
    chosen = topic_id if latest is None else latest.target_topic_id
    problems = _unreadable(topics)
    if topic_id is None:
        _refuse(why for (_, lineage), why in problems.items() if lineage.target_topic_id != chosen)
    unreadable = {of: why for (of, lineage), why in problems.items() if lineage.target_topic_id == chosen}
    by_partition: dict[int, list[LineageView]] = {}
    seen: set[int] = set()
    for route in routes:
        for partition, ours in _by_partition(records[route]).items():
            seen.add(partition)
            valid = [record for record in ours if record.lineage.target_topic_id == chosen]
            for place, record in enumerate(valid):
                cut_by = _cut_by(valid[place + 1 :])
                view = LineageView(
                    record,
                    None if cut_by is None else cut_by.target_first,
                    newest[route].get((partition, record.lineage)),
                    UNKNOWN_EPOCH if cut_by is None else cut_by.lost_epoch,
                )
                by_partition.setdefault(partition, []).append(view)
    return TopicLineages(
        chosen,
        {partition: tuple(views) for partition, views in by_partition.items() if partition not in unreadable},
        frozenset(seen - set(by_partition)),
        max(seen, default=-1) + 1,
        unreadable,
    )


def _unreadable(topics: Mapping[Route, RouteTopic]) -> dict[tuple[int, Lineage], str]:
    """By partition and lineage, of all routes, why newest rows can't be read."""
    return {key: why for item in topics.values() for key, why in item.unreadable.items()}


def _refuse(problems: Iterable[str]) -> None:
    """Raise what can't be read, if there is anything."""
    if told := list(problems):
        raise UnreadableRowError("; ".join(told))


def _rows_end(view: LineageView) -> TargetOffset:
    return TargetOffset(0) if view.newest is None else view.newest.row.target_end


def _by_partition(records: Sequence[LineageRecord]) -> dict[int, list[LineageRecord]]:
    result: dict[int, list[LineageRecord]] = {}
    for record in sorted(records, key=lambda item: (item.partition, item.sequence)):
        result.setdefault(record.partition.topic_partition.partition, []).append(record)
    return result


def _cut_by(later: Sequence[LineageRecord]) -> LineageRecord | None:
    """The later lineage that began lowest; of several the last.

    Whether rows reach beyond that is not asked: rows may be read that the newest one known by now comes before.
    """
    return min(later, key=lambda item: (item.target_first, -item.sequence), default=None)


def latest_source_id(topics: Mapping[Route, RouteTopic]) -> TopicId | None:
    """The id of the topic that routes have copied last; None: they have copied none.

    Args:
        topics: what was read of each route that copies the cluster's own records.

    Raises:
        UnreadableRowError: rows that can't be read may name another one.
    """
    latest = _latest(
        {
            route: {of: row for of, row in item.newest.items() if of[1].source_topic_id != NO_TOPIC}
            for route, item in topics.items()
        },
        {
            route: [record for record in item.records if record.lineage.source_topic_id != NO_TOPIC]
            for route, item in topics.items()
        },
    )
    chosen = NO_TOPIC if latest is None else latest.source_topic_id
    problems = _unreadable(topics)
    _refuse(why for (_, of), why in problems.items() if of.source_topic_id not in {NO_TOPIC, chosen})
    return chosen or None


def _latest(
    newest: Mapping[Route, Mapping[tuple[int, Lineage], StampedRow]],
    records: Mapping[Route, Sequence[LineageRecord]],
) -> Lineage | None:
    """The lineage of the row that was committed last; without rows, the last lineage."""
    stamped = [
        (row.committed_at_ms, lineage) for rows in newest.values() for (_, lineage), row in rows.items()
    ] or [(record.sequence, record.lineage) for ours in records.values() for record in ours]
    return max(stamped, key=lambda item: (item[0], str(item[1])), default=(0, None))[1]
