"""A picture as SVG text: no script, no font, nothing fetched; the same picture is always the same text.

Both logs have one scale. A lane for each source lies between them: its runs at the origin above, its runs at the
destination below, and bands that join the same records. Colours tell sources apart, patterns what was consumed, and
every shape has words for those who see neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from parallax.picture.model import Lane, LogView, Picture, Piece, PieceState, Span
from parallax.picture.style import STYLE
from parallax.picture.text import at as _n
from parallax.picture.text import safe as _safe
from parallax.picture.text import short as _short

WIDTH = 1180
_LEFT, _RIGHT = 206, 20
_PLOT = WIDTH - _LEFT - _RIGHT
_LOG, _STRIP, _BAND, _BETWEEN = 20, 11, 56, 26
_LANE = 2 * _STRIP + _BAND
_LINE = 17
_LETTERS_A_LINE = 165
_TOLD = 48
"""Shapes of a lane that have words of their own; more are drawn together."""
_APART = 480
"""Shapes of a log, about, that can be told apart; nearer ones are drawn as one."""
_COLOURS = 8
_PATTERNS = {
    PieceState.CONSUMED: "hatch",
    PieceState.SKIPPED: "cross",
    PieceState.UNKNOWN: "dots",
}
_CLASSES = {
    PieceState.CONSUMED: "was",
    PieceState.SKIPPED: "was",
    PieceState.PENDING: "pending",
    PieceState.NEW: "new",
    PieceState.UNKNOWN: "unknown",
}
FOUND_BY = {
    "exact": "a run holds it",
    "after": "behind its last consumed row",
    "before": "before its first unconsumed row",
    "consumed": "all of it was consumed",
    "timestamp": "by record timestamps",
    "log_start": "nothing proves more",
}
"""How a source's position was found (`Lane.via`), for people."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """What is drawn of pieces that lie too near to each other to be told apart."""

    origin: Span | None
    target: Span | None
    state: PieceState
    at_origin: PieceState
    source: Span


@dataclass(frozen=True, slots=True)
class _Scale:
    """From offsets of a log to the picture."""

    window: Span

    def x(self, offset: float) -> float:
        return _LEFT + (offset - self.window.start) * _PLOT / max(1, self.window.width)

    def shows(self, offset: int) -> bool:
        return self.window.start <= offset <= self.window.end

    def inside(self, span: Span) -> Span | None:
        """The visible part."""
        start, end = max(span.start, self.window.start), min(span.end, self.window.end)
        return Span(start, end) if start < end else None


def draw(picture: Picture, *, name: str = "answer", styled: bool = True) -> str:
    """The SVG text.

    Args:
        picture: what to draw.
        name: begins the ids within, so that a page can hold several pictures.
        styled: with its own style, as a file needs it; a page may bring `STYLE` by itself.
    """
    return _Drawing(picture, name).text(styled=styled)


