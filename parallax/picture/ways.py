"""The routes as one picture: clusters that are read on the left, those that are written on the right, and arrows between.

A route lies at a row of the cluster that it leads into, with its state in a word, so that no colour has to be seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parallax.picture.history import Box, line
from parallax.picture.text import at, safe, short

WIDTH = 1180
_SOURCE, _TARGET_X, _EDGE = 250, 560, 12
"""How wide a cluster on the left is, where those on the right begin, and the margin."""
_HEAD, _ROW, _BETWEEN, _BOX = 34, 38, 16, 40
_LINE = 130
"""How wide a route's history is."""
MOST = 40
"""Routes of a picture; of more a list tells better."""
TONES = {"good": "runs", "warn": "slow", "bad": "stands", "dim": "dark"}


@dataclass(frozen=True, slots=True)
class End:
    """A cluster: its name, and whether it answers, in a word with its tone."""

    name: str
    word: str = ""
    tone: str = "dim"


@dataclass(frozen=True, slots=True)
class RouteWay:
    """A route.

    Attributes:
        route: its name.
        source: the cluster that is read.
        target: the cluster that is written.
        word: its state.
        tone: of the state: good, warn, bad or dim.
        told: numbers, as people read them.
        records_per_s: how fast it copies; None: unknown.
        lags: how its lag went, the oldest first; None: unknown.
    """

    route: str
    source: str
    target: str
    word: str
    tone: str
    told: str = ""
    records_per_s: float | None = None
    lags: tuple[int | None, ...] = ()


def draw_ways(ends: Sequence[End], ways: Sequence[RouteWay], *, name: str = "ways") -> str:
    """The SVG text; it needs the page's `STYLE`.

    Args:
        ends: the clusters, in the order in which they stand.
        ways: the routes.
        name: begins the ids within.
    """
    return _Ways(ends, ways, name).text()


class _Ways:
    def __init__(self, ends: Sequence[End], ways: Sequence[RouteWay], name: str) -> None:
        self._name = name
        self._ends = {end.name: end for end in ends}
        order = {end.name: number for number, end in enumerate(ends)}
        self._ways = sorted(
            ways, key=lambda way: (order.get(way.target, len(order)), order.get(way.source, len(order)))
        )
        self._sources = sorted(
            {way.source for way in ways}, key=lambda item: (order.get(item, len(order)), item)
        )
        self._targets = list(dict.fromkeys(way.target for way in self._ways))
        self._tops: dict[str, float] = {}
        y = float(_EDGE)
        for target in self._targets:
            self._tops[target] = y
            y += self._height_of(target) + _BETWEEN
        least = len(self._sources) * (_BOX + _BETWEEN)
        self._height = max(y, least + _EDGE) - _BETWEEN + _EDGE
        share = (self._height - 2 * _EDGE) / max(1, len(self._sources))
        self._middles = {item: _EDGE + share * (number + 0.5) for number, item in enumerate(self._sources)}

    def _height_of(self, target: str) -> float:
        return _HEAD + _ROW * sum(way.target == target for way in self._ways)

    def text(self) -> str:
        """All of it."""
        name, height = self._name, at(self._height)
        told = "; ".join(
            f"{way.route} {way.word}" + (f" ({way.told})" if way.told else "") for way in self._ways
        )
        return "\n".join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" class="picture ways" viewBox="0 0 {WIDTH} {height}" '
                    f'width="{WIDTH}" height="{height}" role="img" aria-labelledby="{name}-title {name}-words">'
                ),
                f'<title id="{name}-title">Routes between the clusters</title>',
                f'<desc id="{name}-words">{safe(told)}</desc>',
                *self._arrows(),
                *(part for item in self._sources for part in self._source(item)),
                *(part for item in self._targets for part in self._target(item)),
                "</svg>",
            ]
        )

    def _source(self, cluster: str) -> Iterator[str]:
        top = self._middles[cluster] - _BOX / 2
        end = self._ends.get(cluster, End(cluster))
        yield f'<rect class="cluster" x="{_EDGE}" y="{at(top)}" width="{_SOURCE}" height="{_BOX}" rx="8"/>'
        yield f'<text class="name" x="{_EDGE + 14}" y="{at(top + 25)}">{safe(short(cluster, 22))}</text>'
        yield from self._word(end, _EDGE + _SOURCE - 14, top + 25)

    def _word(self, end: End, x: float, y: float) -> Iterator[str]:
        if end.word:
            yield f'<text class="word {TONES.get(end.tone, "dark")}" x="{at(x)}" y="{at(y)}" text-anchor="end">{safe(end.word)}</text>'

    def _target(self, cluster: str) -> Iterator[str]:
        top, width = self._tops[cluster], WIDTH - _EDGE - _TARGET_X
        yield (
            f'<rect class="cluster" x="{_TARGET_X}" y="{at(top)}" width="{width}" '
            f'height="{at(self._height_of(cluster))}" rx="8"/>'
        )
        yield f'<text class="name" x="{_TARGET_X + 14}" y="{at(top + 22)}">{safe(short(cluster, 40))}</text>'
        yield from self._word(self._ends.get(cluster, End(cluster)), WIDTH - _EDGE - 14, top + 22)
        for way, y in self._rows(cluster):
            tone = TONES.get(way.tone, "dark")
            yield f'<text class="name" x="{_TARGET_X + 24}" y="{at(y - 2)}">{safe(short(way.route, 24))}</text>'
            yield f'<text class="word {tone}" x="{_TARGET_X + 190}" y="{at(y - 2)}">{safe(short(way.word, 16))}</text>'
            yield f'<text class="note" x="{_TARGET_X + 24}" y="{at(y + 13)}">{safe(short(way.told, 62))}</text>'
            box = Box(WIDTH - _EDGE - 14 - _LINE, y - 13, _LINE, 24)
            for path in line(way.lags, box):
                yield f'<path class="went" d="{path}"/>'

    def _rows(self, cluster: str) -> Iterator[tuple[RouteWay, float]]:
        """Each route into a cluster, with the middle of its row."""
        found = [way for way in self._ways if way.target == cluster]
        for number, way in enumerate(found):
            yield way, self._tops[cluster] + _HEAD + _ROW * number + 14

    def _arrows(self) -> Iterator[str]:
        for cluster in self._targets:
            for way, y in self._rows(cluster):
                tone = TONES.get(way.tone, "dark")
                x, begin = _EDGE + _SOURCE, self._middles[way.source]
                end, middle = _TARGET_X - 9, (_EDGE + _SOURCE + _TARGET_X) / 2
                yield (
                    f'<path class="way {tone}" stroke-width="{at(_strength(way.records_per_s))}" '
                    f'd="M{x} {at(begin)}C{at(middle)} {at(begin)} {at(middle)} {at(y)} {end} {at(y)}">'
                    f"<title>{safe(f'{way.route}: {way.word}')}</title></path>"
                )
                yield f'<path class="tip {tone}" d="M{_TARGET_X} {at(y)}l-11 -5.5v11z"/>'


def _strength(records_per_s: float | None) -> float:
    """How wide an arrow is: from a thin one to four times that, by the power of ten of what it copies."""
    return 1.5 + min(4.5, 0.9 * math.log10(1 + (records_per_s or 0)))
