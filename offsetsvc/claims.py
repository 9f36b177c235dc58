"""What a report can't have seen: progress beyond all that the rows tell of a source.

Every position in a progress comes from rows, so that rows further on are there, unless this reader of the store lags behind the one that
answered. What an answer may rest on and rows no longer tell (an incarnation of a topic whose lineages are forgotten) is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from offsetsvc.answers import ReportedMove
from parallax.domain.ids import NO_TOPIC, Route, SourceId, SourceOffset
from parallax.domain.index_rows import RouteTopic
from parallax.errors import UnreadableRowError


def beyond_the_rows(moves: Sequence[ReportedMove], topics: Mapping[Route, RouteTopic]) -> list[str]:
    """Why moves can't be as they say; empty if they can.

    Args:
        moves: of partitions of one topic.
        topics: what the index holds of the topic, on every route.
    """
    problems = []
    for move in moves:
        for source, position in move.progress.positions.items():
            claimed = position.furthest
            known = known_end(source, move.topic_partition.partition, topics)
            if known is not None and claimed > known:
                problems.append(
                    f"the move of {move.topic_partition} says that {source} was consumed up to {claimed}, but the rows "
                    f"tell of it up to {known}"
                )
    return problems


def proven_by_rows(moves: Sequence[ReportedMove], topics: Mapping[Route, RouteTopic]) -> bool:
    """Whether rows tell of all that moves claim; so they do ever after: what was copied stays copied.

    Args:
        moves: of partitions of one topic.
        topics: what the index held of the topic, on any routes, at any time.
    """
    return all(
        (known := known_end(source, move.topic_partition.partition, topics)) is not None
        and position.furthest <= known
        for move in moves
        for source, position in move.progress.positions.items()
    )


def known_end(source: SourceId, partition: int, topics: Mapping[Route, RouteTopic]) -> SourceOffset | None:
    """How far rows and lineages on any route tell of a source; None: the incarnation is none that they know.

    0 if nothing of the partition was ever copied from the region.

    Raises:
        UnreadableRowError: a newest row of the partition can't be read by this release.
    """
    ends: list[SourceOffset] = []
    ever_copied = False
    for topic in (topic for route, topic in topics.items() if route.source == source.region):
        ever_copied |= any(
            record.partition.topic_partition.partition == partition
            and record.lineage.source_topic_id != NO_TOPIC
            for record in topic.records
        )
        ends += _ends(source, partition, topic)
    if ends:
        return max(ends)
    return None if ever_copied else SourceOffset(0)


def _ends(source: SourceId, partition: int, topic: RouteTopic) -> Iterable[SourceOffset]:
    for record in topic.records:
        if (
            record.partition.topic_partition.partition == partition
            and record.lineage.source_topic_id == source.topic_id
        ):
            yield record.source_first
            if record.closed_at is not None:
                yield record.closed_at
    for (of, lineage), why in topic.unreadable.items():
        if of == partition and lineage.source_topic_id == source.topic_id:
            raise UnreadableRowError(why)
    for (of, lineage), stamped in topic.newest.items():
        if of == partition and lineage.source_topic_id == source.topic_id:
            yield stamped.row.source_end
