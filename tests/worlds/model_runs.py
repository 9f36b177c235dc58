"""The runs of records copied one after the other, walked record by record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.runs import Run


def build_runs(
    sources: Sequence[int],
    targets: Sequence[int],
    *,
    previous_source_end: SourceOffset,
    source_leader_epoch: int,
) -> list[Run]:
    """``sources[i]`` became ``targets[i]``; both ascend strictly."""
    found: list[Run] = []
    for source, target in zip(sources, targets, strict=True):
        if found and (source, target) == (found[-1].source_end, found[-1].target_end):
            found[-1] = replace(found[-1], count=found[-1].count + 1)
            continue
        before = found[-1].source_end if found else previous_source_end
        found.append(Run(SourceOffset(source), TargetOffset(target), 1, before, source_leader_epoch))
    return found
