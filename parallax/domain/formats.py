"""How what is stored tells its format, and how it is read: docs/formats.md. Pure.

A row that this release can't read concerns its own group or partition: readers get an `UnreadableRow` in its place,
or an `UnreadableRowError` where there is nothing left to go on with, and a writer leaves it as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from parallax.domain.ids import TopicPartition
from parallax.errors import ParallaxError, UnreadableRowError

T = TypeVar("T")

FORMAT = "format"
FIRST_FORMAT = 1
"""What a text without a number has: those from before numbers were written."""

WHAT_TO_DO = (
    "a newer release may have written it, and it is left as it is: run that release, or see docs/formats.md"
)


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """Stands in the place of a partition's row that can't be read; ``problem`` says which, why and what to do."""

    topic_partition: TopicPartition
    problem: str


_written = json.JSONEncoder(separators=(",", ":")).encode
"""Made once: making it takes as long as writing a row."""


def stored_text(values: Mapping[str, Any], version: int) -> str:
    """The values as JSON that tells its format."""
    return _written({FORMAT: version, **values})


def read_text(text: str, newest: int, make: Callable[[dict[str, Any]], T], where: str) -> T:
    """What a text made by `stored_text` says. Names that ``make`` does not look at are ignored.

    Args:
        text: as stored.
        newest: the newest format that ``make`` reads.
        make: makes it of the values; what it raises says why they can't be read.
        where: the table and key, for people.

    Raises:
        UnreadableRowError: it is damaged, of a newer format, or says what this release does not know.
    """
    try:
        values = json.loads(text)
        version = values.get(FORMAT, FIRST_FORMAT)
        if isinstance(version, int) and version <= newest:
            return make(values)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError, ParallaxError) as error:
        raise unreadable(where, f"{type(error).__name__}: {error}") from error
    raise UnreadableRowError(
        f"{where} has format {version!r}, and this release reads formats up to {newest}; {WHAT_TO_DO}"
    )


def unreadable(where: str, problem: object) -> UnreadableRowError:
    """The error of a row that can't be read.

    Args:
        where: the table and key, for people.
        problem: what was found.
    """
    return UnreadableRowError(f"{where} can't be read ({problem}); {WHAT_TO_DO}")


def readable(rows: Iterable[T | UnreadableRow]) -> list[T]:
    """The rows, where all of them are needed.

    Raises:
        UnreadableRowError: some can't be read; every one of them is named.
    """
    found, unreadable = apart(rows)
    if unreadable:
        raise UnreadableRowError("; ".join(row.problem for row in unreadable))
    return found


def apart(rows: Iterable[T | UnreadableRow]) -> tuple[list[T], list[UnreadableRow]]:
    """The rows that can be read, and the others."""
    found: list[T] = []
    unreadable: list[UnreadableRow] = []
    for row in rows:
        if isinstance(row, UnreadableRow):
            unreadable.append(row)
        else:
            found.append(row)
    return found, unreadable
