"""What a group's lag over the last minutes says: Burrow's rules, over what is seen of a group from outside. Pure.

Burrow reads every commit with its time. Who asks a cluster sees where a group stands, at regular moments, and whether it has
members. A position that does not move while records wait is therefore told apart by members: with them the group is stalled,
without them stopped. All else is as with Burrow, for a group that commits once between two moments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from parallax.domain.ids import TopicPartition

WINDOW = 10
"""Moments by which a partition is judged, as Burrow's ``intervals``."""


class LagState(IntEnum):
    """How a group does on a partition, the gravest last. From `REWIND` on Burrow calls the group ERR."""

    OK = 1
    """It has nothing to read, had so within the window, or catches up now and then."""
    WARN = 2
    """It goes on, and its lag has not become smaller once."""
    REWIND = 3
    """It went back."""
    STALL = 4
    """It has members, or nobody may see whether it has, and did not move."""
    STOP = 5
    """It has no member, and did not move."""


@dataclass(frozen=True, slots=True)
class LagPoint:
    """A group on a partition at a moment: its next offset, and how many offsets lie between that and the log's end."""

    next_offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class LagVerdict:
    """How a group does at a cluster.

    Attributes:
        state: the gravest of its partitions; None: it is not known of all, and what is known is fine.
        place: a partition of which that is so, the one with the greatest lag; None: without a state.
        lag: of that partition.
        not_ok: partitions that are known not to be fine.
        known: partitions of which a state is known, of ``partitions``.
    """

    state: LagState | None
    place: TopicPartition | None
    lag: int
    not_ok: int
    known: int
    partitions: int


def _unmoved(points: Sequence[LagPoint]) -> bool:
    return all(point.next_offset == points[0].next_offset for point in points)


def _steps(points: Sequence[LagPoint]) -> Iterator[tuple[LagPoint, LagPoint]]:
    return pairwise(points[-WINDOW:])


Rule = tuple[Callable[[Sequence[LagPoint], bool], bool], LagState]
"""Whether it holds, by the points and whether there are members; and what the partition is then."""

RULES: tuple[Rule, ...] = (
    (lambda points, _: points[-1].lag == 0, LagState.OK),
    (lambda points, members: not members and len(points) > WINDOW and _unmoved(points), LagState.STOP),
    (lambda points, _: any(point.lag == 0 for point in points[-WINDOW:]), LagState.OK),
    (
        lambda points, _: any(later.next_offset < point.next_offset for point, later in _steps(points)),
        LagState.REWIND,
    ),
    (lambda points, members: members and _unmoved(points[-WINDOW:]), LagState.STALL),
    (lambda points, _: all(later.lag >= point.lag for point, later in _steps(points)), LagState.WARN),
)
"""The first that holds decides; without any it is OK."""


def state_of(points: Sequence[LagPoint], *, members: bool, rules: Sequence[Rule] = RULES) -> LagState | None:
    """How a group does on a partition.

    Args:
        points: the last `WINDOW` + 1 moments, one after the other and none left out; the newest at the end.
        members: whether the group has any, or whether that can't be seen.
        rules: by which.

    Returns:
        None: fewer than `WINDOW` moments are known, and the group has records to read.
    """
    if not points or (len(points) < WINDOW and points[-1].lag):
        return None
    return next((state for rule, state in rules if rule(points, members)), LagState.OK)


def verdict_of(
    partitions: Mapping[TopicPartition, Sequence[LagPoint]], *, members: bool
) -> LagVerdict | None:
    """How a group does at a cluster; None: it has no position there.

    Args:
        partitions: where it has one, with the moments as `state_of` takes them.
        members: as there.
    """
    if not partitions:
        return None
    states = {item: state_of(points, members=members) for item, points in partitions.items()}
    known = {item: state for item, state in states.items() if state is not None}
    worst = max(known.values(), default=None)
    counts = sum(state is not LagState.OK for state in known.values()), len(known), len(states)
    if worst is None or (worst is LagState.OK and len(known) < len(states)):
        return LagVerdict(None, None, 0, *counts)
    lags = {item: partitions[item][-1].lag for item, state in known.items() if state is worst}
    place = min(lags, key=lambda item: (-lags[item], item))
    return LagVerdict(worst, place, lags[place], *counts)
