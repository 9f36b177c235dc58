"""Lays what a group consumed of one partition onto the source offsets, by the rows of the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from parallax.domain.consumption import Stretch, tally
from parallax.domain.history import History
from parallax.domain.ids import NO_TOPIC, SourceId, SourceOffset, TargetOffset
from parallax.domain.lineages import LineageView, TopicLineages
from parallax.domain.runs import Run
from parallax.failover.verify.verdict import SourceVerdict, Visit
from parallax.ports.index import MappingIndexReader

_PAGE_ROWS = 5_000
_MOST_ROWS = 100_000
"""Of one source and visit. What was consumed later is not counted; it is new if nothing earlier is left to come."""

_ALL = SourceOffset(2**62)
"""Beyond every record of a source."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A visit with all that is needed to count it.

    Attributes:
        partition: the partition's number.
        passed_to: below lies nothing that will still be delivered.
        lineages: of the topic on that cluster.
        own: a lineage of a route that reads the cluster, whose source's side tells of what was produced there
            (`parallax.domain.own_log`); None: nothing was.
        whole: the route copies all that lies there, so that nothing in it is told apart.
        given: how far earlier moves had consumed each source when the first visit began.
        skipped: how far its consumers passed over each source because of an earlier move; None: that is not known.
        skips_known: whether they did pass it over.
    """

    visit: Visit
    partition: int
    passed_to: TargetOffset
    lineages: TopicLineages
    own: LineageView | None = None
    whole: bool = False
    given: Mapping[SourceId, SourceOffset] = field(default_factory=dict)
    skipped: Mapping[SourceId, SourceOffset] | None = field(default_factory=dict)
    skips_known: bool = True

    def views(self, source: SourceId) -> list[LineageView]:
        """The lineages that tell of the source there."""
        if self.own is not None and self.own.source == source:
            return [self.own]
        return [view for view in self.lineages.of(self.partition) if view.source == source]

    @property
    def sources(self) -> list[SourceId]:
        """What is to be counted there: not a source that had no such topic when it was looked at first."""
        own = [] if self.own is None else [self.own.source]
        if self.whole:
            return own
        into = (view.source for view in self.lineages.of(self.partition))
        return [*own, *(source for source in into if source.topic_id != NO_TOPIC)]


def verify_sources(index: MappingIndexReader, stays: Sequence[Stay]) -> tuple[SourceVerdict, ...]:
    """The verdict on every source that some cluster knows.

    Raises:
        StoreUnavailableError: the index did not answer in time.
        InvariantError: stored rows contradict each other.
    """
    sources = dict.fromkeys(source for stay in stays for source in stay.sources)
    return tuple(_verify_source(index, stays, source) for source in sorted(sources))


def _verify_source(index: MappingIndexReader, stays: Sequence[Stay], source: SourceId) -> SourceVerdict:
    unknown = []
    for stay in stays:
        views = stay.views(source)
        if not views:
            unknown.append(f"no row of region {source.region} at {stay.visit.cluster}")
        elif len(views) > 1 or views[0].cut is not None:
            unknown.append(
                f"the log of region {source.region} at {stay.visit.cluster} lost its tail once, so that its offsets "
                "do not name one record each"
            )
    if unknown:
        return SourceVerdict(source, None, tuple(dict.fromkeys(unknown)))
    stretches: list[Stretch] = []
    behind = False
    cut: TargetOffset | None = None
    for place, stay in enumerate(stays):
        visit, (view,) = stay.visit, stay.views(source)
        # All before the first visit's end counts as consumed.
        span = (visit.start if place else visit.end, visit.end)
        if view is stay.own:
            rows, cut = _own_rows(index, view, *span)
            history = History(view.lineage, rows)
        else:
            rows, cut = _rows(index, view, *span)
            key = (view.partition, view.lineage)
            history = History(view.lineage, rows, index.lost_ranges([key])[key])
        newest = history.newest
        if newest is None or newest.target_end < visit.end:
            behind = True
            unknown.append(
                f"the index tells of region {source.region} at {visit.cluster} up to "
                f"{0 if newest is None else newest.target_end} only; the group was at {visit.end}"
            )
        if cut is not None and stay is not stays[-1]:
            unknown.append(_too_many(source, stay, cut))
        end = visit.end if cut is None else cut
        stretches.append(
            Stretch(
                history,
                visit.start,
                end,
                passed_to=stay.passed_to if end == visit.end else end,
                given=stay.given.get(source, SourceOffset(0)),
                skipped=_ALL if stay.skipped is None else stay.skipped.get(source, SourceOffset(0)),
                skips_known=stay.skips_known,
            )
        )
    counts = tally(stretches)
    if cut is not None and counts.ahead:
        unknown.append(_too_many(source, stays[-1], cut))
    return SourceVerdict(source, counts, tuple(unknown), behind)


def _too_many(source: SourceId, stay: Stay, cut: TargetOffset) -> str:
    return (
        f"more than {_MOST_ROWS} rows of region {source.region} at {stay.visit.cluster}: counted up to {cut}"
    )


def _rows(
    index: MappingIndexReader, view: LineageView, start: TargetOffset, end: TargetOffset
) -> tuple[set[Run], TargetOffset | None]:
    """The rows from the one before ``start`` to the one after ``end``.

    Returns:
        The rows, and up to where they were read if there were too many.
    """
    newest = None if view.newest is None else view.newest.row
    if newest is None:
        return set(), None
    rows = {newest, *index.rows_at_target(view.partition, view.lineage, start)}
    place = start
    while place <= end and place < newest.target_end:
        page = index.rows_from_target(view.partition, view.lineage, place, _PAGE_ROWS)
        rows |= set(page.rows)
        if page.complete_to <= place or any(row.target_start >= end for row in page.rows):
            break
        place = page.complete_to
        if len(rows) > _MOST_ROWS:
            return rows, place
    if place > end:  # the row after the end begins beyond it, and proves that nothing lies between
        rows |= set(index.rows_from_target(view.partition, view.lineage, place, 1).rows)
    return rows, None


def _own_rows(
    index: MappingIndexReader, view: LineageView, start: TargetOffset, end: TargetOffset
) -> tuple[set[Run], TargetOffset | None]:
    """As `_rows`, of the cluster that the lineage's route reads: each row with the originals' place for that of the copies."""
    newest = None if view.newest is None else view.newest.row
    if newest is None:
        return set(), None
    before = index.rows_at_source(view.partition, view.lineage, SourceOffset(start))
    rows = {newest, *before}
    cut: TargetOffset | None = None
    place = min((row.target_start for row in before), default=TargetOffset(0))
    while place < newest.target_end:
        page = index.rows_from_target(view.partition, view.lineage, place, _PAGE_ROWS)
        rows |= set(page.rows)
        if page.complete_to <= place or any(row.source_start >= end for row in page.rows):
            break
        place = page.complete_to
        if len(rows) > _MOST_ROWS:
            cut = TargetOffset(max(row.source_end for row in rows - {newest}))
            break
    return {replace(row, target_start=TargetOffset(row.source_start)) for row in rows}, cut
