"""How a number went: a line with its area, holes where nothing was known, and words for those who don't see it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from parallax.picture.text import at, safe

WIDTH, HEIGHT = 620, 132
_LEFT, _RIGHT, _TOP, _FOOT = 8, 8, 26, 22


@dataclass(frozen=True, slots=True)
class Box:
    """A place within a picture."""

    x: float
    y: float
    width: float
    height: float


def line(samples: Sequence[int | None], box: Box) -> Iterator[str]:
    """The paths of a line: its stretches without a hole. The greatest sample lies at the top, 0 at the bottom.

    Args:
        samples: at equal distances, the oldest first; None: unknown.
        box: where it lies.
    """
    greatest = max((sample for sample in samples if sample is not None), default=0)
    step = box.width / max(1, len(samples) - 1)
    bottom = box.y + box.height
    for stretch in _stretches(samples):
        points = [
            (box.x + number * step, bottom - box.height * sample / max(1, greatest))
            for number, sample in stretch
        ]
        if len(points) == 1:  # a point alone is a stroke as wide as a step
            (x, y), half = points[0], step / 2
            points = [(max(box.x, x - half), y), (min(box.x + box.width, x + half), y)]
        yield "M" + "L".join(f"{at(x)} {at(y)}" for x, y in points)


def _stretches(samples: Sequence[int | None]) -> Iterator[list[tuple[int, int]]]:
    stretch: list[tuple[int, int]] = []
    for number, sample in enumerate(samples):
        if sample is not None:
            stretch.append((number, sample))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def chart(samples: Sequence[int | None], *, title: str, unit: str, name: str = "history") -> str:
    """The SVG text of how a number went over the last minutes; it needs the page's `STYLE`.

    Args:
        samples: as in `line`; one at least is known.
        title: what it is.
        unit: of what.
        name: begins the ids within.
    """
    known = [sample for sample in samples if sample is not None]
    newest = f"now {samples[-1]:,} {unit}" if samples[-1] is not None else "now unknown"
    words = f"{newest}, at most {max(known):,}"
    holes = len(samples) - len(known)
    told = f"{words}" + (f"; unknown for {holes:,} of {len(samples):,} looks" if holes else "")
    box = Box(_LEFT, _TOP, WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _FOOT)
    bottom = at(box.y + box.height)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="picture small" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-labelledby="{name}-title {name}-words">'
        ),
        f'<title id="{name}-title">{safe(title)}</title>',
        f'<desc id="{name}-words">{safe(told)}</desc>',
        f'<text class="name" x="{_LEFT}" y="16">{safe(title)}</text>',
        f'<text class="note" x="{WIDTH - _RIGHT}" y="16" text-anchor="end">{safe(words)}</text>',
        f'<path class="axis" d="M{_LEFT} {bottom}H{WIDTH - _RIGHT}"/>',
    ]
    for path in line(samples, box):
        first, last = path[1:].split()[0], path.rsplit("L", 1)[1].split()[0]
        parts.append(f'<path class="went-area" d="{path}L{last} {bottom}L{first} {bottom}z"/>')
        parts.append(f'<path class="went" d="{path}"/>')
    parts.append(f'<text class="tick" x="{_LEFT}" y="{HEIGHT - 6}">earlier</text>')
    parts.append(f'<text class="tick" x="{WIDTH - _RIGHT}" y="{HEIGHT - 6}" text-anchor="end">now</text>')
    parts.append("</svg>")
    return "\n".join(parts)
