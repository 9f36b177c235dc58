"""Lists as commands show them: one way to draw them, seven ways to write them, again and again if asked."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml

from parallax.cli.choosing import EntryChoice, Row
from parallax.cli.options import finite
from parallax.cli.output import console, table
from parallax.picture.text import visible

EVERYTHING = 0
_MOST_AT_ONCE = 1_000


class OutputFormat(StrEnum):
    """How a list is written."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    CSV = "csv"
    NAME = "name"


OutputOption = Annotated[
    OutputFormat,
    typer.Option(
        "--output", "-o", help="How to write it: wide has more columns, name has nothing but names."
    ),
]


class DocumentFormat(StrEnum):
    """How an answer that is no list is written."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


DocumentOption = Annotated[DocumentFormat, typer.Option("--output", "-o", help="How to write it.")]
LimitOption = Annotated[
    int, typer.Option("--limit", min=EVERYTHING, help="So many entries at most; 0: all of them.")
]
PrefixOption = Annotated[str, typer.Option("--prefix", help="Names that begin so.")]
WatchOption = Annotated[
    float | None,
    typer.Option(
        "--watch", min=0.5, callback=finite, help="Show it again every so many seconds, until interrupted."
    ),
]


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column of a table.

    Attributes:
        heading: ``>`` before one of numbers, ``~`` before one of sentences (`parallax.cli.output.table`).
        cell: an entry's; None: it is unknown.
        wide: only where there is room.
    """

    heading: str
    cell: Callable[[Row], Any]
    wide: bool = False


@dataclass(frozen=True, slots=True)
class RowListing:
    """How entries of a kind are shown.

    Attributes:
        columns: of the table and of CSV.
        name: an entry's name.
        empty: what to say where there are none: what to run, perhaps.
        style: an entry's, in a table.
    """

    columns: Sequence[ListColumn]
    name: Callable[[Row], str]
    empty: str
    style: Callable[[Row], str | None] = lambda _row: None

    def write(self, rows: Sequence[Row], output: OutputFormat, *, more: bool = False) -> None:
        """Write the entries to standard output.

        Args:
            rows: the entries.
            output: how.
            more: there are others, which a table says.
        """
        out = sys.stdout
        match output:
            case OutputFormat.JSON:
                out.write(json.dumps(list(rows), indent=2) + "\n")
            case OutputFormat.JSONL:
                out.writelines(json.dumps(row) + "\n" for row in rows)
            case OutputFormat.YAML:
                out.write(yaml.safe_dump([dict(row) for row in rows], sort_keys=False, allow_unicode=True))
            case OutputFormat.CSV:
                writer = csv.writer(out, lineterminator="\n")
                writer.writerow(column.heading.lstrip(">~") for column in self.columns)
                # Unknown is an empty cell, which is not 0.
                writer.writerows([column.cell(row) for column in self.columns] for row in rows)
            case OutputFormat.NAME:
                # A script wants the very name.
                shown = visible if out.isatty() else str
                out.writelines(f"{shown(self.name(row))}\n" for row in rows)
            case _:
                self._draw(rows, wide=output is OutputFormat.WIDE, more=more)
        out.flush()

    def _draw(self, rows: Sequence[Row], *, wide: bool, more: bool) -> None:
        if not rows:
            console().print(self.empty, markup=False)
            return
        shown = [column for column in self.columns if wide or not column.wide]
        drawn = table(" | ".join(column.heading for column in shown))
        for row in rows:
            drawn.add_row(*(_text(column.cell(row)) for column in shown), style=self.style(row))
        console().print(drawn)
        if more:
            console().print("there are more: --limit 0 shows all", markup=False)


def output_of(output: OutputFormat, *, as_json: bool) -> OutputFormat:
    """The format chosen; ``--json`` is an older word for one of them."""
    return OutputFormat.JSON if as_json else output


def written(values: Any, output: DocumentFormat, *, as_json: bool) -> bool:
    """Write an answer, if it is wanted as a document; false: it is to be drawn."""
    if as_json or output is DocumentFormat.JSON:
        sys.stdout.write(json.dumps(values, indent=2) + "\n")
    elif output is DocumentFormat.YAML:
        sys.stdout.write(yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    else:
        return False
    sys.stdout.flush()
    return True


def collected(
    page: Callable[[str, int], tuple[Sequence[Row], str]],
    limit: int,
    choice: EntryChoice = EntryChoice(),
) -> tuple[list[Row], bool]:
    """So many entries over as many pages as that takes, and whether there are more.

    Args:
        page: the entries behind a place, so many at most, and where the next page goes on.
        limit: so many; `EVERYTHING`: all.
        choice: which are wanted, for which every page is read.
    """
    if choice:
        chosen = choice.of(collected(page, EVERYTHING)[0])
        return (chosen, False) if limit == EVERYTHING else (chosen[:limit], len(chosen) > limit)
    rows: list[Row] = []
    after = ""
    while True:
        left = _MOST_AT_ONCE if limit == EVERYTHING else min(limit - len(rows), _MOST_AT_ONCE)
        found, after = page(after, left)
        rows += found
        if not after or (limit != EVERYTHING and len(rows) >= limit):
            # An entry of the service may be several here.
            shown = rows if limit == EVERYTHING else rows[:limit]
            return shown, bool(after) or len(shown) < len(rows)


def watched(every_s: float | None, show: Callable[[], None]) -> None:
    """Show it once, or every so many seconds until interrupted."""
    if every_s is None:
        show()
        return
    try:
        for _ in _turns(every_s):
            if sys.stdout.isatty():
                console().clear()
            show()
    except KeyboardInterrupt:
        return


def _turns(every_s: float) -> Iterator[None]:
    while True:
        yield
        time.sleep(every_s)


def seconds(milliseconds: int | None) -> str | None:
    """An age for people; None stays unknown."""
    if milliseconds is None:
        return None
    whole = milliseconds / 1_000
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if whole >= 2 * size:
            return f"{whole / size:.0f} {unit}"
    return f"{whole:.1f} s"


def _text(value: Any) -> str:
    """A cell; a dash where it is unknown, which is not 0."""
    if value is None or value == "":
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
