"""Which records of a source a group consumed once, twice or never, over the clusters that it has consumed.

A *stretch* is what a group consumed of one aggregate partition between two moves: target offsets ``[start, end)``.
Rows say where a source's records lie on each cluster, so every stretch is laid onto source offsets, and there they are
counted. Where rows are missing, the rows around tell between which target offsets a record lies: if that does not
decide it, the answer is "unknown", never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, Flag, auto

from parallax.domain.history import History
from parallax.domain.ids import SourceOffset, TargetOffset
from parallax.domain.progress import START
from parallax.domain.runs import LostRange, Run


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a group consumed of one aggregate partition between two moves, with one source's rows there.

    Attributes:
        history: the source's rows on that cluster, at least those around ``start`` and ``end`` and between them.
        start: where it began.
        end: how far it came.
        passed_to: what lies below will not be delivered any more: ``end``, or the log start where that is higher.
        given: source records below count as consumed, once, before the stretch began.
        skipped: source records below were passed over as consumed before,
        skips_known: or it is not known whether they were.
    """

    history: History
    start: TargetOffset
    end: TargetOffset
    passed_to: TargetOffset
    given: SourceOffset = START.source_next
    skipped: SourceOffset = START.source_next
    skips_known: bool = True


@dataclass(frozen=True, slots=True, order=True)
class SourceRange:
    """Source offsets ``[start, end)`` of which ``records`` count; ``end`` None: from there on, without a known end."""

    start: SourceOffset
    end: SourceOffset | None
    records: int


class ConsumptionKind(Enum):
    """What became of source records."""

    ONCE = "once"
    TWICE = "twice"
    """Twice or more often."""
    NEVER = "never"
    """The group has passed them by and not consumed them."""
    LOST = "lost"
    """Retention took them before they were copied to a cluster where the group passed them by."""
    UNKNOWN = "unknown"
    """Rows that would tell are missing."""


@dataclass(frozen=True, slots=True)
class Tally:
    """What became of one source's records.

    Attributes:
        examined: source offsets ``[start, end)``: from the first that a later stretch or a doubt touches to the
            last that the group has reached. What lies below was consumed once, in the first stretch.
        ranges: by kind, ascending; ranges that only offsets without records separate are one.
        ahead: consumed already, and still to come in the last stretch's cluster.
    """

    examined: tuple[SourceOffset, SourceOffset]
    ranges: dict[ConsumptionKind, tuple[SourceRange, ...]]
    ahead: tuple[SourceRange, ...]

    def records(self, kind: ConsumptionKind) -> int:
        """How many records are of the kind, as far as ranges end."""
        return sum(item.records for item in self.ranges.get(kind, ()))


class _At(Flag):
    """Where a record can lie, seen from a stretch."""

    NOWHERE = 0
    PASSED = auto()
    """Where the stretch did not consume, and does not come any more."""
    INSIDE = auto()
    AHEAD = auto()
    GONE = auto()
    """Lost before it was copied, and passed by."""
    VACANT = auto()
    """The cluster has no such record, and the stretch went past where it would lie: compacted, or never one."""


_OPEN = 2**63
"""Above every source offset: the end of what no row bounds."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Source offsets ``[start, end)`` and where their records can lie; ``exists``: each is known to be a record."""

    start: int
    end: int
    at: _At
    exists: bool


def tally(stretches: Sequence[Stretch]) -> Tally:
    """Count a source's records over the stretches, the first of which is the oldest.

    All histories must be of the same unbroken source log: one incarnation of its topic, and no truncation.
    """
    columns = [list(_pieces(stretch)) for stretch in stretches]
    ranges = _Ranges()
    for start, end, row in _aligned(columns):
        ranges.add(start, end, *_judged(stretches, row, start))
    return ranges.tally()


# --- where records lie ---------------------------------------------------------------------------------------------


def _pieces(stretch: Stretch) -> Iterator[_Piece]:
    """All source offsets, in order, cut wherever the place or the bounds of what was skipped or given change."""
    bounds = sorted({int(stretch.given), int(stretch.skipped)})
    for piece in _placed(stretch):
        start = piece.start
        for bound in bounds:
            if start < bound < piece.end:
                yield _Piece(start, bound, piece.at, piece.exists)
                start = bound
        yield _Piece(start, piece.end, piece.at, piece.exists)


def _placed(stretch: Stretch) -> Iterator[_Piece]:
    history = stretch.history
    source, target = 0, 0
    for row in history.rows:
        if row.previous_source_end > source:
            yield from _hidden(stretch, source, row.previous_source_end, target, row.target_start)
            source = row.previous_source_end
        if row.source_start > source:
            vacant = stretch.start <= row.target_start <= stretch.end
            yield _Piece(source, row.source_start, _At.VACANT if vacant else _At.NOWHERE, exists=False)
        yield from _run(stretch, row)
        source, target = max(source, row.source_end), row.target_end
    yield from _hidden(stretch, source, _OPEN, target, _OPEN)


def _run(stretch: Stretch, row: Run) -> Iterator[_Piece]:
    """A run, cut where it crosses the stretch's ends."""
    place = int(row.target_start)
    for border in (stretch.start, stretch.end, stretch.passed_to, row.target_end):
        upper = min(border, row.target_end)
        if place < upper:
            shift = row.source_start - row.target_start
            yield _Piece(place + shift, upper + shift, _at(stretch, place, upper), exists=True)
            place = upper


def _hidden(stretch: Stretch, source: int, source_end: int, target: int, target_end: int) -> Iterator[_Piece]:
    """Source offsets of which no row tells more than between which target offsets their records lie, if anywhere."""
    at = _at(stretch, target, target_end)
    for gap in stretch.history.lost:
        start, end = max(source, gap.source_start), min(source_end, gap.source_end)
        if start >= end:
            continue
        if source < start:
            yield _Piece(source, start, at, exists=False)
        yield _Piece(start, end, _lost(stretch, gap), exists=False)
        source = end
    if source < source_end:
        yield _Piece(source, source_end, at, exists=False)


