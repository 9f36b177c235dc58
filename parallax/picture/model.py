"""What the picture of an answer shows: windows of both logs, and each source's records in them.

All of it comes from an answer and from the rows of the index around it. What could not be read, or lies outside of the
windows, is said in words: a picture never passes for more than it shows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from parallax.domain.ids import UNKNOWN_EPOCH
from parallax.errors import InvalidNameError
from parallax.picture.text import name_of
from parallax.v1 import offsets_pb2 as pb

NARROWEST = 200
"""Offsets that a window shows at least, if the log has them: the neighbourhood of a position tells more than itself."""
WIDEST = 200_000
"""Offsets that a window shows at most."""


class PieceState(Enum):
    """What the group has done with records, as far as the answer knows."""

    CONSUMED = "consumed"
    """Consumed, and below the resume offset."""
    SKIPPED = "consumed, to be skipped"
    """Consumed, and above the resume offset."""
    PENDING = "consumed, still to arrive"
    """Consumed at the origin, and not at the destination yet."""
    NEW = "not consumed"
    UNKNOWN = "not known yet"
    """Above ``complete_to``, or beyond the skip ranges that fitted in the answer."""


_NO_OFFSET, _MOST_DIGITS = 2**63, 19
"""The first number that is no offset, and how long a number of an offset may be; Python itself refuses to read thousands."""


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Offsets ``[start, end)`` of one log."""

    start: int
    end: int

    @property
    def width(self) -> int:
        """How many offsets it holds."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"[{self.start:,}, {self.end:,})"


def range_from(text: str) -> Span:
    """Offsets that somebody wrote as ``START:END``.

    Raises:
        InvalidNameError: the text is not of that form, or no range.
    """
    start, _, end = text.partition(":")
    if not (start.isascii() and start.isdigit() and end.isascii() and end.isdigit()):
        raise InvalidNameError(f"{text!r} is no range of offsets: write START:END, for example 1000:2000")
    if max(len(start), len(end)) > _MOST_DIGITS or not int(start) < int(end) < _NO_OFFSET:
        raise InvalidNameError(f"{text!r} is no range of offsets: the end must lie above the start")
    return Span(int(start), int(end))


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one source that lie side by side wherever they are.

    Attributes:
        source: their source offsets.
        origin: the offset of the first of them at the origin; None: not there, or not among the rows that were read.
        target: likewise at the destination; of pending records where the first of them can come to lie.
        state: what the group has done with them.
        consumed_at_origin: whether they lie below the group's position there.
    """

    source: Span
    origin: int | None
    target: int | None
    state: PieceState
    consumed_at_origin: bool


@dataclass(frozen=True, slots=True)
class Lane:
    """One source of the answer.

    Attributes:
        region: its region.
        pieces: ascending by source offset.
        consumed_to: everything of the source below this source offset is consumed.
        position: the first offset at the destination where an unconsumed record of the source can lie; None: it holds
            nothing back.
        via: how the position was found (`SourcePart.via`).
        pending: consumed and not at the destination yet, in source offsets.
        pending_from: the offset at the destination from which on they can come.
        lost: source offsets that retention took before they were copied.
        decides: whether its position is the smallest.
    """

    region: str
    pieces: tuple[Piece, ...]
    consumed_to: int
    position: int | None
    via: str
    pending: Span | None
    pending_from: int
    lost: tuple[Span, ...]
    decides: bool


