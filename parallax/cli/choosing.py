"""Which entries of a list are shown, and in which order: by their fields, called as in the API. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from parallax.errors import InvalidNameError

Row = Mapping[str, Any]
"""One entry, as JSON types."""

FilterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        help="Entries alone whose field is so: FIELD=TEXT, FIELD!=TEXT, FIELD~PATTERN, FIELD<NUMBER, FIELD>NUMBER, with the fields of -o "
        "json, as in sync.outcome!=OK; FIELD= where it is unknown. May be repeated: all have to hold.",
    ),
]
SortOption = Annotated[
    str, typer.Option("--sort", help="By this field, -FIELD the greatest first. What is unknown comes last.")
]

_FILTER = re.compile(r"(?P<field>[\w.]+)(?P<how>!=|=|~|<|>)(?P<what>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Filter:
    field: str
    how: str
    what: str

    def holds(self, row: Row) -> bool:
        values = [value for value in values_of(row, self.field) if _known(value)]
        match self.how:
            case "=":
                return self._equals(values)
            case "!=":
                return not self._equals(values)
            case "~":
                return any(re.search(self.what, _text(value)) for value in values)
            case _:
                bound = float(self.what)
                numbers = [value for value in values if isinstance(value, int | float)]
                return any(value < bound if self.how == "<" else value > bound for value in numbers)

    def _equals(self, values: Sequence[Any]) -> bool:
        return any(_text(value) == self.what for value in values) if values else not self.what


@dataclass(frozen=True, slots=True)
class EntryChoice:
    """Which entries are shown, in which order.

    Attributes:
        filters: all of them have to hold.
        sort: a field; empty: as they come.
    """

    filters: tuple[_Filter, ...] = ()
    sort: str = ""
    falling: bool = False

    def __bool__(self) -> bool:
        return bool(self.filters or self.sort)

    def of(self, rows: Sequence[Row]) -> list[Row]:
        """Of all entries those that are shown.

        Raises:
            InvalidNameError: no entry has a field that is named.
        """
        for name in [*(item.field for item in self.filters), *([self.sort] if self.sort else [])]:
            if _together(_has(row, name.split(".")) for row in rows) is False:
                known = sorted({name for row in rows for name in _names(row)})
                raise InvalidNameError(f"no entry has a field {name!r}; there are: {', '.join(known)}")
        chosen = [row for row in rows if all(item.holds(row) for item in self.filters)]
        return self._sorted(chosen) if self.sort else chosen

    def _sorted(self, rows: Sequence[Row]) -> list[Row]:
        keys = [(_key(row, self.sort), row) for row in rows]
        known = sorted(
            ((key, row) for key, row in keys if key is not None),
            key=lambda item: item[0],
            reverse=self.falling,
        )
        return [row for _, row in known] + [row for key, row in keys if key is None]


def choice_of(filters: Sequence[str] | None, sort: str) -> EntryChoice:
    """The choice that options say.

    Raises:
        InvalidNameError: one can't be read.
    """
    return EntryChoice(tuple(map(_filter, filters or ())), sort.removeprefix("-"), sort.startswith("-"))


def _filter(text: str) -> _Filter:
    found = _FILTER.fullmatch(text)
    if found is None:
        raise InvalidNameError(
            f"--filter {text!r}: it has to be FIELD=TEXT, FIELD!=TEXT, FIELD~PATTERN, FIELD<NUMBER or FIELD>NUMBER"
        )
    made = _Filter(found["field"], found["how"], found["what"])
    try:
        if made.how == "~":
            re.compile(made.what)
        if made.how in "<>":
            float(made.what)
    except (re.error, ValueError) as error:
        raise InvalidNameError(f"--filter {text!r}: {error}") from error
    return made


def values_of(row: Any, field: str) -> Iterator[Any]:
    """What stands in a field, which names one within another as ``sync.outcome``; of a list, what its entries have."""
    name, _, below = field.partition(".")
    if isinstance(row, list):
        for item in row:
            yield from values_of(item, field)
    elif not isinstance(row, Mapping) or name not in row:
        return
    elif below:
        yield from values_of(row[name], below)
    else:
        yield from row[name] if isinstance(row[name], list) else [row[name]]


def _key(row: Row, field: str) -> tuple[bool, Any] | None:
    """By what an entry is sorted: numbers before texts; None: it is unknown."""
    value = next(filter(_known, values_of(row, field)), None)
    if value is None:
        return None
    number = isinstance(value, int | float)
    return (not number, value if number else _text(value))


def _has(row: Any, path: Sequence[str]) -> bool | None:
    """Whether an entry has the field; None: it can't be told below what is unknown, or a list without entries."""
    if not path:
        return True
    if row is None:
        return None
    if isinstance(row, list):
        return _together(_has(item, path) for item in row)
    return _has(row[path[0]], path[1:]) if isinstance(row, Mapping) and path[0] in row else False


def _together(found: Iterable[bool | None]) -> bool | None:
    """What several entries tell: one that has it is enough."""
    told = set(found)
    return True if True in told else False if False in told else None


def _names(row: Row, above: str = "") -> Iterator[str]:
    for name, value in row.items():
        if isinstance(value, Mapping):
            yield from _names(value, f"{above}{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            yield from _names(value[0], f"{above}{name}.")
        else:
            yield above + name


def _known(value: Any) -> bool:
    return value is not None and value != ""


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
