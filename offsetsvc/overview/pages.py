"""Pages of lists: how long they are, where they go on, and how much is read for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from parallax.errors import InvalidNameError, LimitError

T = TypeVar("T")

MOST_ENTRIES = 1_000
"""Of a page."""

_ENTRIES = 100
_MOST_READS = 10
"""For a page of which its caller may see little; it ends then, and the next one goes on."""


def limit_of(limit: int, most: int = MOST_ENTRIES) -> int:
    """How many entries a page may have; 0 stands for the server's choice.

    Raises:
        InvalidNameError: it is negative.
        LimitError: it is more than ``most``.
    """
    if limit < 0:
        raise InvalidNameError(f"limit: {limit} is negative")
    if limit > most:
        raise LimitError(f"limit: {limit} entries; a page has {most:,} at most")
    return limit or min(_ENTRIES, most)


def filled(
    read: Callable[[str, int], Sequence[T]],
    place_of: Callable[[T], str],
    shown: Callable[[T], bool],
    after: str,
    limit: int,
) -> tuple[list[T], str]:
    """A page of what may be shown, and where the next one goes on; empty: there is none.

    Args:
        read: so many entries at most behind a place, in order.
        place_of: an entry's place.
        shown: whether it may be shown.
        after: the place behind which the page begins.
        limit: so many at most.
    """
    found: list[T] = []
    for _ in range(_MOST_READS):
        items = read(after, limit + 1)
        for item in items:
            if shown(item):
                if len(found) == limit:
                    return found, after
                found.append(item)
            after = place_of(item)
        if len(items) <= limit:
            return found, ""
    return found, after


def cut(items: Sequence[T], place_of: Callable[[T], str], limit: int) -> tuple[Sequence[T], str]:
    """The first of the items, and where the next page goes on; empty: there is none."""
    page = items[:limit]
    return page, place_of(page[-1]) if len(items) > limit else ""
