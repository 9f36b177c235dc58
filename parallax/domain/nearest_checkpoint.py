"""Uber's published resume rule, for comparison with ours.

uReplicator's offset management checkpoints pairs (source offset, aggregate offset) now and then. At a failover
it takes, for each source, the newest checkpoint at or before the consumer's progress, looks for the nearest one
at or before it in the other region, and resumes at the smallest of these (uber.com/blog/kafka, "Disaster
Recovery for Multi-Region Kafka at Uber"). It knows single records only: no run lengths, no watermarks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from parallax.domain.ids import RegionName, TargetOffset
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
        consumed = [run for run in _checkpoints(region, origin) if run.target_start < commit]
        progress = max((run.source_start for run in consumed), default=None)
        mapped = [
            run.target_start
            for run in _checkpoints(region, destination)
            if progress is not None and run.source_start <= progress
        ]
        places.append(max(mapped, default=log_start))
    return max(min(places, default=log_start), log_start)


def _checkpoints(region: RegionName, items: Sequence[SourceHistory]) -> list[Run]:
    return [
        run
        for item in items
        if item.source.region == region
        for run in item.history.rows
        if not run.is_watermark
    ]
