"""Reads what answers will look up, before they do: all that is known to be needed in one request, and not block by block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from offsetsvc.resume.partition import Question
from offsetsvc.resume.plans import PartitionPlan
from parallax.domain.ids import TargetOffset
from parallax.domain.plain import PlainSource, consumed_plainly
from parallax.domain.progress import consumed_end

AT_ONCE = 32
"""Partitions whose blocks are read together: what a call holds is bounded, however many it asks for."""


def read_ahead(
    asked: Sequence[tuple[Question, PartitionPlan]], read: Callable[[Collection[object]], object]
) -> Sequence[object]:
    """Read what plain partitions' answers look up first: rows around the commit at the origin, then around what they tell at the destination.

    What else an answer needs (skip ranges over many blocks, partitions that are not plain, the destination where the origin is at hand) it reads itself.

    Args:
        asked: questions and their plans.
        read: `parallax.ports.index.MappingIndexReader.read_blocks`.

    Returns:
        What is to be kept until they are answered.

    Raises:
        StoreUnavailableError: the index did not answer in time.
    """
    sources = [
        (question.commit.next_offset, source)
        for question, plan in asked
        if plan.plain is not None and question.commit.next_offset is not None
        for source in plan.plain.sources
    ]
    at_origin = [source.origin.history.missing_at_target(commit) for commit, source in sources]
    kept = _read(at_origin, read)
    if not kept:
        return (
            kept  # what is asked about is remembered at either side, mostly, and looking costs every answer
        )
    return kept + _read([_missing_there(commit, source) for commit, source in sources], read)


def _missing_there(commit: TargetOffset, source: PlainSource) -> object | None:
    told, _ = consumed_plainly(commit, source.origin)
    history = source.destination.history
    return history.missing_at_source(consumed_end(told, history))


def _read(missing: Sequence[object | None], read: Callable[[Collection[object]], object]) -> list[object]:
    wanted = [item for item in missing if item is not None]
    return [read(wanted)] if wanted else []
