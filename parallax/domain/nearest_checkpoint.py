"""Uber's published resume rule, for comparison with ours.

uReplicator's offset management checkpoints pairs (source offset, aggregate offset) now and then. At a failover
it takes, for each source, the newest checkpoint at or before the consumer's progress, looks for the nearest one
at or before it in the other region, and resumes at the smallest of these (uber.com/blog/kafka, "Disaster
Recovery for Multi-Region Kafka at Uber"). It knows single records only: no run lengths, no watermarks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from parallax.domain.ids import RegionName, SourceOffset, TargetOffset
from parallax.domain.lineage_history import LineageHistory
from parallax.domain.progress import SourceHistory
from parallax.domain.runs import Run


def nearest_checkpoint_minimum(
    *,
    commit: TargetOffset,
    regions: Collection[RegionName],
    origin: Sequence[SourceHistory],
    destination: Sequence[SourceHistory],
    log_start: TargetOffset,
) -> TargetOffset:
    """Where Uber's rule would resume: our runs' first records serve as its checkpoints.

    Args:
        commit: the group's next offset at the origin.
        regions: every region that the topic has as a source.
        origin: rows of the origin.
        destination: rows of the destination.
        log_start: the destination's first offset, taken for a source without a checkpoint.
    """
    places = []
    for region in sorted(regions):
        consumed = [
            run
            for history in _of_region(region, origin)
            if (run := _last_run(history, history.floor_by_target(TargetOffset(commit - 1)))) is not None
        ]
        progress = max((run.source_start for run in consumed), default=SourceOffset(-1))
        mapped = [
            run.target_start
            for history in _of_region(region, destination)
            if (run := _last_run(history, history.floor_by_source(progress))) is not None
        ]
        places.append(max(mapped, default=log_start))
    return max(min(places, default=log_start), log_start)


def _of_region(region: RegionName, items: Sequence[SourceHistory]) -> list[LineageHistory]:
    return [item.history for item in items if item.source.region == region]


def _last_run(history: LineageHistory, row: Run | None) -> Run | None:
    """The row, or the last run before it if it is a watermark."""
    while row is not None and row.is_watermark:
        before = SourceOffset(min(row.previous_source_end, row.source_start) - 1)
        row = history.floor_by_source(before) if before >= 0 else None
    return row
