"""Single offsets: from one side of a route to the other, and from a record back to its source."""

from __future__ import annotations

from collections.abc import Sequence

from offsetsvc.answers import Origin, Translation
from offsetsvc.index.lineage_memory import LineageView, TopicLineages
from offsetsvc.index.rows import LineageRows
from parallax.domain.ids import Route, SourceOffset, TargetOffset
from parallax.domain.progress import records_below
from parallax.domain.resume import Via, position_of
from parallax.domain.runs import Run
from parallax.errors import InvalidOffsetError
from parallax.ports.index import MappingIndexReader


def source_to_target(
    index: MappingIndexReader, lineages: Sequence[LineageView], source_next: SourceOffset
) -> Translation | None:
    """Where the first record at or above ``source_next`` can lie on the target; None without lineages.

    The source's present incarnation counts, and of its lineages the one that covers the offset.
    """
    if source_next < 0:
        raise InvalidOffsetError(f"source next offset {source_next} is negative")
    if not lineages:
        return None
    present = [view for view in lineages if view.source == lineages[-1].source]
    covering = [view for view in present if view.record.source_first <= source_next]
    rows = LineageRows(index, (covering or present)[-1 if covering else 0])
    rows.at_source(source_next)
    place, via, row = position_of(source_next, rows.history().history)
    target = TargetOffset(0) if place is None else place
    return Translation(source_next, target, via, rows.view.lineage, () if row is None else (row,))


def target_to_source(
    index: MappingIndexReader, lineages: Sequence[LineageView], target_next: TargetOffset
) -> Translation | None:
    """How far a reader of the target with ``target_next`` has come in the source; None without lineages."""
    if target_next < 0:
        raise InvalidOffsetError(f"target next offset {target_next} is negative")
    if not lineages:
        return None
    covering = [view for view in lineages if view.record.target_first <= target_next]
    rows = LineageRows(index, covering[-1] if covering else lineages[0])
    rows.at_target(target_next)
    found = records_below(target_next, rows.history().history)
    if found is None:
        return Translation(SourceOffset(0), target_next, Via.LOG_START, rows.view.lineage, ())
    source_next, row = found
    inside = row.target_start < target_next <= row.target_end
    via = Via.EXACT if inside else Via.AFTER
    return Translation(source_next, target_next, via, rows.view.lineage, (row,))


def origin_of(
    index: MappingIndexReader,
    routes: Sequence[Route],
    lineages: TopicLineages,
    partition: int,
    record_offset: int,
) -> Origin:
    """The source record that lies at ``record_offset`` of the target partition, if some indexed run holds it."""
    if record_offset < 0:
        raise InvalidOffsetError(f"record offset {record_offset} is negative")
    views = lineages.of(partition)
    covered = {
        view.partition.route
        for view in views
        if view.newest is not None and view.newest.row.target_end > record_offset
    }
    complete = covered >= set(routes)
    for view in views:
        rows = LineageRows(index, view)
        rows.at_target(TargetOffset(record_offset))
        run = rows.history().history.floor_by_target(TargetOffset(record_offset))
        if run is not None and _holds(run, record_offset):
            source_offset = run.source_start + (record_offset - run.target_start)
            return Origin(view.partition.route, view.source, source_offset, complete=True)
    return Origin(None, None, None, complete)


def _holds(run: Run, record_offset: int) -> bool:
    return run.target_start <= record_offset < run.target_end