class _Drawing:
    def __init__(self, picture: Picture, name: str) -> None:
        self._picture = picture
        self._name = name
        self._origin, self._target = _Scale(picture.origin.window), _Scale(picture.target.window)
        least = picture.target.window.width / _APART
        self._shapes = [
            [shape for shape in _shapes(lane.pieces, least) if self._seen(shape)] for lane in picture.lanes
        ]
        self._sentences = _wrapped(picture.explanation, 4)
        self._top = 66 + _LINE * len(self._sentences) + 50
        self._lanes_top = self._top + _LOG + _BETWEEN
        self._bottom = self._lanes_top + len(picture.lanes) * (_LANE + _BETWEEN)
        self._legend_top = self._bottom + _LOG + 78
        self._height = self._legend_top + 26 + _LINE * len(picture.left_out) + 8

    def _seen(self, shape: _Shape) -> bool:
        """Whether some of it lies within a window; rows are read a little beyond both."""
        return any(
            span is not None and scale.inside(span) is not None
            for scale, span in ((self._origin, shape.origin), (self._target, shape.target))
        )

    def text(self, *, styled: bool) -> str:
        name, height = self._name, self._height
        return "\n".join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {WIDTH} {height}" '
                    f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="{name}-title {name}-words">'
                ),
                f'<title id="{name}-title">{_safe(self._title())}</title>',
                f'<desc id="{name}-words">{_safe(self._words())}</desc>',
                *([f"<style>{STYLE}</style>"] if styled else []),
                self._definitions(),
                f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
                *self._heading(),
                *self._scales(),
                *self._logs(),
                *(
                    part
                    for number, lane in enumerate(self._picture.lanes)
                    for part in self._lane(number, lane)
                ),
                *self._marks(),
                *self._legend(),
                "</svg>",
                "",
            ]
        )

    def _title(self) -> str:
        picture = self._picture
        return (
            f"Where group {picture.group} resumes on {picture.topic}-{picture.partition}: "
            f"at {picture.resume:,} in {picture.target.cluster}"
        )

    def _words(self) -> str:
        """The whole picture for those who can't see it."""
        picture = self._picture
        position = (
            "no known position" if picture.next_offset is None else f"next offset {picture.next_offset:,}"
        )
        known = (
            "Nothing is pending."
            if picture.complete_to is None
            else f"Skip ranges are known below {picture.complete_to:,}."
        )
        skipped = sum(item.width for item in picture.skips)
        lanes = " ".join(
            f"Source {lane.region}: consumed below source offset {lane.consumed_to:,}, "
            + (f"position {lane.position:,}" if lane.position is not None else "holds nothing back")
            + (f", pending {lane.pending.width:,}" if lane.pending else "")
            + "."
            for lane in picture.lanes
        )
        return (
            f"{picture.outcome}. {picture.explanation} From {picture.origin.cluster} ({position}) to "
            f"{picture.target.cluster}. {len(picture.skips):,} skip ranges hold {skipped:,} records. {known} {lanes}"
        ).strip()

    # --- around ----------------------------------------------------------------------------------------------------

    def _definitions(self) -> str:
        name, lanes = self._name, range(len(self._picture.lanes))
        clips = "".join(
            f'<clipPath id="{name}-lane{number}"><rect x="{_LEFT}" y="{self._lane_top(number) - 1}" '
            f'width="{_PLOT}" height="{_LANE + 2}"/></clipPath>'
            for number in lanes
        )
        return (
            "<defs>"
            f'<pattern id="{name}-hatch" width="5" height="5" patternUnits="userSpaceOnUse" '
            'patternTransform="rotate(45)"><path class="ink" d="M0 0V5"/></pattern>'
            f'<pattern id="{name}-cross" width="6" height="6" patternUnits="userSpaceOnUse">'
            '<path class="ink" d="M0 0L6 6M6 0L0 6"/></pattern>'
            f'<pattern id="{name}-dots" width="5" height="5" patternUnits="userSpaceOnUse">'
            '<circle class="dot" cx="2" cy="2" r="1"/></pattern>'
            f"{clips}</defs>"
        )

    def _heading(self) -> Iterator[str]:
        picture = self._picture
        names = _short(f"{picture.group} on {picture.topic}-{picture.partition}", 84)
        yield f'<text class="head" x="{_RIGHT}" y="30">{_safe(names)}</text>'
        words = picture.outcome + "".join(f" + {note}" for note in picture.notes)
        grave = "good" if words == "OK" else "bad"
        yield f'<text class="outcome {grave}" x="{WIDTH - _RIGHT}" y="30" text-anchor="end">{_safe(words)}</text>'
        way = f"{picture.origin.cluster} \u2192 {picture.target.cluster}"
        yield f'<text class="sub" x="{_RIGHT}" y="50">{_safe(way)}</text>'
        for number, sentence in enumerate(self._sentences):
            yield f'<text class="say" x="{_RIGHT}" y="{72 + _LINE * number}">{_safe(sentence)}</text>'

    def _scales(self) -> Iterator[str]:
        for scale, y, step in ((self._origin, self._top, -1), (self._target, self._bottom + _LOG, 1)):
            line = "".join(f"M{_n(scale.x(tick))} {y}v{5 * step}" for tick in _ticks(scale.window))
            yield f'<path class="axis" d="{line}"/>'
            for tick in _ticks(scale.window):
                yield (
                    f'<text class="tick" x="{_n(scale.x(tick))}" y="{y + (17 if step > 0 else -9)}" '
                    f'text-anchor="middle">{tick:,}</text>'
                )

    def _logs(self) -> Iterator[str]:
        picture = self._picture
        for view, scale, y, word in (
            (picture.origin, self._origin, self._top, "origin"),
            (picture.target, self._target, self._bottom, "destination"),
        ):
            yield f'<text class="name" x="{_RIGHT}" y="{y + 9}">{_safe(_short(view.cluster, 24))}</text>'
            yield f'<text class="note" x="{_RIGHT}" y="{y + 24}">{_safe(_extent(view, word))}</text>'
            low = view.low if view.low is not None else scale.window.start
            high = view.high if view.high is not None else scale.window.end
            bed = scale.inside(Span(max(0, low), high))
            if bed is not None:
                yield f'<rect class="bed" {_box(scale, bed, y, _LOG)}><title>{_safe(_extent(view, word))}</title></rect>'
            for number, shapes in enumerate(self._shapes):
                for state in PieceState:
                    if state is PieceState.PENDING and scale is self._target:
                        continue  # it is not in the log
                    spans = [
                        part
                        for shape in shapes
                        for side, its in (
                            ((shape.origin, shape.at_origin),)
                            if scale is self._origin
                            else ((shape.target, shape.state),)
                        )
                        if side is not None and its is state and (part := scale.inside(side))
                    ]
                    yield from self._strips(spans, scale, y + 2, _LOG - 4, number, state)
            for edge, known in ((low, view.low), (high, view.high)):
                if known is not None and scale.shows(edge):
                    yield f'<path class="end" d="M{_n(scale.x(edge))} {y - 3}v{_LOG + 6}"/>'

    def _strips(
        self, spans: Sequence[Span], scale: _Scale, y: float, height: float, number: int, state: PieceState
    ) -> Iterator[str]:
        if not spans:
            return
        middle = _n(y + height / 2)
        path = "".join(_stroke(scale, span, middle) for span in spans)
        drawn = f'stroke-width="{_n(height)}" d="{path}"/>'
        yield f'<path class="strip s{number % _COLOURS} {_CLASSES[state]}" {drawn}'
        if state in _PATTERNS:
            yield f'<path class="strip" stroke="url(#{self._name}-{_PATTERNS[state]})" {drawn}'

    # --- lanes -----------------------------------------------------------------------------------------------------

    def _lane_top(self, number: int) -> int:
        return self._lanes_top + number * (_LANE + _BETWEEN)

    def _lane(self, number: int, lane: Lane) -> Iterator[str]:
        top = self._lane_top(number)
        bottom = top + _STRIP + _BAND
        yield f'<rect class="lane" x="{_LEFT}" y="{top - 1}" width="{_PLOT}" height="{_LANE + 2}"/>'
        yield from self._lane_words(number, lane, top)
        shapes = self._shapes[number]
        yield f'<g clip-path="url(#{self._name}-lane{number})">'
        told = len(shapes) <= _TOLD
        for group in [[shape] for shape in shapes] if told else [shapes]:
            title = f"<title>{_safe(self._tell(lane, group[0]))}</title>" if told and len(group) == 1 else ""
            yield f"<g>{title}"
            for state in PieceState:
                bands = [
                    _band(self._origin, shape.origin, self._target, shape.target, top + _STRIP, bottom)
                    for shape in group
                    if shape.state is state and shape.origin is not None and shape.target is not None
                ]
                if bands:
                    yield f'<path class="band s{number % _COLOURS} {_CLASSES[state]}" d="{"".join(bands)}"/>'
                above = [
                    shape.origin for shape in group if shape.origin is not None and shape.at_origin is state
                ]
                yield from self._strips(above, self._origin, top, _STRIP, number, state)
                below = [shape.target for shape in group if shape.target is not None and shape.state is state]
                if state is not PieceState.PENDING:  # the box of what will come is drawn whole
                    yield from self._strips(below, self._target, bottom, _STRIP, number, state)
            yield "</g>"
        if lane.pending is not None:
            yield from self._pending(number, lane, bottom)
        yield "</g>"
        yield from self._losses(lane, bottom)
        if lane.position is not None and self._target.shows(lane.position):
            x, y = self._target.x(lane.position), bottom + _STRIP + 2
            word = "decides" if lane.decides else "position"
            yield (
                f'<path class="point s{number % _COLOURS}" d="M{_n(x)} {y}l-5 8h10z">'
                f"<title>{_safe(f'{word}: {lane.position:,}')}</title></path>"
            )

    def _lane_words(self, number: int, lane: Lane, top: int) -> Iterator[str]:
        yield f'<rect class="s{number % _COLOURS} new" x="{_RIGHT}" y="{top}" width="11" height="11" rx="2"/>'
        yield f'<text class="name" x="{_RIGHT + 18}" y="{top + 10}">{_safe(_short(f"source {lane.region}", 22))}</text>'
        lines = [f"consumed below {lane.consumed_to:,}"]
        if lane.position is not None:
            lines.append(f"position {lane.position:,}" + (", decides" if lane.decides else ""))
            lines.append(FOUND_BY.get(lane.via, lane.via))
        else:
            lines.append("holds nothing back")
        if lane.pending is not None:
            lines.append(f"pending {lane.pending.width:,}")
        elif lane.lost:
            lines.append(f"lost {', '.join(str(span) for span in lane.lost[:1])}")
        for line, words in enumerate(lines):
            yield f'<text class="note" x="{_RIGHT}" y="{top + 28 + 15 * line}">{_safe(_short(words, 31))}</text>'

    def _tell(self, lane: Lane, shape: _Shape) -> str:
        places = [
            f"{view.cluster} {span}"
            for view, span in (
                (self._picture.origin, shape.origin),
                (self._picture.target, None if shape.state is PieceState.PENDING else shape.target),
            )
            if span is not None
        ]
        return f"source {lane.region} {shape.source}: {', '.join(places)}: {shape.state.value}"

    def _pending(self, number: int, lane: Lane, y: float) -> Iterator[str]:
        pending = lane.pending or Span(0, 0)
        span = self._target.inside(Span(lane.pending_from, lane.pending_from + pending.width))
        if span is not None:
            yield (
                f'<rect class="coming s{number % _COLOURS}" {_box(self._target, span, y + 1, _STRIP - 2)}>'
                f"<title>{_safe(f'pending: source {lane.region} {pending} will arrive from here on')}</title></rect>"
            )

    def _losses(self, lane: Lane, y: float) -> Iterator[str]:
        """A mark where the records that were lost would have come: before the first one after them."""
        for gap in lane.lost:
            after = [
                piece.target
                for piece in lane.pieces
                if piece.source.start >= gap.end and piece.target is not None
            ]
            if after and self._target.shows(min(after)):
                x = self._target.x(min(after))
                yield (
                    f'<path class="loss" d="M{_n(x - 4)} {y - 4}l8 8m0 -8l-8 8">'
                    f"<title>{_safe(f'lost before they were copied: source {lane.region} {gap}')}</title></path>"
                )

    # --- marks and legend ------------------------------------------------------------------------------------------

    def _marks(self) -> Iterator[str]:
        """Lines first: a label is read over the lines of others."""
        picture, end = self._picture, self._bottom + _LOG
        lines, labels = [], []
        known, checkpoint = picture.complete_to, picture.nearest_checkpoint
        if known is not None and self._target.shows(known):
            x = self._target.x(known)
            lines.append(f'<path class="known" d="M{_n(x)} {self._lanes_top - 6}V{end + 44}"/>')
            labels.append(_label(x, end + 58, f"skip ranges known below {known:,}", "minor"))
        if checkpoint is not None and checkpoint != picture.resume and self._target.shows(checkpoint):
            x = self._target.x(checkpoint)
            words = f"nearest-checkpoint rule {checkpoint:,}"
            lines.append(f'<path class="other" d="M{_n(x)} {self._bottom - 4}V{end + 44}"/>')
            labels.append(_label(x, end + (72 if labels else 58), words, "minor"))
        if self._target.shows(picture.resume):
            x = self._target.x(picture.resume)
            begin = self._top - 26 if picture.next_offset is not None else self._lanes_top - 6
            lines.append(f'<path class="resume" d="M{_n(x)} {begin}V{end + 28}"/>')
            if picture.next_offset is not None:
                labels.append(_label(x, self._top - 30, f"next offset {picture.next_offset:,}", "mark"))
            labels.append(_label(x, end + 42, f"resume {picture.resume:,}", "mark"))
        yield from lines
        yield from labels

    def _legend(self) -> Iterator[str]:
        y, x = self._legend_top, float(_LEFT)
        items = [
            ("was", "hatch", "consumed"),
            ("was", "cross", "consumed, to be skipped"),
            ("new", "", "not consumed"),
        ]
        if any(piece.state is PieceState.UNKNOWN for lane in self._picture.lanes for piece in lane.pieces):
            items.append(("unknown", "dots", "not known yet"))
        if any(lane.pending for lane in self._picture.lanes):
            items.append(("coming", "", "pending: consumed, still to arrive"))
        for kind, pattern, words in items:
            box = f'x="{_n(x)}" y="{y}" width="24" height="11"'
            yield f'<rect class="legend {kind}" {box}/>'
            if pattern:
                yield f'<rect fill="url(#{self._name}-{pattern})" {box}/>'
            yield f'<text class="note" x="{_n(x + 31)}" y="{y + 10}">{words}</text>'
            x += 31 + 6.4 * len(words) + 30
        for number, sentence in enumerate(self._picture.left_out):
            yield (
                f'<text class="note" x="{_LEFT}" y="{y + 34 + _LINE * number}">{_safe(_short(sentence, 150))}</text>'
            )


