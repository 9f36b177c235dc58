"""Lists of which no single page has what is looked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from parallax.v1 import overview_pb2 as pb

_PAGE = 1_000
_MOST_PAGES = 5
"""Moves are kept for good, and somebody waits: older ones than these are looked for by who knows of them."""


class NewestMoves(NamedTuple):
    """The moves that were looked at, the newest first, and whether there are older ones."""

    moves: list[pb.MoveSummary]
    more: bool


def newest_moves(page: Callable[..., pb.ListMovesResponse]) -> NewestMoves:
    """Thousands of moves: one that was interrupted may have very many newer ones.

    Args:
        page: a page of moves ``after`` a place, ``limit`` at most.
    """
    found: list[pb.MoveSummary] = []
    after = ""
    for _ in range(_MOST_PAGES):
        answer = page(after=after, limit=_PAGE)
        found += answer.moves
        after = answer.next_after
        if not after:
            break
    return NewestMoves(found, bool(after))