def _lost(stretch: Stretch, gap: LostRange) -> _At:
    return _At.GONE if gap.target_at <= stretch.passed_to else _At.AHEAD


def _at(stretch: Stretch, low: int, high: int) -> _At:
    """Where a record between two target offsets can lie; nowhere if nothing lies between them."""
    at = _At.NOWHERE
    passed = ((0, stretch.start), (stretch.end, stretch.passed_to))
    if any(max(low, start) < min(high, end) for start, end in passed):
        at |= _At.PASSED
    if max(low, stretch.start) < min(high, stretch.end):
        at |= _At.INSIDE
    if low < high and high > max(stretch.start, stretch.passed_to):
        at |= _At.AHEAD
    return at


def _aligned(columns: Sequence[Sequence[_Piece]]) -> Iterator[tuple[int, int, list[_Piece]]]:
    """The coarsest division of all source offsets that is as fine as every column; with each column's piece."""
    places = [0] * len(columns)
    start = 0
    while start < _OPEN:
        row = [column[place] for column, place in zip(columns, places, strict=True)]
        end = min(piece.end for piece in row)
        yield start, end, row
        places = [place + (piece.end == end) for place, piece in zip(places, row, strict=True)]
        start = end


# --- what became of them -------------------------------------------------------------------------------------------


def _judged(
    stretches: Sequence[Stretch], row: Sequence[_Piece], start: int
) -> tuple[ConsumptionKind | None, bool, bool]:
    """What became of an interval's records.

    Returns:
        Their kind (None: there are none, or they are to come); whether that was settled before the second
        stretch; whether they were consumed and lie ahead.
    """
    least = most = 0
    for stretch, piece in zip(stretches, row, strict=True):
        here_least, here_most = _times(stretch, piece, start)
        least, most = least + here_least, most + here_most
    is_record = any(piece.at & ~_At.VACANT for piece in row)
    kind = _kind(least, most, row) if is_record else None
    touched = _At.INSIDE | _At.AHEAD
    before = kind in {None, ConsumptionKind.ONCE, ConsumptionKind.LOST} and not any(
        piece.at & touched for piece in row[1:]
    )
    settled = before and (kind is not None or not row[0].at & _At.AHEAD)
    ahead = least > 0 and len(row) > 1 and bool(row[-1].at & _At.AHEAD)
    return kind, settled, ahead


def _times(stretch: Stretch, piece: _Piece, start: int) -> tuple[int, int]:
    """How often the stretch has consumed the records, at least and at most."""
    if start < stretch.given:
        return (1, 1)
    if not piece.at & _At.INSIDE:
        return (0, 0)
    if start < stretch.skipped:
        return (0, int(not stretch.skips_known))
    return (int(piece.at == _At.INSIDE), 1)


def _kind(least: int, most: int, row: Sequence[_Piece]) -> ConsumptionKind | None:
    if least > 1:
        return ConsumptionKind.TWICE
    if most > least:
        return ConsumptionKind.UNKNOWN
    return ConsumptionKind.ONCE if least else _unconsumed(row)


def _unconsumed(row: Sequence[_Piece]) -> ConsumptionKind | None:
    here = row[-1].at
    if here == _At.AHEAD or any(piece.at & _At.VACANT for piece in row):
        return None
    # Without such a record where the group is now, what it left behind before decides.
    places = [here] if here else [piece.at for piece in row[:-1] if piece.at & ~_At.AHEAD]
    if any(at & _At.GONE for at in places):
        return ConsumptionKind.LOST
    if not places:
        return None
    sure = any(not at & _At.AHEAD for at in places) and any(piece.exists for piece in row)
    return ConsumptionKind.NEVER if sure else ConsumptionKind.UNKNOWN


@dataclass(slots=True)
class _Ranges:
    """Collects intervals in order."""

    ranges: dict[ConsumptionKind, list[SourceRange]] = field(default_factory=dict)
    ahead: list[SourceRange] = field(default_factory=list)
    _started: bool = False
    _low: int = 0
    _high: int = 0
    _last: ConsumptionKind | None = None
    _last_ahead: bool = False

    def add(self, start: int, end: int, kind: ConsumptionKind | None, settled: bool, ahead: bool) -> None:  # noqa: FBT001 - as judged
        if settled and not self._started:
            self._low = self._high = end
            return
        self._started = True
        if kind is None:
            return
        self._high = start if end == _OPEN else end
        _append(self.ranges.setdefault(kind, []), start, end, joins=self._last is kind)
        self._last = kind
        if ahead:
            _append(self.ahead, start, end, joins=self._last_ahead)
        self._last_ahead = ahead

    def tally(self) -> Tally:
        low = min(self._low, self._high)
        return Tally(
            (SourceOffset(low), SourceOffset(max(low, self._high))),
            {kind: tuple(ranges) for kind, ranges in self.ranges.items()},
            tuple(self.ahead),
        )


def _append(ranges: list[SourceRange], start: int, end: int, *, joins: bool) -> None:
    stop = None if end == _OPEN else SourceOffset(end)
    records = 0 if stop is None else end - start
    if joins and ranges:
        before = ranges[-1]
        ranges[-1] = SourceRange(before.start, stop, before.records + records)
    else:
        ranges.append(SourceRange(SourceOffset(start), stop, records))


def total(ranges: Iterable[SourceRange]) -> int:
    """The records of several ranges, as far as these end."""
    return sum(item.records for item in ranges)