# --- shapes --------------------------------------------------------------------------------------------------------


def _shapes(pieces: Iterable[Piece], least: float) -> Iterator[_Shape]:
    """Pieces as they are drawn: neighbours of one state, less than ``least`` offsets apart, are one shape."""
    last: _Shape | None = None
    for piece in pieces:
        shape = _Shape(
            None if piece.origin is None else Span(piece.origin, piece.origin + piece.source.width),
            None if piece.target is None else Span(piece.target, piece.target + piece.source.width),
            piece.state,
            PieceState.CONSUMED if piece.consumed_at_origin else PieceState.NEW,
            piece.source,
        )
        if last is not None and _near(last, shape, least):
            shape = _Shape(
                _both(last.origin, shape.origin),
                _both(last.target, shape.target),
                shape.state,
                shape.at_origin,
                Span(last.source.start, shape.source.end),
            )
        elif last is not None:
            yield last
        last = shape
    if last is not None:
        yield last


def _near(one: _Shape, other: _Shape, least: float) -> bool:
    if (one.state, one.at_origin) != (other.state, other.at_origin):
        return False
    for before, after in ((one.origin, other.origin), (one.target, other.target)):
        if (before is None) != (after is None):
            return False
        if before is not None and after is not None and not 0 <= after.start - before.end <= least:
            return False
    return True


