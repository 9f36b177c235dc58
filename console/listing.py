"""A list as pages, files and programs get it: one description, three forms."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from parallax.picture.history import chart

DASH = "\u2013"
"""Unknown. It is never written as 0."""
_BLOCKS = "".join(map(chr, range(0x2581, 0x2589)))
"""From an eighth of a line to a whole one."""
_FEWEST_SAMPLES = 3
"""Of a picture: fewer say nothing of how it went."""
_ID_LETTERS = 8
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet would carry out."""
_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a row.

    Attributes:
        value: as programs get it; None: unknown.
        text: as people read it; None: the value itself, a dash if it is unknown.
        link: where it leads; empty: nowhere.
        tone: ``good``, ``warn``, ``bad`` or ``dim``; the text says the same.
        note: more words, below it.
    """

    value: Any
    text: str | None = None
    link: str = ""
    tone: str = ""
    note: str = ""

    @property
    def shown(self) -> str:
        """What people read."""
        if self.text is not None:
            return self.text
        if self.value is None or self.value == "":
            return DASH
        if isinstance(self.value, bool):
            return "yes" if self.value else "no"
        return f"{self.value:,}" if isinstance(self.value, int) else str(self.value)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name for programs, and its heading.

    Attributes:
        numbers: they stand to the right.
        whole: its values stay in one line: names that have hyphens, and moments.
    """

    name: str
    heading: str
    numbers: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """A field by which a list is narrowed; ``options`` are values and words, none: any text."""

    name: str
    label: str
    value: str = ""
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """A list, or a page of one.

    Attributes:
        columns: its columns.
        rows: as many cells each.
        empty: what is said where there is no row.
        command: what to run then; empty: nothing.
        path: where it is; with ``parameters`` its whole address.
        parameters: what narrows it.
        next_after: where the next page begins; empty: there is none.
        choices: fields that change the parameters.
        notes: what to know of it as a whole: how old it is, what is missing.
        act: a page that does something with what is listed: words and URL.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str
    command: str = ""
    path: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    next_after: str = ""
    choices: tuple[Choice, ...] = ()
    notes: tuple[str, ...] = ()
    act: tuple[str, str] | None = None

    def address(self, form: str = "", **changes: str) -> str:
        """The list's own URL in a form (``csv``, ``json``; empty: the page), with other parameters."""
        path = self.path + (f".{form}" if form else "")
        return link(path, **{**self.parameters, **changes})

    def to_csv(self) -> str:
        """A row each, with a heading; unknown is empty. No text is a formula."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(column.name for column in self.columns)
        writer.writerows([_plain(cell.value) for cell in row] for row in self.rows)
        return text.getvalue()

    def to_document(self) -> dict[str, Any]:
        """For programs; unknown is null."""
        names = [column.name for column in self.columns]
        rows = [{name: cell.value for name, cell in zip(names, row, strict=True)} for row in self.rows]
        return {"rows": rows, "next_after": self.next_after, "notes": list(self.notes)}


def history(lags: Sequence[int | None]) -> Cell:
    """A lag as it went, the newest at the end: nothing is known of a dash, and the lowest block is no lag or nearly none."""
    known = [lag for lag in lags if lag is not None]
    if not known:
        return Cell(None)
    greatest = max(known)
    blocks = (DASH if lag is None else _BLOCKS[lag * (len(_BLOCKS) - 1) // max(1, greatest)] for lag in lags)
    return Cell(list(lags), text="".join(blocks), note=f"{greatest:,} at most")


def drawn_history(lags: Sequence[int | None], title: str, name: str = "history") -> Markup | None:
    """The same as a picture; None: too little is known of it. ``name`` begins the ids within, so that a page can hold several."""
    if sum(lag is not None for lag in lags) < _FEWEST_SAMPLES:
        return None
    return Markup(chart(lags, title=title, unit="records", name=name))  # noqa: S704 - names within are escaped


def id_cell(name: str) -> Cell:
    """An id: its first letters for people, who know it again by them, and whole for programs."""
    return Cell(name, text=name[:_ID_LETTERS] or None)


def link(path: str, **parameters: str) -> str:
    """A URL; names go into the query, where every letter that Kafka allows can stand."""
    given = {key.rstrip("_"): value for key, value in parameters.items() if value != ""}
    return f"{path}?{urlencode(given)}" if given else path


def age(milliseconds: int | None) -> str:
    """A duration in its two largest units; a dash where it is unknown."""
    if milliseconds is None:
        return DASH
    if milliseconds < 1_000:  # noqa: PLR2004 - a second
        return f"{milliseconds} ms"
    for number, (unit, word) in enumerate(_UNITS):
        if milliseconds >= unit:
            smaller, small = _UNITS[number + 1] if number + 1 < len(_UNITS) else (0, "")
            rest = milliseconds % unit // smaller if smaller else 0
            return f"{milliseconds // unit} {word}" + (f" {rest} {small}" if rest else "")
    return DASH


def moment(at_ms: int | None) -> str:
    """A time of day in UTC; a dash where it is unknown."""
    if at_ms is None:
        return DASH
    try:
        return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{at_ms} ms"


def _plain(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join("?" if item is None else str(item) for item in value)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value


def columns(described: str) -> tuple[Column, ...]:
    """Columns from ``name Heading | >name Heading | =name Heading``; ``>``: numbers, ``=``: whole, as `Column` says."""
    found: Sequence[str] = described.split(" | ")
    return tuple(
        Column(name.lstrip(">="), heading, name.startswith(">"), name.startswith("="))
        for name, _, heading in (item.partition(" ") for item in found)
    )
