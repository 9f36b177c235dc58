"""The picture of a soak: one small plot a process, and one for the rows of the store. Plain SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from lab.soak.readings import MIB, Reading, RowsReading, rows_per_minute

_COLUMNS, _WIDTH, _HEIGHT = 3, 300, 120
_LEFT, _TOP, _GAP = 44, 26, 14
_STYLE = (
    "text{font:11px sans-serif;fill:#333}.title{font-weight:bold}.line{fill:none;stroke:#1f6feb;stroke-width:1.5}"
    ".axis{stroke:#ccc}.box{fill:#fff}"
)


def picture(
    processes: Mapping[str, Sequence[Reading]], tables: Mapping[str, Sequence[RowsReading]], seconds: float
) -> str:
    """The SVG text.

    Args:
        processes: readings by name; those with fewer than three are left out.
        tables: countings by name; those that stay empty are left out.
        seconds: how long the soak was: the width of each plot.
    """
    plots = [
        (f"{name} (MiB)", [(item.at_s, item.memory_bytes / MIB) for item in readings])
        for name, readings in sorted(processes.items())
        if len(readings) > 2  # noqa: PLR2004 - a line
    ]
    for name, readings in sorted(tables.items()):
        rates = rows_per_minute(readings)
        if any(rates):
            plots.append(
                (
                    f"{name} (rows a minute)",
                    [(item.at_s, rate) for item, rate in zip(readings[1:], rates, strict=False)],
                )
            )
    rows = -(-len(plots) // _COLUMNS)
    width = _COLUMNS * (_LEFT + _WIDTH + _GAP)
    height = rows * (_TOP + _HEIGHT + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<style>{_STYLE}</style><rect class="box" width="{width}" height="{height}"/>',
    ]
    for number, (title, points) in enumerate(plots):
        left = number % _COLUMNS * (_LEFT + _WIDTH + _GAP) + _LEFT
        top = number // _COLUMNS * (_TOP + _HEIGHT + _GAP) + _TOP
        parts.append(_plot(title, points, left, top, seconds))
    return "\n".join([*parts, "</svg>", ""])


def _plot(title: str, points: Sequence[tuple[float, float]], left: int, top: int, seconds: float) -> str:
    most = max(1.0, *(value for _, value in points)) * 1.1
    line = " ".join(
        f"{left + at_s / seconds * _WIDTH:.1f},{top + _HEIGHT - value / most * _HEIGHT:.1f}"
        for at_s, value in points
    )
    bottom = top + _HEIGHT
    return (
        f'<text class="title" x="{left}" y="{top - 8}">{escape(title)}</text>'
        f'<line class="axis" x1="{left}" y1="{bottom}" x2="{left + _WIDTH}" y2="{bottom}"/>'
        f'<line class="axis" x1="{left}" y1="{top}" x2="{left}" y2="{bottom}"/>'
        f'<text x="{left - 6}" y="{top + 8}" text-anchor="end">{most:,.0f}</text>'
        f'<text x="{left - 6}" y="{bottom}" text-anchor="end">0</text>'
        f'<text x="{left + _WIDTH}" y="{bottom + 11}" text-anchor="end">{seconds / 60:.0f} min</text>'
        f'<polyline class="line" points="{line}"/>'
    )