def _both(one: Span | None, other: Span | None) -> Span | None:
    return None if one is None or other is None else Span(one.start, other.end)


def _stroke(scale: _Scale, span: Span, y: str) -> str:
    """A bar as a line of its height: the shortest that can be written."""
    left = scale.x(span.start)
    return f"M{_n(left)} {y}h{_n(max(1.0, scale.x(span.end) - left))}"


def _box(scale: _Scale, span: Span, y: float, height: float) -> str:
    left = scale.x(span.start)
    return (
        f'x="{_n(left)}" y="{_n(y)}" width="{_n(max(1.0, scale.x(span.end) - left))}" height="{_n(height)}"'
    )


def _band(
    origin: _Scale, above: Span | None, target: _Scale, below: Span | None, top: float, bottom: float
) -> str:
    if above is None or below is None:
        return ""
    a, b = origin.x(above.start), origin.x(above.end)
    c, d = target.x(below.start), target.x(below.end)
    b, d, half, whole = max(b, a + 1), max(d, c + 1), _n((bottom - top) / 2), _n(bottom - top)
    there, back = _n(c - a), _n(b - d)
    return (
        f"M{_n(a)} {_n(top)}c0 {half} {there} {half} {there} {whole}"
        f"h{_n(d - c)}c0-{half} {back}-{half} {back}-{whole}z"
    )


