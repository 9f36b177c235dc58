"""What became of a group that moved to another cluster. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Moved:
    """A move's verdict.

    Attributes:
        redelivered: deliveries after the move of records that were delivered before it.
        lost: records of the sources that were delivered neither before nor after it.
        repeated: deliveries again on the same side of the move, which a move can't excuse.
    """

    redelivered: int
    lost: int
    repeated: int


def judge_move(produced: Collection[bytes], before: Iterable[bytes], after: Iterable[bytes]) -> Moved:
    """Compare what was produced with what the group got.

    Args:
        produced: the ids of all records.
        before: ids delivered before the move.
        after: ids delivered after it.
    """
    first, second = list(before), list(after)
    seen, then = set(first), set(second)
    return Moved(
        redelivered=sum(record in seen for record in second),
        lost=len(set(produced) - seen - then),
        repeated=len(first) - len(seen) + len(second) - len(then),
    )
