"""Reads what answers will look up, before they do: all that is known to be needed together, and not block by block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from offsetsvc.resume.partition import Question
from offsetsvc.resume.plans import PartitionPlan
from parallax.domain.ids import TargetOffset
from parallax.domain.lineage_history import MissingBlock
from parallax.domain.plain import PlainSource, consumed_plainly
from parallax.domain.progress import consumed_end
from parallax.runtime.deadline import Deadline

AT_ONCE = 32
"""Partitions whose blocks are read together: what a call holds is bounded, however many it asks for."""

READING = "reading the index"
"""What a deadline that passed meanwhile says was being done."""

_Read = Callable[[Collection[MissingBlock]], object]


def read_ahead(
    asked: Sequence[tuple[Question, PartitionPlan]], read: _Read, deadline: Deadline
) -> Sequence[object]:
    """Read what plain partitions' answers look up first.

    That are rows around the commit at the origin and at the destination's log start, then those around what the origin's tell at the
    destination. Nothing depends on it: what an answer does not find it reads itself, as where skip ranges go over many blocks, where an
    earlier move counts, or where a partition is not plain.

    Args:
        asked: questions and their plans.
        read: `parallax.ports.index.MappingIndexReader.read_blocks`.
        deadline: of the call.

    Returns:
        What is to be kept until they are answered.

    Raises:
        StoreUnavailableError: the index did not answer in time.
        DeadlineError: the deadline passed first.
    """
    sources = [
        (question, commit, source)
        for question, plan in asked
        if plan.plain is not None and (commit := question.commit.next_offset) is not None
        for source in plan.plain.sources
    ]
    kept = _read(_missing_at_first(sources, deadline), read)
    if not kept:
        # What is remembered of one side is of the other, too, mostly; and to look costs every answer.
        return kept
    return kept + _read(_missing_there(sources, deadline), read)


def _missing_at_first(
    sources: Sequence[tuple[Question, TargetOffset, PlainSource]], deadline: Deadline
) -> Iterable[MissingBlock | None]:
    for question, commit, source in sources:
        deadline.check(READING)
        yield source.origin.history.missing_at_target(commit)
        if (log := question.destination.log) is not None:
            yield source.missing_below(log.low_watermark)


def _missing_there(
    sources: Sequence[tuple[Question, TargetOffset, PlainSource]], deadline: Deadline
) -> Iterable[MissingBlock | None]:
    for _, commit, source in sources:
        deadline.check(READING)
        told, _ = consumed_plainly(commit, source.origin)
        history = source.destination.history
        yield history.missing_at_source(consumed_end(told, history))


def _read(missing: Iterable[MissingBlock | None], read: _Read) -> list[object]:
    wanted = [item for item in missing if item is not None]
    return [read(wanted)] if wanted else []
