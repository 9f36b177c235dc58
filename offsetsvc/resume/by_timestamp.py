"""Record timestamps where no row proves anything: the caller's choice instead of the log start, and labelled so.

At least once, as long as no unconsumed record is older than the group's position less the margin; what that rests on
is said in docs/decisions/0011-by-timestamp.md.
"""

from __future__ import annotations

from dataclasses import replace

from offsetsvc.answers import Basis, ByTimestamp, FailoverAnswer, SourceView, TimeBasis
from offsetsvc.clusters import ClusterView
from parallax.domain.ids import TargetOffset
from parallax.domain.outcome import Outcome
from parallax.domain.place import LogRange, Via


class _ImpossibleError(Exception):
    """Timestamps can't be gone by; the message says why."""


class Times:
    """Answers by time for one request.

    Args:
        origin: where the group comes from.
        destination: where it goes.
        margin_ms: how much older than the group's position an unconsumed record may be.
        timestamp_ms: the caller's time, which outweighs that of the position; None: it named none.
    """

    def __init__(
        self, origin: ClusterView, destination: ClusterView, *, margin_ms: int, timestamp_ms: int | None
    ) -> None:
        self._origin = origin
        self._destination = destination
        self._margin_ms = margin_ms
        self._timestamp_ms = timestamp_ms

    def instead_of_log_start(self, answer: FailoverAnswer) -> FailoverAnswer:
        """The answer, where its sources without rows count by time; as it was where none counts from the log start."""
        if Outcome.EARLIEST_FALLBACK not in answer.notes:
            return answer
        try:
            timestamp_ms, basis = self._time(answer)
            return self._moved_to(answer, self._found(answer, timestamp_ms), timestamp_ms, basis)
        except _ImpossibleError as problem:
            outcome = ByTimestamp(TimeBasis.NONE, self._margin_ms, problem=str(problem))
            return answer._replace(by_timestamp=outcome)

    def _time(self, answer: FailoverAnswer) -> tuple[int, TimeBasis]:
        side = answer.origin
        if self._timestamp_ms is not None:
            return self._timestamp_ms, TimeBasis.CALLER
        if Outcome.LINEAGE_CHANGED in answer.notes:
            raise _ImpossibleError(
                "a topic was created anew or lost its tail, so that another record may lie at the position; name a "
                "time of your own (timestamp_ms)"
            )
        if side.next_offset is None or side.basis is Basis.POLICY:
            raise _ImpossibleError("the group has no position whose time could be read")
        if side.log is None:
            raise _ImpossibleError(
                f"{side.cluster} can't tell the time of position {side.next_offset}; name a time of your own "
                "(timestamp_ms)"
            )
        position = min(side.next_offset, side.log.high_watermark)
        time = self._origin.time_at(answer.topic_partition, position)
        if time is None:
            why = self._origin.failure or "its log does not hold it, or its record bears none"
            raise _ImpossibleError(
                f"{side.cluster} does not tell the time of position {position}: {why}; name a time of your own "
                "(timestamp_ms)"
            )
        return time.timestamp_ms, TimeBasis.BELOW if time.below else TimeBasis.POSITION

    def _found(self, answer: FailoverAnswer, timestamp_ms: int) -> TargetOffset:
        side = answer.destination
        first_ms = max(0, timestamp_ms - self._margin_ms)
        offset = None if side.log is None else self._destination.offset_at(answer.topic_partition, first_ms)
        if offset is None:
            raise _ImpossibleError(
                self._destination.failure or f"{side.cluster} has no such partition, or no leader of it"
            )
        return offset

    def _moved_to(
        self, answer: FailoverAnswer, first: TargetOffset, timestamp_ms: int, basis: TimeBasis
    ) -> FailoverAnswer:
        log = answer.destination.log or LogRange(first, first)
        first = min(first, log.high_watermark)
        views = tuple(_by_time(view, first) for view in answer.sources)
        positions = [position for view in views if (position := view.answer.position) is not None]
        # What rows prove of the other sources holds; and the answer so far was proven for all of them.
        offset = max(answer.resume_offset, min([first, *positions]))
        at_most = max(0, log.high_watermark - offset)
        notes = (set(answer.notes) - {Outcome.EARLIEST_FALLBACK}) | {Outcome.BY_TIMESTAMP}
        return answer._replace(
            destination=answer.destination._replace(next_offset=offset),
            resume_offset=offset,
            notes=tuple(sorted(notes, key=lambda note: note.value, reverse=True)),
            sources=views,
            skip_ranges=[(max(start, offset), end) for start, end in answer.skip_ranges if end > offset],
            complete_to=_at_least(answer.complete_to, offset),
            skip_ranges_continue_at=_at_least(answer.skip_ranges_continue_at, offset),
            by_timestamp=ByTimestamp(basis, self._margin_ms, timestamp_ms, "", at_most),
        )


def _by_time(view: SourceView, position: TargetOffset) -> SourceView:
    if view.answer.via is not Via.LOG_START:
        return view
    by_time = replace(view.answer, position=position, via=Via.TIMESTAMP)
    return view._replace(answer=by_time, redelivery_records=None)


def _at_least(value: TargetOffset | None, least: TargetOffset) -> TargetOffset | None:
    return None if value is None else max(value, least)
