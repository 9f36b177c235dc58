"""What a person sees: lines as things happen, a bar of the rounds, and a table at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_SIDES = ("parallax", "mirrormaker2", "mirrormaker2_exactly_once", "limit")
_HEADINGS = {
    "parallax": "Parallax",
    "mirrormaker2": "MirrorMaker 2",
    "mirrormaker2_exactly_once": "MirrorMaker 2, exactly once",
    "limit": "limit",
}


class View:
    """Progress of a run.

    Args:
        rounds: how many there will be, all rows and sides together.
        console: where to print.
    """

    def __init__(self, rounds: int, console: Console | None = None) -> None:
        self.console = console if console is not None else Console(stderr=True)
        self._started = time.monotonic()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task = self._progress.add_task("rounds", total=rounds)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def tell(self, line: str) -> None:
        """Something happened."""
        seconds = int(time.monotonic() - self._started)
        self.console.print(f"[dim]{seconds // 60:02d}:{seconds % 60:02d}[/dim] {line}", soft_wrap=True)

    def done(self) -> None:
        """One more round is over."""
        self._progress.advance(self._task)


def table_of(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The report's rows as a table: median and, where rounds differ, their spread."""
    table = Table(title="Parallax and MirrorMaker 2 on this machine", title_justify="left")
    sides = [side for side in _SIDES if any(row.get(side) for row in rows)]
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