# --- words ---------------------------------------------------------------------------------------------------------


def _extent(view: LogView, word: str) -> str:
    ends = ["?" if end is None else f"{end:,}" for end in (view.low, view.high)]
    return f"{word} [{ends[0]}, {ends[1]})"


def _label(x: float, y: float, words: str, kind: str) -> str:
    """Centred on the place, or beside it where it would leave the picture."""
    half = 3.6 * len(words)
    x = min(max(x, _RIGHT + half), WIDTH - _RIGHT - half)
    return f'<text class="{kind}" x="{_n(x)}" y="{_n(y)}" text-anchor="middle">{_safe(words)}</text>'


def _ticks(window: Span) -> list[int]:
    """Some seven round offsets."""
    step = 1
    while window.width / step > 9:  # noqa: PLR2004 - or their numbers would touch
        step = step * 5 // 2 if str(step)[0] == "2" else step * 2
    first = -(-max(0, window.start) // step) * step
    return list(range(first, window.end + 1, step))


def _wrapped(text: str, most: int) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= _LETTERS_A_LINE:
            lines[-1] += f" {word}"
        elif len(lines) < most:
            lines.append(_short(word, _LETTERS_A_LINE))
        else:
            lines[-1] = _short(f"{lines[-1]} {word}", _LETTERS_A_LINE - 1).rstrip("\u2026") + "\u2026"
            break
    return lines