@dataclass(frozen=True, slots=True)
class LogView:
    """One side: a cluster's log of the partition, as far as the window shows it.

    Attributes:
        cluster: the cluster.
        window: what is shown; it may reach beyond both ends of the log.
        low: the log's start; None: the cluster could not be asked.
        high: the log's end; None likewise.
    """

    cluster: str
    window: Span
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True)
class Picture:
    """All that is drawn, and what is not.

    Attributes:
        group: the group.
        topic: the topic.
        partition: the partition.
        outcome: the gravest outcome.
        notes: the other outcomes.
        explanation: the answer's own sentence.
        origin: where the group comes from.
        target: where it goes.
        next_offset: the group's position at the origin; None: it has none that is known.
        resume: where it resumes. Both logs have the same scale, and position and resume lie below each other.
        complete_to: skip ranges are known below this offset; None: nothing is pending.
        nearest_checkpoint: where a checkpoint-only rule would resume; None: nobody asked, or it can't be told.
        lanes: the sources.
        skips: the skip ranges, at the destination.
        left_out: sentences that tell what the picture does not show.
    """

    group: str
    topic: str
    partition: int
    outcome: str
    notes: tuple[str, ...]
    explanation: str
    origin: LogView
    target: LogView
    next_offset: int | None
    resume: int
    complete_to: int | None
    nearest_checkpoint: int | None
    lanes: tuple[Lane, ...]
    skips: tuple[Span, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceRows:
    """Rows of one source on one cluster, around the window.

    Attributes:
        runs: the runs with the topic ids of their sources, in any order.
        lost: lost ranges of source offsets.
        cut_at: rows of offsets from here on were not read; None: all of the window's were.
    """

    runs: tuple[tuple[str, pb.Run], ...] = ()
    lost: tuple[Span, ...] = ()
    cut_at: int | None = None


def windows(answer: pb.FailoverOffset, wanted: Span | None = None) -> tuple[Span, Span]:
    """The offsets to show at the origin and at the destination.

    Args:
        answer: the answer.
        wanted: at the destination; None: what matters, with some room. Wider than `WIDEST` is cut.
    """
    resume = answer.resume_offset
    shown = _of_interest(answer) if wanted is None else wanted
    if shown.width > WIDEST:
        start = max(shown.start, min(resume - WIDEST // 4, shown.end - WIDEST))
        shown = Span(start, start + WIDEST)
    origin = _origin(answer)
    if not origin.HasField("next_offset"):
        return Span(origin.low_watermark, origin.low_watermark + shown.width), shown
    end = min(shown.end + origin.next_offset - resume, _NO_OFFSET)
    return Span(end - shown.width, end), shown


def _of_interest(answer: pb.FailoverOffset) -> Span:
    resume, log = answer.resume_offset, answer.to
    points = [resume, *(part.position for part in answer.sources if part.HasField("position"))]
    points += [item.end for item in answer.skip_ranges]
    if answer.HasField("complete_to"):
        points.append(answer.complete_to)
    if (
        answer.HasField("nearest_checkpoint_offset")
        and resume - answer.nearest_checkpoint_offset < WIDEST // 4
    ):
        points.append(answer.nearest_checkpoint_offset)
    low = log.low_watermark
    first, last = max(min(points), min(low, resume)), max(points)
    room = max((last - first) // 4, NARROWEST // 2)
    pending = max((part.pending_records for part in answer.sources), default=0)
    end = last + room
    if log.HasField("high_watermark"):  # beyond the log's end there is only what will come
        end = min(end, max(last, log.high_watermark) + pending + room // 4)
        if pending:
            end = max(end, log.high_watermark + pending + room // 4)
    return Span(max(min(low, resume), first - room) if low else max(0, first - room), max(end, first + 1))


def picture_of(
    answer: pb.FailoverOffset,
    at_origin: Mapping[str, SourceRows],
    at_target: Mapping[str, SourceRows],
    wanted: Span | None = None,
) -> Picture:
    """The picture of an answer.

    Args:
        answer: the answer.
        at_origin: rows by source region at the origin, around its window; a region may be missing.
        at_target: likewise at the destination.
        wanted: as in `windows`.
    """
    origin_window, target_window = windows(answer, wanted)
    origin = _origin(answer)
    smallest = min((part.position for part in answer.sources if part.HasField("position")), default=None)
    cut = {
        side.cluster: place
        for side, found, window in (
            (origin, at_origin, origin_window),
            (answer.to, at_target, target_window),
        )
        if (place := _cut_at(found.values())) is not None and place < window.end
    }
    return Picture(
        group=answer.group,
        topic=answer.topic,
        partition=answer.partition,
        outcome=name_of(pb.Outcome.Name, answer.outcome),
        notes=tuple(name_of(pb.Outcome.Name, note) for note in answer.notes if note != answer.outcome),
        explanation=answer.explanation,
        origin=_view(origin, origin_window),
        target=_view(answer.to, target_window),
        next_offset=origin.next_offset if origin.HasField("next_offset") else None,
        resume=answer.resume_offset,
        complete_to=answer.complete_to if answer.HasField("complete_to") else None,
        nearest_checkpoint=answer.nearest_checkpoint_offset
        if answer.HasField("nearest_checkpoint_offset")
        else None,
        lanes=tuple(
            _lane(
                answer,
                part,
                at_origin.get(part.region, SourceRows()),
                at_target.get(part.region, SourceRows()),
                decides=part.HasField("position") and part.position == smallest,
            )
            for part in answer.sources
        ),
        skips=tuple(Span(item.start, item.end) for item in answer.skip_ranges),
        left_out=tuple(_left_out(answer, target_window, cut)),
    )


def _origin(answer: pb.FailoverOffset) -> pb.ClusterPosition:
    side: pb.ClusterPosition = getattr(answer, "from")
    return side


def _view(side: pb.ClusterPosition, window: Span) -> LogView:
    return LogView(
        side.cluster,
        window,
        side.low_watermark if side.HasField("low_watermark") else None,
        side.high_watermark if side.HasField("high_watermark") else None,
    )


def _cut_at(found: Iterable[SourceRows]) -> int | None:
    return min((rows.cut_at for rows in found if rows.cut_at is not None), default=None)


def _left_out(answer: pb.FailoverOffset, window: Span, cut: Mapping[str, int]) -> Iterable[str]:
    beyond = [item for item in answer.skip_ranges if item.end <= window.start or item.start >= window.end]
    if beyond:
        records = sum(item.end - item.start for item in beyond)
        yield f"{len(beyond):,} of {len(answer.skip_ranges):,} skip ranges ({records:,} records) lie outside."
    if answer.HasField("skip_ranges_continue_at"):
        yield f"The answer holds skip ranges below {answer.skip_ranges_continue_at:,} only: there are more."
    for cluster, place in cut.items():
        yield f"Runs at {cluster} from offset {place:,} on were not read: there are too many for one picture."
    for side in (_origin(answer), answer.to):
        if side.regions_without_rows:
            yield f"The index has no row of {', '.join(side.regions_without_rows)} at {side.cluster}."
    for part in answer.sources:
        if part.HasField("position") and part.position < window.start:
            yield f"The position of source {part.region}, {part.position:,}, lies before the window."
    if (
        answer.HasField("nearest_checkpoint_offset")
        and not window.start <= answer.nearest_checkpoint_offset < window.end
    ):
        yield f"The nearest-checkpoint rule would resume at {answer.nearest_checkpoint_offset:,}, outside."


# --- lanes ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Placed:
    """A part of a run: source offsets under one topic id and epoch, and where the first of them lies."""

    topic_id: str
    source: Span
    place: int
    epoch: int


def _lane(
    answer: pb.FailoverOffset, part: pb.SourcePart, origin: SourceRows, target: SourceRows, *, decides: bool
) -> Lane:
    side = _origin(answer)
    at_origin = _cut(_placed(origin.runs), [side.next_offset] if side.HasField("next_offset") else [])
    states = _States(answer)
    at_target = _cut(_placed(target.runs), states.edges)
    pending = Span(part.pending.start, part.pending.end) if part.pending_records else None
    if pending is not None:
        at_origin = _cut(at_origin, [pending.start, pending.end], by_source=True)
    pending_from = answer.to.high_watermark if answer.to.HasField("high_watermark") else answer.resume_offset
    pieces = [
        _piece(states, side, here, there, source, pending, pending_from)
        for here, there, source in _joined(at_origin, at_target)
    ]
    return Lane(
        region=part.region,
        pieces=tuple(sorted(pieces, key=lambda piece: (piece.source, piece.target or 0))),
        consumed_to=part.consumed_next_offset,
        position=part.position if part.HasField("position") else None,
        via=part.via,
        pending=pending,
        pending_from=pending_from,
        lost=tuple(
            dict.fromkeys((*target.lost, *(Span(gap.start, gap.end) for gap in part.never_delivered)))
        ),
        decides=decides,
    )


def _placed(runs: Iterable[tuple[str, pb.Run]]) -> list[_Placed]:
    return [
        _Placed(
            topic_id,
            Span(run.source_start, run.source_start + run.count_records),
            run.target_start,
            run.source_leader_epoch,
        )
        for topic_id, run in runs
        if run.count_records
    ]


def _cut(parts: Iterable[_Placed], edges: Sequence[int], *, by_source: bool = False) -> list[_Placed]:
    """The parts, none of which has an edge inside: offsets of the log, or of the source, ascending."""
    found = []
    for part in parts:
        start = part.source.start if by_source else part.place
        between = edges[bisect_right(edges, start) : bisect_left(edges, start + part.source.width)]
        if not between:
            found.append(part)
            continue
        inside = [edge - start for edge in between]
        for first, last in zip([0, *inside], [*inside, part.source.width], strict=True):
            source = Span(part.source.start + first, part.source.start + last)
            found.append(_Placed(part.topic_id, source, part.place + first, part.epoch))
    return found


def _joined(
    at_origin: Sequence[_Placed], at_target: Sequence[_Placed]
) -> Iterable[tuple[_Placed | None, _Placed | None, Span]]:
    """Every record once: with its place on both sides, or on the one where it is among the rows.

    The same source offset is the same record only under one topic id and one leader epoch.
    """
    pairs = sorted(at_origin, key=_by_source), sorted(at_target, key=_by_source)
    left: tuple[list[_Placed], list[_Placed]] = ([], [])
    first = 0
    taken: dict[int, list[Span]] = {}
    for here in pairs[0]:
        while first < len(pairs[1]) and _passed(pairs[1][first], here):
            first += 1
        covered = []
        for number in range(first, len(pairs[1])):
            there = pairs[1][number]
            if (there.topic_id, there.source.start) >= (here.topic_id, here.source.end):
                break
            shared = Span(max(here.source.start, there.source.start), min(here.source.end, there.source.end))
            if there.topic_id == here.topic_id and shared.width > 0 and _same_epoch(here, there):
                covered.append(shared)
                taken.setdefault(number, []).append(shared)
                yield _from(here, shared), _from(there, shared), shared
        left[0].extend(_rest(here, covered))
    for number, there in enumerate(pairs[1]):
        left[1].extend(_rest(there, taken.get(number, ())))
    yield from ((here, None, here.source) for here in left[0])
    yield from ((None, there, there.source) for there in left[1])


def _by_source(part: _Placed) -> tuple[str, Span]:
    return part.topic_id, part.source


def _passed(part: _Placed, by: _Placed) -> bool:
    return (part.topic_id, part.source.end) <= (by.topic_id, by.source.start)


def _same_epoch(one: _Placed, other: _Placed) -> bool:
    return one.epoch == other.epoch or UNKNOWN_EPOCH in (one.epoch, other.epoch)


def _from(part: _Placed, source: Span) -> _Placed:
    if source == part.source:
        return part
    return _Placed(part.topic_id, source, part.place + source.start - part.source.start, part.epoch)


def _rest(part: _Placed, covered: Sequence[Span]) -> Iterable[_Placed]:
    if len(covered) == 1 and covered[0] == part.source:
        return
    start = part.source.start
    for span in [*sorted(covered), Span(part.source.end, part.source.end)]:
        if span.start > start:
            yield _from(part, Span(start, span.start))
        start = max(start, span.end)


def _piece(
    states: _States,
    side: pb.ClusterPosition,
    here: _Placed | None,
    there: _Placed | None,
    source: Span,
    pending: Span | None,
    pending_from: int,
) -> Piece:
    origin = None if here is None else here.place
    consumed = origin is not None and side.HasField("next_offset") and origin < side.next_offset
    target = None if there is None else there.place
    if target is not None:
        state = states.at(target)
    elif consumed and pending is not None and pending.start <= source.start < pending.end:
        state, target = PieceState.PENDING, pending_from + source.start - pending.start
    else:
        state = PieceState.CONSUMED if consumed else PieceState.NEW
    return Piece(source, origin, target, state, consumed)


class _States:
    """What the answer says of offsets of the destination."""

    def __init__(self, answer: pb.FailoverOffset) -> None:
        self._resume = answer.resume_offset
        self._starts = [item.start for item in answer.skip_ranges]
        self._ends = [item.end for item in answer.skip_ranges]
        bounds = [
            getattr(answer, field)
            for field in ("complete_to", "skip_ranges_continue_at")
            if answer.HasField(field)
        ]
        self._known_to = min(bounds, default=None)
        self.edges = sorted({self._resume, *self._starts, *self._ends, *bounds})
        """Between two of them all offsets have one state."""

    def at(self, target: int) -> PieceState:
        """Of the record at an offset."""
        if target < self._resume:
            return PieceState.CONSUMED
        number = bisect_right(self._starts, target) - 1
        if number >= 0 and target < self._ends[number]:
            return PieceState.SKIPPED
        return PieceState.NEW if self._known_to is None or target < self._known_to else PieceState.UNKNOWN
