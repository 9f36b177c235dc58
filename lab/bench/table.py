"""The report as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

_HEADINGS = {
    "parallax": "Parallax",
    "parallax_record_path": "Parallax, record path",
    "parallax_plain_text": "Parallax, plain text",
    "parallax_balanced_pace": "Parallax, pace balanced",
    "parallax_throughput_pace": "Parallax, pace throughput",
    "parallax_own_records": "Parallax, two-way",
    "parallax_prepared": "Parallax, Spark prepared",
    "mirrormaker2": "MirrorMaker 2",
    "mirrormaker2_exactly_once": "MirrorMaker 2, exactly once",
    "limit": "limit",
}


def table_of(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The report's rows as a table: median and, where rounds differ, their spread."""
    table = Table(title="Parallax and MirrorMaker 2 on this machine", title_justify="left")
    sides = [side for side in _HEADINGS if any(row.get(side) for row in rows)]
    table.add_column("what", overflow="fold")
    table.add_column("unit", overflow="fold")
    for side in sides:
        table.add_column(_HEADINGS[side], justify="right")
    table.add_column("ratio", justify="right")
    for row in rows:
        style = "dim" if row.get("void") else None
        ratio = "" if row["ratio"] is None else short(row["ratio"])
        table.add_row(row["name"], row["unit"], *(_cell(row.get(side)) for side in sides), ratio, style=style)
    return table


def _cell(spread: Mapping[str, float] | None) -> str:
    if not spread:
        return ""
    median = short(spread["median"])
    if spread["min"] == spread["max"]:
        return median
    return f"{median} ({short(spread['min'])} to {short(spread['max'])})"


def short(value: float) -> str:
    """A figure with three digits at least; the rest is cut off, never rounded up."""
    if abs(value) >= 100 or value == int(value):  # noqa: PLR2004 - three digits
        return f"{int(value):,}"
    digits = 1 if abs(value) >= 10 else 2  # noqa: PLR2004
    scale = 10**digits
    return f"{int(value * scale) / scale:.{digits}f}"
